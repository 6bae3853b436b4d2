"""
### memes_scoring

Label every record with the champions of `batch_predict.memes`: **champions** commits their versions (`models/memes/`),
**batch_predict** predicts, **publish** commits the predictions, **track** logs the numbers to MLflow, **drift** reports
months whose predictions have drifted from those of the test.

Runs on `memes/dataset`, when months were added, and on `model/<name>`, when a champion has changed. The run is skipped
if no champion is registered.
"""

from __future__ import annotations

from dvc_airflow.dags import scoring_dag

dag = scoring_dag("memes", doc=__doc__)
