"""
### deliver

Every ten minutes, retry webhooks that could not be delivered; the last task of `promote` makes the first attempt. If
nothing is pending, nothing is sent. `corpus subscribe` lists subscribers with pending and failed deliveries.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import CronTriggerTimetable

from dvc_airflow import approval
from dvc_airflow.dags import corpus_dag

with corpus_dag(
    "deliver",
    doc=__doc__,
    tags=["registry"],
    schedule=CronTriggerTimetable("*/10 * * * *", timezone="UTC"),
    start_date=datetime(2022, 1, 1, tzinfo=UTC),
    max_active_runs=1,
) as dag:
    approval.deliver()
