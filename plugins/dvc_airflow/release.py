"""Tasks of a release: made, shown to a person, signed off or left a draft."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task

from dvc_airflow import approval
from dvc_airflow.command import run

COUNTS = ("items", "records", "left_out", "levels", "smallest", "alone", "other_columns", "splits")


@task(task_id="make")
def make(*, params: Any = None) -> dict[str, Any]:
    """Write the package as a draft: ids, labels, splits, the removal list, a datasheet."""
    done = run("release", "make", params["corpus"], params["name"])
    return {"text": "\n".join(f"- {key}: {done[key]}" for key in COUNTS if key in done), **done}


def approve() -> Any:
    """Return the task that shows a person what would leave the house."""
    return approval.approve(
        subject="Release {{ params.name }} of {{ params.corpus }}?",
        body="{{ ti.xcom_pull(task_ids='make')['text'] }}",
        yes="Release",
        then="sign",
        otherwise="keep",
    )


@task(task_id="sign")
def sign(*, params: Any = None, ti: Any = None) -> dict[str, Any]:
    """Sign the draft off: it may leave the house now."""
    return run("release", "approve", params["name"], *approval.decision(ti))


@task(task_id="keep")
def keep(*, ti: Any = None) -> dict[str, str]:
    """Leave it a draft, and say who wanted that, and why."""
    return {key: ti.xcom_pull(task_ids="approve", key=key) for key in ("who", "why")}
