"""The small corpus of posts, a copy of its own for each test, and the settings of a home of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.core.config.settings import Settings
from tests.train import small_posts, small_tuned
from tests.train.small_posts import SmallPosts


@pytest.fixture(scope="session")
def original() -> SmallPosts:
    return small_posts.made()


@pytest.fixture
def posts(original: SmallPosts, tmp_path: Path) -> Iterator[SmallPosts]:
    with small_posts.copied(original, to=tmp_path / "root") as copy:
        yield copy


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return small_tuned.settings(tmp_path / "home", patch=monkeypatch)
