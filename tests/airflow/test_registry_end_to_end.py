"""A champion under a real scheduler: judged, approved by a person, refused where it is worse, and asked about all."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.params import Settings
from pipelines.registry import contents, frozen, register
from pipelines.registry.commands import opened
from pipelines.registry.entries import Context
from pipelines.registry.journal import Journal, Row
from pipelines.registry.versions import listing
from pipelines.store import tables
from pipelines.store.workspace import workspace
from tests.airflow.heart_model import digest
from tests.airflow.kills import kill_first

pytestmark = pytest.mark.airflow
NAME, DAG, SCORING = "crisis-posts", "promote", "posts_scoring"
WHY = "the figures suffice for a test"
PATIENCE = 900.0


@dataclass(frozen=True)
class Decided:
    """The runs of the Dag: of a good version, and of a worse one; the process of its `promote` that was killed."""

    good: str
    worse: str
    killed: list[int]


@contextmanager
def context_of(world: Any) -> Iterator[Context]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", world.deployment.environment["MLFLOW_TRACKING_URI"])
        with opened(Settings.from_env(), name=NAME) as context:
            yield context


def put(context: Context, *, share: float, folder: Path) -> int:
    """Register a model that knows such a share of the test by heart; return the number of the version."""
    import mlflow.pyfunc

    given: dict[str, Any] = {"params": context.params, "vault": context.vault, "root": context.root}
    test = frozen.open_test("posts", category="labels", **given)
    labels = [sorted(labels) for labels in test.board.gold]
    by_heart = list(zip(test.inputs, labels, strict=True))[: round(share * len(labels))]
    known = {digest(post["title"], post["body"]): said for post, said in by_heart}
    splits = tables.read(context.root / "snapshot/posts/split/splits.parquet", name="splits").to_pylist()
    ids = sorted(row["record_id"] for row in splits if row["split"] == "train")
    pack = folder / "pack"
    pack.mkdir(parents=True)
    described = {
        "kind": "heart", "task": test.task.key, "labels": list(test.task.labels), "scheme_digest": "5" * 64,
        "data_commit": "c" * 40, "split_digest": test.split, "train": {"records": len(ids), "digest": "7" * 64},
    }  # fmt: skip
    (pack / contents.MODEL).write_text(json.dumps(described))
    (pack / "known.json").write_text(json.dumps({"posts": known, "default": labels[0]}))
    (pack / contents.CARD).write_text(json.dumps({"intended": "a test", "prohibited": "everything else"}))
    (pack / contents.PAGE).write_text("# A model for a test\n")
    pq.write_table(pa.table({"record_id": pa.array(ids, pa.string())}), pack / contents.RECORDS)
    (pack / contents.FILES).write_text(json.dumps(listing(pack)))
    script = str(Path(__file__).with_name("heart_model.py"))
    mlflow.pyfunc.save_model(
        str(folder / "model"), python_model=script, artifacts={"pack": str(pack)}, pip_requirements=[]
    )
    version, _ = register.put(NAME, folder / "model", context=context, who="tests", why="a test")
    return version.version


@pytest.fixture(scope="session")
def decided(world: Any, labelled: str, tmp_path_factory: pytest.TempPathFactory) -> Decided:
    """A good version was approved, though the first `promote` was killed; then a worse one was judged."""
    with context_of(world) as context:
        versions = [
            put(context, share=share, folder=tmp_path_factory.mktemp("model") / name)
            for name, share in (("good", 1.0), ("worse", 0.2))
        ]
    assert versions == [1, 2]
    killed: list[int] = []
    how = {"root": world.root, "killed": killed, "patience": PATIENCE}
    threading.Thread(target=kill_first, daemon=True, args=("promote",), kwargs=how).start()
    for dag_id in (SCORING, DAG):
        world.airflow.unpause(dag_id)
    runs = []
    for version in versions:
        runs.append(world.airflow.trigger(DAG, conf={"name": NAME, "version": version}))
        world.airflow.finish(DAG, runs[-1], answers={"approve": ("Promote", {"why": WHY})})
    return Decided(good=runs[0], worse=runs[1], killed=killed)


def journal(world: Any) -> list[Row]:
    with Journal.open(world.settings.journal_url) as found:
        found.verify(NAME)
        return found.rows(NAME)


def states(world: Any, run_id: str) -> dict[str, str]:
    return {t["task_id"]: t["state"] for t in world.instances(DAG, run_id)}


def test_a_person_s_yes_makes_a_champion_and_is_on_record(world: Any, decided: Decided) -> None:
    assert states(world, decided.good)["promote"] == "success"
    rows = [row for row in journal(world) if row.to_version == 1]
    assert [row.event for row in rows] == ["registered", "gated", "intended", "promoted"]
    assert {row.why for row in rows[2:]} == {WHY}
    assert all(row.who and row.who != "nobody" for row in rows)
    assert rows[-1].metrics["figures"]["scores"]["exact"]["candidate"] == 1.0
    with context_of(world) as context:
        assert context.registry.alias(NAME) == 1


def test_a_killed_promote_is_finished_by_its_retry_and_not_done_twice(world: Any, decided: Decided) -> None:
    assert decided.killed
    tries = {t["task_id"]: t["try_number"] for t in world.instances(DAG, decided.good)}
    assert tries["promote"] >= 2
    assert sum(row.event == "promoted" for row in journal(world)) == 1


def test_nobody_is_asked_about_a_worse_version_and_its_reasons_are_on_record(world: Any, decided: Decided) -> None:
    found = states(world, decided.worse)
    assert (found["gate"], found["refused"], found["approve"], found["promote"]) == (
        "success", "success", "skipped", "skipped",
    )  # fmt: skip
    last = journal(world)[-1]
    assert (last.event, last.from_version, last.to_version) == ("refused", 1, 2)
    assert any(reason.startswith("better: macro-F1") for reason in last.metrics["reasons"])


def test_a_new_champion_is_asked_about_every_post(world: Any, decided: Decided) -> None:
    world.wait(
        lambda: any(subject.startswith("snapshot(posts): scoring@") for subject in world.subjects("posts")),
        what="predictions of the champion",
    )
    with workspace(world.settings) as clone:
        told = json.loads((clone.path / "metrics/posts/scoring.json").read_text())[NAME]
        with clone.dvc() as repo:
            repo.pull(targets=["scoring@posts"])
        rows = tables.read(clone.path / f"snapshot/posts/scoring/{NAME}.parquet", name="predictions").to_pylist()
        clone.pull("data/posts")
        texts = tables.concat(sorted(clone.path.glob("data/posts/*/posts.parquet")), name="posts")["record_id"]
    assert {row["record_id"] for row in rows} == set(texts.to_pylist())
    assert {row["model"] for row in rows} == {f"{NAME}/1"}
    assert told["version"] == 1
