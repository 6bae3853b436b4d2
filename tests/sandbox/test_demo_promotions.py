"""The promotions of the demo follow from the journal: killed after any step, they go on with the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crisis_corpus_sandbox.demo import CONTESTED, DAG, OTHERS, Act, by_score
from crisis_corpus_sandbox.demo_runs import Look
from pipelines.core.config.settings import Settings
from pipelines.registry.journal import Journal
from tests.refusals import refused

SAID: dict[str, Any] = {"who": "tester", "why": "a reason"}


class Gate:
    """Airflow with a gate that refuses what does not beat the champion, or the majority; a run asks once."""

    base = "http://127.0.0.1:1"

    def __init__(self, settings: Settings, *, scores: dict[int, float], majority: float = 0) -> None:
        self.settings, self.scores, self.majority = settings, scores, majority
        self.awake: list[str] = []
        self.runs: list[dict[str, Any]] = []
        self.answered: list[str] = []

    def look(self) -> Look:
        asking = [
            {"dag_id": DAG, "dag_run_id": run["dag_run_id"], "state": "awaiting_input"}
            for run in self.runs
            if run["state"] == "running"
        ]
        return Look([dict(run) for run in self.runs], asking)

    def unpause(self, dag_id: str) -> None:
        self.awake.append(dag_id)

    def trigger(self, dag_id: str, *, dag_run_id: str, **body: Any) -> str:
        assert dag_run_id not in {run["dag_run_id"] for run in self.runs}
        name, version = body["conf"]["name"], body["conf"]["version"]
        state = "running"
        with Journal.of(self.settings) as journal:
            champions = [row.to_version for row in journal.rows(name) if row.event == "promoted"]
        best = self.scores[champions[-1] or 0] if champions else self.majority
        if name == CONTESTED and self.scores[version] <= best:
            write(self.settings, name, "refused", version)
            state = "success"
        self.runs.append({"dag_id": dag_id, "dag_run_id": dag_run_id, "state": state, "conf": body["conf"]})
        return dag_run_id

    def answer(self, dag_id: str, run_id: str, task_id: str, *, option: str, given: dict[str, Any]) -> bool:
        assert (dag_id, task_id, option) == (DAG, "approve", "Promote") and given["why"]
        run = next(run for run in self.runs if run["dag_run_id"] == run_id)
        write(self.settings, run["conf"]["name"], "promoted", run["conf"]["version"])
        run["state"] = "success"
        self.answered.append(run_id)
        return True


def write(settings: Settings, name: str, event: Any, version: int) -> None:
    with Journal.of(settings) as journal:
        journal.append(name, event=event, to_version=version, **SAID)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    (tmp_path / "var").mkdir()
    return Settings.from_env()


@pytest.fixture
def rolled(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The champions that were left by `corpus rollback`."""
    left: list[int] = []

    def rollback(act: Act, *, leaving: int) -> bool:
        left.append(leaving)
        write(settings, CONTESTED, "rolled_back", 1)
        return True

    monkeypatch.setattr(Act, "_rollback", rollback)
    return left


def play(settings: Settings, gate: Gate) -> list[tuple[str, int | None]]:
    """Advance to the end with a new act at every look, as a demo that is killed after each step; return the events."""
    for _ in range(30):
        act = Act(gate, gate, settings, None, lambda: (3, 1, 2))  # type: ignore[arg-type]
        if act.advance(gate.look()):
            with Journal.of(settings) as journal:
                return [(row.event, row.to_version) for row in journal.rows(CONTESTED) if row.event != "registered"]
    raise AssertionError([run["conf"] for run in gate.runs])


def register(settings: Settings, *, versions: int) -> None:
    write(settings, OTHERS[0], "registered", 1)
    for version in range(1, versions + 1):
        write(settings, CONTESTED, "registered", version)


def test_nothing_is_asked_before_the_versions_are_registered(settings: Settings) -> None:
    gate = Gate(settings, scores={})
    for version in (1, 2):
        write(settings, CONTESTED, "registered", version)
    assert not Act(gate, gate, settings, None, lambda: ()).advance(gate.look())  # type: ignore[arg-type]
    assert gate.runs == [] and gate.awake == []


@pytest.mark.parametrize(
    ("scores", "majority", "events"),
    [
        ({3: 1, 1: 2, 2: 3}, 0, [("promoted", 3), ("promoted", 2), ("refused", 1)]),
        # the gate sees two in another order than the published scores
        ({3: 1, 2: 2, 1: 3}, 0, [("promoted", 3), ("promoted", 2), ("promoted", 1), ("refused", 2)]),
        ({1: 1, 3: 2, 2: 3}, 0, [("promoted", 3), ("promoted", 2), ("refused", 1)]),
        # one is behind the majority
        ({3: 1, 1: 3, 2: 4}, 2, [("refused", 3), ("promoted", 1), ("promoted", 2)]),
    ],
)
def test_a_champion_a_better_one_a_refusal_and_the_way_back(
    settings: Settings, rolled: list[int], scores: dict[int, float], majority: float, events: list[tuple[str, int]]
) -> None:
    """By published score the order is 3, 1, 2."""
    register(settings, versions=3)
    gate = Gate(settings, scores=scores, majority=majority)
    assert play(settings, gate) == [*events, ("rolled_back", 1)]
    runs = len(gate.runs)
    assert runs == len(events) + 1 and len(rolled) == 1
    play(settings, gate)
    assert len(gate.runs) == runs and len(rolled) == 1


@pytest.mark.parametrize("majority", [3, 5])
def test_with_one_version_above_the_majority_or_none_there_is_no_play(settings: Settings, majority: float) -> None:
    register(settings, versions=3)
    with refused("RunFailed", match="none is left"):
        play(settings, Gate(settings, scores={3: 1, 1: 2, 2: 4}, majority=majority))


def test_versions_are_ordered_by_their_published_score() -> None:
    models = {m: {"valid": {"figures": {"macro_f1": {"mean": x}}}} for m, x in {"a": 0.5, "b": 0.3, "c": 0.4}.items()}
    assert by_score({"tasks": {"severity": {"models": models}}}, models=["a", "b", "c"]) == [2, 3, 1]
