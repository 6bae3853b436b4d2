"""
### posts_label

Labels by ensembles, with what they cannot decide left open: the stage **gold** chooses the examples, **estimate**
estimates what asking would cost and fails where that exceeds the budget, **ask** (one mapped task a labeller and shard)
fills the sealed store of answers, the stages **votes** (one a labeller), **silver** and **probe** (one an ensemble)
follow, and **publish** commits them and emits `silver/posts`. Wakes on `posts/dataset`.

Who is asked, and the budget: `votes` in `params.yaml` or a profile (`sandbox`, `cradle`). Without a key the offline
ensemble labels alone. A task that was killed asks nothing twice: clear it. What came out: `corpus votes posts`.
"""

from __future__ import annotations

from airflow.sdk import Asset

from dvc_airflow.dags import snapshot_dag
from dvc_airflow.graph import ensembles
from dvc_airflow.label import ask
from dvc_airflow.tasks import pin, snapshot, track

CORPUS = "posts"

with snapshot_dag(CORPUS, "label", wakes_on=f"{CORPUS}/dataset", doc=__doc__) as dag:
    base = pin()
    targets = [f"injection_test@{CORPUS}-{ensemble}" for ensemble in ensembles()]
    published = snapshot(
        *targets,
        corpus=CORPUS,
        asset=Asset(f"silver/{CORPUS}"),
        base=base,
        below=[f"split@{CORPUS}"],
        waits={"votes": lambda made: ask(CORPUS, base=base, gold=made[f"gold@{CORPUS}"])},
    )
    published >> track(CORPUS)
