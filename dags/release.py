"""
### release

Release labels and ids: **make** writes the package as a draft, **approve** shows its counts to a person and waits for
an answer, without which it stays a draft; **sign** approves the release, **keep** leaves it a draft.

Manually: `airflow dags trigger release --conf '{"corpus": "memes", "name": "memes-2026-1"}'`. Without Airflow:
`corpus release make` and `corpus release approve`. Later takedowns also remove records from releases (Dag `takedown`).
"""

from __future__ import annotations

from airflow.sdk import Param

from dvc_airflow import approval
from dvc_airflow.dags import corpus_dag, one_of
from dvc_airflow.graph import listed

with corpus_dag(
    "release",
    doc=__doc__,
    tags=["release"],
    schedule=None,
    max_active_runs=1,
    params={
        "corpus": one_of(listed("corpora"), description="the corpus of the labels"),
        "name": Param("draft-1", type="string", pattern="^[a-z0-9][a-z0-9-]*$", description="the name of the release"),
        "reason": approval.REASON,
    },
) as dag:
    approved = approval.approve_release()
    approval.make_release() >> approved >> [approval.sign_release(), approval.keep_draft()]
