"""Start the servers of a healthy deployment once, and give each test a copy of its home."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from pipelines.sandbox.server import SandboxServer
from tests import mlflow_database, small_sandbox
from tests.built_once import built_once
from tests.doctor import place as places
from tests.doctor.place import Place
from tests.doctor.small_airflow import small_airflow
from tests.ports import free_port


@pytest.fixture(scope="session")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a real MLflow server and return its address."""
    home = tmp_path_factory.mktemp("mlflow")
    store, port, quiet = mlflow_database.place(home), free_port(), subprocess.DEVNULL
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", store, "--artifacts-destination", str(home / "artifacts")]
    env = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with subprocess.Popen(command, cwd=home, env=env, stdout=quiet, stderr=quiet, start_new_session=True) as server:
        for _ in range(600):
            try:
                with urlopen(f"http://127.0.0.1:{port}/health"):
                    break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        os.killpg(server.pid, signal.SIGTERM)


@pytest.fixture
def place(mlflow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Give a healthy deployment, for a test to do with as it likes."""
    made, served = built_once("deployment", places.make), tmp_path / "sandbox"
    shutil.copytree(small_sandbox.folder(), served, ignore=shutil.ignore_patterns("images", "dumps"))
    (served / "images").mkdir(exist_ok=True)
    with SandboxServer(served) as sandbox, small_airflow() as airflow:
        yield Place.copied(made, tmp_path, patch=monkeypatch, mlflow=mlflow, sandbox=sandbox, airflow=airflow)
