"""What a person sees before an approval or decides in a round reaches the command, as meant, and no other text."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.hitl import HITLBranchOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import DownstreamTasksSkipped

from dvc_airflow import annotation, approval, tasks
from dvc_airflow.command import CommandFailed
from pipelines.core.config.params import load
from pipelines.release import package
from tests.plugins.handed import Handed

RUN = SimpleNamespace(dag_id="release", run_id="manual__1", triggering_user_name="bob")


def answer(user: dict[str, str] | None, *, option: str = "Release") -> Handed:
    with DAG("release", schedule=None):
        task = approval.approve(about="release r1", subject="?", body="-", yes="Release", then="sign", otherwise="keep")
    event = {"chosen_options": [option], "params_input": {"why": "the board agreed"}, "responded_by_user": user}
    with pytest.MonkeyPatch.context() as patch:
        # leave out the branch, which needs Airflow's database
        patch.setattr(HITLBranchOperator, "execute_complete", lambda *_: None)
        task.execute_complete({"ti": (ti := Handed()), "dag_run": RUN, "params": {}}, event)
    return ti


def carried_out(ti: Handed, *, name: str = "r1", run: Any = RUN) -> int:
    with pytest.raises(CommandFailed) as caught:
        approval.decided("release", "approve", name, ti=ti, dag_run=run)
    return caught.value.returncode


def test_an_answer_is_carried_out_in_its_run_for_its_subject_only() -> None:
    ti = answer({"id": "7", "name": "ada"})
    decided = ti[approval.DECISION]
    assert (decided["who"], decided["asked_by"], decided["why"]) == ("airflow:ada", "airflow:bob", "the board agreed")
    # there is no such release: the decision was accepted
    assert carried_out(ti) != 77
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


COMMIT = "0123456789abcdef" * 2 + "01234567"
LINKS = {"commit": COMMIT, "report": "http://127.0.0.1:5000/#/r", "run": "http://127.0.0.1:5000/#/n"}
COUNTS = {
    "items": 1040, "records": 1000, "alone": 30, "smallest": 6, "left_out": {"taken_down": 2, "suppressed": 1},
    "splits": {"train": 900, "test": 140}, "levels": {"quarter+subreddit": 1040},
}  # fmt: skip
FACTS: dict[str, Any] = {
    "release": "m2", "corpus": "memes", "data_commit": COMMIT, "k": 5, "counts": COUNTS,
    "columns": ["severity", "month", "subreddit"], "joined": {"m0": 0.5, "m1": 0.25},
    "approvals": {"dump": {"ethics": "board", "access_basis": None, "expires": None, "uses": ["annotate", "release"]}},
}  # fmt: skip


def test_the_page_of_a_release_puts_each_risk_beside_its_limit() -> None:
    terms = load().release.model_copy(update={"max_alone": 0.05, "max_joined": 0.05})
    text = package.approval_text(FACTS, terms=terms, live=["m1"], other_columns=["m0"])
    assert "| dump | board | none stated | no end stated | annotate, release |" in text
    rows = {line.split("|")[1].split(":")[0].strip(): line for line in text.splitlines() if line.startswith("| `")}
    assert "30 of 1,000 (3.0%) | 5.0% | within |" in rows["`max_alone`"]
    assert "matched with release `m1` | 25.0% | 5.0% | **over" in text
    # what is retired is measured and not limited, as `corpus release approve` has it
    assert "matched with release `m0` | 50.0% | none: it is retired | within |" in text
    assert "| 6 | 5 or more | within |" in rows["`k`"]
    assert "at least 5 authors share each combination" in text and "(m0)" in text
    assert "| taken down before the release was made | 2 |" in text


def test_the_page_of_a_first_release_says_that_nothing_can_be_matched() -> None:
    text = package.approval_text(FACTS | {"joined": {}}, terms=load().release, live=[])
    assert "first release" in text and "max_joined" not in text


def test_the_pages_end_with_links_to_report_and_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    done: dict[str, Any] = {"text": "the risks", "links": LINKS, "passed": True, "champion": 1, "reasons": []}
    asked, handed = [], Handed()
    monkeypatch.setattr(approval, "run", lambda *argv: asked.append(argv) or done)
    page = approval.make_release.function(params={"corpus": "memes", "name": "m2"})["text"]
    assert page == f"the risks\n\n{approval.links(LINKS)}"
    assert f"[commit {COMMIT[:12]}](/corpus/#commit-{COMMIT[:12]})" in page
    assert f"[the newest report]({LINKS['report']})" in page
    assert approval.gate.function(params={"name": "crisis-posts", "version": 2}, ti=handed) == "approve"
    assert handed["verdict"]["text"] == page
    assert asked == [("release", "make", "memes", "m2"), ("gate", "crisis-posts", "2")]
    assert approval.links({}) == ""


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
    assert made[made.index("stage") + 1 : made.index("--base")] == published[3 : published.index("--base")]
    assert made[made.index("--run") + 1] == published[published.index("--run") + 1] == "annotation_round/one"
