"""Ask an authenticated Airflow user to approve a promotion or a release, with a reason; no answer means rejection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from airflow.providers.standard.operators.hitl import HITLBranchOperator
from airflow.sdk import Param, task
from airflow.sdk.configuration import conf

from dvc_airflow.command import run
from dvc_airflow.settings import alias, asset, named
from dvc_airflow.tasks import run_of

# Without an answer within this time, the request is rejected.
PATIENCE = timedelta(days=14)
# Airflow 3.3 fails a task that is answered within about a second of asking; a retry asks again.
RETRIES = 5
REJECT, DECISION = "Reject", "decision"
# What an approver may want to open, in this order; addresses of MLflow come from the commands.
LINKS = {"version": "the version in MLflow", "report": "the newest report", "run": "the numbers in MLflow"}


class Approve(HITLBranchOperator):
    """A branch operator that also pushes to XCom who answered, and why, with an authentication code.

    The next task verifies the code.
    """

    template_fields = (*HITLBranchOperator.template_fields, "about")

    def __init__(self, *, about: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.about = about

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        """Push the person's decision to XCom, then branch; branching may end the task by an exception."""
        if chosen := event.get("chosen_options"):
            user = event.get("responded_by_user")
            why = (event.get("params_input") or {}).get("why") or context["params"].get("reason")
            answer = {
                "user": user and (user.get("name") or user.get("id") or ""),
                "asked_by": getattr(context["dag_run"], "triggering_user_name", None),
                "yes": REJECT not in chosen,
                "why": why or f"answered: {chosen[0]}",
            }
            done = run("task", "approve", self.about, *run_of(context["dag_run"]), given=json.dumps(answer))
            context["ti"].xcom_push(key=DECISION, value=done["token"])
        return super().execute_complete(context, event)


# Of the forms that start a decision. It may be null: Airflow's form starts no run while a field is empty that may not.
def _reason(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], maxLength=500, title=title, description=description)


REASON = _reason("Reason (optional)", "recorded if the person who approves gives none")
# Below the figures of each question.
RECORDED = (
    "Your user name, the answer and what you write under *Why* go on record. Without an answer in "
    f"{PATIENCE.days} days, the answer is *{REJECT}*."
)


def approve(*, about: str, subject: str, body: str, yes: str, then: str, otherwise: str) -> Any:
    """Return the task ``approve``, which shows ``body`` and branches to ``then`` or, if not approved, ``otherwise``.

    ``about`` is a template of what the decision is valid for, such as ``promote crisis-posts 2``.
    """
    return Approve(
        task_id="approve",
        about=about,
        subject=subject,
        body=f"{body}\n\n{RECORDED}",
        options=[yes, REJECT],
        defaults=[REJECT],
        options_mapping={yes: then, REJECT: otherwise},
        params={"why": _reason("Why", "your reason; it goes on record")},
        doc_md="a person decides based on the figures; without an answer nothing changes",
        response_timeout=PATIENCE,
        execution_timeout=None,
        retries=RETRIES,
    )


def links(addresses: Mapping[str, str]) -> str:
    """Return a line of Markdown with links to the pages of a version, its report, its numbers and its commit."""
    shown = [f"[{title}]({addresses[kind]})" for kind, title in LINKS.items() if kind in addresses]
    if commit := addresses.get("commit"):
        below = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
        shown.append(f"[commit {commit[:12]}]({below}/{named('corpus')}/#commit-{commit[:12]})")
    return f"Open: {', '.join(shown)}." if shown else ""


def decided(*argv: str, ti: Any, dag_run: Any) -> dict[str, Any]:
    """Run a `corpus` command that carries out the person's decision in the task ``approve``; return its result."""
    decision = json.dumps(ti.xcom_pull(task_ids="approve", key=DECISION))
    return run(*argv, "--approval", "-", *run_of(dag_run), given=decision)


MODEL = alias("model")


def approve_promotion() -> Any:
    """Return the task that shows the gate's verdict to a person and asks for approval."""
    return approve(
        about="promote {{ params.name }} {{ params.version }}",
        subject="Promote version {{ params.version }} of {{ params.name }}?",
        body="{{ ti.xcom_pull(task_ids='gate', key='verdict')['text'] }}",
        yes="Promote",
        then="promote",
        otherwise="reject",
    )


@task.branch(task_id="gate")
def gate(*, params: Any = None, ti: Any = None) -> str:
    """Evaluate the model version on the frozen test split; a refusal is recorded with its reasons and ends the run."""
    verdict = run("gate", params["name"], str(params["version"]))
    shown = {key: verdict[key] for key in ("passed", "champion", "reasons")}
    text = f"{verdict['text']}\n\n{links(verdict['links'])}"
    ti.xcom_push(key="verdict", value={**shown, "text": text})
    return "approve" if verdict["passed"] else "refused"


@task(task_id="refused")
def refused(*, ti: Any = None) -> list[str]:
    """Return the reasons why the gate refused the model version."""
    reasons: list[str] = ti.xcom_pull(task_ids="gate", key="verdict")["reasons"]
    return reasons


@task(task_id="promote", outlets=[MODEL])
def promote(*, params: Any = None, ti: Any = None, dag_run: Any = None, outlet_events: Any = None) -> dict[str, Any]:
    """Set MLflow's alias `champion`, verify it, record the promotion, and emit the asset `model/<name>`."""
    done = decided("promote", params["name"], str(params["version"]), ti=ti, dag_run=dag_run)
    outlet_events[MODEL].add(asset(f"model/{params['name']}"), extra={key: done[key] for key in ("name", "champion")})
    return {key: done[key] for key in ("name", "champion", "already")}


@task(task_id="reject")
def reject(*, params: Any = None, ti: Any = None, dag_run: Any = None) -> dict[str, Any]:
    """Record in the journal that a person rejected the model version."""
    return decided("reject", params["name"], str(params["version"]), ti=ti, dag_run=dag_run)


@task(task_id="deliver", trigger_rule="none_failed_min_one_success")
def deliver() -> dict[str, Any]:
    """Send the pending webhooks; failed deliveries are retried in the next run."""
    return run("deliver")


@task(task_id="make")
def make_release(*, params: Any = None) -> dict[str, Any]:
    """Write the release package as a draft: ids, labels, splits, the removal list, a datasheet."""
    done = run("release", "make", params["corpus"], params["name"])
    return {**done, "text": f"{done['text']}\n\n{links(done['links'])}"}


def approve_release() -> Any:
    """Return the task that shows the risks and counts of the draft release to a person and asks for approval."""
    return approve(
        about="release {{ params.name }}",
        subject="Release {{ params.name }} of {{ params.corpus }}?",
        body="{{ ti.xcom_pull(task_ids='make')['text'] }}",
        yes="Release",
        then="sign",
        otherwise="keep",
    )


@task(task_id="sign")
def sign_release(*, params: Any = None, ti: Any = None, dag_run: Any = None) -> dict[str, Any]:
    """Approve the draft release for publication."""
    return decided("release", "approve", params["name"], ti=ti, dag_run=dag_run)


@task(task_id="keep")
def keep_draft(*, ti: Any = None) -> dict[str, str]:
    """Keep the release as a draft; return the person who decided and the reason."""
    decision = ti.xcom_pull(task_ids="approve", key=DECISION)
    return {key: decision[key] for key in ("who", "why")}
