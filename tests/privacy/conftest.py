"""A vault's address on each database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import BOTH, address, postgres

__all__ = ["postgres"]
SECRET = bytes(range(32))


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the address of a vault that does not exist yet."""
    return address(request, "vault", folder=tmp_path)
