"""
### deliver

Every ten minutes, retry webhooks that could not be delivered; the last task of `promote` makes the first attempt. If
nothing is pending, nothing is sent. `corpus subscribe` lists subscribers with pending and failed deliveries.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, CronTriggerTimetable

from dvc_airflow import promotion
from dvc_airflow.tasks import DEFAULT_ARGS

with DAG(
    dag_id="deliver",
    doc_md=__doc__,
    schedule=CronTriggerTimetable("*/10 * * * *", timezone="UTC"),
    start_date=datetime(2022, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    tags=["registry"],
) as dag:
    promotion.deliver()
