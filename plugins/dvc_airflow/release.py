"""Define the Airflow tasks of a data release: write a draft, ask a person for approval, approve or keep the draft."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task

from dvc_airflow import approval
from dvc_airflow.command import run


@task(task_id="make")
def make(*, params: Any = None) -> dict[str, Any]:
    """Write the release package as a draft: ids, labels, splits, the removal list, a datasheet."""
    done = run("release", "make", params["corpus"], params["name"])
    return {**done, "text": f"{done['text']}\n\n{approval.links(done['links'])}"}


def approve() -> Any:
    """Return the task that shows the risks and counts of the draft release to a person and asks for approval."""
    return approval.approve(
        about="release {{ params.name }}",
        subject="Release {{ params.name }} of {{ params.corpus }}?",
        body="{{ ti.xcom_pull(task_ids='make')['text'] }}",
        yes="Release",
        then="sign",
        otherwise="keep",
    )


@task(task_id="sign")
def sign(*, params: Any = None, ti: Any = None, dag_run: Any = None) -> dict[str, Any]:
    """Approve the draft release for publication."""
    return approval.decided("release", "approve", params["name"], ti=ti, dag_run=dag_run)


@task(task_id="keep")
def keep(*, ti: Any = None) -> dict[str, str]:
    """Keep the release as a draft; return the person who decided and the reason."""
    decision = ti.xcom_pull(task_ids="approve", key=approval.DECISION)
    return {key: decision[key] for key in ("who", "why")}
