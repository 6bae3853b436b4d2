"""Settings of all tests: one project secret, one cache of compiled kernels, one folder of shared fixtures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dvc.repo  # noqa: F401 - its logger keeps the stderr of its first import, which typer's runner replaces and closes
import pytest

from pipelines.workspace.clone import compiled_kernels
from tests import built_once

os.environ.setdefault("CORPUS_SECRET", "5e" * 64)
# compiled once, not once a home or a checkout
os.environ.update(compiled_kernels(Path(__file__).parents[1] / "var"))


@pytest.fixture(scope="session", autouse=True)
def shared_fixtures(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give :mod:`tests.built_once` a folder that all workers of the session share."""
    built_once.share(tmp_path_factory)


@pytest.fixture(scope="session")
def embeddings() -> dict[str, Any]:
    """Embeddings by text, of all tests that use the fixture ``embedded_once``."""
    return {}


@pytest.fixture(scope="module")
def embedded_once(embeddings: dict[str, Any]) -> Iterator[None]:
    """Ask the real embedding model once for each text: many tests use the same posts."""
    from pipelines.extract.embedding import MiniLM

    real = MiniLM.embed

    def embed(self: MiniLM, text: str) -> Any:
        if text not in embeddings:
            embeddings[text] = real(self, text)
        return embeddings[text].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MiniLM, "embed", embed)
        yield
