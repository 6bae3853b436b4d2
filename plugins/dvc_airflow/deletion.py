"""Define the tasks that find deleted posts and take them down everywhere."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task

from dvc_airflow import settings
from dvc_airflow.command import run


def sweep(corpus: str) -> Any:
    """Return the task that re-checks the known posts of a corpus on Reddit."""

    @task(task_id=f"sweep__{corpus}", doc_md="re-check posts on Reddit by age band")
    def sweep_corpus() -> dict[str, Any]:
        return run("sweep", corpus)

    return sweep_corpus()


@task(task_id="takedown", trigger_rule="all_done")
def run_pending() -> dict[str, Any]:
    """Process pending takedowns; a failed sweep does not delay them."""
    return run("takedown", "run-pending", "--yes", "--who", "deletion_sweep")


@task(task_id="swept")
def swept() -> None:
    """Do nothing; this task fails if an upstream sweep failed, so that the run is marked as failed."""


@task(task_id="look")
def look(*, params: Any = None) -> dict[str, Any]:
    """List every storage location with records of the request, and the number of records there; change nothing."""
    return run("takedown", "--file", _request(params), "--dry-run")


@task(task_id="takedown")
def takedown(*, params: Any = None) -> dict[str, Any]:
    """Take the posts of the request down everywhere, and remove the request file."""
    return run("takedown", "--file", _request(params), "--reason", params["request"], "--who", "takedown", "--yes")


def _request(params: Any) -> str:
    """Return the file of a request; the posts in it must not be stored in Airflow's database."""
    return str(settings.HOME / "requests" / f"{params['request']}.txt")
