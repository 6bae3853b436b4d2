"""
### promote

Promote a version of a registered model to champion: **gate** compares it with the champion on a part of the frozen test
split, which is a look that is counted, and records the verdict; if the version fails, **refused** returns the reasons
and no person is asked; **approve** shows the figures to a person and waits for an answer, without which the version is
declined; **promote** sets the alias, verifies it and emits `model/<name>`; **reject** records a rejection; **deliver**
notifies subscribers.

Triggered manually: `airflow dags trigger promote --conf '{"name": "crisis-posts", "version": 2}'`. Without Airflow:
`corpus promote`, and `corpus rollback` to undo it.
"""

from __future__ import annotations

from airflow.sdk import Param

from dvc_airflow import approval
from dvc_airflow.dags import corpus_dag, one_of
from dvc_airflow.graph import listed

with corpus_dag(
    "promote",
    doc=__doc__,
    tags=["registry"],
    schedule=None,
    max_active_runs=2,
    params={
        "name": one_of(listed("registry"), description="the registered model, such as crisis-posts"),
        "version": Param(
            1,
            type="integer",
            minimum=1,
            description="the number of the candidate; MLflow and the Corpus page list them",
        ),
        "reason": approval.REASON,
    },
) as dag:
    promoted, rejected = approval.promote(), approval.reject()
    approved = approval.approve_promotion()
    approval.gate() >> [approved, approval.refused()]
    approved >> [promoted, rejected]
    [promoted, rejected] >> approval.deliver()
