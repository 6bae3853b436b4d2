"""
### posts_finetune

Crisis models on the silver that there is, as CRADLE Bench does: **finetune** tunes every model of `finetune.models` on
every subset (pool `gpu`), **predict** asks what came out about dev and test, **untuned** scores the models that are
taken as they are, **evaluate** compares all of them on test, **report** writes the page, **publish** commits all of it,
**track** hands numbers and page to MLflow and answers where the page is, **register** makes versions of the models
that `registry` names.

Wakes on `silver/posts`. A task that was killed goes on from its checkpoint. Another model is one entry of `models` in
`params.yaml` and its name in `finetune.models` or `untuned.models`; labels of your own: `docs/models.md`.
"""

from __future__ import annotations

from airflow.sdk import Asset

from dvc_airflow.dags import snapshot_dag
from dvc_airflow.graph import ensembles
from dvc_airflow.tasks import register, snapshot, track

CORPUS = "posts"

with snapshot_dag(CORPUS, "finetune", wakes_on=f"silver/{CORPUS}", doc=__doc__) as dag:
    published = snapshot(
        f"report@{CORPUS}",
        corpus=CORPUS,
        asset=Asset(f"benchmark/{CORPUS}"),
        below=[f"silver@{CORPUS}-{ensemble}" for ensemble in ensembles()],
    )
    published >> track(CORPUS)
    register(CORPUS, published=published)
