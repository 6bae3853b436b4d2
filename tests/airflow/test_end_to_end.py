import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
import yaml

from pipelines.store import tables
from pipelines.store.seal import open_column
from pipelines.store.vault.vault import Vault
from pipelines.workspace import repository
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from tests.airflow.kills import kill_first

pytestmark = pytest.mark.airflow
MONTHS = ("2022-11", "2022-12")
PATIENCE = 300.0
BENCHMARK = "memes_benchmark"


def opened(world: Any, revision: str, *, table: str, pattern: str, columns: list[str]) -> dict[str, list[Any]]:
    with (
        workspace(world.settings) as clone,
        Vault.open(world.settings.vault_url, secret=world.settings.secret()) as vault,
    ):
        git("checkout", "--quiet", revision, cwd=clone.path)
        clone.checkout("data", "snapshot")
        found = tables.concat(list(clone.path.glob(pattern)), name=table)
        values = [open_column(found, name=table, column=c, vault=vault) for c in columns]
        return {r: list(v) for r, *v in zip(found["record_id"].to_pylist(), *values, strict=True)}


def test_a_backfill_of_two_months_is_committed_and_wakes_the_snapshot(world: Any, backfilled: str) -> None:
    subjects = world.subjects("memes")
    assert {"data(memes): 2022-11", "data(memes): 2022-12"} <= set(subjects)
    assert subjects[0] == "snapshot(memes): quality@memes"
    assert 1 <= len(world.airflow.runs("memes_dataset")) <= 2, "months are coalesced, one run each at the most"
    runs = world.airflow.runs("memes_collect")
    assert sorted(r["partition_key"] for r in runs) == list(MONTHS)
    assert all(r["logical_date"] is None for r in runs)


def test_the_numbers_agree_with_the_truth(world: Any, backfilled: str) -> None:
    status = json.loads(world.run("pipelines", "status", "--json"))["corpora"]["memes"]
    assert world.head("memes") == backfilled
    truth = status["truth"]
    assert (truth["unexpected"], truth["missing"]) == (0, 0)
    assert truth["precision"] >= 0.98
    assert truth["recall"] >= 0.98
    assert status["ocr"]["word_recall"] >= 0.97
    assert status["split"]["leakage"] == 0
    assert sum(status["split"]["sizes"].values()) + status["split"]["excluded"] == 60


@pytest.mark.faults
def test_the_corpus_page_is_listed_needs_a_login_and_shows_the_months(world: Any, backfilled: str) -> None:
    plugins = {one["name"]: one for one in world.airflow.get("/plugins", limit=100)["plugins"]}
    [view] = plugins["corpus_view"]["external_views"]
    address = f"{world.airflow.base}/{view['href']}"
    assert requests.get(address, timeout=60).status_code == 401
    answer = world.airflow.session.get(address, timeout=60)
    assert answer.status_code == 200 and f"commit {world.head()[:12]}" in answer.text
    for run in world.airflow.runs("memes_collect"):
        assert f"../dags/memes_collect/runs/{quote(run['dag_run_id'], safe='')}" in answer.text


def test_a_month_again_with_a_task_killed_is_no_commit_and_wakes_the_consumer_once(world: Any, backfilled: str) -> None:
    before = len(world.airflow.runs("memes_dataset"))
    run_id = world.trigger("memes_collect", partition_key=MONTHS[0])
    killed: list[int] = []
    kill_first("step", "images", root=world.root, killed=killed, patience=PATIENCE)
    assert killed, "no images task ran"
    world.wait(lambda: world.state("memes_collect", run_id) in {"success", "failed"}, what="the second run of a month")
    assert world.state("memes_collect", run_id) == "success"
    tries = [t["try_number"] for t in world.instances("memes_collect", run_id) if t["task_id"] == "images"]
    assert max(tries) == 2, "no task was killed"
    world.wait(lambda: len(world.airflow.runs("memes_dataset")) > before, what="the consumer")
    world.settle("memes")
    assert len(world.airflow.runs("memes_dataset")) == before + 1
    assert world.head("memes") == backfilled, "a kill changed what was committed"


def test_a_run_without_a_key_fails_at_once_and_says_what_to_pass(world: Any, backfilled: str) -> None:
    run_id = world.trigger("memes_collect", partition_key=None)
    world.wait(
        lambda: world.state("memes_collect", run_id) == "failed", what="a run without a key to fail", patience=PATIENCE
    )
    [collect] = [t for t in world.instances("memes_collect", run_id) if t["task_id"] == "collect"]
    assert collect["try_number"] == 1
    logs = world.airflow.get(f"/dags/memes_collect/dagRuns/{run_id}/taskInstances/collect/logs/1")
    assert "corpus airflow trigger memes_collect --partition-key" in json.dumps(logs)
    assert world.head("memes") == backfilled


@pytest.mark.faults
def test_a_laptop_gets_the_same_lock(world: Any, backfilled: str, tmp_path: Path) -> None:
    laptop = repository.clone(world.settings, folder=tmp_path / "laptop")
    lock = stages(laptop)
    (laptop / "dvc.lock").unlink()
    pointers = [str(p.relative_to(laptop)) for p in laptop.glob("data/memes/**/*.dvc")]
    for argv in (["pull", *pointers], ["repro", "--no-run-cache", "quality@memes"]):
        how = {"cwd": laptop, "env": world.deployment.environment, "capture_output": True}
        done = subprocess.run([sys.executable, "-m", "dvc", *argv], **how, check=False)
        assert done.returncode == 0, f"dvc {argv[0]} exited with {done.returncode}"
    assert stages(laptop) == {name: stage for name, stage in lock.items() if name.endswith("@memes")}


def stages(clone: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((clone / "dvc.lock").read_text())["stages"])


def test_models_are_estimated_trained_asked_moderated_and_compared(world: Any, backfilled: str) -> None:
    world.airflow.unpause(BENCHMARK)
    run_id = world.airflow.trigger(BENCHMARK)
    world.airflow.finish(BENCHMARK, run_id, answers={})
    world.pause(BENCHMARK)  # a takedown would train again
    states = {t["task_id"]: t["state"] for t in world.instances(BENCHMARK, run_id)}
    assert states["estimate"] == states["publish"] == "success"
    assert world.subjects("memes")[0] == "snapshot(memes): report@memes"
    scored = json.loads(git("--git-dir", world.settings.repo, "show", "corpus:metrics/memes/evaluate.json"))
    assert {each["name"] for each in scored["tasks"]["severity"]["models"].values()} == {"tiny-text", "gpt-5-mini-zero"}


def test_no_content_outside_the_vault(world: Any, backfilled: str) -> None:
    """The canary test: planted words, a user name, raw ids and OCR text are nowhere but in the sandbox's own files."""
    world.settle()
    truth = json.loads((world.settings.sandbox / "truth_images.json").read_text())
    canaries = {c for kind in ("words", "users", "fullnames", "ocr") for c in truth["canaries"][kind]}
    assert len(canaries) >= 4
    planted = (world.settings.sandbox / "submissions.jsonl").read_text() + json.dumps(truth)
    assert all(c in planted for c in canaries), "a canary that was never planted proves nothing"
    with Vault.open(world.settings.vault_url, secret=world.settings.secret()) as vault:
        kept = {vault.record_id(name) for name in truth["canaries"]["fullnames"]}
    posts = opened(
        world, backfilled, table="records", pattern="data/memes/*/records.parquet", columns=["title", "body"]
    )
    assert kept & set(posts), "no canary got as far as the corpus"
    text = b" ".join(v for r in kept & set(posts) for v in posts[r] if v)
    assert any(c.encode() in text for c in truth["canaries"]["words"]), "the sealed corpus must hold the words"

    needles = {c.encode().lower() for c in canaries} | {b"quillmarrow"}
    checked, hits = world.naming(needles)
    assert not hits and checked > 100
    objects = subprocess.run(
        ["git", "--git-dir", world.settings.repo, "log", "-p", "corpus", "--", "data", "metrics", "dvc.lock"],
        capture_output=True, check=True,
    ).stdout.lower()  # fmt: skip
    assert objects and not [n for n in needles if n in objects]
