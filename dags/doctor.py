"""
### doctor

Every day, run the checks of `corpus doctor`: credentials, versions, clock, disk, memory, GPU, OCR, pools and queues,
vault and backup, remote, push rights, modes of files, approvals, models, cache, and the last deletion sweep. **doctor**
fails if a check fails, so that Airflow notifies; its log has each fault with its fix. Run `corpus doctor` for a table.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, CronTriggerTimetable

from dvc_airflow import operations
from dvc_airflow.tasks import DEFAULT_ARGS

with DAG(
    dag_id="doctor",
    doc_md=__doc__,
    schedule=CronTriggerTimetable("0 6 * * *", timezone="UTC"),
    start_date=datetime(2022, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    tags=["operations"],
) as dag:
    operations.doctor()
