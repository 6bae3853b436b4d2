"""
### promote

A version of a registered model, from candidate to champion: **gate** judges it against the champion on the frozen test
and puts the verdict on record; where something speaks against it, **refused** says what, and nobody is asked;
**approve** shows a person the figures and waits for an answer, which is no unless somebody says yes; **promote** moves
the alias, reads it back and emits `model/<name>`; **reject** puts a no on record. Consumers are told by **deliver**.

By hand: `airflow dags trigger promote --conf '{"name": "crisis-posts", "version": 2}'`. The same without Airflow:
`corpus promote`, and `corpus rollback` to undo it.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from dvc_airflow import promotion
from dvc_airflow.graph import models
from dvc_airflow.tasks import DEFAULT_ARGS

with DAG(
    dag_id="promote",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=2,
    default_args=DEFAULT_ARGS,
    params={
        "name": Param(models()[0], type="string", enum=models(), description="the registered model"),
        "version": Param(1, type="integer", minimum=1, description="the candidate"),
        "reason": Param("", type="string", maxLength=500, description="why, where the approver gives no reason"),
    },
    tags=["registry"],
) as dag:
    promoted, rejected = promotion.promote(), promotion.reject()
    approved = promotion.approve()
    promotion.gate() >> [approved, promotion.refused()]
    approved >> [promoted, rejected]
    [promoted, rejected] >> promotion.deliver()
