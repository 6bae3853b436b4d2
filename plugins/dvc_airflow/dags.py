"""Build the Dags of every corpus: collect a month, build the dataset of all months, label it with the champions."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, AssetAny, CronPartitionTimetable, FixedKeyMapper, PartitionedAssetTimetable, task

from dvc_airflow.graph import period, scoring
from dvc_airflow.tasks import DEFAULT_ARGS, champions, drift, month_of, publish_partition, snapshot, step, track


def collect_dag(corpus: str, *, items: str, pool: str, doc: str) -> DAG:
    """Return ``<corpus>_collect``: one month a run, ``collect`` → ``items`` (mapped) → ``partition`` → ``publish``.

    Args:
        corpus: its name, which is also the asset that a publish emits.
        items: the step that processes each item, ``images`` or ``texts``; it writes the folder of the same name.
        pool: the Airflow pool of that step's tasks.
        doc: the Dag's documentation.
    """
    first, last = period(corpus)
    with DAG(
        dag_id=f"{corpus}_collect",
        doc_md=doc,
        schedule=CronPartitionTimetable("0 0 1 * *", timezone="UTC", run_offset=-1, key_format="%Y-%m"),
        start_date=first,
        end_date=last,
        catchup=False,
        max_active_runs=2,
        default_args=DEFAULT_ARGS,
        tags=[corpus, "partition"],
    ) as dag:

        @task(pool="reddit")
        def collect(*, dag_run: Any = None) -> list[dict[str, Any]]:
            """Scan the source once, seal the month's submissions, and return one job per shard."""
            month = month_of(dag_run)
            done = step("collect", corpus, "--month", month, out=[f"work/{corpus}/{month}/*.parquet"])
            return [{"shard": shard, "pointers": done["pointers"]} for shard in range(done["result"]["shards"])]

        @task(task_id=items, pool=pool)
        def look(job: dict[str, Any], *, dag_run: Any = None) -> dict[str, str]:
            """Process each item of one shard."""
            month, pointers = month_of(dag_run), job["pointers"]
            out = [f"data/{corpus}/{month}/{items}/*.parquet", f"work/{corpus}/{month}/drops/*.parquet"]
            argv = (items, corpus, "--month", month, "--shard", str(job["shard"]))
            found: dict[str, str] = step(*argv, out=out, pointers=pointers)["pointers"]
            return {**pointers, **found}

        @task
        def partition(shards: Any, *, dag_run: Any = None) -> dict[str, str]:
            """Join the shards into the month's tables, and return the pointers to commit."""
            month = month_of(dag_run)
            pointers = {path: text for shard in shards for path, text in shard.items()}
            out = [f"data/{corpus}/{month}/*.parquet"]
            done = step("partition", corpus, "--month", month, out=out, pointers=pointers)
            return {path: text for path, text in (pointers | done["pointers"]).items() if path.startswith("data/")}

        publish_partition(partition(look.expand(job=collect())), corpus=corpus, asset=Asset(corpus))
    return dag


def dataset_dag(corpus: str, *, doc: str) -> DAG:
    """Return ``<corpus>_dataset``: the stages up to ``quality``, published as the asset ``<corpus>/dataset``."""
    with snapshot_dag(corpus, "dataset", wakes_on=corpus, doc=doc) as dag:
        snapshot(f"quality@{corpus}", corpus=corpus, asset=Asset(f"{corpus}/dataset")) >> track(corpus)
    return dag


def scoring_dag(corpus: str, *, doc: str) -> DAG:
    """Return ``<corpus>_scoring``: pin the champions, label with them in ``batch_predict``, publish, report drift.

    The Dag runs when a champion or the corpus changes.
    """
    changed = [Asset(f"model/{name}") for name in scoring(corpus)]
    with DAG(
        dag_id=f"{corpus}_scoring",
        doc_md=doc,
        schedule=AssetAny(Asset(f"{corpus}/dataset"), *changed),
        start_date=period(corpus)[0],
        catchup=False,
        max_active_runs=1,
        default_args=DEFAULT_ARGS,
        tags=[corpus, "registry"],
    ) as dag:
        stage, asset = f"batch_predict@{corpus}", Asset(f"predictions/{corpus}")
        base = champions(corpus)
        snapshot(stage, corpus=corpus, asset=asset, base=base) >> [track(corpus), drift(corpus)]
    return dag


def snapshot_dag(corpus: str, name: str, *, wakes_on: str, doc: str) -> DAG:
    """Return an empty Dag ``<corpus>_<name>``; its only active run consumes all pending events of an asset."""
    return DAG(
        dag_id=f"{corpus}_{name}",
        doc_md=doc,
        # every month maps to the same snapshot, so that a queued run takes all months that arrived meanwhile
        schedule=PartitionedAssetTimetable(assets=Asset(wakes_on), default_partition_mapper=FixedKeyMapper("snapshot")),
        start_date=period(corpus)[0],
        catchup=False,
        max_active_runs=1,
        default_args=DEFAULT_ARGS,
        tags=[corpus, "snapshot"],
    )
