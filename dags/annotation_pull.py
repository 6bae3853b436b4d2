"""
### annotation_pull

Every day, **rounds** lists the open annotation rounds, and **pull** (mapped over them) imports their answers, removes
items that were deleted meanwhile, and assigns every annotator new items up to the daily cap.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG

from dvc_airflow import annotation
from dvc_airflow.graph import protocols
from dvc_airflow.tasks import DEFAULT_ARGS

with DAG(
    dag_id="annotation_pull",
    doc_md=__doc__,
    schedule="@daily",
    start_date=datetime(2022, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    tags=["annotation"],
) as dag:
    annotation.pull_one.expand(job=annotation.open_rounds(protocols()))
