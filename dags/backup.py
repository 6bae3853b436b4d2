"""
### backup

Back up the corpus every day to the folder in `CORPUS_VAULT_BACKUP`, as `corpus backup` does: repository, objects of the
DVC remote, databases, releases and the files of registered models, never the secret. Other Dags may run meanwhile.
**backup** is skipped without `CORPUS_VAULT_BACKUP`; a backup that was interrupted resumes with the next try.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import CronTriggerTimetable

from dvc_airflow.dags import corpus_dag
from dvc_airflow.tasks import backup

with corpus_dag(
    "backup",
    doc=__doc__,
    tags=["operations"],
    # before the doctor, which examines the backup's age
    schedule=CronTriggerTimetable("30 4 * * *", timezone="UTC"),
    start_date=datetime(2022, 1, 1, tzinfo=UTC),
    max_active_runs=1,
) as dag:
    backup()
