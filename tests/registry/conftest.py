"""Make an MLflow database with its tables and a saved model once, because it takes seconds; tests copy them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.registry.candidate import Context
from tests import mlflow_server
from tests.killed import asking
from tests.postgres import BOTH, postgres
from tests.postgres import address as database
from tests.registry import small_registry

if TYPE_CHECKING:
    from tests.registry.packs import Made

__all__ = ["postgres"]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the home of a registry, a journal, a vault and a corpus of memes, for a test to do with as it likes."""
    home = tmp_path / "home"
    small_registry.begin(home)
    monkeypatch.setenv("CORPUS_HOME", str(home))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.sqlite")
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def context(small: Path) -> Iterator[Context]:
    with small_registry.opened(small) as context:
        yield context


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the address of a journal that does not exist yet."""
    return database(request, "journal", folder=tmp_path)


@pytest.fixture(scope="session")
def made() -> Made:
    """Give a small encoder with its pack."""
    from tests.registry import packs

    return packs.made("encoder")


@pytest.fixture(scope="module")
def killer() -> Iterator[Callable[..., int]]:
    """Give a function that does something in a process of its own, killed after a step, and returns how it ended."""
    with asking(Path(__file__).with_name("killed.py")) as ask:

        def killed(home: Path, what: str, step: str, **given: Any) -> int:
            asked = {"what": what, "step": step, "home": str(home), "secret": small_registry.SECRET.hex()}
            asked |= {"name": small_registry.NAME, "terms": small_registry.TERMS.model_dump(mode="json")}
            return ask(asked | {"given": small_registry.WHO | given})

        yield killed


@pytest.fixture(scope="session")
def address() -> str:
    """Return the address of an MLflow server for all tests that need one."""
    return mlflow_server.shared()
