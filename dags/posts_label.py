"""
### posts_label

Label posts with ensembles; undecided items are left unlabelled: the stages **gold** and **split** take the answers of
rounds since the dataset was built, **few_shot** chooses the prompt examples, **estimate** estimates the cost and fails
if it exceeds the budget, **label** (one mapped task per labeller and shard) fills the sealed store of answers, the
stages **votes** (one per labeller), **silver** and **injection_test** (one per ensemble) follow, and **publish**
commits them and emits `silver/posts`. Runs on `posts/dataset`.

Labellers and budget are set by `votes` in `params.yaml` or a profile (`sandbox`, `cradle`). Without an API key only the
offline ensemble labels. Clear a killed task to resume; no request is repeated. Show the results: `corpus votes-report
posts`.
"""

from __future__ import annotations

from dvc_airflow.dags import label_dag

dag = label_dag("posts", doc=__doc__)
