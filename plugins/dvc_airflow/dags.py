"""Build the Dags of every corpus: collect a month, build the dataset of all months, label it with the champions.

The docstring of a function that builds a Dag is the Dag's documentation, in Markdown.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from airflow import sdk

from dvc_airflow import notify, settings, task_options
from dvc_airflow.graph import ensembles, months, period, refreshes, scoring, targets_of
from dvc_airflow.settings import asset, description, mentioned, named
from dvc_airflow.tasks import (
    DEFAULT_ARGS,
    ask,
    before,
    champions,
    drift,
    month_of,
    pin,
    publish_partition,
    refresh,
    register,
    revised,
    snapshot,
    step,
    track,
)

log = logging.getLogger(__name__)

# The form that starts a run has a field for the key, which it calls optional. The form shows nothing of a Dag but its
# parameters, so that one of them, with one value, explains the field.
KEY_FIELD = "Advanced Options, Partition Key"
OF_MONTH = (
    "Open Advanced Options and enter the month, such as 2022-12, in the field Partition Key. A run without it fails at "
    "its first task. For several months, choose Backfill above, or: airflow backfill create --dag-id {dag} --from-date "
    "2022-01-01 --to-date 2022-12-01"
)
OF_SNAPSHOT = (
    "Open Advanced Options and enter snapshot in the field Partition Key: the run works on all months. Without it, the "
    "Dags that wait for this one are not started."
)


def explained(title: str, text: str) -> dict[str, Any]:
    """Return the parameters of a Dag whose runs need a partition key: what to enter, shown where a run is started."""
    return {"partition_key": sdk.Param(KEY_FIELD, type="string", enum=[KEY_FIELD], title=title, description=text)}


@contextmanager
def corpus_dag(
    name: str, *, doc: str, tags: Sequence[str], schedule: Any, hours: float = 0, **options: Any
) -> Iterator[sdk.DAG]:
    """Open a Dag with this project's names, defaults and notifier; at its end, set the options of its tasks.

    A run has ``hours`` after it was queued; 0: no deadline.
    """
    with sdk.DAG(
        dag_id=named(name),
        description=description(doc),
        doc_md=mentioned(doc),
        tags=[named(tag) for tag in tags],
        schedule=schedule,
        catchup=False,
        default_args={**DEFAULT_ARGS, **task_options.for_every_task()},
        on_failure_callback=notify.failed if notify.target() else None,
        deadline=notify.deadline(hours),
        **options,
    ) as dag:
        yield dag
    task_options.place(dag.task_dict, dag=name)


def collect_dag(corpus: str, *, doc: str) -> sdk.DAG:
    """Collect one month of `{corpus}`.

    **collect** scans the source once, scrubs and seals the submissions, **images** or **texts** (mapped over shards)
    fetches, decodes and OCRs pictures, or checks length and language of texts and computes a signature of each for the
    near-duplicate search, **partition** joins the shards, **publish** commits the month and triggers
    `{corpus}_dataset`. Tasks exchange pointers, counts and digests, never content.

    Several years: `airflow backfill create --dag-id {corpus}_collect --from-date 2018-01-01 --to-date 2022-12-01`; to
    collect existing months again, add `--reprocess-behavior completed`. One month manually:
    `corpus airflow trigger {corpus}_collect --partition-key 2022-12`.
    """
    first, last = period(corpus)
    with corpus_dag(
        f"{corpus}_collect",
        doc=doc,
        tags=[corpus, "partition"],
        hours=settings.MONTH_HOURS,
        schedule=sdk.CronPartitionTimetable("0 0 1 * *", timezone="UTC", run_offset=-1, key_format="%Y-%m"),
        start_date=first,
        end_date=last,
        max_active_runs=2,
        params=explained("Month", OF_MONTH.format(dag=named(f"{corpus}_collect"))),
    ) as dag:
        _month_tasks(corpus, of=lambda dag_run, ti: month_of(dag_run))
    return dag


def refresh_dag(corpus: str, *, doc: str) -> sdk.DAG:
    """Read Reddit's listings of `{corpus}` before they overflow, if `reddit` is among the sources of the corpus.

    **refresh** reads the subreddits that are due back to what is known, stores new posts sealed until their month
    closes, and asks the other sources for gaps of published months. If such a month has gained posts, the tasks of
    `{corpus}_collect` follow and add them in one commit; otherwise they are skipped.

    The schedule is `listing.schedule` of a source in `params.yaml`, if a listing is read; a run in which no subreddit
    is due sends no request. Manually: `corpus airflow trigger {corpus}_refresh`.
    """
    cron = refreshes(corpus)
    with corpus_dag(
        f"{corpus}_refresh",
        doc=doc,
        tags=[corpus, "partition"],
        schedule=sdk.CronTriggerTimetable(cron, timezone="UTC") if cron else None,
        start_date=period(corpus)[0],
        max_active_runs=1,
    ) as dag:
        refresh(corpus) >> _month_tasks(corpus, of=revised, partitioned=False)
    return dag


def _month_tasks(corpus: str, *, of: Callable[[Any, Any], str], partitioned: bool = True) -> Any:
    """Render the tasks of a month and return the first; ``of`` returns the month from the run and the task instance."""
    steps = months(corpus)
    items = steps[1][0][0]

    def of_month(
        number: int, month: str, *, shard: object = "", pointers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        argv, out = ([word.format(month=month, shard=shard) for word in words] for words in steps[number])
        return step(*argv, out=out, pointers=pointers)

    @sdk.task
    def collect(*, dag_run: Any = None, ti: Any = None) -> list[dict[str, Any]]:
        """Bring the month's submissions into a sealed table, and return one job per shard."""
        month = of(dag_run, ti)
        done = of_month(0, month)
        result = done["result"]
        if result["gaps"]:
            text = "%s of %s: no source shows %d intervals, %.1f h in all; they are on record"
            log.warning(text, month, corpus, result["gaps"], result["gap_hours"])
        shards = range(result["first"], result["first"] + result["shards"])
        return [{"shard": shard, "pointers": done["pointers"]} for shard in shards]

    @sdk.task(task_id=items)
    def look(job: dict[str, Any], *, dag_run: Any = None, ti: Any = None) -> dict[str, str]:
        """Process each item of one shard."""
        month, pointers = of(dag_run, ti), job["pointers"]
        written: dict[str, str] = of_month(1, month, shard=job["shard"], pointers=pointers)["pointers"]
        return {**pointers, **written}

    @sdk.task
    def partition(shards: Any, *, dag_run: Any = None, ti: Any = None) -> dict[str, str]:
        """Join the shards into the month's tables, and return the pointers to commit."""
        month = of(dag_run, ti)
        pointers = {path: text for shard in shards for path, text in shard.items()}
        done = of_month(2, month, pointers=pointers)
        # an addition without items leaves no shard, so that nothing new makes no commit
        empty = done["result"]["adds"] and not done["result"]["items"]
        every = (pointers | done["pointers"]).items()
        shards_of = f"data/{corpus}/{month}/{items}/"
        return {p: text for p, text in every if p.startswith("data/") and not (empty and p.startswith(shards_of))}

    collected = collect()
    joined = partition(look.expand(job=collected))
    publish_partition(joined, corpus=corpus, asset=asset(corpus), of=of, partitioned=partitioned)
    return collected


def dataset_dag(corpus: str, *, doc: str) -> sdk.DAG:
    """Build the dataset of a commit of `{corpus}`.

    The stages **dedupe** → **sample** → **gold** → **split** → **quality** of `dvc.yaml`; then **publish** commits
    their results in `dvc.lock`, without labels those of the first three. Runs on the asset `{corpus}`; of the months
    that arrive during a run, the run of the last one works on all, and those of the others are skipped at **pin**. On a
    laptop, `dvc repro` runs the same graph.
    """
    with snapshot_dag(corpus, "dataset", wakes_on=corpus, doc=doc) as dag:
        targets, _ = targets_of(corpus, "dataset")
        built = snapshot(*targets, corpus=corpus, asset=asset(f"{corpus}/dataset"), base=pin(corpus), early=True)
        built >> track(corpus)
    return dag


def label_dag(corpus: str, *, doc: str) -> sdk.DAG:
    """Label the records of `{corpus}` with ensembles; undecided ones are left unlabelled.

    The stages **gold** and **split** take the answers of rounds since the dataset was built, **few_shot** chooses the
    prompt examples, **estimate** estimates the cost and fails if it exceeds the budget, **label** (one mapped task per
    labeller and shard) fills the sealed store of answers, the stages **votes** (one per labeller), **silver** and
    **injection_test** (one per ensemble) follow, and **publish** commits them and emits `silver/{corpus}`. Runs on
    `{corpus}/dataset`.

    Labellers and budget are set by `votes` in `params.yaml` or a profile. Without an API key only the offline ensemble
    labels. Clear a killed task to resume; no request is repeated. Show the results: `corpus votes-report {corpus}`.
    """
    with snapshot_dag(corpus, "label", wakes_on=f"{corpus}/dataset", doc=doc) as dag:
        base, (targets, below) = pin(), targets_of(corpus, "label")
        published = snapshot(
            *targets,
            corpus=corpus,
            asset=asset(f"silver/{corpus}"),
            base=base,
            below=below,
            waits={"votes": lambda made: ask(corpus, base=base, few_shot=made[f"few_shot@{corpus}"])},
        )
        published >> track(corpus)
    return dag


def benchmark_dag(corpus: str, *, doc: str) -> sdk.DAG:
    """Train and compare models of `{corpus}` on its present labels, as in FigSIM and CRADLE Bench.

    **rationales** asks for the rationales that some models read (none, without such a model), **train** fits every
    row of `train.rows.{corpus}`: each model for every task on every subset of the labels with every seed (pool
    `gpu`), **predict** collects the answers of all of these and of `predict.rows.{corpus}`, **moderation** asks the
    systems in `moderation.systems` (before these three **estimate** fails if they would exceed the budget),
    **evaluate** scores the predictions on test, compares all pairs and analyses errors, **analysis** describes the
    items with gold and tests their features by label (`agreement` measures that of the raters), **report** writes the
    report, **publish** commits all of it, **track** logs numbers and report to MLflow and returns the report's URL,
    **register** registers the candidates of section `registry` as versions.

    Runs on `silver/{corpus}` where ensembles label the corpus, else on `gold/{corpus}`, at the end of an annotation
    round. A killed task resumes from its checkpoint. To add a model, add an entry to `models` in `catalogue.yaml` and
    its name to `train.rows` or `predict.rows`; for your own labels see `docs/models.md`.
    """
    if ensembles(corpus):
        with snapshot_dag(corpus, "benchmark", wakes_on=f"silver/{corpus}", doc=doc) as dag:
            _benchmark(corpus)
        return dag
    with corpus_dag(
        f"{corpus}_benchmark",
        doc=doc,
        tags=[corpus, "benchmark"],
        schedule=[asset(f"gold/{corpus}")],
        start_date=period(corpus)[0],
        max_active_runs=1,
    ) as dag:
        _benchmark(corpus, woken=False)
    return dag


def _benchmark(corpus: str, *, woken: bool = True) -> None:
    base, (targets, below) = pin(), targets_of(corpus, "benchmark")
    published = snapshot(
        *targets,
        corpus=corpus,
        asset=asset(f"benchmark/{corpus}"),
        base=base,
        below=below,
        woken=woken,
        waits=before(corpus, "rationales", "predict", "moderation", base=base),
    )
    published >> track(corpus)
    register(corpus, published=published)


def scoring_dag(corpus: str, *, doc: str) -> sdk.DAG:
    """Label every record of `{corpus}` with the champions of `batch_predict.{corpus}`.

    **champions** commits their versions (`models/{corpus}/`), **batch_predict** predicts, **publish** commits the
    predictions, **track** logs the numbers to MLflow, **drift** reports months whose predictions have drifted from
    those of the test.

    Runs on `{corpus}/dataset`, when months were added, and on `model/<name>`, when a champion has changed. The run is
    skipped if no champion is registered.
    """
    changed = [asset(f"model/{name}") for name in scoring(corpus)]
    with corpus_dag(
        f"{corpus}_scoring",
        doc=doc,
        tags=[corpus, "registry"],
        schedule=sdk.AssetAny(asset(f"{corpus}/dataset"), *changed),
        start_date=period(corpus)[0],
        max_active_runs=1,
    ) as dag:
        stage, base = f"batch_predict@{corpus}", champions(corpus)
        published = snapshot(stage, corpus=corpus, asset=asset(f"predictions/{corpus}"), base=base)
        published >> [track(corpus), drift(corpus)]
    return dag


@contextmanager
def snapshot_dag(corpus: str, name: str, *, wakes_on: str, doc: str) -> Iterator[sdk.DAG]:
    """Open the Dag ``<corpus>_<name>``, which runs when the asset ``wakes_on`` changes.

    At most one run is active, and it works on all months that are published when it begins. Airflow makes a run for
    every month; see :func:`dvc_airflow.tasks.pin` for those that need not work.
    """
    with corpus_dag(
        f"{corpus}_{name}",
        doc=doc,
        tags=[corpus, "snapshot"],
        # every month maps to the same snapshot, so that a queued run takes all months that arrived meanwhile
        schedule=sdk.PartitionedAssetTimetable(
            assets=asset(wakes_on), default_partition_mapper=sdk.FixedKeyMapper("snapshot")
        ),
        start_date=period(corpus)[0],
        max_active_runs=1,
        params=explained("Months", OF_SNAPSHOT),
    ) as dag:
        yield dag


KINDS: dict[str, Callable[..., sdk.DAG]] = {
    "collect": collect_dag,
    "refresh": refresh_dag,
    "dataset": dataset_dag,
    "label": label_dag,
    "benchmark": benchmark_dag,
    "scoring": scoring_dag,
}


def dags_of(corpus: str) -> dict[str, sdk.DAG]:
    """Return the Dags of a corpus by Dag name (without the prefix); the process of a task makes only the task's own."""
    needs = {"label": ensembles, "scoring": scoring}
    wanted = sdk.get_parsing_context().dag_id
    return {
        name: build(corpus, doc=f"### {name}\n\n{inspect.cleandoc(build.__doc__ or '').format(corpus=corpus)}")
        for kind, build in KINDS.items()
        if (kind not in needs or needs[kind](corpus)) and wanted in (None, named(name := f"{corpus}_{kind}"))
    }


def one_of(names: Sequence[str], *, description: str) -> sdk.Param:
    """Return the parameter of a run that is one of these names, which may be none."""
    known = [*names] or ["none"]
    return sdk.Param(known[0], type="string", enum=known, description=description)
