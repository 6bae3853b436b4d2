"""Tasks of a deletion: who is gone is looked for, taken down everywhere."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task

from dvc_airflow import settings
from dvc_airflow.command import run


def sweep(corpus: str) -> Any:
    """Return the task that asks Reddit again about the known posts of a corpus."""

    @task(task_id=f"sweep__{corpus}", pool="reddit", doc_md="ask Reddit again about posts, in age bands")
    def sweep_corpus() -> dict[str, Any]:
        return run("sweep", corpus)

    return sweep_corpus()


@task(task_id="takedown", pool="publish", trigger_rule="all_done")
def run_pending() -> dict[str, Any]:
    """Take down who is due; a sweep that failed holds up no deletion."""
    return run("takedown", "run-pending", "--who", "deletion_sweep")


@task(task_id="swept")
def swept() -> None:
    """Fail where a sweep did: the run is not done then, though its takedowns are."""


@task(task_id="look")
def look(*, params: Any = None) -> dict[str, Any]:
    """List every place that holds something of the request, with its counts."""
    return run("takedown", "--file", _request(params), "--dry-run")


@task(task_id="takedown", pool="publish")
def takedown(*, params: Any = None) -> dict[str, Any]:
    """Take the posts of the request down everywhere, and remove the request."""
    return run("takedown", "--file", _request(params), "--reason", params["request"], "--who", "takedown")


def _request(params: Any) -> str:
    """Return the file of a request: whom it names must not stand in Airflow's database."""
    return str(settings.HOME / "requests" / f"{params['request']}.txt")
