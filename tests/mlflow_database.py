"""Provide MLflow databases with all tables; creating the tables takes seconds, copying the file takes none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.built_once import built_once

FILE = "mlflow.sqlite"


def place(folder: Path, *, name: str = FILE) -> str:
    """Copy an empty database into a folder and return its address."""
    made = built_once("mlflow", _make) / FILE
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(made, folder / name)
    return f"sqlite:///{folder / name}"


def _make(folder: Path) -> None:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    MlflowClient(tracking_uri=f"sqlite:///{folder}/{FILE}").search_experiments()
