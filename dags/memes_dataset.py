"""
### memes_dataset

The corpus as of a commit: **dedupe** → **sample** → **split** → **score**, the stages of `dvc.yaml` as they stand
there, then **publish** commits `dvc.lock`, replayed from the run-cache. Wakes on the asset `memes`; months that
arrive while it runs are coalesced into one further run. On a laptop the same graph is `dvc repro`.
"""

from __future__ import annotations

from airflow.sdk import DAG, Asset, FixedKeyMapper, PartitionedAssetTimetable

from dvc_airflow.graph import period
from dvc_airflow.tasks import DEFAULT_ARGS, snapshot, track

CORPUS = "memes"
FIRST, _ = period(CORPUS)

with DAG(
    dag_id="memes_dataset",
    doc_md=__doc__,
    # every month maps to the one snapshot: a waiting run takes all months that came meanwhile
    schedule=PartitionedAssetTimetable(assets=Asset("memes"), default_partition_mapper=FixedKeyMapper("snapshot")),
    start_date=FIRST,
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    tags=["memes", "snapshot"],
):
    snapshot(f"score@{CORPUS}", corpus=CORPUS, asset=Asset("memes/dataset")) >> track(CORPUS)
