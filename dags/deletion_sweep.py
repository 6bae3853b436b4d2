"""
### deletion_sweep

Every day, what people deleted leaves: **sweep** asks Reddit again about known posts, the young ones often, the old ones
seldom, within a budget that leaves the collectors' share; **takedown** takes down who is gone, and whose source's
approval has ended, in every version of the corpus and every release, and looks once more for everybody who was taken
down before; **swept** fails where a sweep did.

To look first: `corpus sweep CORPUS --dry-run`, `corpus takedown run-pending --dry-run`. A sweep that finds too much
gone at once stops: `corpus sweep CORPUS --believe`, once somebody has looked.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, CronTriggerTimetable

from dvc_airflow import deletion
from dvc_airflow.graph import corpora
from dvc_airflow.tasks import DEFAULT_ARGS

with DAG(
    dag_id="deletion_sweep",
    doc_md=__doc__,
    schedule=CronTriggerTimetable("30 3 * * *", timezone="UTC"),
    start_date=datetime(2022, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    tags=["privacy"],
) as dag:
    sweeps = [deletion.sweep(corpus) for corpus in corpora()]
    sweeps >> deletion.run_pending()
    sweeps >> deletion.swept()
