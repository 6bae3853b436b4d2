"""
### posts_scoring

Label every record with the champions of `batch_predict.posts`: **champions** commits their versions (`models/posts/`),
**batch_predict** predicts, **publish** commits the predictions, **track** logs the numbers to MLflow, **drift** reports
months whose predictions have drifted from those of the test.

Runs on `posts/dataset`, when months were added, and on `model/<name>`, when a champion has changed. The run is skipped
if no champion is registered.
"""

from __future__ import annotations

from dvc_airflow.dags import scoring_dag

dag = scoring_dag("posts", doc=__doc__)
