import json
from typing import Any

import pytest

from crisis_corpus.journal import JournalRow
from pipelines.registry.journal import Journal
from pipelines.store import tables
from pipelines.workspace.clone import workspace
from tests.airflow.by_heart import DAG, NAME, WHY, Decided, context_of

pytestmark = pytest.mark.airflow


def journal(world: Any) -> list[JournalRow]:
    with Journal.of(world.settings) as found:
        found.verify(NAME)
        return found.rows(NAME)


def states(world: Any, run_id: str) -> dict[str, str]:
    return {t["task_id"]: t["state"] for t in world.instances(DAG, run_id)}


def test_a_person_s_yes_makes_a_champion_and_is_on_record(world: Any, decided: Decided) -> None:
    assert states(world, decided.good)["promote"] == "success"
    rows = [row for row in journal(world) if row.to_version == 1]
    assert [row.event for row in rows] == ["registered", "looked", "gated", "intended", "promoted"]
    assert {row.why for row in rows[3:]} == {WHY}
    assert all(row.who and row.who != "unknown" for row in rows)
    assert rows[-1].metrics["figures"]["scores"]["exact"]["candidate"] == 1.0
    with context_of(world) as context:
        assert context.registry.alias(NAME) == 1


def test_a_killed_promote_is_finished_by_its_retry_and_not_done_twice(world: Any, decided: Decided) -> None:
    assert decided.killed
    tries = {t["task_id"]: t["try_number"] for t in world.instances(DAG, decided.good)}
    assert tries["promote"] >= 2
    assert sum(row.event == "promoted" for row in journal(world)) == 1


def test_no_approval_is_asked_for_a_worse_version_and_its_reasons_are_recorded(world: Any, decided: Decided) -> None:
    found = states(world, decided.worse)
    assert (found["gate"], found["refused"], found["approve"], found["promote"]) == (
        "success", "success", "skipped", "skipped",
    )  # fmt: skip
    last = journal(world)[-1]
    assert (last.event, last.from_version, last.to_version) == ("refused", 1, 2)
    assert any(reason.startswith("better: its macro-F1") for reason in last.metrics["reasons"])


def test_a_new_champion_is_asked_about_every_post(world: Any, decided: Decided) -> None:
    world.wait(
        lambda: any(subject.startswith("snapshot(posts): batch_predict@") for subject in world.subjects("posts")),
        what="predictions of the champion",
    )
    with workspace(world.settings) as clone:
        told = json.loads((clone.path / "metrics/posts/batch_predict.json").read_text())[NAME]
        clone.checkout("snapshot/posts/scoring")
        rows = tables.read(clone.path / f"snapshot/posts/scoring/{NAME}.parquet", name="predictions").to_pylist()
        clone.checkout("data/posts")
        texts = tables.concat(sorted(clone.path.glob("data/posts/*/records.parquet")), name="records")["record_id"]
    assert {row["record_id"] for row in rows} == set(texts.to_pylist())
    assert {row["model"] for row in rows} == {f"{NAME}/1"}
    assert told["version"] == 1
