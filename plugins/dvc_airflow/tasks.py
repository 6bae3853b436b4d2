"""Tasks of a Dag: the steps of a partition, the stages of dvc.yaml, and the publish that commits them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, task
from airflow.sdk.exceptions import AirflowFailException

from dvc_airflow.command import ByFailure, run
from dvc_airflow.graph import closure, graph

if TYPE_CHECKING:
    from airflow.sdk import XComArg

DEFAULT_ARGS: dict[str, Any] = {
    "owner": "corpus",
    "retries": 2,
    "retry_delay": timedelta(seconds=10),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=10),
    "retry_policy": ByFailure(),
    "execution_timeout": timedelta(hours=6),
}


def month_of(dag_run: Any) -> str:
    """Return the partition of a run: its key, or the month of its logical date under ``dag.test()``.

    Raises:
        AirflowFailException: the run has neither; the message says what to pass.
    """
    from pipelines.collect.window import Window
    from pipelines.errors import ConfigError

    try:
        return Window.from_dag_run(dag_run, dag_id=dag_run.dag_id).key
    except ConfigError as error:
        raise AirflowFailException(str(error)) from None


def step(*argv: str, out: Sequence[str] = (), pointers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a step of the partition layer in a clone of its own; hand over its result and the pointers to its files."""
    globs = [part for pattern in out for part in ("--out", pattern)]
    return run("task", "step", "--pointers", json.dumps(dict(pointers or {})), *globs, "--", *argv)


def stage_tasks(*targets: str) -> XComArg:
    """Render the target stages of dvc.yaml and all above them as tasks, edges and settings as the file has them.

    Returns the list of what the targets' tasks answered, to hang a publish under.
    """
    stages = graph()
    made: dict[str, Any] = {}
    for stage in closure(stages, targets=targets):
        made[stage.name] = _stage_task(stage.name, task_id=stage.task_id, desc=stage.desc, airflow=stage.airflow)
        for above in stage.upstream:
            made[above] >> made[stage.name]
    return [made[target] for target in targets]  # type: ignore[return-value]


def _stage_task(name: str, *, task_id: str, desc: str, airflow: Mapping[str, Any]) -> Any:
    options = {
        key: airflow[key] for key in ("queue", "pool", "pool_slots", "retries", "priority_weight") if key in airflow
    }
    if "timeout_minutes" in airflow:
        options["execution_timeout"] = timedelta(minutes=airflow["timeout_minutes"])

    @task(task_id=task_id, doc_md=desc or name, **options)
    def stage() -> dict[str, Any]:
        return run("task", "stage", name)

    return stage()


def publish_snapshot(*targets: str, corpus: str, asset: Asset) -> Any:
    """Commit the targets' stages, replayed from the run-cache; the asset is emitted after the commit, never before."""

    @task(task_id="publish", pool="publish", outlets=[asset], doc_md="commit dvc.lock; fast-forward only")
    def publish(*, outlet_events: Any = None) -> dict[str, Any]:
        done = run("task", "publish-snapshot", corpus, *targets)
        outlet_events[asset].extra = done
        return done

    return publish()


def publish_partition(pointers: Any, *, corpus: str, asset: Asset) -> Any:
    """Commit a month's pointers; the asset event carries the month as its partition."""

    @task(task_id="publish", pool="publish", outlets=[asset], doc_md="commit the month; fast-forward only")
    def publish(pointers: dict[str, str], *, dag_run: Any = None, outlet_events: Any = None) -> dict[str, Any]:
        month = month_of(dag_run)
        done = run("task", "publish-partition", corpus, "--month", month, "--pointers", json.dumps(pointers))
        outlet_events[asset].extra = {**done, "month": month}
        return done

    return publish(pointers)


def track(corpus: str) -> Any:
    """Log the published numbers to MLflow, where a tracking server is configured."""

    @task(task_id="track", doc_md="the numbers of the publish, in MLflow")
    def track_numbers() -> dict[str, Any]:
        return run("track", corpus)

    return track_numbers()
