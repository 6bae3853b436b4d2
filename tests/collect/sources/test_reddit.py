"""Unmodified PRAW against a real server: pages, pace, refusals, and going on where an attempt ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from pipelines.collect.sources.service import AllClosed
from pipelines.collect.submission import Submission, Uncollected
from pipelines.errors import SourceRefused, SourceThrottled, SourceUnavailable
from pipelines.sandbox.server import CLIENT_ID, CLIENT_SECRET, SandboxServer

Read = Callable[..., dict[str, Any]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "scratch" / "reddit.state"


@pytest.fixture
def server(server: SandboxServer) -> SandboxServer:
    server.outage_status = 429  # PRAW retries a 5xx by itself, for seconds
    return server


def test_the_listing_is_read_page_by_page(opened: Any, read: Read, server: SandboxServer) -> None:
    assert len(read(opened("reddit", at=server, page=25))) > 80
    assert server.counts["token"] == 1
    few = server.counts["listing"]
    read(opened("reddit", at=server, page=10))
    assert server.counts["listing"] - few > few


def test_it_stops_once_the_window_lies_behind(opened: Any, read: Read, server: SandboxServer) -> None:
    read(opened("reddit", at=server, page=25), "2023-01")
    assert server.counts["listing"] == 1


def test_a_listing_that_ends_too_early_is_reported_with_counts_only(
    opened: Any, read: Read, server: SandboxServer, params: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source = opened("reddit", at=server, page=25)
    source._params = source._params.model_copy(update={"listing_limit": 40})
    with caplog.at_level(logging.DEBUG):
        items = read(source, "2022-11")
    assert items == {}
    assert server.counts["listing"] == 2
    assert "the newest 40 posts do not cover all of 2022-11" in caplog.text
    assert "t3_" not in caplog.text


def test_nothing_that_is_logged_holds_an_id(
    opened: Any, read: Read, server: SandboxServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.outage_after = 3
    with caplog.at_level(logging.DEBUG), pytest.raises(SourceThrottled) as caught:
        read(opened("reddit", at=server))
    for text in (caplog.text, str(caught.value)):
        assert "t3_" not in text and "after=" not in text


def test_a_retry_asks_only_for_the_pages_still_missing(
    opened: Any, read: Read, server: SandboxServer, state: Path
) -> None:
    undisturbed = read(opened("reddit", at=server, page=10))
    pages = server.counts["listing"]
    assert pages > 9
    for answered in (4, 3):
        server.outage_after = answered
        with pytest.raises(SourceThrottled):
            read(opened("reddit", at=server, page=10, state=state))
    server.outage_after = None
    before = server.counts["listing"]
    assert read(opened("reddit", at=server, page=10, state=state)) == undisturbed
    assert server.counts["listing"] - before == pages - 7
    assert not state.exists()


def test_the_state_is_sealed_private_and_good_for_one_query(
    opened: Any, read: Read, server: SandboxServer, state: Path
) -> None:
    server.outage_after = 3
    with pytest.raises(SourceThrottled):
        read(opened("reddit", at=server, page=10, state=state))
    data = state.read_bytes()
    assert data and state.stat().st_mode & 0o777 == 0o600
    assert b"t3_" not in data and b"author_" not in data and b"Post" not in data
    server.outage_after = None
    before = server.counts["listing"]
    november = read(opened("reddit", at=server, page=10, state=state), "2022-11")
    assert november == read(opened("reddit", at=server, page=10), "2022-11")
    assert (server.counts["listing"] - before) % 2 == 0  # both asked for every page


@pytest.mark.parametrize("lost", [1, 40, 2000])
def test_a_torn_page_is_asked_for_again(opened: Any, read: Read, server: SandboxServer, state: Path, lost: int) -> None:
    undisturbed = read(opened("reddit", at=server, page=10))
    server.outage_after = 5
    with pytest.raises(SourceThrottled):
        read(opened("reddit", at=server, page=10, state=state))
    state.write_bytes(state.read_bytes()[:-lost])
    server.outage_after = None
    assert read(opened("reddit", at=server, page=10, state=state)) == undisturbed


def test_a_cursor_that_was_deleted_meanwhile_starts_the_listing_again(
    opened: Any, read: Read, server: SandboxServer, state: Path
) -> None:
    undisturbed = read(opened("reddit", at=server, page=10))
    server.outage_after = 1
    with pytest.raises(SourceThrottled):
        read(opened("reddit", at=server, page=10, state=state))
    server.outage_after = None
    tenth = server.catalogue._new["suicidememe"].pop(9)
    items = read(opened("reddit", at=server, page=10, state=state))
    assert items == undisturbed  # it was read before it went; the sweep will find it
    assert isinstance(items[tenth["name"]], Submission)


def test_praw_keeps_to_the_servers_budget(root: Path, opened: Any, read: Read) -> None:
    with SandboxServer(root, budget=3, period=2) as server:
        start = time.monotonic()
        items = read(opened("reddit", at=server, page=25))
        assert time.monotonic() - start >= 1
        assert len(items) > 80
        assert server.counts["listing"] > 3


def test_a_budget_spent_by_others_is_a_time_to_wait(root: Path, opened: Any, read: Read) -> None:
    with SandboxServer(root, budget=2, period=60) as server:
        token = requests.post(
            f"{server.address}/api/v1/access_token",
            auth=(CLIENT_ID, CLIENT_SECRET),
            data={"grant_type": "client_credentials"},
            timeout=5,
        ).json()["access_token"]
        statuses = [
            requests.get(
                f"{server.address}/r/SuicideMeme/new", headers={"Authorization": f"bearer {token}"}, timeout=5
            ).status_code
            for _ in range(3)
        ]
        assert statuses == [200, 200, 429]
        with pytest.raises(SourceThrottled) as caught:
            read(opened("reddit", at=server))
        assert 50 < caught.value.fields["retry_after"] <= 61


@pytest.mark.parametrize(
    ("changes", "subreddit", "text"),
    [
        ({"reddit_client_secret": "wrong"}, "SuicideMeme", "HTTP 401"),
        ({}, "Hidden", r"r/Hidden \(private\)"),
        ({}, "NeverWas", r"r/NeverWas \(banned\)"),
    ],
)
def test_refusals_are_final(
    root: Path, opened: Any, read: Read, changes: dict[str, str], subreddit: str, text: str
) -> None:
    with SandboxServer(root, private=["hidden"]) as server, pytest.raises(SourceRefused, match=text):
        read(opened("reddit", at=server, **changes), "2022-12", subreddit)


def test_a_closed_subreddit_costs_itself_only(root: Path, opened: Any, read: Read, state: Path) -> None:
    with SandboxServer(root, private=["hidden"]) as server:
        alone = read(opened("reddit", at=server))
        items = read(opened("reddit", at=server, state=state), "2022-12", "Hidden", "suicidememe", "NeverWas")
        closed = {name: item.reason for name, item in items.items() if isinstance(item, Uncollected)}
        assert closed == {"r/Hidden": "subreddit_private", "r/NeverWas": "subreddit_banned"}
        assert {name: item for name, item in items.items() if name not in closed} == alone
        with pytest.raises(AllClosed, match=r"r/Hidden \(private\), r/NeverWas \(banned\)"):
            read(opened("reddit", at=server), "2022-12", "Hidden", "NeverWas")
        with pytest.raises(SourceRefused, match="HTTP 401"):
            read(opened("reddit", at=server, reddit_client_secret="wrong"), "2022-12", "Hidden", "suicidememe")


def test_a_server_error_that_outlasts_praws_retries_may_pass(opened: Any, read: Read, server: SandboxServer) -> None:
    server.outage_after, server.outage_status = 0, 503
    with pytest.raises(SourceUnavailable, match="HTTP 503"):
        read(opened("reddit", at=server))
    assert server.counts["listing"] == 3


def test_a_missing_answer_is_transient(opened: Any, read: Read) -> None:
    with pytest.raises(SourceUnavailable, match="ConnectionError"):
        read(opened("reddit"))
