"""Define the Airflow tasks of a model promotion: gate, approval by a person, alias change."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task

from dvc_airflow import approval
from dvc_airflow.command import run
from dvc_airflow.names import alias, asset

MODEL = alias("model")


def approve() -> Any:
    """Return the task that shows the gate's verdict to a person and asks for approval."""
    return approval.approve(
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
    text = f"{verdict['text']}\n\n{approval.links(verdict['links'])}"
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
    done = approval.decided("promote", params["name"], str(params["version"]), ti=ti, dag_run=dag_run)
    outlet_events[MODEL].add(asset(f"model/{params['name']}"), extra={key: done[key] for key in ("name", "champion")})
    return {key: done[key] for key in ("name", "champion", "already")}


@task(task_id="reject")
def reject(*, params: Any = None, ti: Any = None, dag_run: Any = None) -> dict[str, Any]:
    """Record in the journal that a person rejected the model version."""
    return approval.decided("reject", params["name"], str(params["version"]), ti=ti, dag_run=dag_run)


@task(task_id="deliver", trigger_rule="none_failed_min_one_success")
def deliver() -> dict[str, Any]:
    """Send the pending webhooks; failed deliveries are retried in the next run."""
    return run("deliver")
