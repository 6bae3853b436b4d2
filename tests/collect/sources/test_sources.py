"""The three sources tell the same story: pages, pace, refusals, retries; a live one only with its papers in order."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from datetime import time as clock
from pathlib import Path
from typing import Any

import pytest
import requests

from crisis_corpus_sandbox.server import CLIENT_ID, CLIENT_SECRET, SandboxServer
from pipelines.collect import refresh
from pipelines.collect.sources import Monthly, open_source
from pipelines.collect.submission import Dropped, Submission
from pipelines.core.config.collect import Listing
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, SourceNotApproved, SourceRefused, SourceThrottled, SourceUnavailable
from pipelines.store.vault.vault import Vault
from tests.refusals import refused

Read = Callable[..., dict[str, Submission | Dropped]]


def kept(items: dict[str, Submission | Dropped]) -> dict[str, Submission]:
    return {k: v for k, v in items.items() if isinstance(v, Submission)}


@pytest.mark.parametrize("month", ["2022-11", "2022-12"])
def test_all_sources_keep_the_same_items(opened: Any, read: Read, server: SandboxServer, month: str) -> None:
    dump = kept(read(opened("dump"), month))
    assert len(dump) > 80
    assert {i.kind for i in dump.values()} == {"image", "text", "gallery"}
    assert {i.subreddit for i in dump.values()} == {"SuicideMeme"}
    assert kept(read(opened("reddit", at=server), month)) == dump and server.counts["token"] == 1
    assert kept(read(opened("arctic_shift", at=server), month)) == dump


def test_deletions_told_by_either_archive_are_drops(opened: Any, read: Read, server: SandboxServer) -> None:
    reasons = Counter(i.reason for i in read(opened("dump")).values() if isinstance(i, Dropped))
    assert reasons == {"deleted": 1, "removed": 2, "deleted_later": 2, "crosspost": 6}
    archived = Counter(i.reason for i in read(opened("arctic_shift", at=server)).values() if isinstance(i, Dropped))
    assert archived == reasons


def test_a_live_source_without_approval_is_refused_before_anything_is_sent(
    params: Params, settings: Settings, server: SandboxServer
) -> None:
    listed = params.corpora["posts"].model_copy(update={"source": "reddit"})

    def refreshed(params: Params, *, today: date) -> None:
        params = params.model_copy(update={"corpora": {"posts": listed}})
        with Vault.open("sqlite://", secret=b"s" * 64) as vault:
            now = datetime.combine(today, clock(), tzinfo=UTC)
            refresh.run("posts", params=params, settings=settings, vault=vault, now=now)

    def opened(params: Params, *, today: date) -> None:
        open_source("arctic_shift", Monthly, params=params, settings=settings, today=today)

    reads: dict[str, Callable[..., None]] = {"reddit": refreshed, "arctic_shift": opened}
    for name, read in reads.items():
        bare = params.sources[name].model_copy(update={"approval": None})
        unapproved = params.model_copy(update={"sources": params.sources | {name: bare}})
        with pytest.raises(SourceNotApproved, match="approval"):
            read(unapproved, today=date(2023, 1, 1))
        with pytest.raises(SourceNotApproved, match="ended"):
            read(params, today=date(2099, 1, 1))
    assert not any(server.counts.values())


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"contact": ""}, "CORPUS_CONTACT"),
        ({"reddit_client_id": ""}, "CORPUS_REDDIT_CLIENT_ID"),
        ({"reddit_oauth_url": "http://oauth.example.org"}, "CORPUS_REDDIT_OAUTH_URL"),
        ({"reddit_url": "ftp://127.0.0.1"}, "CORPUS_REDDIT_URL"),
    ],
)
def test_a_setting_at_fault_is_named(opened: Any, changes: dict[str, str], setting: str) -> None:
    with pytest.raises(BadParams, match=setting):
        opened("reddit", **changes)


def test_source_digests_name_the_file_or_the_query(opened: Any, server: SandboxServer, root: Path) -> None:
    from pipelines.collect.month import Window

    window = Window.from_key("2022-12")
    digests = {}
    for name in ("dump", "reddit", "arctic_shift"):
        items = opened(name, at=server).submissions(window, subreddits=["SuicideMeme"])
        digests[name] = {i.source_digest for i in items if isinstance(i, Submission)}
    assert digests["dump"] <= {p.read_text().split()[0] for p in (root / "dumps").glob("*.sha256")}
    assert len(digests["reddit"]) == len(digests["arctic_shift"]) == 1
    assert digests["reddit"] != digests["arctic_shift"]


@pytest.mark.parametrize("page", [6, 7, 25, 100])
def test_pages_of_any_size_give_every_item_once(opened: Any, read: Read, server: SandboxServer, page: int) -> None:
    assert read(opened("arctic_shift", at=server, page=page)) == read(opened("arctic_shift", at=server, page=50))


def test_a_second_with_more_posts_than_a_page_is_no_gap(opened: Any, read: Read, server: SandboxServer) -> None:
    with pytest.raises(SourceUnavailable, match="within two seconds"):
        read(opened("arctic_shift", at=server, page=4))


def test_a_retry_asks_for_the_missing_pages(opened: Any, read: Read, server: SandboxServer, tmp_path: Path) -> None:
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


def test_the_state_is_sealed_and_for_one_query(opened: Any, read: Read, server: SandboxServer, tmp_path: Path) -> None:
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

        source.pause = pause
        assert len(read(source)) > 80
        assert waited and all(20 < w <= 30 for w in waited)


def test_a_budget_spent_by_others_is_a_time_to_wait(root: Path, opened: Any, read: Read) -> None:
    with SandboxServer(root, budget=1, period=60) as server:
        server.arctic.spend()
        with pytest.raises(SourceThrottled) as caught:
            read(opened("arctic_shift", at=server))
        assert 50 < caught.value.fields["retry_after"] <= 61


NOW = datetime(2022, 12, 20, tzinfo=UTC)


def test_it_stops_once_the_window_lies_behind(opened: Any, read: Read, server: SandboxServer) -> None:
    read(opened("reddit", at=server, page=25), "2023-01")
    assert server.counts["listing"] == 1


def test_a_listing_that_ends_too_early_is_reported_with_counts_only(
    opened: Any, read: Read, server: SandboxServer, caplog: pytest.LogCaptureFixture
) -> None:
    source = opened("reddit", at=server, page=25)
    source.client.params = source.client.params.model_copy(update={"listing": Listing(limit=40, page_size=25)})
    for day, found in ((date(2022, 11, 30), 40), (date(2022, 12, 9), 0)):
        source.now = datetime.combine(day, clock(), tzinfo=UTC)
        server.catalogue.clock = source.now.timestamp
        before = server.counts["listing"]
        with caplog.at_level(logging.DEBUG):
            assert len(read(source, "2022-11")) == found
        assert server.counts["listing"] - before == 2
    assert "the listing shows 40 posts and ends" in caplog.text
    assert "t3_" not in caplog.text


def test_no_log_holds_an_id(opened: Any, read: Read, server: SandboxServer, caplog: pytest.LogCaptureFixture) -> None:
    server.outage_after, server.outage_status = 3, 429  # PRAW retries a 5xx by itself, for seconds
    with caplog.at_level(logging.DEBUG), pytest.raises(SourceThrottled) as caught:
        read(opened("reddit", at=server))
    for text in (caplog.text, str(caught.value)):
        assert "t3_" not in text and "after=" not in text


def test_a_failed_attempt_is_read_again_from_the_newest_post(opened: Any, read: Read, server: SandboxServer) -> None:
    source = opened("reddit", at=server, page=10)
    server.outage_after, server.outage_status = 4, 429
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


def test_reddits_budget_spent_by_others_is_a_time_to_wait(root: Path, opened: Any, read: Read) -> None:
    with SandboxServer(root, budget=2, period=60) as server:
        grant = {"auth": (CLIENT_ID, CLIENT_SECRET), "data": {"grant_type": "client_credentials"}}
        token = requests.post(f"{server.address}/api/v1/access_token", timeout=5, **grant).json()["access_token"]
        listing, headers = f"{server.address}/r/SuicideMeme/new", {"Authorization": f"bearer {token}"}
        assert [requests.get(listing, headers=headers, timeout=5).status_code for _ in range(3)] == [200, 200, 429]
        with pytest.raises(SourceThrottled) as caught:
            read(opened("reddit", at=server))
        assert 50 < caught.value.fields["retry_after"] <= 61


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
        assert [found[name] for name in ("records", "new", "stored")] == [
            alone[n] for n in ("records", "new", "stored")
        ]
        assert alone["stored"] > 0
        with refused("AllClosed", match=r"none of the 2 subreddits: r/Hidden \(private\), r/NeverWas \(banned\)"):
            refreshed("Hidden", "NeverWas")
        with pytest.raises(SourceRefused, match="HTTP 401"):
            refreshed("Hidden", "suicidememe", reddit_client_secret="wrong")
