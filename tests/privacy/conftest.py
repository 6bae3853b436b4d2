"""A vault's address on each database, and the registry of other tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.store.vault.vault import Vault
from tests.postgres import BOTH, address, postgres
from tests.registry.conftest import context, small

__all__ = ["context", "postgres", "small"]
SECRET = bytes(range(32))


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the address of a vault that does not exist yet."""
    return address(request, "vault", folder=tmp_path)


@pytest.fixture
def vault(url: str) -> Iterator[Vault]:
    with Vault.open(url, secret=SECRET) as vault:
        yield vault
