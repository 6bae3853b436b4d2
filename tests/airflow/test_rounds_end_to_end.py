"""Fifty memes under a real scheduler and a real Label Studio. The tests build on one another, after the posts."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.annotate.form import Form, build_form
from pipelines.annotate.label_studio.server import Account, address, ensure_accounts
from pipelines.core.taxonomy import Scheme, load
from pipelines.store import tables
from pipelines.store.seal import open_column
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace
from tests.annotate import annotators
from tests.annotate.annotators import Habits

pytestmark = [pytest.mark.airflow, pytest.mark.faults]  # it needs an environment of its own
DAG = "annotation_round"
ROUND = ("memes", "calibration")
ITEMS = 50
PEOPLE = ("annotator-1", "annotator-2", "adjudicator-1")
Truth = dict[tuple[str, int], dict[str, list[str]]]


@dataclass
class Held:
    """A round that was held to its end."""

    run_id: str
    truth: Truth
    head: str
    workers: list[str]
    first: dict[str, Any]


@pytest.fixture(scope="session")
def curated(world: Any, begun: list[int]) -> None:
    """Both corpora are collected and split."""
    for corpus in ("memes", "posts"):
        done = f"snapshot({corpus}): quality@{corpus}"
        world.wait(partial(lambda subject: subject in world.subjects(), done), what=done)
    world.settle()


@pytest.fixture(scope="session")
def accounts(world: Any, curated: None, label_studio: Future[Any]) -> dict[str, Account]:
    label_studio.result()
    return ensure_accounts(world.settings, pseudonyms=PEOPLE)


def truth_of(world: Any) -> Truth:
    """Return the labels of every picture that the sandbox knows."""
    told = json.loads((world.settings.sandbox / "truth_images.json").read_text())
    with Vault.open(world.settings.vault_url, secret=world.settings.secret()) as vault:
        labels = {s["fullname"]: s["labels"]["figsim"] for s in told["submissions"] if s["labels"]["figsim"]}
        return {
            (vault.record_id(i["fullname"]), i["image"]): labels[i["fullname"]]
            for i in told["images"]
            if i["fullname"] in labels
        }


def form_of(scheme: Scheme, *, adjudication: bool = False) -> Form:
    return build_form(scheme, title="", content="images", warning="", contacts=(), adjudication=adjudication)


def state(world: Any, run_id: str, task_id: str) -> str:
    found = {t["task_id"]: t["state"] for t in world.instances(DAG, run_id)}
    return str(found.get(task_id))


def answer(world: Any, run_id: str, task_id: str, *, option: str) -> None:
    """Say in Airflow what a person would click."""
    world.wait(
        lambda: world.airflow.answer(DAG, run_id, task_id, option=option, given={}), what=f"the answer to {task_id}"
    )


def reach(world: Any, run_id: str, task_id: str, *, states: set[str]) -> None:
    def there() -> bool:
        assert world.state(DAG, run_id) != "failed", f"the round failed before {task_id}"
        return state(world, run_id, task_id) in states

    world.wait(there, what=task_id)


def command(world: Any, *argv: str) -> dict[str, Any]:
    lines = world.run("pipelines", "round", *argv).strip().splitlines()
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def sit(world: Any, accounts: Mapping[str, Account], name: str, **more: Any) -> dict[str, int]:
    account = accounts[name]
    scheme = load("figsim")
    common = {"url": address(world.settings), "email": account.email, "password": account.password, "scheme": scheme}
    if name.startswith("adjudicator"):
        queue = f"{'/'.join(ROUND)}/adjudication · {name}"
        form = form_of(scheme, adjudication=True)
        return annotators.adjudicate(queue_title=queue, form=form, **common, **more)
    queue = f"{'/'.join(ROUND)} · {name}"
    return annotators.annotate(queue_title=queue, form=form_of(scheme), **common, **more)


@pytest.fixture(scope="session")
def held(world: Any, accounts: dict[str, Account]) -> Held:
    """The round: its scheduler is killed while people work; one answers twice, one leaves half and comes back."""
    world.airflow.unpause(DAG)
    run_id = world.airflow.trigger(DAG, conf={"corpus": ROUND[0], "round": ROUND[1]})
    reach(world, run_id, "annotators", states={"awaiting_input"})
    running = [p.info for p in psutil.process_iter(["cmdline", "cwd"])]
    workers = [p["cmdline"][2] for p in running if p["cwd"] == str(world.root) and "task" in (p["cmdline"] or [])]
    kill_scheduler(world)
    truth = truth_of(world)
    sit(world, accounts, PEOPLE[0], truth=truth, errors=0.2, seed=1, habits=Habits(twice=2, outside=1))
    sit(world, accounts, PEOPLE[1], truth=truth, errors=0.2, seed=2, limit=ITEMS // 2)
    first = command(world, "pull", *ROUND)
    assert command(world, "pull", *ROUND)["changed"] is False
    sit(world, accounts, PEOPLE[1], truth=truth, errors=0.2, seed=2, habits=Habits(skip=2))
    answer(world, run_id, "annotators", option="Pull the answers")
    reach(world, run_id, "decide", states={"awaiting_input"})
    answer(world, run_id, "decide", option="Adjudicate: agreement suffices")
    reach(world, run_id, "adjudicator", states={"awaiting_input"})
    decided = sit(world, accounts, PEOPLE[2], truth=truth)
    assert decided["decided"] > 0
    answer(world, run_id, "adjudicator", option="Pull the decisions")
    world.wait(lambda: world.state(DAG, run_id) in {"success", "failed"}, what="gold")
    assert world.state(DAG, run_id) == "success"
    return Held(run_id, truth, world.head(), workers, first)


def kill_scheduler(world: Any) -> None:
    """Kill the scheduler with every worker it has, as a crash would, and start another."""
    noted = json.loads((world.settings.home / "run" / "airflow-scheduler.pid").read_text())
    scheduler = psutil.Process(noted["pid"])
    for process in [*scheduler.children(recursive=True), scheduler]:
        os.kill(process.pid, signal.SIGKILL)
    scheduler.wait(10)
    world.deployment.up(say=lambda _: None)


def test_waiting_holds_no_worker(world: Any, held: Held) -> None:
    assert held.workers == []


def test_what_is_wrong_with_answers_is_said_by_pseudonym(world: Any, held: Held) -> None:
    problems = held.first["problems"]
    assert problems["annotator-1"]["answered_twice"] == 2
    assert problems["annotator-1"]["outside_scheme"] == 1
    assert problems["annotator-2"]["unanswered"] == ITEMS - ITEMS // 2
    assert set(problems) == {"annotator-1", "annotator-2"}


def test_gold_is_the_truth_wherever_two_agree_with_it(world: Any, held: Held) -> None:
    folder = Path("annotations", *ROUND)
    with workspace(world.settings, revision=held.head) as clone:
        clone.checkout(str(folder), "snapshot/memes/gold")
        given = tables.read(clone.path / folder / "annotations.parquet", name="annotations").to_pylist()
        given += tables.read(clone.path / folder / "adjudications.parquet", name="adjudications").to_pylist()
        gold = tables.read(clone.path / "snapshot/memes/gold/gold.parquet", name="gold").to_pylist()
    right: dict[tuple[Any, ...], int] = {}
    for row in given:
        key = (row["record_id"], row["image"], row["category"])
        told = frozenset(held.truth[key[:2]][key[2]])
        right[key] = right.get(key, 0) + (row["labels"] is not None and frozenset(row["labels"]) == told)
    of_round = {(r["record_id"], r["image"], r["category"]): r for r in gold if r["round"] == ROUND[1]}
    assert len({key[:2] for key in of_round}) == ITEMS
    assert {r["how"] for r in of_round.values()} == {"agreed", "adjudicated"}
    for key, row in of_round.items():
        if right[key] >= 2:
            assert frozenset(row["labels"]) == frozenset(held.truth[key[:2]][key[2]])
    missed = sum(frozenset(row["labels"]) != frozenset(held.truth[key[:2]][key[2]]) for key, row in of_round.items())
    assert missed < len(of_round) / 20, "only what both annotators got wrong alike may differ"


def test_the_round_and_its_decision_are_on_record(world: Any, held: Held) -> None:
    status = json.loads(world.run("pipelines", "status", "--json"))["corpora"]["memes"]["annotation"]
    assert status["rounds"]["calibration"] == "closed, agreement-sufficient"
    assert 0 < status["agreement"]["severity"] < 1
    events = world.airflow.get("/assets/events", limit=100)["asset_events"]
    assert "gold/memes" in {event["name"] for event in events}


def test_nothing_is_left_in_label_studio(world: Any, held: Held, accounts: dict[str, Account]) -> None:
    """Pictures of the closed round are gone; posts of an open one are there, and gone once it is closed."""
    folder = world.settings.label_studio
    with Vault.open(world.settings.vault_url, secret=world.settings.secret()) as vault:
        pictures = [base64.b64encode(data[300:360])[:76] for data in pictures_of(world, held, vault=vault)]
        assert len(pictures) == ITEMS
        assert not found(folder, needles=pictures)
        command(world, "open", "posts", "round-1")
        titles = [title for title in titles_of(world, vault=vault) if len(title) > 12]
    assert len(titles) > 30
    assert found(folder, needles=titles), "posts of an open round are in the server, or this test proves nothing"
    command(world, "close", "posts", "round-1", "--no-gold", "--reason", "test", "--abandon")
    assert not found(folder, needles=titles)
    assert not found(world.settings.home / "logs", needles=titles)


def found(folder: Path, *, needles: list[bytes]) -> int:
    """Return how many of the needles are in any file below a folder."""
    whole = b"\0".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    escaped = {n: json.dumps(n.decode(errors="replace"))[1:-1].encode() for n in needles}
    return sum(n in whole or escaped[n] in whole for n in needles)


def pictures_of(world: Any, held: Held, *, vault: Vault) -> list[bytes]:
    with workspace(world.settings, revision=held.head) as clone:
        clone.checkout("data/memes", "annotations/memes/calibration")
        asked = tables.read(clone.path / "annotations/memes/calibration/assignments.parquet", name="assignments")
        shards = sorted((clone.path / "data/memes").glob("*/images/*.parquet"))
        table = tables.concat(shards, name="images", columns=["record_id", "image", "bytes"])
        pictures = open_column(table, name="images", column="bytes", vault=vault)
        opened = dict(zip(tables.items_of(table), pictures, strict=True))
        return [opened[item] for item in sorted(set(tables.items_of(asked))) if opened[item]]


def titles_of(world: Any, *, vault: Vault) -> list[bytes]:
    with workspace(world.settings) as clone:
        clone.checkout("data/posts", "annotations/posts/round-1")
        asked = tables.read(clone.path / "annotations/posts/round-1/assignments.parquet", name="assignments")
        months = sorted((clone.path / "data/posts").glob("*/records.parquet"))
        table = tables.concat(months, name="records", columns=["record_id", "title"])
        opened = open_column(table, name="records", column="title", vault=vault)
        titles = dict(zip(table["record_id"].to_pylist(), opened, strict=True))
        return [titles[r] for r in sorted(set(asked["record_id"].to_pylist())) if titles[r]]


def test_no_content_is_in_the_rounds_part_of_the_repository(world: Any, held: Held) -> None:
    objects = subprocess.run(
        ["git", "--git-dir", world.settings.repo, "log", "-p", "corpus", "--", "annotations", "metrics"],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert annotators.RATIONALE.encode() not in objects
    assert b"calibration" in objects
