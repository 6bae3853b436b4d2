"""
### posts_scoring

The champions of `scoring.posts` label every record: **champions** commits who they are (`models/posts/`), **scoring**
asks them, **publish** commits what they say, **track** hands the numbers to MLflow.

Wakes on `posts/dataset`, when months have come in, and on `model/<name>`, when a champion has changed. Nothing is asked
as long as nobody is champion.
"""

from __future__ import annotations

from dvc_airflow.dags import scoring_dag

dag = scoring_dag("posts", doc=__doc__)
