"""Tasks of a Dag: the steps of a partition, the stages of dvc.yaml, and the publish that commits them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dvc_airflow.command import ByFailure, run
from dvc_airflow.graph import Stage, closure, graph

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


def snapshot(*targets: str, corpus: str, asset: Asset) -> Any:
    """Render the target stages of dvc.yaml and all above them as tasks, then the publish that commits them.

    Edges and settings are the file's own. Every stage works on the commit that ``pin`` answered, whatever is
    published meanwhile. The asset is emitted after the commit, never before, and not by a superseded run.

    Returns the publish task.
    """
    stages = closure(graph(), targets=targets)
    base = _pin()
    made: dict[str, Any] = {}
    for stage in stages:
        made[stage.name] = _stage_task(stage, base=base)
        for above in stage.upstream:
            made[above] >> made[stage.name]
    published = _publish_snapshot(*targets, corpus=corpus, asset=asset, base=base)
    for target in targets:
        made[target] >> published
    return published


def _pin() -> Any:
    @task(task_id="pin", doc_md="the commit that this run works on")
    def pin() -> str:
        return str(run("task", "pin")["commit"])

    return pin()


def _stage_task(stage: Stage, *, base: Any) -> Any:
    known = ("queue", "pool", "pool_slots", "retries", "priority_weight")
    options = {key: stage.airflow[key] for key in known if key in stage.airflow}
    if "timeout_minutes" in stage.airflow:
        options["execution_timeout"] = timedelta(minutes=stage.airflow["timeout_minutes"])

    @task(task_id=stage.task_id, doc_md=stage.desc or stage.name, **options)
    def reproduce(base: str) -> dict[str, Any]:
        return run("task", "stage", stage.name, "--base", base)

    return reproduce(base)


def _publish_snapshot(*targets: str, corpus: str, asset: Asset, base: Any) -> Any:
    @task(task_id="publish", pool="publish", outlets=[asset], doc_md="commit dvc.lock; fast-forward only")
    def publish(base: str, *, outlet_events: Any = None) -> dict[str, Any]:
        done = run("task", "publish-snapshot", corpus, *targets, "--base", base)
        if done["superseded"]:
            raise AirflowSkipException("a later month came in; the run it woke publishes both")
        outlet_events[asset].extra = done
        return done

    return publish(base)


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
