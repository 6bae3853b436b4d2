"""
### posts_label

Labels by ensembles, honest about what they do not know: **estimate** says what asking would cost and stops where the
budget would not bear it, **ask** (one mapped task a labeller and shard) fills the sealed store of answers, then the
stages of `dvc.yaml` follow: **gold**, **votes** (one a labeller), **silver** and **probe** (one an ensemble), and
**publish** commits them and emits `silver/posts`. Wakes on `posts/dataset`.

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
    asked = ask(CORPUS, base=base)
    targets = [f"probe@{CORPUS}-{ensemble}" for ensemble in ensembles()]
    published = snapshot(
        *targets,
        corpus=CORPUS,
        asset=Asset(f"silver/{CORPUS}"),
        base=base,
        below=[f"split@{CORPUS}"],
        waits={"votes": asked},
    )
    published >> track(CORPUS)
