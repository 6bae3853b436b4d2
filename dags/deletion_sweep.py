"""
### deletion_sweep

Every day, posts that are deleted on Reddit are deleted here: **sweep** re-checks known posts, recent ones more often
than old ones, within a budget that leaves enough requests for the collectors; **takedown** removes deleted posts, and
records whose source approval or retention has ended, from every version of the corpus and every release, and searches
again for all records that were taken down before; **retrain** triggers the training of a corpus of which a model was
trained on a deleted record; **swept** fails if a sweep failed. At the deadline, `takedown.weights_days`, **takedown**
deletes the weights of such models.

To try it manually: `corpus sweep CORPUS --dry-run`, `corpus takedown run-pending --dry-run`. A sweep that finds
implausibly many posts missing stops with an error; after a manual check, run `corpus sweep CORPUS --believe`.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import CronTriggerTimetable

from dvc_airflow import deletion, settings
from dvc_airflow.dags import corpus_dag
from dvc_airflow.graph import listed

with corpus_dag(
    "deletion_sweep",
    doc=__doc__,
    tags=["privacy"],
    hours=settings.SWEEP_HOURS,
    schedule=CronTriggerTimetable("30 3 * * *", timezone="UTC"),
    start_date=datetime(2022, 1, 1, tzinfo=UTC),
    max_active_runs=1,
) as dag:
    sweeps, done = deletion.sweeps(listed("corpora")), deletion.run_pending()
    sweeps >> done
    deletion.retrain(listed("corpora"), done)
    sweeps >> deletion.swept()
