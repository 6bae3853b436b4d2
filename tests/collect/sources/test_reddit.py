"""Unmodified PRAW against a real server, through the reader of a refresh: pages, pace, refusals, deleted cursors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from datetime import time as clock
from pathlib import Path
from typing import Any

import pytest
import requests

from crisis_corpus_sandbox.server import CLIENT_ID, CLIENT_SECRET, SandboxServer
from pipelines.collect import refresh
from pipelines.collect.submission import Submission
from pipelines.core.errors import SourceRefused, SourceThrottled, SourceUnavailable
from pipelines.store.vault.vault import Vault
from tests.refusals import refused

NOW = datetime(2022, 12, 20, tzinfo=UTC)
Read = Callable[..., dict[str, Any]]


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
    opened: Any, read: Read, server: SandboxServer, caplog: pytest.LogCaptureFixture
) -> None:
    source = opened("reddit", at=server, page=25)
    listing = source.params.reddit.model_copy(update={"listing_limit": 40})
    source.params = source.params.model_copy(update={"reddit": listing})
    for day, found in ((date(2022, 11, 30), 40), (date(2022, 12, 9), 0)):
        source.now = datetime.combine(day, clock(), tzinfo=UTC)
        server.catalogue.clock = source.now.timestamp
        before = server.counts["listing"]
        with caplog.at_level(logging.DEBUG):
            assert len(read(source, "2022-11")) == found
        assert server.counts["listing"] - before == 2
    assert "the listing shows 40 posts and ends" in caplog.text
    assert "t3_" not in caplog.text


def test_nothing_that_is_logged_holds_an_id(
    opened: Any, read: Read, server: SandboxServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.outage_after = 3
    with caplog.at_level(logging.DEBUG), pytest.raises(SourceThrottled) as caught:
        read(opened("reddit", at=server))
    for text in (caplog.text, str(caught.value)):
        assert "t3_" not in text and "after=" not in text


def test_an_attempt_that_failed_is_read_again_from_the_newest_post(
    opened: Any, read: Read, server: SandboxServer
) -> None:
    source = opened("reddit", at=server, page=10)
    server.outage_after = 4
    with pytest.raises(SourceThrottled):
        read(source)
    server.outage_after = None
    counts = [server.counts["listing"]]
    found = []
    for again in (source, opened("reddit", at=server, page=10)):
        found.append(read(again))
        counts.append(server.counts["listing"])
    assert found[0] == found[1]
    assert counts[1] - counts[0] == counts[2] - counts[1] > 4


def test_a_cursor_that_is_deleted_meanwhile_ends_no_listing(opened: Any, read: Read, server: SandboxServer) -> None:
    undisturbed = read(opened("reddit", at=server, page=10))
    real, deleted = server.catalogue.new, []

    def new(subreddit: str, *, query: Any) -> Any:
        page = real(subreddit, query=query)
        if not deleted:
            deleted.append(server.catalogue._new["suicidememe"].pop(9)["name"])
            assert page["data"]["after"] == deleted[0]
        return page

    server.catalogue.new = new  # type: ignore[method-assign]
    items = read(opened("reddit", at=server, page=10))
    assert items.keys() == undisturbed.keys()
    assert isinstance(items[deleted[0]], Submission)  # it was read before it went; the sweep will find it


def test_praw_keeps_to_the_servers_budget(root: Path, opened: Any, read: Read) -> None:
    with SandboxServer(root, budget=3, period=2) as server:
        start = time.monotonic()
        items = read(opened("reddit", at=server, page=25))
        assert time.monotonic() - start >= 1
        assert len(items) > 80
        assert server.counts["listing"] > 3


def test_a_budget_spent_by_others_is_a_time_to_wait(root: Path, opened: Any, read: Read) -> None:
    with SandboxServer(root, budget=2, period=60) as server:
        grant = {"auth": (CLIENT_ID, CLIENT_SECRET), "data": {"grant_type": "client_credentials"}}
        token = requests.post(f"{server.address}/api/v1/access_token", timeout=5, **grant).json()["access_token"]
        listing, headers = f"{server.address}/r/SuicideMeme/new", {"Authorization": f"bearer {token}"}
        statuses = [requests.get(listing, headers=headers, timeout=5).status_code for _ in range(3)]
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


def test_a_closed_subreddit_costs_itself_only(root: Path, opened: Any, tmp_path: Path) -> None:
    with SandboxServer(root, private=["hidden"]) as server:

        def refreshed(*subreddits: str, **changes: str) -> dict[str, Any]:
            source, home = opened("reddit", at=server, **changes), tmp_path / str(server.counts["listing"])
            home.mkdir()
            described = source.params.corpora["posts"].model_copy(update={"subreddits": subreddits, "source": "reddit"})
            params = source.params.model_copy(update={"corpora": {"posts": described}})
            settings = source.settings.model_copy(update={"refresh_url": f"sqlite:///{home}/refresh.sqlite"})
            with Vault.open(f"sqlite:///{home}/vault.sqlite", secret=b"s" * 64) as vault:
                return refresh.run("posts", params=params, settings=settings, vault=vault, now=NOW)

        alone, found = refreshed("suicidememe"), refreshed("Hidden", "suicidememe", "NeverWas")
        assert (found["closed"], found["read"], found["unread"]) == (2, 1, 2)
        assert [found[name] for name in ("posts", "new", "stored")] == [alone[n] for n in ("posts", "new", "stored")]
        assert alone["stored"] > 0
        with refused("AllClosed", match=r"none of the 2 subreddits: r/Hidden \(private\), r/NeverWas \(banned\)"):
            refreshed("Hidden", "NeverWas")
        with pytest.raises(SourceRefused, match="HTTP 401"):
            refreshed("Hidden", "suicidememe", reddit_client_secret="wrong")


def test_a_server_error_that_outlasts_praws_retries_may_pass(opened: Any, read: Read, server: SandboxServer) -> None:
    server.outage_after, server.outage_status = 0, 503
    with pytest.raises(SourceUnavailable, match="HTTP 503"):
        read(opened("reddit", at=server))
    assert server.counts["listing"] == 3


def test_a_missing_answer_is_transient(opened: Any, read: Read) -> None:
    with pytest.raises(SourceUnavailable, match="ConnectionError"):
        read(opened("reddit"))
