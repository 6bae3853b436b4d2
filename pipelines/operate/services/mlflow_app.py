"""Serve MLflow behind a password: ``uvicorn --factory pipelines.operate.services.mlflow_app:app``.

MLflow's own ``basic-auth`` needs a further package, and a database of users.
"""

from __future__ import annotations

import os
from pathlib import Path

from pipelines.operate.services.guard import Guard

# The database and the folder of the artifacts.
STORE, ARTIFACTS = "CORPUS_MLFLOW_STORE", "CORPUS_MLFLOW_ARTIFACTS"
# The root of the artifacts that clients see; the server stores them in its folder.
PROXIED = "mlflow-artifacts:/"


def store(home: Path) -> str:
    """Return the address of the embedded MLflow's database, or of another one that this process may open."""
    return os.environ.get(STORE) or f"sqlite:///{home}/mlflow.sqlite"


def artifacts(home: Path) -> Path:
    """Return the folder in which the embedded MLflow stores the files of runs and models."""
    return Path(os.environ.get(ARTIFACTS) or home / "mlflow")


def app() -> Guard:
    """Return MLflow's web application behind a login, which is that of MLflow's clients in the environment."""
    from mlflow.server import constants

    store = os.environ[STORE]
    # as `mlflow server` hands its options to its workers
    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: store,
        constants.REGISTRY_STORE_URI_ENV_VAR: store,
        constants.ARTIFACT_ROOT_ENV_VAR: PROXIED,
        constants.ARTIFACTS_DESTINATION_ENV_VAR: os.environ[ARTIFACTS],
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
    }
    from mlflow.server.fastapi_app import app as served
    from mlflow.server.handlers import initialize_backend_stores

    initialize_backend_stores(store, store, PROXIED)
    login = os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]
    return Guard(served, login=login, public={"/health"})
