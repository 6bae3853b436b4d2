"""What a person decides in Airflow reaches the round as it was meant."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import DownstreamTasksSkipped

from dvc_airflow import annotation, tasks
from tests.plugins.handed import Handed

PARAMS = {"corpus": "memes", "round": "calibration"}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that tasks ran."""
    commands: list[tuple[str, ...]] = []

    def run(*argv: str, given: str | None = None) -> dict[str, Any]:
        commands.append(argv)
        return {"superseded": False, "results": []}

    for module in (annotation, tasks):
        monkeypatch.setattr(module, "run", run)
    return commands


@pytest.fixture
def decided() -> Handed:
    with DAG("round", schedule=None):
        decide = annotation.decide(adjudicate="adjudicate", close="close")
        adjudicate, close = EmptyOperator(task_id="adjudicate"), EmptyOperator(task_id="close")
        decide >> [adjudicate, close]
        adjudicate >> close
    handed = Handed()
    handed.task = decide
    return handed


@pytest.mark.parametrize(
    ("option", "gold", "reason"),
    [
        ("Adjudicate: agreement suffices", "--gold", "agreement-sufficient"),
        ("Adjudicate: disagreements were discussed", "--gold", "discussed"),
        ("End without gold: the guideline changes", "--no-gold", "guideline-changes"),
    ],
)
def test_close_puts_on_record_what_was_decided(
    ran: list[tuple[str, ...]], decided: Handed, option: str, gold: str, reason: str
) -> None:
    event = {
        "chosen_options": [option],
        "params_input": {},
        "responded_at": datetime(2026, 1, 1, tzinfo=UTC),
        "responded_by_user": None,
    }
    # Airflow ends a branch that skips something by this, and then hands nothing over
    with contextlib.suppress(DownstreamTasksSkipped):
        decided["return_value"] = decided.task.execute_complete({"ti": decided}, event)
    annotation.close.function(params=PARAMS, ti=decided)
    assert ran == [("round", "close", "memes", "calibration", gold, "--reason", reason)]


def test_a_review_is_closed_with_gold_and_without_questions(ran: list[tuple[str, ...]], decided: Handed) -> None:
    annotation.close.function(params=PARAMS, ti=decided)
    assert ran[0][-3:] == ("--gold", "--reason", "reviewed")


def test_what_is_published_was_made_on_the_same_commit(ran: list[tuple[str, ...]]) -> None:
    dag_run = SimpleNamespace(dag_id="annotation_round", run_id="one")
    annotation.gold.function("base", params=PARAMS, dag_run=dag_run)
    [made] = ran
    ran.clear()
    annotation.publish.function("base", [], params=PARAMS, dag_run=dag_run, outlet_events={annotation.GOLD: Mock()})
    [published] = ran
    stages = made[made.index("stage") + 1 : made.index("--base")]
    assert stages == published[3 : published.index("--base")]
    assert made[made.index("--run") + 1] == published[published.index("--run") + 1] == "annotation_round/one"
