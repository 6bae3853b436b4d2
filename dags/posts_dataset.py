"""
### posts_dataset

The dataset of a commit: **dedupe** → **sample** → **gold** → **split** → **quality**, the stages of `dvc.yaml`. Then
**publish** commits their results in `dvc.lock`. Runs on the asset `posts`; of the months that arrive during a run, the
run of the last one works on all, and those of the others are skipped at **pin**. On a laptop, `dvc repro` runs the same
graph.
"""

from __future__ import annotations

from dvc_airflow.dags import dataset_dag

dag = dataset_dag("posts", doc=__doc__)
