"""
### annotation_pull

Import the answers of the open annotation rounds every day: **rounds** lists the rounds, and **pull** (mapped over them)
imports their answers, removes items that were deleted meanwhile, and assigns every annotator new items up to the daily
cap.
"""

from __future__ import annotations

from datetime import UTC, datetime

from dvc_airflow import annotation
from dvc_airflow.dags import corpus_dag
from dvc_airflow.graph import listed

with corpus_dag(
    "annotation_pull",
    doc=__doc__,
    tags=["annotation"],
    schedule="@daily",
    start_date=datetime(2022, 1, 1, tzinfo=UTC),
    max_active_runs=1,
) as dag:
    annotation.pull_one.expand(job=annotation.open_rounds(listed("protocols")))
