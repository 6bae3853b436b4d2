"""The answer of a user reaches the command that carries it out, and no other text does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import HITLBranchOperator
from airflow.sdk import DAG

from dvc_airflow import approval
from dvc_airflow.command import CommandFailed
from tests.plugins.handed import Handed

RUN = SimpleNamespace(dag_id="release", run_id="manual__1", triggering_user_name="bob")


def answer(user: dict[str, str] | None, *, option: str = "Release") -> Handed:
    with DAG("release", schedule=None):
        task = approval.approve(about="release r1", subject="?", body="-", yes="Release", then="sign", otherwise="keep")
    event = {"chosen_options": [option], "params_input": {"why": "the board agreed"}, "responded_by_user": user}
    task.execute_complete({"ti": (ti := Handed()), "dag_run": RUN, "params": {}}, event)
    return ti


@pytest.fixture(autouse=True)
def no_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the branch, which needs Airflow's database."""
    monkeypatch.setattr(HITLBranchOperator, "execute_complete", lambda *_: None)


def carried_out(ti: Handed, *, name: str = "r1", run: Any = RUN) -> int:
    with pytest.raises(CommandFailed) as caught:
        approval.decided("release", "approve", name, ti=ti, dag_run=run)
    return caught.value.returncode


def test_an_answer_is_carried_out_in_its_run_for_its_subject_only() -> None:
    ti = answer({"id": "7", "name": "ada"})
    decided = ti[approval.DECISION]
    assert (decided["who"], decided["asked_by"], decided["why"]) == ("airflow:ada", "airflow:bob", "the board agreed")
    # there is no such release: the decision was accepted
    accepted = carried_out(ti)
    assert accepted != 77
    assert carried_out(ti, name="r2") == 77
    assert carried_out(ti, run=SimpleNamespace(dag_id="release", run_id="manual__2")) == 77
    ti[approval.DECISION]["who"] = "airflow:eve"
    assert carried_out(ti) == 77


def test_a_rejection_is_not_carried_out_as_an_approval() -> None:
    assert carried_out(answer(None, option="Reject")) == 77
    assert carried_out(answer({"id": "7", "name": "ada"}, option="Reject")) == 77


@pytest.mark.parametrize("user", [None, {"id": "", "name": ""}, {"id": "1", "name": "Anonymous"}])
def test_an_answer_without_a_user_fails_the_task(user: dict[str, str] | None) -> None:
    with pytest.raises(CommandFailed) as caught:
        answer(user)
    assert caught.value.returncode == 77
