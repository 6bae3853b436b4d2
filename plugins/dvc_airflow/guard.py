"""Refuse requests that other web sites send to the embedded Airflow; a user's own Airflow is left unchanged."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from airflow.plugins_manager import AirflowPlugin


def _middlewares() -> list[dict[str, Any]]:
    """Return the middleware that the embedded deployment names; its environment, unlike others, has the pipelines."""
    guard = os.environ.get("CORPUS_AIRFLOW_GUARD")
    if not guard:
        return []
    module, _, name = guard.rpartition(".")
    return [{"name": "corpus_guard", "middleware": getattr(import_module(module), name), "kwargs": {}}]


class GuardPlugin(AirflowPlugin):
    """Add the guard against other sites' requests to Airflow's web server, for its interface and all its APIs."""

    name = "corpus_guard"
    fastapi_root_middlewares = _middlewares()
