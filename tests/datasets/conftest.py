"""The small corpus of posts, a copy of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.train import small_posts
from tests.train.small_posts import SmallPosts


@pytest.fixture(scope="session")
def original() -> SmallPosts:
    return small_posts.made()


@pytest.fixture
def posts(original: SmallPosts, tmp_path: Path) -> Iterator[SmallPosts]:
    with small_posts.copied(original, to=tmp_path / "root") as copy:
        yield copy
