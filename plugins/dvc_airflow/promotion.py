"""Tasks of a promotion: the gate judges, a person decides, the alias moves; each leaves a row in the journal."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, AssetAlias, task

from dvc_airflow import approval
from dvc_airflow.command import run

MODEL = AssetAlias("model")


def approve() -> Any:
    """Return the task that shows a person what the gate found."""
    return approval.approve(
        subject="Promote version {{ params.version }} of {{ params.name }}?",
        body="{{ ti.xcom_pull(task_ids='gate', key='verdict')['text'] }}",
        yes="Promote",
        then="promote",
        otherwise="reject",
    )


@task.branch(task_id="gate")
def gate(*, params: Any = None, ti: Any = None) -> str:
    """Judge the version on the frozen test; a refusal is on record with its reasons, and nobody is asked."""
    verdict = run("gate", params["name"], str(params["version"]))
    ti.xcom_push(key="verdict", value={key: verdict[key] for key in ("passed", "champion", "reasons", "text")})
    return "approve" if verdict["passed"] else "refused"


@task(task_id="refused")
def refused(*, ti: Any = None) -> list[str]:
    """Say what spoke against the version."""
    reasons: list[str] = ti.xcom_pull(task_ids="gate", key="verdict")["reasons"]
    return reasons


@task(task_id="promote", outlets=[MODEL])
def promote(*, params: Any = None, ti: Any = None, outlet_events: Any = None) -> dict[str, Any]:
    """Move the alias, read it back, put it on record. Emits `model/<name>`."""
    done = run("promote", params["name"], str(params["version"]), *approval.decision(ti))
    outlet_events[MODEL].add(Asset(f"model/{params['name']}"), extra={key: done[key] for key in ("name", "champion")})
    return {key: done[key] for key in ("name", "champion", "already")}


@task(task_id="reject")
def reject(*, params: Any = None, ti: Any = None) -> dict[str, Any]:
    """Put on record that a person said no."""
    return run("reject", params["name"], str(params["version"]), *approval.decision(ti))


@task(task_id="deliver", trigger_rule="none_failed_min_one_success")
def deliver() -> dict[str, Any]:
    """Tell the subscribers; whoever does not answer is told again at the next delivery."""
    return run("deliver")
