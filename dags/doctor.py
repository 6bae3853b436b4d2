"""
### doctor

Examine the deployment every day, as `corpus doctor` does: credentials, versions, clock, disk, memory, GPU, OCR, pools
and queues, vault and backup, remote, push rights, modes of files, approvals, models, cache, the last deletion sweep.
**doctor** fails if a check fails, so that Airflow notifies; its log has each fault with its fix. Run `corpus doctor`
for a table.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import CronTriggerTimetable

from dvc_airflow.dags import corpus_dag
from dvc_airflow.tasks import doctor

with corpus_dag(
    "doctor",
    doc=__doc__,
    tags=["operations"],
    schedule=CronTriggerTimetable("0 6 * * *", timezone="UTC"),
    start_date=datetime(2022, 1, 1, tzinfo=UTC),
    max_active_runs=1,
) as dag:
    doctor()
