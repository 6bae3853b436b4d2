"""Define the task that examines the deployment."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task

from dvc_airflow.command import run


@task(task_id="doctor")
def doctor() -> dict[str, int]:
    """Run every check; this task fails if one fails, after its retries, and its log has the fixes."""
    # beside the tasks of other Dags, imports alone may exceed the command's 10 s
    found: dict[str, Any] = run("doctor", "--json", "--timeout", "60")
    return {status: found[status] for status in ("ok", "warning", "failure")}
