"""Run the stages of dvc.yaml and the steps of pipelines as Airflow tasks.

Tasks start commands with ``CORPUS_PYTHON``, the only interpreter that imports dvc and pipelines: Airflow's own
environment needs neither.
"""
