"""
### posts_label

Label posts with ensembles; undecided items are left unlabelled: the stage **gold** chooses the prompt examples,
**estimate** estimates the cost and fails if it exceeds the budget, **label** (one mapped task per labeller and shard)
fills the sealed store of answers, the stages **votes** (one per labeller), **silver** and **injection_test** (one per
ensemble) follow, and **publish** commits them and emits `silver/posts`. Runs on `posts/dataset`.

Labellers and budget are set by `votes` in `params.yaml` or a profile (`sandbox`, `cradle`). Without an API key only the
offline ensemble labels. Clear a killed task to resume; no request is repeated. Show the results: `corpus votes-report
posts`.
"""

from __future__ import annotations

from dvc_airflow.dags import snapshot_dag
from dvc_airflow.graph import ensembles
from dvc_airflow.label import ask
from dvc_airflow.names import asset
from dvc_airflow.tasks import pin, snapshot, track

CORPUS = "posts"

with snapshot_dag(CORPUS, "label", wakes_on=f"{CORPUS}/dataset", doc=__doc__) as dag:
    base = pin()
    targets = [f"injection_test@{CORPUS}-{ensemble}" for ensemble in ensembles()]
    published = snapshot(
        *targets,
        corpus=CORPUS,
        asset=asset(f"silver/{CORPUS}"),
        base=base,
        below=[f"split@{CORPUS}"],
        waits={"votes": lambda made: ask(CORPUS, base=base, gold=made[f"gold@{CORPUS}"])},
    )
    published >> track(CORPUS)
