"""
### annotation_pull

Every day: **rounds** says which annotation rounds are open, **pull** (mapped over them) brings their answers in, takes
out what was deleted meanwhile, and gives every annotator as many new items as the day's cap allows.
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
