"""Define the Airflow tasks that find posts deleted on Reddit and take them down everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowSkipException

from dvc_airflow import settings
from dvc_airflow.command import run
from dvc_airflow.graph import ensembles, group
from dvc_airflow.settings import asset


def sweeps(corpora: Sequence[str]) -> list[Any]:
    """Return the tasks that re-check the known posts of each corpus on Reddit, as a group."""
    with group("sweep", tooltip="re-check known posts on Reddit, a task for each corpus"):
        return [sweep_corpus.override(task_id=f"sweep__{corpus}")(corpus) for corpus in corpora]


@task(doc_md="re-check posts on Reddit by age band")
def sweep_corpus(corpus: str) -> dict[str, Any]:
    """Re-check the known posts of a corpus."""
    return run("sweep", corpus)


@task(task_id="takedown", trigger_rule="all_done")
def run_pending() -> dict[str, Any]:
    """Take down the posts that are due for a takedown; a failed sweep does not delay this."""
    return run("takedown", "run-pending", "--yes", "--who", "deletion_sweep")


def retrain(corpora: Sequence[str], done: Any) -> list[Any]:
    """Return the tasks, a group, that start the training of each corpus with a model that learnt from a deleted record.

    A task emits the asset of the labels for which the training's Dag waits, because the takedown has changed the
    labels.
    """
    with group("retrain", tooltip="start the training of models that learnt from deleted records"):
        return [_retrain(corpus, done) for corpus in corpora]


def _retrain(corpus: str, done: Any) -> Any:
    silver = bool(ensembles(corpus))
    labels = asset(f"silver/{corpus}" if silver else f"gold/{corpus}")

    @task(task_id=f"retrain__{corpus}", outlets=[labels], doc_md="wake the training of models with deleted records")
    def wake(done: dict[str, Any], *, outlet_events: Any = None) -> None:
        if corpus not in done["retrain"]:
            raise AirflowSkipException("no model of this corpus was trained on a deleted record")
        if silver:
            # the Dag that waits for it is partitioned
            outlet_events[labels].add_partitions("snapshot")

    return wake(done)


@task(task_id="swept")
def swept() -> None:
    """Do nothing; this task fails if an upstream sweep failed, so that the run is marked as failed."""


@task(task_id="look")
def look(*, params: Any = None) -> dict[str, Any]:
    """List every storage location with records of the takedown request, and their number there; change nothing."""
    return run("takedown", "--file", _request(params), "--dry-run")


@task(task_id="takedown")
def takedown(*, params: Any = None) -> dict[str, Any]:
    """Take the posts of the takedown request down everywhere, and delete the request file."""
    return run("takedown", "--file", _request(params), "--reason", params["request"], "--who", "takedown", "--yes")


def _request(params: Any) -> str:
    return str(settings.HOME / "requests" / f"{params['request']}.txt")
