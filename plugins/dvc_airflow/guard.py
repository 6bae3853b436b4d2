"""Refuse requests of other sites to the embedded Airflow; an Airflow of one's own is left unchanged."""

from __future__ import annotations

import os
from typing import Any

from airflow.plugins_manager import AirflowPlugin


def _middlewares() -> list[dict[str, Any]]:
    if not os.environ.get("CORPUS_AIRFLOW_GUARD"):
        return []
    # the embedded Airflow shares the environment of the pipelines
    from pipelines.deployment.guard import Guard

    return [{"name": "corpus_guard", "middleware": Guard, "kwargs": {}}]


class GuardPlugin(AirflowPlugin):
    """Add the guard to Airflow's web server: the interface, the REST API, the login and the API of tasks."""

    name = "corpus_guard"
    fastapi_root_middlewares = _middlewares()
