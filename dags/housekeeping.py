"""
### housekeeping

Remove what grows without a limit beside the corpus, as `corpus housekeeping` does: logs of tasks, old rows of Airflow's
database (runs, XCom), and MLflow's runs to which no model, decision, release or report refers. Ages are in section
`housekeeping` of the parameters. Nothing of an unfinished run is removed. **housekeeping** may be cleared at any time.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import CronTriggerTimetable

from dvc_airflow.dags import corpus_dag
from dvc_airflow.tasks import housekeeping

with corpus_dag(
    "housekeeping",
    doc=__doc__,
    tags=["operations"],
    # after the backup of the same night
    schedule=CronTriggerTimetable("30 5 * * 0", timezone="UTC"),
    start_date=datetime(2022, 1, 1, tzinfo=UTC),
    max_active_runs=1,
) as dag:
    housekeeping()
