"""
### memes_benchmark

FigSIM's benchmark on the gold that there is: **remarks** asks what models of kind m3h read (nobody, without one),
**train** fits every model of `train.models` for every task and seed (pool `gpu`), **prompted** asks every model of
`prompted.models`, **evaluate** scores them on test, compares any two and takes their errors apart, **report** writes
the page, **publish** commits all of it, **track** hands numbers and page to MLflow and answers where the page is,
**register** makes versions of the models that `registry` names.

Wakes on `gold/memes`, the end of an annotation round, or starts by hand. A month that comes in meanwhile brings no gold
and wakes nothing here: `publish` then fails and says what to clear. A task that was killed goes on from its checkpoint.
Another model is one entry of `models` in `params.yaml` and its name in `train.models`.
"""

from __future__ import annotations

from airflow.sdk import DAG, Asset

from dvc_airflow.graph import period
from dvc_airflow.tasks import DEFAULT_ARGS, register, snapshot, track

CORPUS = "memes"

with DAG(
    dag_id="memes_benchmark",
    doc_md=__doc__,
    schedule=[Asset(f"gold/{CORPUS}")],
    start_date=period(CORPUS)[0],
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    tags=[CORPUS, "benchmark"],
) as dag:
    published = snapshot(
        f"report@{CORPUS}", corpus=CORPUS, asset=Asset(f"benchmark/{CORPUS}"), below=[f"split@{CORPUS}"], woken=False
    )
    published >> track(CORPUS)
    register(CORPUS, published=published)
