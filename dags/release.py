"""
### release

Labels and ids for others: **make** writes the package, **approve** shows a person what would leave the house and waits
for an answer, which is no unless somebody says yes; **sign** signs it off, **keep** leaves it a draft.

By hand: `airflow dags trigger release --conf '{"corpus": "memes", "name": "memes-2026-1"}'`; without Airflow `corpus
release make` and `corpus release approve`. What is taken down later leaves it: the Dag `takedown`.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from dvc_airflow import release
from dvc_airflow.graph import corpora
from dvc_airflow.tasks import DEFAULT_ARGS

with DAG(
    dag_id="release",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    params={
        "corpus": Param(corpora()[0], type="string", enum=corpora(), description="whose labels"),
        "name": Param("draft-1", type="string", pattern="^[a-z0-9][a-z0-9-]*$", description="of the release"),
        "reason": Param("", type="string", maxLength=500, description="why, where the approver gives no reason"),
    },
    tags=["release"],
) as dag:
    approved = release.approve()
    release.make() >> approved >> [release.sign(), release.keep()]
