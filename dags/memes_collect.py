"""
### memes_collect

One month of r/SuicideMeme and its like: **collect** scans the source once and seals what it keeps, **images** (mapped
over shards) fetches, decodes and reads the pictures, **partition** joins the shards, **publish** commits the month and
wakes `memes_dataset`. Tasks hand over pointers, counts and digests, never content.

Years of it: `airflow backfill create --dag-id memes_collect --from-date 2018-04-01 --to-date 2022-12-01`;
again for months that exist: add `--reprocess-behavior completed`. One month by hand:
`airflow dags trigger memes_collect --partition-key 2022-12`.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, CronPartitionTimetable, task

from dvc_airflow.graph import period
from dvc_airflow.tasks import DEFAULT_ARGS, month_of, publish_partition, step

CORPUS = "memes"
FIRST, LAST = period(CORPUS)

with DAG(
    dag_id="memes_collect",
    doc_md=__doc__,
    schedule=CronPartitionTimetable("0 0 1 * *", timezone="UTC", run_offset=-1, key_format="%Y-%m"),
    start_date=FIRST,
    end_date=LAST,
    catchup=False,
    max_active_runs=2,
    default_args=DEFAULT_ARGS,
    tags=["memes", "partition"],
):

    @task(pool="reddit")
    def collect(*, dag_run: Any = None) -> list[dict[str, Any]]:
        """Scan the source once; seal the month's submissions; answer one job a shard."""
        month = month_of(dag_run)
        done = step("collect", CORPUS, "--month", month, out=[f"work/{CORPUS}/{month}/*.parquet"])
        return [{"shard": shard, "pointers": done["pointers"]} for shard in range(done["result"]["shards"])]

    @task(pool="images")
    def images(job: dict[str, Any], *, dag_run: Any = None) -> dict[str, str]:
        """Fetch, decode, read and fingerprint one shard's pictures."""
        month, pointers = month_of(dag_run), job["pointers"]
        out = [f"data/{CORPUS}/{month}/images/*.parquet", f"work/{CORPUS}/{month}/drops/*.parquet"]
        argv = ("images", CORPUS, "--month", month, "--shard", str(job["shard"]))
        return pointers | dict(step(*argv, out=out, pointers=pointers)["pointers"])

    @task
    def partition(shards: list[dict[str, str]], *, dag_run: Any = None) -> dict[str, str]:
        """Join the shards into the month's tables; hand over what is to be committed."""
        month = month_of(dag_run)
        pointers = {path: text for shard in shards for path, text in shard.items()}
        done = step("partition", CORPUS, "--month", month, out=[f"data/{CORPUS}/{month}/*.parquet"], pointers=pointers)
        return {path: text for path, text in (pointers | done["pointers"]).items() if path.startswith("data/")}

    publish_partition(partition(images.expand(job=collect())), corpus=CORPUS, asset=Asset("memes"))
