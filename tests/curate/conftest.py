"""A vault of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.store.vault.vault import Vault


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    with Vault.open(f"sqlite:///{tmp_path / 'vault.sqlite'}", secret=bytes(range(32))) as opened:
        yield opened
