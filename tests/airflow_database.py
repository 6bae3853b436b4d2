"""Provide Airflow databases with all tables; Airflow's migrations take seconds, copying the file takes none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pipelines.operate.services import postgres
from tests.built_once import built_once

FILE = "airflow.db"


def place(folder: Path) -> str:
    """Copy an empty database into a folder and return its address."""
    made = built_once("airflow-database", _migrate) / FILE
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(made, folder / FILE)
    return f"sqlite:///{folder / FILE}"


def _migrate(folder: Path) -> None:
    variables = {postgres.OPTION: f"sqlite:///{folder / FILE}", "AIRFLOW_HOME": str(folder)}
    argv = [sys.executable, "-m", "airflow", "db", "migrate"]
    subprocess.run(argv, env={**os.environ, **variables}, check=True, capture_output=True)
