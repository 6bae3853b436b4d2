"""Run the stages of dvc.yaml and the steps of pipelines as Airflow tasks.

Only this package imports both Airflow and the pipelines. Importing it costs milliseconds: neither dvc nor pipelines is
loaded until a task runs.
"""
