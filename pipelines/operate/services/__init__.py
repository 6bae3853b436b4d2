"""Start and stop the embedded services: Airflow, PostgreSQL, MLflow, Label Studio."""
