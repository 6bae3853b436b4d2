"""dvc.yaml as Airflow tasks: the one place that knows both Airflow and the pipelines.

Importing this costs milliseconds: neither dvc nor pipelines is loaded until a task runs.
"""
