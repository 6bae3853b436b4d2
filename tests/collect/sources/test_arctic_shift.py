from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crisis_corpus_sandbox.server import SandboxServer
from pipelines.core.errors import SourceRefused, SourceThrottled, SourceUnavailable

Read = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("page", [6, 7, 25, 100])
def test_pages_of_any_size_give_every_item_once(opened: Any, read: Read, server: SandboxServer, page: int) -> None:
    assert read(opened("arctic_shift", at=server, page=page)) == read(opened("arctic_shift", at=server, page=50))


def test_a_second_with_more_posts_than_a_page_is_an_error_not_a_gap(
    opened: Any, read: Read, server: SandboxServer
) -> None:
    with pytest.raises(SourceUnavailable, match="within two seconds"):
        read(opened("arctic_shift", at=server, page=4))


def test_a_retry_asks_only_for_the_pages_still_missing(
    opened: Any, read: Read, server: SandboxServer, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    undisturbed = read(opened("arctic_shift", at=server, page=10))
    pages = server.counts["arctic"]
    server.outage_after = 5
    with pytest.raises(SourceUnavailable, match="HTTP 503"):
        read(opened("arctic_shift", at=server, page=10, state=state))
    server.outage_after = None
    before = server.counts["arctic"]
    assert read(opened("arctic_shift", at=server, page=10, state=state)) == undisturbed
    assert server.counts["arctic"] - before == pages - 5
    assert not state.exists()


def test_the_state_is_sealed_private_and_good_for_one_query(
    opened: Any, read: Read, server: SandboxServer, tmp_path: Path
) -> None:
    state = tmp_path / "scratch" / "state"
    server.outage_after = 3
    with pytest.raises(SourceUnavailable):
        read(opened("arctic_shift", at=server, page=10, state=state))
    data = state.read_bytes()
    assert data and state.stat().st_mode & 0o777 == 0o600
    assert b"t3_" not in data and b"author_" not in data and b"Post" not in data
    server.outage_after = None
    before = server.counts["arctic"]
    november = read(opened("arctic_shift", at=server, page=10, state=state), "2022-11")
    assert november == read(opened("arctic_shift", at=server, page=10), "2022-11")
    assert (server.counts["arctic"] - before) % 2 == 0  # both asked for every page


@pytest.mark.parametrize("lost", [1, 40, 2000])
def test_a_torn_page_is_asked_for_again(
    opened: Any, read: Read, server: SandboxServer, tmp_path: Path, lost: int
) -> None:
    state = tmp_path / "state"
    undisturbed = read(opened("arctic_shift", at=server, page=10))
    server.outage_after = 5
    with pytest.raises(SourceUnavailable):
        read(opened("arctic_shift", at=server, page=10, state=state))
    state.write_bytes(state.read_bytes()[:-lost])
    server.outage_after = None
    assert read(opened("arctic_shift", at=server, page=10, state=state)) == undisturbed


def test_a_spent_budget_is_waited_for(root: Path, opened: Any, read: Read) -> None:
    with SandboxServer(root, budget=2, period=30) as server:
        source = opened("arctic_shift", at=server)
        waited: list[float] = []

        def pause(seconds: float) -> None:
            waited.append(seconds)
            server.arctic._end = 0.0  # the period is over

        source._pause = pause
        assert len(read(source)) > 80
        assert waited and all(20 < w <= 30 for w in waited)


def test_a_budget_spent_by_others_is_a_time_to_wait(root: Path, opened: Any, read: Read) -> None:
    with SandboxServer(root, budget=1, period=60) as server:
        server.arctic.spend()
        with pytest.raises(SourceThrottled) as caught:
            read(opened("arctic_shift", at=server))
        assert 50 < caught.value.fields["retry_after"] <= 61


def test_other_answers(opened: Any, read: Read, server: SandboxServer) -> None:
    with pytest.raises(SourceRefused, match="HTTP 400"):
        source = opened("arctic_shift", at=server)
        source._params = source._params.model_construct(page_size=101, timeout_seconds=5)
        read(source)
    with pytest.raises(SourceUnavailable, match="ConnectionError"):
        read(opened("arctic_shift"))
    with pytest.raises(SourceRefused, match="HTTP 404"):
        read(opened("arctic_shift", at=server, arctic_shift_url=f"{server.address}/elsewhere"))
    assert read(opened("arctic_shift", at=server), "2022-12", "NeverWas") == {}
