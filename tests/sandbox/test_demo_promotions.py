"""The promotions of the demo follow from the journal: killed after any step, they go on with the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crisis_corpus_sandbox.demo.promotions import CONTESTED, DAG, OTHERS, Act
from crisis_corpus_sandbox.demo.runs import Look
from pipelines.core.config.settings import Settings
from pipelines.registry.journal import Journal

SAID: dict[str, Any] = {"who": "tester", "why": "a reason"}


class Gate:
    """Airflow with a gate that refuses a version beside some champions; a run asks once before it ends."""

    base = "http://127.0.0.1:1"

    def __init__(self, settings: Settings, *, refuses: set[tuple[int, int]]) -> None:
        self.settings, self.refuses = settings, refuses
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
        if champions and (champions[-1], version) in self.refuses:
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


def play(settings: Settings, gate: Gate, *, order: tuple[int, int, int]) -> None:
    """Advance to the end with a new act at every look, as a demo that is killed after each step."""
    for _ in range(30):
        act = Act(gate, gate, settings, None, lambda: order)  # type: ignore[arg-type]
        if act.advance(gate.look()):
            return
    raise AssertionError([run["conf"] for run in gate.runs])


def test_nothing_is_asked_before_the_versions_are_registered(settings: Settings) -> None:
    gate = Gate(settings, refuses=set())
    write(settings, CONTESTED, "registered", 1)
    write(settings, CONTESTED, "registered", 2)
    assert not Act(gate, gate, settings, None, lambda: ()).advance(gate.look())  # type: ignore[arg-type]
    assert gate.runs == [] and gate.awake == []


@pytest.mark.parametrize("refuses", [{(2, 3)}, {(3, 2)}])
def test_a_champion_a_better_one_a_refusal_and_the_way_back(
    settings: Settings, rolled: list[int], refuses: set[tuple[int, int]]
) -> None:
    """By score the order is 1, 3, 2; ``refuses`` has pairs of a champion and a version that is behind it."""
    for name, count in ((OTHERS[0], 1), (CONTESTED, 3)):
        for version in range(1, count + 1):
            write(settings, name, "registered", version)
    gate = Gate(settings, refuses=refuses)
    play(settings, gate, order=(1, 3, 2))
    with Journal.of(settings) as journal:
        events = [row.event for row in journal.rows(CONTESTED)]
    assert events.count("promoted") >= 2 and events.count("refused") == 1 and events.count("rolled_back") == 1
    runs = len(gate.runs)
    assert runs in {4, 5} and len(rolled) == 1
    play(settings, gate, order=(1, 3, 2))
    assert len(gate.runs) == runs and len(rolled) == 1
