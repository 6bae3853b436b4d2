"""Start the servers of a healthy deployment once, and give each test a copy of its home."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crisis_corpus_sandbox.server import SandboxServer
from tests import mlflow_server, small_sandbox
from tests.built_once import built_once
from tests.doctor import place as places
from tests.doctor.place import Place
from tests.doctor.small_airflow import small_airflow


@pytest.fixture(scope="session")
def mlflow() -> str:
    """Return the address of a real MLflow server."""
    return mlflow_server.shared()


@pytest.fixture
def place(mlflow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Give a healthy deployment, for a test to do with as it likes."""
    made, served = built_once("deployment", places.make), tmp_path / "sandbox"
    shutil.copytree(small_sandbox.folder(), served, ignore=shutil.ignore_patterns("images", "dumps"))
    (served / "images").mkdir(exist_ok=True)
    with SandboxServer(served) as sandbox, small_airflow() as airflow:
        yield Place.copied(made, tmp_path, patch=monkeypatch, mlflow=mlflow, sandbox=sandbox, airflow=airflow)
