"""Define the section ``housekeeping`` of ``params.yaml``: how long logs, Airflow's rows and MLflow's runs are kept."""

from __future__ import annotations

from pipelines.config.base import Positive, Section


class Housekeeping(Section):
    """Ages after which ``corpus housekeeping`` removes what no corpus needs; all values are this project's own choice.

    Args:
        airflow_days: runs, XCom and events in Airflow's database, which no unfinished run needs.
        logs_days: files of logs to which nothing was written for so long.
        log_mb: the log of an embedded component that is larger is cut to its newest half of this size, in MB.
        mlflow_days: runs and traces in MLflow to which nothing on record refers; a run is then deleted, which a person
            can undo.
        trash_days: deleted runs leave MLflow for good, with their files, after this many days.
    """

    airflow_days: Positive
    logs_days: Positive
    log_mb: Positive
    mlflow_days: Positive
    trash_days: Positive
