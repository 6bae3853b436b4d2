"""A server of a busy subreddit, for the tests of refreshes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crisis_corpus_sandbox.server import SandboxServer
from tests.collect import refreshed_reddit


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SandboxServer]:
    refreshed_reddit.write_world(tmp_path / "world", posts=getattr(request.module, "POSTS", 400))
    with SandboxServer(tmp_path / "world") as server:
        yield server
