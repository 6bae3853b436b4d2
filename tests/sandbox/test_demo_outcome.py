"""What the demo prints at its end: where the time went, the decisions, the order of the contested versions."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from crisis_corpus_sandbox.demo import demo, promotions
from crisis_corpus_sandbox.demo.runs import Failures, Look
from pipelines.core.config.settings import Settings
from tests.refusals import refused

TASK = {"dag_id": "d", "dag_run_id": "r", "task_id": "t", "map_index": -1, "try_number": 1, "state": "success"}


def line(*, inner: bool = False, task: str = "t", **seconds: float) -> dict[str, Any]:
    return {"dag": "d", "run": "r", "task": task, "inner": inner, "seconds": seconds}


def test_the_seconds_of_tasks_are_divided_and_counted_once() -> None:
    phases = [line(imports=2, clone=1, push=3, work=10), line(inner=True, imports=4, work=6)]
    found = demo.divided(20, phases)
    assert found == {"Airflow, per task": 4, "git and DVC": 4, "imports": 6, "work": 6}
    assert sum(found.values()) == 20


def test_lines_of_other_runs_and_cut_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "phases.jsonl"
    path.write_text(f'{json.dumps(line(work=1))}\n{json.dumps(line(task="other", work=1))}\n{{"dag": "d", \n')
    assert len(demo.lines(path, Look([], [dict(TASK)]))) == 1
    assert demo.lines(tmp_path / "none", Look([], [])) == []


def test_where_the_time_went_is_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "phases.jsonl").write_text(json.dumps(line(imports=2, work=5)) + "\n")
    look = Look([], [TASK | {"duration": 12.0}])
    failures = Failures(None, logs=tmp_path)  # type: ignore[arg-type]
    out = io.StringIO()
    table = demo.spent(Settings.from_env(), look, started=21.4, total=431.7, failures=failures)
    Console(file=out, width=80).print(table)
    text = out.getvalue()
    assert "432 s, 1 tasks, 0 cleared" in text
    for name, seconds in (("services, start", 21), ("Airflow, per task", 5), ("imports", 2), ("work", 5)):
        assert any(name in row and f" {seconds} " in row for row in text.splitlines())


@dataclass
class Row:
    event: str
    to_version: int


def played(scores: dict[int, float], *, majority: float = 0) -> list[tuple[str, int]]:
    """Play the contested part, by published score 3, 1, 2, against a gate that compares these scores."""
    rows: list[Any] = []
    champion = majority
    for _ in range(6):
        if Counter(row.event for row in rows)["promoted"] > 1 and any(row.event == "refused" for row in rows):
            return [(row.event, row.to_version) for row in rows]
        version = promotions.next_version(rows, order=(3, 1, 2), base="-")
        event = "promoted" if scores[version] > champion else "refused"
        champion = max(champion, scores[version])
        rows.append(Row(event, version))
    raise AssertionError(rows)


@pytest.mark.parametrize(
    ("scores", "majority", "events"),
    [
        ({3: 1, 1: 2, 2: 3}, 0, [("promoted", 3), ("promoted", 2), ("refused", 1)]),
        # the gate sees two in another order than the scores
        ({3: 1, 2: 2, 1: 3}, 0, [("promoted", 3), ("promoted", 2), ("promoted", 1), ("refused", 2)]),
        ({1: 1, 3: 2, 2: 3}, 0, [("promoted", 3), ("promoted", 2), ("refused", 1)]),
        # one is behind the majority
        ({3: 1, 1: 3, 2: 4}, 2, [("refused", 3), ("promoted", 1), ("promoted", 2)]),
    ],
)
def test_the_lowest_the_highest_and_the_middle_play_their_parts(scores: Any, majority: int, events: Any) -> None:
    assert played(scores, majority=majority) == events


@pytest.mark.parametrize("majority", [3, 5])
def test_with_one_version_above_the_majority_or_none_there_is_no_play(majority: float) -> None:
    with refused("RunFailed", match="none is left"):
        played({3: 1, 1: 2, 2: 4}, majority=majority)


def test_versions_are_ordered_by_their_published_score() -> None:
    def model(score: float) -> dict[str, Any]:
        return {"valid": {"figures": {"macro_f1": {"mean": score}}}}

    models = {"a": model(0.5), "b": model(0.3), "c": model(0.4)}
    assert promotions.by_score({"tasks": {"severity": {"models": models}}}, models=["a", "b", "c"]) == [2, 3, 1]
