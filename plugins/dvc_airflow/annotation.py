"""Define the Airflow tasks of an annotation round; no worker slot is held while people annotate."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import HITLBranchOperator, HITLOperator
from airflow.sdk import task
from airflow.sdk.exceptions import AirflowFailException

from dvc_airflow.approval import RETRIES
from dvc_airflow.command import run
from dvc_airflow.settings import alias, asset
from dvc_airflow.tasks import SUPERSEDED, publish_results, run_of, stage_results

# Without an answer, the task fails after this time; it never continues by itself.
PATIENCE = timedelta(days=90)
GOLD = alias("gold")

READY, DECIDED = "Pull the answers", "Pull the decisions"
# The decisions that a person may take after seeing the agreement, and the recorded code of each.
GO_ON = {
    "Adjudicate: agreement suffices": "agreement-sufficient",
    "Adjudicate: disagreements were discussed": "discussed",
}
END = {"End without gold: the guideline changes": "guideline-changes"}
REVIEWED = "reviewed"
CHOSEN = "chosen"
WHERE = "`corpus round status {{ params.corpus }} {{ params.round }}` shows open items per annotator and queue URLs."


def wait(task_id: str, *, option: str, subject: str) -> Any:
    """Return an Airflow task that waits until a person confirms, by choosing ``option``, that annotation is done."""
    return HITLOperator(
        task_id=task_id,
        subject=subject,
        body=WHERE,
        options=[option],
        doc_md=f"waits for people; holds no worker. Ends when a person answers: {option}",
        response_timeout=PATIENCE,
        execution_timeout=None,
        retries=RETRIES,
    )


class Decide(HITLBranchOperator):
    """A branch operator that also pushes the option chosen by a person to XCom; Airflow's pushes only the branch."""

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        """Push the option chosen by the person to XCom, then branch, which may end the task by an exception."""
        if chosen := event.get("chosen_options"):
            context["ti"].xcom_push(key=CHOSEN, value=chosen[0])
        return super().execute_complete(context, event)


def decide(*, adjudicate: str, close: str) -> Any:
    """Return the task that shows the round's agreement to a person and asks whether to continue with adjudication.

    The task ``adjudicate`` or ``close`` follows.
    """
    return Decide(
        task_id="decide",
        subject="Agreement of round {{ params.round }} of {{ params.corpus }}: go on?",
        body="{{ ti.xcom_pull(task_ids='agreement')['text'] }}",
        options=[*GO_ON, *END],
        options_mapping={**dict.fromkeys(GO_ON, adjudicate), **dict.fromkeys(END, close)},
        doc_md="a person decides based on the agreement; the reason is stored in the round's manifest",
        response_timeout=PATIENCE,
        execution_timeout=None,
        retries=RETRIES,
    )


@task.branch(task_id="open")
def open_round(*, params: Any = None) -> str:
    """Draw the round's items and fill the annotators' queues; the items of a review go directly to the adjudicator."""
    opened = run("round", "open", params["corpus"], params["round"])
    return "annotators" if opened["status"] == "open" else "review"


@task(task_id="pull")
def pull(*, params: Any = None) -> dict[str, Any]:
    """Import the annotators' answers of the round; count faulty answers by pseudonym."""
    return run("round", "pull", params["corpus"], params["round"])


@task(task_id="agreement")
def agreement(*, params: Any = None, dag_run: Any = None) -> dict[str, Any]:
    """Measure the agreement between the round's annotators."""
    base = run("task", "pin")["commit"]
    return run("task", "agreement", params["corpus"], params["round"], "--base", base, *run_of(dag_run))


@task.branch(task_id="adjudicate")
def adjudicate(*, params: Any = None) -> str:
    """Queue the round's disagreements for the adjudicator, without annotators' names."""
    cases = run("round", "adjudicate", params["corpus"], params["round"])["cases"]
    return "adjudicator" if cases else "close"


@task(task_id="close", trigger_rule="none_failed_min_one_success")
def close(*, params: Any = None, ti: Any = None) -> dict[str, Any]:
    """Import the round's last answers, record the decision and remove the round from the annotation server."""
    chosen = ti.xcom_pull(task_ids="decide", key=CHOSEN)
    # a review has no task decide
    reason = REVIEWED if chosen is None else (GO_ON | END)[chosen]
    gold = "--no-gold" if chosen in END else "--gold"
    return run("round", "close", params["corpus"], params["round"], gold, "--reason", reason)


@task(task_id="gold")
def gold(base: str, *, params: Any = None, dag_run: Any = None) -> list[dict[str, Any]]:
    """Run the stages `agreement`, `gold` and up to `quality` again, because the round now has a decision."""
    return stage_results(*_stages(params["corpus"]), base=base, dag_run=dag_run)


@task(task_id="publish", outlets=[GOLD])
def publish(
    base: str, results: list[dict[str, Any]], *, params: Any = None, dag_run: Any = None, outlet_events: Any = None
) -> dict[str, Any]:
    """Commit `dvc.lock` and metrics to the corpus branch, fast-forward only, and emit the asset `gold/<corpus>`."""
    corpus = params["corpus"]
    done = publish_results(corpus, *_stages(corpus), base=base, results=results, dag_run=dag_run)
    if done["superseded"]:
        raise AirflowFailException(SUPERSEDED)
    outlet_events[GOLD].add(asset(f"gold/{corpus}"), extra=done)
    return done


def _stages(corpus: str) -> tuple[str, ...]:
    # what reads gold in the Dag of the dataset; a split that is published already does not change
    return tuple(f"{stage}@{corpus}" for stage in ("agreement", "gold", "split", "quality"))


@task(task_id="rounds")
def open_rounds(corpora: list[str]) -> list[dict[str, str]]:
    """Return corpus and name of each annotation round that is not closed."""
    rounds = ((corpus, status) for corpus in corpora for status in run("round", "status", corpus)["rounds"])
    return [{"corpus": corpus, "round": r["round"]} for corpus, r in rounds if r["status"] != "closed"]


@task(task_id="pull")
def pull_one(job: dict[str, str]) -> dict[str, Any]:
    """Import the answers of one annotation round, and give every annotator new items up to the daily cap."""
    return run("round", "pull", job["corpus"], job["round"])
