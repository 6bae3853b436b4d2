"""A small Reddit and its corpora, made once; every test works on a copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.built_once import built_once
from tests.release import small_release


@pytest.fixture(scope="session")
def made_release() -> tuple[Path, int]:
    folder = built_once(
        "release", lambda folder: (folder / "port").write_text(str(small_release.make(folder / "home")))
    )
    return folder / "home", int((folder / "port").read_text())


@pytest.fixture
def world(made_release: tuple[Path, int], tmp_path: Path) -> Iterator[small_release.World]:
    with small_release.opened(made_release[0], to=tmp_path / "home", port=made_release[1]) as world:
        yield world
