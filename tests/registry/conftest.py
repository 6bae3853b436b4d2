"""Make an MLflow database with its tables and a saved model once, because it takes seconds; tests copy them."""

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

from tests.built_once import built_once
from tests.ports import free_port
from tests.registry import small_registry


@pytest.fixture(scope="session")
def made_registry() -> small_registry.Made:
    """Give the folders that :func:`tests.registry.small_registry.begin` copies."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    return small_registry.made_in(built_once("registry", small_registry.make))


@pytest.fixture
def small(made_registry: small_registry.Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the home of a registry, a journal, a vault and a corpus of memes, for a test to do with as it likes."""
    home = tmp_path / "home"
    small_registry.begin(made_registry, home=home)
    monkeypatch.setenv("CORPUS_HOME", str(home))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.sqlite")
    monkeypatch.chdir(home)
    return home


@pytest.fixture(scope="session")
def address(made_registry: small_registry.Made, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start an MLflow server for all tests that need one; return its address."""
    home = tmp_path_factory.mktemp("server")
    shutil.copy(made_registry.database, home / "mlflow.sqlite")
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    command += [
        "--backend-store-uri",
        f"sqlite:///{home}/mlflow.sqlite",
        "--artifacts-destination",
        f"{home}/artifacts",
    ]
    env = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=home, env=env, stdout=quiet, stderr=quiet, start_new_session=True) as server:
        for _ in range(600):
            try:
                with urlopen(f"http://127.0.0.1:{port}/health"):
                    break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        os.killpg(server.pid, signal.SIGTERM)
