"""Remove logs, rows of Airflow and runs of MLflow that are old and that nothing refers to."""
