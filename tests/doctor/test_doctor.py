"""The doctor names each planted fault with its fix, and finds none in a healthy deployment."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from crisis_corpus_sandbox import component
from pipelines.collect.refresh_store import ListingRead, RefreshStore
from pipelines.core.config.settings import Settings
from pipelines.operate.doctor.deployment import Check, ok, opened, run
from pipelines.operate.doctor.doctor import checks
from pipelines.registry.journal import Journal
from pipelines.store.answers import AnswerStore, LedgerChange
from pipelines.store.vault import checks as sweeps
from pipelines.takedown import receipts
from pipelines.takedown.selection import Selection
from tests.commands import process
from tests.doctor.conftest import SECRET, WHOLE, Place
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


def test_a_healthy_deployment_has_no_fault(place: Place) -> None:
    found = place.examine(seconds=60, ocr=True)
    assert {name: f"{f.status}: {f.found}" for name, f in found.items() if f.status != "ok"} == {}
    assert {"repository", "push", "vault", "queues", "ocr", "labeller claude", "source reddit"} <= set(found)


def test_the_sandbox_needs_no_variables_in_the_shell(place: Place) -> None:
    for name in [name for name in os.environ if name.startswith(("CORPUS_REDDIT", "CORPUS_ARCTIC"))]:
        place.patch.delenv(name)
    for vendor in ("OPENAI", "ANTHROPIC", "GOOGLE"):
        place.patch.delenv(f"CORPUS_{vendor}_KEY")
        place.patch.delenv(f"CORPUS_{vendor}_URL")
    variables = component.variables(place.sandbox.server_address[1])
    (place.home / "services.env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    found = place.examine(seconds=60)
    checked = ("source reddit", "labeller claude", "labeller gemini", "labeller gpt", "clock")
    assert {name: found[name].status for name in checked} == dict.fromkeys(checked, "ok")
    assert "CORPUS_OPENAI_KEY" not in os.environ


def test_a_header_that_a_server_sends_twice_is_read_once(place: Place) -> None:
    # MLflow is the only server that is asked for its clock here
    place.set(CORPUS_REDDIT_CLIENT_ID="")
    assert place.examine(seconds=60)["clock"].found == "agrees with MLflow"


# What is planted: the check that names it | its status | words of the finding | and of the fix | checks that follow.
# After one with a `!`, other checks ask elsewhere, cannot ask, or are not made.
EXPECTED = """
!no_repository: repository | failure | no readable branch 'corpus' | corpus init | push, graph
!a_parameter_does_not_validate: parameters | failure | votes.budget_usd | docs/configuration.md
!a_repository_that_is_only_read: push | failure | does not accept a push | write access to CORPUS_REPO
a_remote_that_is_not_mounted: remote | failure | not a folder | Mount or create
a_bucket_that_does_not_exist: remote | failure | cannot be written | their rights to write
a_poisoned_object: cache | failure | 1 of 1 objects differ | rm -f
!no_secret: secret | failure | neither CORPUS_SECRET nor the file | Restore it from its backup | vault
!a_secret_that_was_cut_off: secret | failure | 64 hexadecimal digits | docs/configuration.md |
    vault, sweep memes, sweep posts
!the_secret_of_another_vault: vault | failure | differs from the secret | Set CORPUS_SECRET | sweep memes, sweep posts
!a_lost_vault: vault | failure | the vault is missing, but 1 months are published | Restore the vault
a_copy_on_a_hub_of_a_release_that_is_not_there: hub | failure | to be removed: my-lab/p1 | corpus export list
no_backup: backup | failure | no backup | Make a backup
an_old_backup: backup | failure | 72 h old | Make a backup
a_backup_of_unknown_place: backup | warning | CORPUS_VAULT_BACKUP is not set | Set CORPUS_VAULT_BACKUP
a_secret_that_others_read: permissions | failure | others may read or write: secret | chmod 600
a_home_that_others_enter: permissions | failure | others may read or write: home | chmod 700
!refreshed_posts_that_others_read: permissions | failure | others may read or write: refresh.sqlite | chmod 600
refreshed_posts_in_a_damaged_file: refreshes | failure | database of refreshed posts cannot be used |
    CORPUS_REFRESH_URL | refresh posts
refreshed_posts_at_a_malformed_address: refreshes | failure |
    CORPUS_REFRESH_URL: is neither sqlite nor postgresql | docs/configuration.md | refresh posts
!real_posts_under_a_secret_beside_the_vault: secret | failure |
    the project secret is stored beside the vault | CORPUS_SECRET_FILE
variables_that_others_read: permissions | failure | others may read or write: .env | chmod 600
an_expired_approval: approval reddit | failure | its approval ended on 2020-01-01 | expires date in the future |
    source reddit
an_approval_that_ends_soon: approval reddit | warning | in 10 days | Renew the approval
wrong_credentials_of_reddit: source reddit | failure | refused the request | Check the credentials
!an_outage_of_arctic_shift: source arctic_shift | failure | HTTP 503 | status of the service
a_dump_without_its_checksum: source dump | failure | no usable checksum | sha256sum
a_provider_without_consent: consent openai | failure |
    lacks terms, retention_days, approved_by, approved_on, expires | consents.openai | labeller gpt, labeller gpt-5-mini
a_consent_that_ends_soon: consent openai | warning | in 10 days | set consents.openai.expires |
    labeller gpt, labeller gpt-5-mini
a_wrong_key: labeller gpt | failure | HTTP 401 | Check CORPUS_OPENAI_KEY | labeller gpt-5-mini
an_empty_account: labeller claude | failure | HTTP 4 | the account's quota
no_key: labeller gemini | failure | no key is set | Set CORPUS_GOOGLE_KEY
a_retired_model: labeller claude | failure | has no model claude-2.1 | labellers.claude.model
a_model_that_its_vendor_has_retired: labeller claude | failure | retired by its vendor on 2026-06-15 | claude-sonnet-4-6
a_model_that_is_not_listed: labeller gpt | failure | has no model gpt-4-32k | labellers.gpt.model
a_model_that_will_be_retired: labeller gemini | warning | will retire model gemini-2.0-flash | labellers.gemini.model
a_dead_mlflow: mlflow | failure | no answer (ConnectionError) | correct MLFLOW_TRACKING_URI
a_dead_airflow: airflow | failure | no answer | correct CORPUS_AIRFLOW_URL | pools, queues, deadlines, housekeeping
a_scheduler_without_a_heartbeat: airflow | failure | not healthy: scheduler | Restart Airflow's component scheduler
an_airflow_without_a_triggerer: deadlines | warning | notifies no one |
    Set CORPUS_AIRFLOW_NOTIFY and start `airflow triggerer`
a_notifier_without_a_triggerer: deadlines | failure | notifies no one | Start `airflow triggerer`
!a_graph_of_an_earlier_commit: graph | failure | is not that of the corpus branch | corpus airflow refresh
a_missing_pool: pools | failure | missing: publish | corpus airflow setup
a_queue_without_a_worker: queues | failure | no worker takes queue gpu: 1 tasks | airflow celery worker --queues gpu
no_scheduler: queues | failure | no live scheduler | airflow scheduler
an_airflow_that_asks_for_a_login: pools | warning | it answered 401 | CORPUS_AIRFLOW_TOKEN | queues, housekeeping
housekeeping_that_fails: housekeeping | failure | last succeeded 200 h ago | clear its task
!a_full_disk: disk home | failure | less than doctor.free_gb | Free space | disk cache, disk remote
too_little_memory: memory | warning | less than doctor.memory_gb | Lower the slots
!a_clock_that_runs_fast: clock | failure |  s from the clock of source reddit | timedatectl
!a_missing_ocr_engine: ocr | failure | OCR engine 'tesseract' cannot start | set images.ocr.engine
!a_large_model_without_a_gpu: gpu | warning | no GPU on this host; needed by qwen3-14b | train.rows
a_base_model_that_can_change: bases | warning |
    without a revision, which are refused: mentalbert | corpus params set models
another_version: versions | failure | not 9.9.9 | requirements.lock
a_sweep_that_never_ran: sweep posts | failure | never swept in 240 h; 1 records were never checked | corpus sweep posts
!records_that_no_source_knows: sweep posts | warning |
    no source knows which posts still exist; 2 records were never checked | corpus takedown --file
a_sweep_that_fails_since: sweep memes | failure | the last successful sweep was 96 h ago | deletion_sweep
a_listing_that_is_read_no_more: refresh posts | failure | a subreddit was due 70 h ago | corpus refresh posts
a_takedown_that_does_not_end: takedowns | failure |
    1 takedowns are open, the oldest for 48 h | corpus takedown run-pending
a_budget_that_is_nearly_spent: budget | failure |
    0.80 USD paid and 0.15 reserved of votes.budget_usd (1 | corpus plan cost
"""


@dataclass(frozen=True)
class Fault:
    check: str
    status: str
    found: str
    fix: str
    follows: frozenset[str]
    alone: bool

    @classmethod
    def read(cls, text: str, *, alone: bool) -> Fault:
        check, status, found, fix, *follows = (part.strip() for part in text.split("|"))
        return cls(check, status, found, fix, frozenset(follows[0].split(", ") if follows else ()), alone)


FAULTS = {
    name: Fault.read(text, alone=bool(alone))
    for alone, name, text in re.findall(r"^(!?)(\w+): (.*(?:\n    .*)*)", EXPECTED, re.MULTILINE)
}
# The plants of one step; those of several are the functions below, by the name of the fault.
PLANTS: dict[str, Callable[[Place], object]] = {
    "no_repository": lambda place: (place.home / "corpus.git").rename(place.home / "away.git"),
    "a_parameter_does_not_validate": lambda place: place.params("votes", "budget_usd", to=-1),
    "no_secret": lambda place: (place.home / "secret").unlink(),
    "a_secret_that_was_cut_off": lambda place: place.set(CORPUS_SECRET=SECRET[:10]),
    "the_secret_of_another_vault": lambda place: place.set(CORPUS_SECRET="ab" * 64),
    "no_backup": lambda place: (place.home / "backup" / "copy.sqlite").unlink(),
    "a_backup_of_unknown_place": lambda place: place.patch.delenv("CORPUS_VAULT_BACKUP"),
    "a_secret_that_others_read": lambda place: (place.home / "secret").chmod(0o644),
    "a_home_that_others_enter": lambda place: place.home.chmod(0o755),
    "an_expired_approval": lambda place: place.params("sources", "reddit", "expires", to="2020-01-01"),
    "an_approval_that_ends_soon": lambda place: place.params("sources", "reddit", "expires", to=place.day(10)),
    "wrong_credentials_of_reddit": lambda place: place.set(CORPUS_REDDIT_CLIENT_SECRET="wrong"),
    "a_dump_without_its_checksum": lambda place: (place.home / "dumps" / "RS_2022-12.zst.sha256").unlink(),
    "a_wrong_key": lambda place: place.set(CORPUS_OPENAI_KEY="wrong"),
    "an_empty_account": lambda place: place.set(CORPUS_ANTHROPIC_KEY="empty"),
    "a_retired_model": lambda place: place.params("labellers", "claude", "model", to="claude-2.1"),
    "a_model_that_is_not_listed": lambda place: place.params("labellers", "gpt", "model", to="gpt-4-32k"),
    "a_model_that_will_be_retired": lambda place: place.params("labellers", "gemini", "model", to="gemini-2.0-flash"),
    "a_dead_mlflow": lambda place: place.set(MLFLOW_TRACKING_URI=f"http://127.0.0.1:{free_port()}"),
    "a_dead_airflow": lambda place: place.set(CORPUS_AIRFLOW_URL=f"http://127.0.0.1:{free_port()}"),
    "a_scheduler_without_a_heartbeat": lambda place: place.airflow.health.update(scheduler={"status": "unhealthy"}),
    "an_airflow_without_a_triggerer": lambda place: place.airflow.health.update(triggerer={"status": None}),
    "a_graph_of_an_earlier_commit": lambda place: place.write("dvc.yaml", "stages: {}\n"),
    "a_missing_pool": lambda place: place.airflow.pools.pop("publish"),
    "no_scheduler": lambda place: place.airflow.jobs.clear(),
    "an_airflow_that_asks_for_a_login": lambda place: setattr(place.airflow, "refuses", True),
    "a_full_disk": lambda place: place.params("doctor", "free_gb", to=10**9),
    "too_little_memory": lambda place: place.params("doctor", "memory_gb", to=10**9),
    "a_clock_that_runs_fast": lambda place: setattr(place, "now", place.now + timedelta(minutes=10)),
    "a_base_model_that_can_change": lambda place: place.params(
        "train", "rows", "memes", "models", to=["bert", "mentalbert"]
    ),
}


def serve(argv: list[str], *, port: int, place: Place) -> None:
    server = subprocess.Popen(argv, stderr=subprocess.DEVNULL, start_new_session=True)
    place.stop.append(lambda: os.killpg(server.pid, 15))
    for _ in range(400):
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                break
        time.sleep(0.05)


def only_git(place: Place) -> None:
    programs = place.home.parent / "bin"
    programs.mkdir()
    (programs / "git").symlink_to(shutil.which("git") or "")
    place.set(PATH=programs)


def a_repository_that_is_only_read(place: Place) -> None:
    port = free_port()
    argv = ["git", "daemon", "--listen=127.0.0.1", f"--port={port}", f"--base-path={place.home}", "--export-all"]
    serve(argv, port=port, place=place)
    place.set(CORPUS_REPO=f"git://127.0.0.1:{port}/corpus.git")


def a_remote_that_is_not_mounted(place: Place) -> None:
    (place.home / "remote").rmdir()
    place.set(CORPUS_REMOTE=place.home / "elsewhere")
    (place.home / "elsewhere").write_text("")


def a_bucket_that_does_not_exist(place: Place) -> None:
    port = free_port()
    serve([sys.executable, str(ROOT / "tests" / "store" / "s3_server.py"), str(port)], port=port, place=place)
    place.set(
        CORPUS_REMOTE="s3://no-such-bucket/corpus", AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
        AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_DEFAULT_REGION="us-east-1",
    )  # fmt: skip


def a_poisoned_object(place: Place) -> None:
    [path] = (place.home / "cache" / "files" / "md5").glob("*/*")
    path.write_bytes(WHOLE + b"!")


def a_lost_vault(place: Place) -> None:
    place.publish("data/memes/2022-12/records.parquet.dvc")
    for path in place.home.glob("vault.sqlite*"):
        path.unlink()


def a_copy_on_a_hub_of_a_release_that_is_not_there(place: Place) -> None:
    told = {"hub": "https://huggingface.co", "repo": "my-lab/p1", "kind": "dataset", "basis": "0" * 64}
    with Journal.of(Settings.from_env()) as journal:
        journal.append("release/p1", event="pushed", who="tester", why="a test", metrics=told)


def an_old_backup(place: Place) -> None:
    then = (place.now - timedelta(hours=72)).timestamp()
    os.utime(place.home / "backup" / "copy.sqlite", (then, then))


def refreshed_posts_that_others_read(place: Place) -> None:
    file = place.home.parent / "elsewhere" / "refresh.sqlite"
    place.set(CORPUS_REFRESH_URL=f"sqlite:///{file}")
    RefreshStore.open(f"sqlite:///{file}").close()
    file.chmod(0o644)


def refreshed_posts_in_a_damaged_file(place: Place) -> None:
    place.params("corpora", "posts", "source", to=["dump", "reddit"])
    (place.home / "refresh.sqlite").write_bytes(b"not a database" * 100)
    (place.home / "refresh.sqlite").chmod(0o600)


def refreshed_posts_at_a_malformed_address(place: Place) -> None:
    place.params("corpora", "posts", "source", to="reddit")
    place.set(CORPUS_REFRESH_URL="mysql://host/refresh")


def real_posts_under_a_secret_beside_the_vault(place: Place) -> None:
    place.params("sandbox", to=None)
    place.set(CORPUS_ARCTIC_SHIFT_URL="https://arctic-shift.example.org")


def variables_that_others_read(place: Place) -> None:
    (place.root / ".env").write_text("")
    (place.root / ".env").chmod(0o640)


def an_outage_of_arctic_shift(place: Place) -> None:
    place.params("corpora", "posts", "source", to="arctic_shift")
    place.params("sources", "reddit", "approval", to=None)
    place.sandbox.outage_after = 0


def a_provider_without_consent(place: Place) -> None:
    """Give the provider an address that is this machine, but not on loopback, which the sandbox does not answer."""
    place.set(CORPUS_OPENAI_URL=f"{place.sandbox.address}/openai/v1".replace("127.0.0.1", "0.0.0.0"))


def consented(place: Place, provider: str, *, days: int) -> None:
    given = {"terms": "agreement 1", "retention_days": 0, "approved_by": "officer", "approved_on": "2026-01-01"}
    place.params("consents", provider, to=given | {"expires": place.day(days)})


def a_consent_that_ends_soon(place: Place) -> None:
    a_provider_without_consent(place)
    consented(place, "openai", days=10)


def no_key(place: Place) -> None:
    place.set(CORPUS_GOOGLE_URL="", CORPUS_GOOGLE_KEY="")
    consented(place, "google", days=300)


def a_model_that_its_vendor_has_retired(place: Place) -> None:
    place.set(CORPUS_ANTHROPIC_URL="", CORPUS_ANTHROPIC_KEY="k")
    consented(place, "anthropic", days=300)


def a_notifier_without_a_triggerer(place: Place) -> None:
    place.airflow.health["triggerer"] = {"status": "unhealthy"}
    place.set(CORPUS_AIRFLOW_NOTIFY="team_alerts.notify")


def a_queue_without_a_worker(place: Place) -> None:
    then = (place.now - timedelta(hours=2)).isoformat()
    place.airflow.queued = [{"queue": "gpu", "queued_when": then}, {"queue": "default", "queued_when": None}]


def housekeeping_that_fails(place: Place) -> None:
    place.airflow.paused = False
    for state, hours in (("failed", 1), ("success", 200), ("success", 400)):
        at = (place.now - timedelta(hours=hours)).isoformat()
        place.airflow.runs.append({"state": state, "run_after": at, "end_date": at})


def a_missing_ocr_engine(place: Place) -> None:
    only_git(place)
    place.params("images", "ocr", "engine", to="tesseract")


def a_large_model_without_a_gpu(place: Place) -> None:
    only_git(place)
    place.params("train", "rows", "posts", "models", to=["qwen3-14b"])


def another_version(place: Place) -> None:
    lock = place.root / "requirements.lock"
    lock.write_text(re.sub("^dvc==.*", "dvc==9.9.9", lock.read_text(), flags=re.MULTILINE))


def a_sweep_that_never_ran(place: Place) -> None:
    with place.vault() as vault:
        vault.admit([("0" * 32, "t3_x")], corpus="posts", month="2022-12", now=place.now - timedelta(days=10))


def records_that_no_source_knows(place: Place) -> None:
    for corpus in ("posts", "memes"):
        place.params("corpora", corpus, "source", to="dump")
    assert place.held
    place.params("sources", to={"dump": place.held["sources"]["dump"]})
    with place.vault() as vault:
        rows = [(f"{n:032x}", f"set/{n}") for n in range(2)]
        vault.admit(rows, corpus="posts", month="2017-12", now=place.now - timedelta(hours=1))


def a_sweep_that_fails_since(place: Place) -> None:
    with place.vault() as vault, vault.database.writing() as connection:
        for days in (4, 1):
            then = place.now - timedelta(days=days)
            begun, _ = sweeps.begin(connection, corpus="memes", now=then)
            if days == 4:
                sweeps.succeed(connection, corpus="memes", now=then)
            else:
                sweeps.take_back(connection, corpus="memes", since=begun, now=then)


def a_listing_that_is_read_no_more(place: Place) -> None:
    place.params("corpora", "posts", "source", to=["dump", "reddit"])
    place.params("refresh", "every_hours", to=2)
    at = int((place.now - timedelta(hours=72)).timestamp())
    with RefreshStore.open(f"sqlite:///{place.home / 'refresh.sqlite'}") as store:
        store.note_read("posts", "depression", ListingRead(at=at, mark=at, rate=0))


def a_takedown_that_does_not_end(place: Place) -> None:
    gone = Selection("a" * 32, frozenset(["a" * 32]), {"records": 1})
    given = {"now": place.now - timedelta(days=2), "settings": Settings.from_env()}
    receipts.begin(gone, reason="request-7", who="a person", **given).save(given["settings"])


def a_budget_that_is_nearly_spent(place: Place) -> None:
    place.params("votes", "budget_usd", to=1)
    with AnswerStore.open(f"sqlite:///{place.home / 'answers.sqlite'}") as answers:
        answers.write([LedgerChange(pay=800 * 10**6, hold=150 * 10**6)])


def planted_together() -> list[list[str]]:
    """Return the faults in as few deployments as their checks allow: one examination costs a processor second."""
    made: list[list[str]] = []
    taken: list[set[str]] = []
    for name, fault in FAULTS.items():
        named = {fault.check, *fault.follows}
        free = (n for n, others in enumerate(taken) if not (fault.alone or FAULTS[made[n][0]].alone or named & others))
        if (at := next(free, None)) is None:
            made.append([])
            taken.append(set())
            at = -1
        made[at].append(name)
        taken[at] |= named
    return made


@pytest.mark.parametrize("names", planted_together(), ids=lambda names: names[0])
def test_planted_faults_are_named_with_their_fixes(names: list[str], place: Place) -> None:
    with place.one_commit():
        for name in names:
            (PLANTS.get(name) or globals()[name])(place)
    try:
        findings = place.examine(seconds=30, ocr=any(FAULTS[name].check == "ocr" for name in names))
    finally:
        for stop in place.stop:
            stop()
    expected = set()
    for name in names:
        fault = FAULTS[name]
        finding = findings[fault.check]
        said = finding.status, fault.found in finding.found, fault.fix in finding.fix
        assert said == (fault.status, True, True), (name, finding)
        expected |= {fault.check, *fault.follows}
    others = {other for other, f in findings.items() if f.status != "ok"} - expected
    assert others == set(), {other: findings[other] for other in others}
    shown = json.dumps([f.as_json(other) for other, f in findings.items()])
    assert not any(secret in shown for secret in (SECRET, "ab" * 64)), "a finding shows a secret"


def test_deep_finds_what_the_sample_of_a_day_leaves_out(place: Place) -> None:
    place.params("doctor", "objects", to=1)
    for n in range(5):
        data = str(n).encode()
        name = hashlib.md5(data).hexdigest()
        path = place.home / "cache" / "files" / "md5" / name[:2] / name[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data if n else b"poisoned")
    assert place.examine(deep=True)["cache"].status == "failure"
    days = []
    for _ in range(6):
        place.now += timedelta(days=1)
        days.append(place.examine()["cache"])
    assert [finding.status for finding in days].count("failure") == 1
    assert {finding.found.split()[0] for finding in days} == {"1"}


def test_a_check_that_computes_is_not_known_if_it_is_late_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(load: float) -> dict[str, str]:
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
        hangs = lambda: time.sleep(600) or ok("")  # type: ignore[func-returns-value]  # noqa: E731
        found = run([Check("computes", hangs, times=2), Check("waits", hangs)], seconds=0.1)
        return {name: f"{finding.status}: {finding.found}" for name, finding in found if finding.late}

    waits = {"waits": "failure: no answer within 0.1 s"}
    assert late(0.0) == {"computes": "failure: no answer within 0.2 s"} | waits
    busy = "warning: not known: no answer within 0.2 s, and this machine's load exceeds its processors"
    assert late(1000.0) == {"computes": busy} | waits


def test_an_unforeseen_error_is_a_finding_without_its_text() -> None:
    [(_, found)] = run([Check("breaks", lambda: ok(str(1 / 0)))], seconds=10)
    assert (found.status, found.found) == ("failure", "the check failed (ZeroDivisionError)")


@contextmanager
def silent_server() -> Iterator[str]:
    """Yield the address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_an_mlflow_that_hangs_is_named_before_its_check_ends(place: Place) -> None:
    with silent_server() as address:
        place.set(MLFLOW_TRACKING_URI=address)
        with opened(Settings.from_env(), root=place.root, now=place.now, seconds=30) as (deployment, _):
            assert deployment is not None
            asked = [c for c in checks(replace(deployment, seconds=2), deep=False) if c.name == "mlflow"]
            [(_, found)] = run(asked, seconds=30)
    assert (found.status, found.found, found.late) == ("failure", "no answer (ReadTimeout)", False)
    assert "Start it" in found.fix


def test_the_command_exits_with_0_or_1_and_prints_the_fixes(place: Place) -> None:
    done = process("doctor", "--timeout", "60", cwd=place.root)
    assert (done.returncode, done.stderr) == (0, "")
    assert "failure  " not in done.stdout
    (place.home / "secret").chmod(0o644)
    done = process("doctor", "--json", "--timeout", "60", cwd=place.root)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["failure"], [c["check"] for c in told["checks"] if c["status"] == "failure"]) == (1, ["permissions"])
    assert done.stderr.startswith("failure permissions: others may read or write: secret. `chmod 600")


def test_the_command_ends_although_servers_hang(place: Place) -> None:
    with silent_server() as address:
        place.set(MLFLOW_TRACKING_URI=address, CORPUS_REDDIT_URL=address, CORPUS_AIRFLOW_URL=address)
        begun = time.monotonic()
        done = process("doctor", "--json", "--timeout", "4", cwd=place.root)
    assert done.returncode == 1
    told = {c["check"]: c["status"] for c in json.loads(done.stdout)["checks"]}
    assert all(told[name] != "ok" for name in ("mlflow", "source reddit", "airflow", "pools"))
    assert time.monotonic() - begun < 60
