"""Tasks of a Dag: the steps of a partition, the stages of dvc.yaml, and the publish that commits them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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

SUPERSEDED = "superseded by a newer month: clear `pin` and its downstream tasks"


def month_of(dag_run: Any) -> str:
    """Return the partition of a run: its key, or the month of its logical date under ``dag.test()``.

    Raises:
        AirflowFailException: the run has neither; the message says what to pass.
    """
    from pipelines.collect.month import Window
    from pipelines.errors import ConfigError

    try:
        return Window.from_dag_run(dag_run, dag_id=dag_run.dag_id).key
    except ConfigError as error:
        raise AirflowFailException(str(error)) from None


def run_of(dag_run: Any) -> tuple[str, str]:
    """Return a run as an option of a command: its stages accept results of this run only."""
    return "--run", f"{dag_run.dag_id}/{dag_run.run_id}"


def step(*argv: str, out: Sequence[str] = (), pointers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a step of the partition layer in a clone of its own; hand over its result and the pointers to its files."""
    globs = [part for pattern in out for part in ("--out", pattern)]
    return run("task", "step", "--pointers", "-", *globs, "--", *argv, given=json.dumps(dict(pointers or {})))


def snapshot(
    *targets: str,
    corpus: str,
    asset: Asset,
    base: Any = None,
    below: Sequence[str] = (),
    woken: bool = True,
    waits: Mapping[str, Callable[[Mapping[str, Any]], Sequence[Any]]] | None = None,
) -> Any:
    """Render the target stages of dvc.yaml and all above them as tasks, then the publish that commits them.

    Edges and settings are the file's own. Every stage works on the commit that ``pin`` returned, whatever is
    published meanwhile, and returns a token of its result, which its downstream tasks and the publish receive. The
    asset is emitted after the commit, never before, and not by a superseded run.

    Args:
        targets: stages, such as ``quality@memes``.
        corpus: whose metrics and data they are.
        asset: what the publish emits.
        base: the answer of a :func:`pin` that the Dag has already.
        below: stages that another Dag has run on this commit: they and all above them are not rendered again.
        woken: whether what supersedes a run wakes this Dag again; if it does not, a superseded run fails.
        waits: by step, makes the tasks that the stages of the step wait for, which may be skipped; it is given the
            stage tasks made so far, by stage.

    Returns the publish task.
    """
    stages, waits = graph(), waits or {}
    given = {stage.name for stage in closure(stages, targets=below)}
    base = pin() if base is None else base
    made: dict[str, Any] = {}
    before: dict[str, Sequence[Any]] = {}
    for stage in closure(stages, targets=targets):
        if stage.name in given:
            continue
        if stage.step in waits and stage.step not in before:
            before[stage.step] = waits[stage.step](made)
        rule = "none_failed" if stage.step in waits else "all_success"
        upstream = [made[name] for name in stage.upstream if name in made]
        made[stage.name] = _stage_task(stage, base=base, upstream=upstream, rule=rule)
        for earlier in before.get(stage.step, ()):
            earlier >> made[stage.name]
    ids = [stages[name].task_id for name in made]
    published = _publish_snapshot(*targets, corpus=corpus, asset=asset, base=base, stages=ids, below=below, woken=woken)
    for target in targets:
        made[target] >> published
    return published


def pin() -> Any:
    """Return the task that says which commit a run works on."""

    @task(task_id="pin", doc_md="the commit that this run works on")
    def pin() -> str:
        return str(run("task", "pin")["commit"])

    return pin()


def champions(corpus: str) -> Any:
    """Return the task that commits which champions label a corpus, and says which commit a run works on.

    Where nobody is champion of any of its models, the run ends there.
    """

    @task(task_id="champions", pool="publish", doc_md="who labels: committed, so that predictions say whose they are")
    def commit_champions() -> str:
        pinned = run("task", "champions", corpus)
        if not pinned["champions"]:
            raise AirflowSkipException("nobody is champion of a model that labels this corpus")
        return str(pinned["commit"])

    return commit_champions()


def _stage_task(stage: Stage, *, base: Any, upstream: Sequence[Any], rule: str) -> Any:
    known = ("queue", "pool", "pool_slots", "retries", "priority_weight")
    options = {key: stage.airflow[key] for key in known if key in stage.airflow}
    if "timeout_minutes" in stage.airflow:
        options["execution_timeout"] = timedelta(minutes=stage.airflow["timeout_minutes"])

    @task(task_id=stage.task_id, doc_md=stage.desc or stage.name, trigger_rule=rule, **options)
    def reproduce(base: str, results: list[dict[str, Any]], *, dag_run: Any = None) -> dict[str, Any]:
        return stage_results(stage.name, base=base, results=results, dag_run=dag_run)[0]

    return reproduce(base, list(upstream))


def stage_results(
    *stages: str, base: str, results: Sequence[Mapping[str, Any]] = (), dag_run: Any
) -> list[dict[str, Any]]:
    """Run stages in one clone and return a token of each one's result; ``results`` are those of upstream tasks."""
    argv = ("--base", base, *run_of(dag_run), "--results", "-")
    return list(run("task", "stage", *stages, *argv, given=json.dumps(list(results)))["results"])


def publish_results(
    corpus: str, *targets: str, base: str, results: Sequence[Mapping[str, Any]], dag_run: Any, below: Sequence[str] = ()
) -> dict[str, Any]:
    """Commit what the stages of a run handed over."""
    built_on = [word for stage in below for word in ("--below", stage)]
    argv = ("--base", base, *run_of(dag_run), "--results", "-", *built_on)
    return run("task", "publish-snapshot", corpus, *targets, *argv, given=json.dumps(list(results)))


def _publish_snapshot(
    *targets: str, corpus: str, asset: Asset, base: Any, stages: Sequence[str], below: Sequence[str], woken: bool
) -> Any:
    @task(task_id="publish", pool="publish", outlets=[asset], doc_md="commit dvc.lock and metrics; fast-forward only")
    def publish(base: str, *, dag_run: Any = None, ti: Any = None, outlet_events: Any = None) -> dict[str, Any]:
        results = ti.xcom_pull(task_ids=list(stages))
        done = publish_results(corpus, *targets, base=base, results=results, dag_run=dag_run, below=below)
        if done["superseded"] and not woken:
            raise AirflowFailException(SUPERSEDED)
        if done["superseded"]:
            raise AirflowSkipException("superseded by a newer commit; the run that it woke publishes both")
        outlet_events[asset].extra = done
        return done

    return publish(base)


def publish_partition(pointers: Any, *, corpus: str, asset: Asset) -> Any:
    """Commit a month's pointers; the asset event carries the month as its partition."""

    @task(task_id="publish", pool="publish", outlets=[asset], doc_md="commit the month; fast-forward only")
    def publish(pointers: dict[str, str], *, dag_run: Any = None, outlet_events: Any = None) -> dict[str, Any]:
        month = month_of(dag_run)
        argv = ("--month", month, "--pointers", "-")
        done = run("task", "publish-partition", corpus, *argv, given=json.dumps(pointers))
        outlet_events[asset].extra = {**done, "month": month}
        return done

    return publish(pointers)


def track(corpus: str) -> Any:
    """Log the published numbers to MLflow, where a tracking server is configured."""

    @task(task_id="track", doc_md="the numbers of the publish, in MLflow")
    def track_numbers() -> dict[str, Any]:
        return run("track", corpus)

    return track_numbers()


def register(corpus: str, *, published: Any) -> Any:
    """Register what the section `registry` names of a corpus, as it was published."""

    @task(task_id="register", doc_md="each model that `registry` names becomes a version; one that is there stays")
    def register_models(published: dict[str, Any]) -> dict[str, Any]:
        return run("register", "--corpus", corpus, "--base", published["commit"])

    return register_models(published)
