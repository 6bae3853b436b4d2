"""A small Reddit and its corpora, made once; every test works on a copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.release import small_release


@pytest.fixture(scope="session")
def made_release() -> tuple[Path, int]:
    return small_release.made()


@pytest.fixture
def world(made_release: tuple[Path, int], tmp_path: Path) -> Iterator[small_release.World]:
    with small_release.opened(made_release[0], to=tmp_path / "home", port=made_release[1]) as world:
        yield world
