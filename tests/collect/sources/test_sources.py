"""The three sources tell the same story, and a live one is asked only with its papers in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pytest

from crisis_corpus_sandbox.server import SandboxServer
from pipelines.collect import refresh
from pipelines.collect.sources import open_source
from pipelines.collect.submission import Dropped, Submission
from pipelines.core.config.collect import SourceName
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, SourceNotApproved
from pipelines.store.vault.vault import Vault

Read = Callable[..., dict[str, Submission | Dropped]]


def kept(items: dict[str, Submission | Dropped]) -> dict[str, Submission]:
    return {k: v for k, v in items.items() if isinstance(v, Submission)}


@pytest.mark.parametrize("month", ["2022-11", "2022-12"])
def test_all_sources_keep_the_same_items(opened: Any, read: Read, server: SandboxServer, month: str) -> None:
    dump = kept(read(opened("dump"), month))
    assert len(dump) > 80
    assert {i.kind for i in dump.values()} == {"image", "text", "gallery"}
    assert {i.subreddit for i in dump.values()} == {"SuicideMeme"}
    assert kept(read(opened("reddit", at=server), month)) == dump
    assert kept(read(opened("arctic_shift", at=server), month)) == dump


def test_deletions_told_by_either_archive_are_drops(opened: Any, read: Read, server: SandboxServer) -> None:
    reasons = Counter(i.reason for i in read(opened("dump")).values() if isinstance(i, Dropped))
    assert reasons == {"deleted": 1, "removed": 2, "deleted_later": 2, "crosspost": 6}
    archived = Counter(i.reason for i in read(opened("arctic_shift", at=server)).values() if isinstance(i, Dropped))
    assert archived == reasons


def test_a_post_keeps_its_words_and_addresses(opened: Any, read: Read, server: SandboxServer) -> None:
    for name in ("dump", "reddit", "arctic_shift"):
        items = kept(read(opened(name, at=server)))
        post = next(i for i in items.values() if i.kind == "gallery")
        assert "<tea> & ☕" in post.title
        assert [m[0].partition("?")[0][-5:] for m in post.media] == ["b.jpg", "a.jpg"]
        assert all("&s=" in m[0] and "&amp;" not in m[0] for m in post.media)


def test_a_live_source_without_approval_is_refused_before_anything_is_sent(
    params: Params, settings: Settings, server: SandboxServer
) -> None:
    listed = params.corpora["posts"].model_copy(update={"source": "reddit"})

    def refreshed(params: Params, *, today: date) -> None:
        params = params.model_copy(update={"corpora": {"posts": listed}})
        with Vault.open("sqlite://", secret=b"s" * 64) as vault:
            now = datetime.combine(today, time(), tzinfo=UTC)
            refresh.run("posts", params=params, settings=settings, vault=vault, now=now)

    def opened(params: Params, *, today: date) -> None:
        open_source("arctic_shift", params=params, settings=settings, today=today)

    reads: dict[SourceName, Callable[..., None]] = {"reddit": refreshed, "arctic_shift": opened}
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
        source = opened(name, at=server)
        items = source.submissions(window, subreddits=["SuicideMeme"])
        digests[name] = {i.source_digest for i in items if isinstance(i, Submission)}
    stated = {p.read_text().split()[0] for p in (root / "dumps").glob("*.sha256")}
    assert digests["dump"] <= stated
    assert len(digests["reddit"]) == len(digests["arctic_shift"]) == 1
    assert digests["reddit"] != digests["arctic_shift"]
