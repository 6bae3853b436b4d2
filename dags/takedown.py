"""
### takedown

A request for deletion, done everywhere: **look** lists every place that holds something of it, **takedown** destroys
the keys, rewrites the live tables, takes it off the releases, removes the objects of every version and says which
models have learnt from it. A task that was killed goes on where it was.

Whom it is about must not stand in Airflow's database, so a request is a file: one post a line (id, fullname or address)
in `$CORPUS_HOME/requests/<request>.txt`; it is removed when all is done. Then `airflow dags trigger takedown --conf
'{"request": "2026-11-21-a"}'`. By author, picture, subreddit or source: `corpus takedown --help`.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from dvc_airflow import deletion
from dvc_airflow.tasks import DEFAULT_ARGS

with DAG(
    dag_id="takedown",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    params={
        "request": Param(
            "", type="string", pattern="^([a-z0-9][a-z0-9-]{0,62})?$", description="the name of a file of requests/"
        )
    },
    tags=["privacy"],
) as dag:
    deletion.look() >> deletion.takedown()
