"""Make an MLflow database with its tables and a saved model once, because it takes seconds; tests copy them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import mlflow_server
from tests.built_once import built_once
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
def address() -> str:
    """Return the address of an MLflow server for all tests that need one."""
    return mlflow_server.shared()
