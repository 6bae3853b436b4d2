"""Define the tasks that Dags share: steps of a month, stages of dvc.yaml, requests to providers, and publishes."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, timedelta
from functools import cache
from typing import Any

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dvc_airflow import settings
from dvc_airflow.command import ByFailure, run
from dvc_airflow.graph import Stage, asking, closure, graph, group, groups_of, listed
from dvc_airflow.settings import named

log = logging.getLogger(__name__)

DEFAULT_ARGS: dict[str, Any] = {
    "owner": "corpus",
    "retries": 2,
    "retry_delay": timedelta(seconds=10),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=10),
    "retry_policy": ByFailure(),
    "execution_timeout": timedelta(hours=6),
}
# Of a stage without `timeout_minutes` in profiles/tasks.json.
STAGE_TIMEOUT = timedelta(minutes=30)

NO_KEY = (
    "This run of Dag {dag_id} has no partition key. Pass a month: `corpus airflow trigger {dag_id} --partition-key "
    "2022-12`. For several months: `airflow backfill create --dag-id {dag_id} --from-date 2022-01-01 --to-date "
    "2022-12-01`."
)
REVISED = "revised"
SUPERSEDED = "superseded by a newer month: clear `pin` and its downstream tasks"


def month_of(dag_run: Any) -> str:
    """Return the month of a Dag run: its partition key, or its logical date's month under ``dag.test()``."""
    if key := getattr(dag_run, "partition_key", None):
        return str(key)
    if moment := getattr(dag_run, "logical_date", None):
        return f"{moment.astimezone(UTC):%Y-%m}"
    raise AirflowFailException(NO_KEY.format(dag_id=dag_run.dag_id))


def run_of(dag_run: Any) -> tuple[str, str]:
    """Return the command option with a Dag run's id, by which stages accept only results of this run."""
    return "--run", f"{dag_run.dag_id}/{dag_run.run_id}"


def step(*argv: str, out: Sequence[str] = (), pointers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a step that processes a month in a scratch clone; return its result and the DVC pointers to its files."""
    globs = [part for pattern in out for part in ("--out", pattern)]
    return run("task", "step", "--pointers", "-", *globs, "--", *argv, given=json.dumps(dict(pointers or {})))


def snapshot(
    *targets: str,
    corpus: str,
    asset: Any,
    base: Any = None,
    below: Sequence[str] = (),
    woken: bool = True,
    early: bool = False,
    waits: Mapping[str, Callable[[Mapping[str, Any]], Sequence[Any]]] | None = None,
) -> Any:
    """Add the target stages of dvc.yaml and all stages upstream of them to a Dag as tasks; return the publish task.

    Edges and settings come from dvc.yaml. Every stage works on the commit that ``pin`` returned, regardless of later
    publishes, and returns a token of its result for its downstream tasks and the publish. The asset is emitted only
    after the commit, and not by a superseded run, which fails unless the event that supersedes it has ``woken`` a new
    run. With ``early``, what has ended is published if the rest waits for labels: people label items of the sample.

    ``below`` are stages that another Dag has run on this commit: these and all stages upstream of them are not
    rendered. ``waits`` has by step a function that makes the tasks which the stages of the step wait for and which may
    be skipped; its argument is the stage tasks made so far, by stage.
    """
    stages, waits = graph(), waits or {}
    built = {stage.name for stage in closure(stages, targets=below)}
    rendered = [stage for stage in closure(stages, targets=targets) if stage.name not in built]
    groups, grouped = groups_of(rendered, waiting=waits), cache(group)
    base = pin() if base is None else base
    made: dict[str, Any] = {}
    before: dict[str, Sequence[Any]] = {}
    for stage in rendered:
        if stage.step in waits and stage.step not in before:
            before[stage.step] = waits[stage.step](made)
        rule = "none_failed" if stage.step in waits else "all_success"
        upstream = [made[name] for name in stage.upstream if name in made]
        with ExitStack() as opened:
            for name, tooltip in groups[stage.name]:
                opened.enter_context(grouped(name, tooltip=tooltip))
            made[stage.name] = _stage_task(stage, base=base, upstream=upstream, rule=rule)
        for earlier in before.get(stage.step, ()):
            earlier >> made[stage.name]
    ids = [stages[name].task_id for name in made]
    rule = "none_failed" if early else "all_success"
    published = _publish_snapshot(
        *targets, corpus=corpus, asset=asset, base=base, stages=ids, below=below, woken=woken, rule=rule
    )
    for target in targets:
        made[target] >> published
    return published


def pin(corpus: str | None = None) -> Any:
    """Return the task that pins the commit of the corpus branch on which a run works.

    Airflow makes a run of every month's event at once, and the runs wait for each other. With ``corpus``, whose months
    trigger the Dag, a run is skipped if a month later than its own is published: that month's run works on both.
    """

    @task(task_id="pin", doc_md="the commit that this run works on")
    def pin(*, ti: Any = None, triggering_asset_events: Any = None) -> str:
        """Return the task that pins the commit of the corpus branch on which a run works."""
        events = [event for events_of in (triggering_asset_events or {}).values() for event in events_of]
        commits = [event.extra.get("commit") for event in events]
        # a second try is a person's wish, or harmless
        options: list[str] = []
        if corpus and all(commits) and ti.try_number == 1:
            options = ["--corpus", corpus, *(word for commit in commits for word in ("--woken-by", commit))]
        pinned = run("task", "pin", *options)
        if pinned["later"]:
            raise AirflowSkipException("a later month is published; the run that it triggers works on all months")
        return str(pinned["commit"])

    return pin()


@task(task_id="champions", doc_md="commit the champions, so that predictions name their models")
def champions(corpus: str) -> str:
    """Commit which champions label a corpus; return the commit, or skip the run if no model has a champion."""
    pinned = run("task", "champions", corpus)
    if not pinned["champions"]:
        raise AirflowSkipException("no champion is registered for any model of this corpus")
    return str(pinned["commit"])


def _stage_task(stage: Stage, *, base: Any, upstream: Sequence[Any], rule: str) -> Any:
    @task(task_id=stage.task_id, doc_md=stage.doc, trigger_rule=rule, execution_timeout=STAGE_TIMEOUT)
    def reproduce(base: str, results: list[dict[str, Any]], *, dag_run: Any = None) -> dict[str, Any]:
        return stage_results(stage.name, base=base, results=results, dag_run=dag_run)[0]

    return reproduce(base, list(upstream))


def stage_results(
    *stages: str, base: str, results: Sequence[Mapping[str, Any]] = (), dag_run: Any
) -> list[dict[str, Any]]:
    """Run DVC stages in one clone and return a token of each result; ``results`` are the tokens of upstream tasks."""
    argv = ("--base", base, *run_of(dag_run), "--results", "-")
    return list(run("task", "stage", *stages, *argv, given=json.dumps(list(results)))["results"])


def publish_results(
    corpus: str, *targets: str, base: str, results: Sequence[Mapping[str, Any]], dag_run: Any, below: Sequence[str] = ()
) -> dict[str, Any]:
    """Commit the results of a run's stages to the corpus branch; return what the publish command reports."""
    built_on = [word for stage in below for word in ("--below", stage)]
    argv = ("--base", base, *run_of(dag_run), "--results", "-", *built_on)
    return run("task", "publish-snapshot", corpus, *targets, *argv, given=json.dumps(list(results)))


def _publish_snapshot(
    *targets: str,
    corpus: str,
    asset: Any,
    base: Any,
    stages: Sequence[str],
    below: Sequence[str],
    woken: bool,
    rule: str,
) -> Any:
    @task(
        task_id="publish",
        outlets=[asset],
        doc_md="commit dvc.lock and metrics; fast-forward only",
        trigger_rule=rule,
    )
    def publish(base: str, *, dag_run: Any = None, ti: Any = None, outlet_events: Any = None) -> dict[str, Any]:
        """Commit `dvc.lock` and metrics to the corpus branch, fast-forward only, and emit the Dag's asset."""
        results = [result for result in ti.xcom_pull(task_ids=list(stages)) if result]
        if not results:
            raise AirflowSkipException("no stage has run")
        wanted = targets if len(results) == len(stages) else (results[-1]["stage"],)
        done = publish_results(corpus, *wanted, base=base, results=results, dag_run=dag_run, below=below)
        if done["superseded"] and not woken:
            raise AirflowFailException(SUPERSEDED)
        if done["superseded"]:
            raise AirflowSkipException("superseded by a newer commit; the run that it triggered publishes both")
        outlet_events[asset].extra = done
        return done

    return publish(base)


def publish_partition(
    pointers: Any, *, corpus: str, asset: Any, of: Callable[[Any, Any], str], partitioned: bool = True
) -> Any:
    """Return the task that commits a month's DVC pointers; the asset event carries the month and its gaps.

    ``of`` returns the month from the run and the task instance. Without a partition key, the event gets the month as
    key.
    """

    @task(task_id="publish", outlets=[asset], doc_md="commit the month; fast-forward only")
    def publish(
        pointers: dict[str, str], *, dag_run: Any = None, ti: Any = None, outlet_events: Any = None
    ) -> dict[str, Any]:
        month = of(dag_run, ti)
        argv = ("--month", month, "--pointers", "-", *run_of(dag_run))
        done = run("task", "publish-partition", corpus, *argv, given=json.dumps(pointers))
        outlet_events[asset].extra = {**done, "month": month}
        if not partitioned:
            # the Dag that waits for it is partitioned
            outlet_events[asset].add_partitions(month)
        return done

    return publish(pointers)


@task(task_id="refresh", doc_md="read the subreddits that are due; fill the gaps of published months")
def refresh(corpus: str, *, ti: Any = None) -> dict[str, Any]:
    """Read the listings that are due, and hand on a published month that has gained posts."""
    done: dict[str, Any] = step("refresh", corpus)["result"]
    if done["gaps"]:
        text = "the listings of %s have %d gaps, %.1f h in all; other sources fill them when the month closes"
        log.warning(text, corpus, done["gaps"], done["gap_hours"])
    # one month a run: the next run has the next one
    ti.xcom_push(key=REVISED, value=next(iter(done["revise"]), None))
    return done


def revised(_: Any, ti: Any) -> str:
    """Return the month that a run of ``<corpus>_refresh`` revises; without one the task is skipped."""
    month = ti.xcom_pull(task_ids="refresh", key=REVISED)
    if month is None:
        raise AirflowSkipException("no published month has gained posts")
    return str(month)


@task(task_id="track", doc_md="log the numbers of the publish to MLflow")
def track(corpus: str) -> dict[str, Any]:
    """Log the metrics of the published commit to MLflow, if a tracking server is configured."""
    return run("track", corpus)


@task(task_id="drift", doc_md="compare the predictions of each month with those of the test; notify of drift")
def drift(corpus: str) -> dict[str, Any]:
    """Report drift of the published predictions and notify the subscribers by webhook."""
    result = run("task", "drift", corpus)
    if result["drift"]:
        log.warning("predictions have drifted from those of the test: %s", result["drift"])
    return result


@task(task_id="register", doc_md="register each model in section `registry` that is not registered yet")
def register(corpus: str, *, published: dict[str, Any]) -> dict[str, Any]:
    """Register a corpus's models in parameter `registry`, as trained at the published commit."""
    return run("register", "--corpus", corpus, "--base", published["commit"])


@task(task_id="doctor")
def doctor() -> dict[str, int]:
    """Run every check of `corpus doctor`; this task fails if a check fails, after its retries, and logs the fixes."""
    # beside the tasks of other Dags, imports alone may exceed the command's 10 s
    counts: dict[str, Any] = run("doctor", "--json", "--timeout", "60")
    return {status: counts[status] for status in ("ok", "warning", "failure")}


@task(task_id="backup")
def backup() -> dict[str, Any]:
    """Back up the corpus to the folder in `CORPUS_VAULT_BACKUP`; this task is skipped without one."""
    if not settings.BACKUP:
        raise AirflowSkipException("CORPUS_VAULT_BACKUP is not set where this task runs")
    return run("backup")


@task(task_id="housekeeping")
def housekeeping() -> dict[str, Any]:
    """Remove old logs, rows and runs as `corpus housekeeping` does; what this host cannot reach is logged and left."""
    # of this interpreter's Airflow: the one of the pipelines may be another version, or none
    done = run("housekeeping", "--yes", "--airflow", sys.executable)
    for name, part in done.items():
        for reason in filter(None, (part.get("skipped"), part.get("not_collected"))):
            log.warning("%s: %s", name, reason)
    return done


def ask(corpus: str, *, base: Any, few_shot: Any) -> list[Any]:
    """Return the tasks that request labels from every remote labeller of ``votes.labellers`` for every shard.

    ``estimate`` runs first and fails if the cost exceeds the budget. Each provider then has a mapped task in its own
    pool with one slot, which keeps the provider's limits across runs. Answers go only to the sealed store; a retry
    after a kill sends no answered request again.
    """
    estimated = estimate(corpus, "votes", "injection_test", base=base, results=[few_shot])
    with group("label", tooltip="ask the providers' labellers; one pool for each provider"):
        asked = [
            _ask_provider(corpus, name, base=base, few_shot=few_shot, jobs=estimated) for name in listed("providers")
        ]
    return [estimated, *asked]


def estimate(corpus: str, *steps: str, base: Any, results: Sequence[Any]) -> Any:
    """Return the task ``estimate``, which fails if the steps cost more than what is left of the budget.

    Its result are the jobs of labellers; its log has who would receive what.
    """

    @task(task_id="estimate", doc_md="estimate the cost of asking providers; fail if it exceeds the budget")
    def estimate_steps(base: str, results: list[dict[str, Any]], *, dag_run: Any = None) -> list[dict[str, Any]]:
        argv = (*steps, "--base", base, *run_of(dag_run), "--results", "-")
        planned = run("task", "estimate", corpus, *argv, given=json.dumps(results))
        for row in planned["leaves"]:
            text = "%s (%s): %d requests, %d texts, %d pictures; consent: %s"
            values = (row[name] for name in ("provider", "to", "requests", "texts", "pictures", "consent"))
            log.info(text, *values)
        log.info("expected %s US dollars, at most %s", planned["usd_expected"], planned["usd_at_most"])
        return list(planned["jobs"])

    return estimate_steps(base, list(results))


def before(corpus: str, *steps: str, base: Any) -> dict[str, Callable[[Mapping[str, Any]], Sequence[Any]]]:
    """Return for each step that asks providers what it waits for (see ``snapshot``): one common task ``estimate``.

    Steps for which ``params.yaml`` names no model and no system send nothing and wait for nothing.
    """
    spending = asking(corpus)
    made: list[Any] = []

    def first(stages: Mapping[str, Any]) -> Sequence[Any]:
        if not made:
            read = [stages[name] for step in ("gold", "split", "few_shot") if (name := f"{step}@{corpus}") in stages]
            made.append(estimate(corpus, *(step for step in steps if step in spending), base=base, results=read))
        return made

    return {step: first for step in steps if step in spending}


def _ask_provider(corpus: str, provider: str, *, base: Any, few_shot: Any, jobs: Any) -> Any:
    @task(task_id=f"jobs__{provider}", doc_md=f"the shards that labellers of {provider} have not answered")
    def of_provider(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [job for job in jobs if job["provider"] == provider]

    @task(
        task_id=f"label__{provider}",
        pool=named(provider),
        doc_md="one labeller, one shard; stored answers are not requested again",
    )
    def ask_shard(
        job: dict[str, Any], base: str, few_shot: dict[str, Any], *, dag_run: Any = None, task_state_store: Any = None
    ) -> dict[str, Any]:
        results = json.dumps([few_shot])
        argv = (corpus, job["labeller"], str(job["shard"]), "--base", base, *run_of(dag_run), "--results", "-")
        if job["batch"] and not task_state_store.get("batches"):
            # beside the store of answers, where a further try finds the jobs whatever Airflow has forgotten
            task_state_store.set("batches", run("task", "label", *argv, "--no-wait", given=results)["batches"])
        return run("task", "label", *argv, given=results)

    return ask_shard.partial(base=base, few_shot=few_shot).expand(job=of_provider(jobs))
