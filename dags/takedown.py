"""
### takedown

Take the posts of a deletion request down everywhere: **look** lists every place that holds them, **takedown** destroys
their keys, rewrites the live tables, adds them to the releases' next batch of removals, removes the old objects of
every version and marks the models trained on them as stale; **retrain** triggers the training of their corpus. A killed
task resumes where it stopped.

The posts must not be stored in Airflow's database, so a request is a file with one post per line (id, fullname or URL)
in `$CORPUS_HOME/requests/<request>.txt`, which is removed when all is done. Then `airflow dags trigger takedown --conf
'{"request": "2026-11-21-a"}'`. By author, picture, subreddit or source: `corpus takedown --help`.
"""

from __future__ import annotations

from airflow.sdk import Param

from dvc_airflow import deletion
from dvc_airflow.dags import corpus_dag
from dvc_airflow.graph import listed

with corpus_dag(
    "takedown",
    doc=__doc__,
    tags=["privacy"],
    schedule=None,
    max_active_runs=1,
    params={
        "request": Param(
            "",
            type="string",
            pattern="^([a-z0-9][a-z0-9-]{0,62})?$",
            description="the name of a file in requests/, without .txt",
        )
    },
) as dag:
    done = deletion.takedown()
    deletion.look() >> done
    deletion.retrain(listed("corpora"), done)
