"""Refreshes of listings against a real server: what is stored, what counts as read, and what a takedown removes."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard

from crisis_corpus_sandbox.server import CLIENT_ID, CLIENT_SECRET, SandboxServer
from pipelines.cli import collect as commands
from pipelines.collect import collect, refresh
from pipelines.collect.month import Window, addition
from pipelines.collect.month_ledger import gaps_of
from pipelines.collect.refresh import due
from pipelines.collect.refresh_store import ListingRead, RefreshStore, StoredPost
from pipelines.core.config.collect import Corpus, Refresh
from pipelines.core.config.params import overlay, parse, read_params, validate
from pipelines.core.errors import BadParams, SourceUnavailable
from pipelines.takedown.redaction import Gone
from pipelines.takedown.selection import waiting
from pipelines.takedown.stores import Case
from pipelines.takedown.stores.interim import Refresh as RefreshRows
from tests.collect import refreshed_reddit as reddit
from tests.collect.refreshed_reddit import BUSY, CORPUS, END, HOUR, QUIET, START, Deployment
from tests.refusals import refused

DAY = 24 * HOUR
At = Callable[..., dict[str, Any]]
PARAMETERS = ("params.yaml", "catalogue.yaml", "profiles/sandbox.yaml")


@pytest.fixture
def deployment(tmp_path: Path, server: SandboxServer) -> Deployment:
    return Deployment.of(str(tmp_path / "home"), server.address, "40")


@pytest.fixture
def at(deployment: Deployment, server: SandboxServer) -> At:
    """Refresh at a time of the simulated clock."""

    def at(moment: int, **given: Any) -> dict[str, Any]:
        server.catalogue.clock = lambda: moment
        return deployment.refresh_at(moment, **given)

    return at


def alter(server: SandboxServer, change: Callable[[dict[str, Any]], None]) -> None:
    """Change each page of a listing before it is sent."""
    real = server.catalogue.new

    def new(subreddit: str, *, query: Any) -> Any:
        page = real(subreddit, query=query)
        change(page["data"])
        return page

    server.catalogue.new = new  # type: ignore[method-assign]


def stored(deployment: Deployment) -> RefreshStore:
    return RefreshStore.open(deployment.settings.refresh_url)


def test_a_second_refresh_stores_only_what_is_new(at: At, deployment: Deployment) -> None:
    first, second = at(START + DAY), at(START + DAY + 2 * HOUR, every=True)
    assert first["read"] == second["read"] == 2
    assert 0 < second["new"] < second["records"]
    assert second["stored"] == first["new"] + second["new"]
    assert (first["gaps"], second["gaps"]) == (0, 0)


def test_a_subreddit_that_is_not_due_is_not_requested(at: At, server: SandboxServer) -> None:
    at(START + DAY)
    before = server.counts["listing"]
    assert at(START + DAY + HOUR)["waiting"] == 2
    assert server.counts["listing"] == before


def test_a_busy_subreddit_is_due_before_its_listing_overflows(deployment: Deployment) -> None:
    params, read = deployment.params, ListingRead(at=1000, mark=900, rate=4.0)
    # half of 40 posts at 4 an hour
    assert due(CORPUS, read, params=params) == 1000 + 5 * HOUR
    assert due(CORPUS, replace(read, rate=0.1), params=params) == 1000 + 24 * HOUR
    assert due(CORPUS, None, params=params) == 0


def test_a_taken_down_post_does_not_come_back(at: At, deployment: Deployment, server: SandboxServer) -> None:
    at(START + DAY)
    sources = waiting(deployment.settings.refresh_url, corpus=CORPUS, column="source")
    gone = sorted(sources)[0]
    with deployment.vault() as vault:
        vault.destroy([gone], reason="test", now=datetime.fromtimestamp(START + DAY, tz=UTC))
        case = Case(
            gone=Gone([gone]),
            settings=deployment.settings,
            vault=vault,
            now=datetime.fromtimestamp(START + DAY, tz=UTC),
        )
        assert RefreshRows().count(case) == {"rows": 1}
        RefreshRows().erase(case)
        assert RefreshRows().count(case) == {"rows": 0}
    files = list(deployment.settings.home.glob("refresh.sqlite*"))
    assert files and not any(gone.encode() in path.read_bytes() for path in files)
    at(START + DAY + HOUR, every=True)
    assert gone not in waiting(deployment.settings.refresh_url, corpus=CORPUS, column="source")
    server.catalogue.clock = lambda: END + 49 * HOUR
    deployment.publish_at(END + 49 * HOUR)
    published = deployment.published()
    assert gone not in published
    assert len(published) > len(sources)


def test_a_takedown_before_the_month_is_published_reaches_it(at: At, deployment: Deployment) -> None:
    at(START + DAY)
    gone = sorted(waiting(deployment.settings.refresh_url, corpus=CORPUS, column="source"))[:2]
    with deployment.vault() as vault:
        # the key is destroyed, and the store is not cleared yet
        vault.destroy(gone, reason="test", now=datetime.fromtimestamp(START + DAY, tz=UTC))
    deployment.publish_at(END + 49 * HOUR)
    assert set(deployment.published()).isdisjoint(gone)


def test_criteria_of_a_takedown_find_posts_that_wait(at: At, deployment: Deployment) -> None:
    at(START + DAY)
    with deployment.vault() as vault, stored(deployment) as store:
        everything = waiting(deployment.settings.refresh_url, corpus=CORPUS, column="source")
        assert store.select("source", ["reddit"]) == set(everything)
        assert store.select("subreddit", [QUIET.lower()]) < set(everything)
        author = vault.author_id("author_150")
        assert len(store.select("author_id", [author])) <= 1


def test_a_cursor_whose_post_was_deleted_does_not_end_the_listing(
    at: At, deployment: Deployment, server: SandboxServer
) -> None:
    real, hidden = server.catalogue.new, set[str]()

    def new(subreddit: str, *, query: Any) -> Any:
        page = real(subreddit, query=query)
        if not query.get("after"):
            hidden.add(page["data"]["after"])
        # Reddit answers a cursor that it no longer shows with an empty page
        return real(subreddit, query={**query, "after": "t3_gone"}) if query.get("after") in hidden else page

    server.catalogue.new = new  # type: ignore[method-assign]
    found = at(START + 2 * DAY)
    assert found["gaps"] == 0
    assert found["stored"] == found["new"] > 20
    with stored(deployment) as store:
        assert store.covered(CORPUS)[BUSY.lower()][0][0] == START


def test_a_listing_that_ends_early_covers_only_what_it_shows(
    at: At, deployment: Deployment, server: SandboxServer
) -> None:
    alter(server, lambda data: data.update(after=None))
    at(START + 2 * DAY)
    with stored(deployment) as store:
        assert store.covered(CORPUS)[BUSY.lower()][0][0] > START + DAY
    # an empty listing proves nothing
    server.catalogue.new = lambda subreddit, *, query: {  # type: ignore[method-assign]
        "kind": "Listing", "data": {"after": None, "children": [], "dist": 0},
    }  # fmt: skip
    with stored(deployment) as store:
        before = store.last_reads(CORPUS), store.covered(CORPUS)
    at(START + 3 * DAY)
    with stored(deployment) as store:
        assert (store.last_reads(CORPUS), store.covered(CORPUS)) == before


def test_one_subreddit_that_cannot_be_read_does_not_stop_the_others(
    at: At, deployment: Deployment, server: SandboxServer
) -> None:
    server.private = {BUSY.lower()}
    found = at(START + DAY)
    assert (found["closed"], found["read"], found["unread"]) == (1, 1, 1)
    server.private, real = set(), server.catalogue.new

    def new(subreddit: str, *, query: Any) -> Any:
        if subreddit == BUSY:
            # the server closes the connection
            raise OSError
        return real(subreddit, query=query)

    server.catalogue.new = new  # type: ignore[method-assign]
    with pytest.raises(SourceUnavailable):
        at(START + DAY + HOUR, every=True)
    with stored(deployment) as store:
        assert store.last_reads(CORPUS)[QUIET.lower()].at == START + DAY + HOUR


def test_a_refresh_of_closed_subreddits_fails(at: At, server: SandboxServer) -> None:
    server.private = {BUSY.lower(), QUIET.lower()}
    with refused("AllClosed", match="none of the 2 subreddits"):
        at(START + DAY)


def test_a_post_of_the_future_covers_no_time_to_come(at: At, deployment: Deployment, server: SandboxServer) -> None:
    alter(server, lambda data: data["children"][0]["data"].update(created_utc=float(START + 9 * DAY)))
    at(START + DAY)
    with stored(deployment) as store:
        assert max(end for _, end in store.covered(CORPUS)[BUSY.lower()]) <= START + DAY


def test_a_month_without_refreshes_records_what_the_listing_does_not_reach(
    deployment: Deployment, server: SandboxServer
) -> None:
    alone = deployment.params.corpora[CORPUS].model_copy(update={"source": "reddit"})
    deployment.params = deployment.params.model_copy(update={"corpora": {CORPUS: alone}})
    server.catalogue.clock = lambda: END + 49 * HOUR
    done = deployment.publish_at(END + 49 * HOUR)
    busy = [gap for gap in deployment.gaps() if gap["subreddit"] == BUSY]
    assert done["gaps"] == len(deployment.gaps()) >= 1
    assert int(busy[0]["start"].timestamp()) == START
    assert gaps_of(deployment.month() / "gaps.parquet")[BUSY][0][1] > END - 10 * DAY
    # a repetition adds nothing, and never publishes a poorer month
    published = deployment.published()
    deployment.publish_at(END + 50 * HOUR)
    assert deployment.published() == published


def test_a_killed_publish_is_repeated_without_harm(
    at: At, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(START + DAY)
    with monkeypatch.context() as patch:
        # committed, and killed before the store is cleared
        patch.setattr(Deployment, "close", lambda self, moment, window=reddit.MONTH: None)
        deployment.publish_at(END + 49 * HOUR)
    published = deployment.published()
    deployment.publish_at(END + 50 * HOUR)
    assert deployment.published() == published
    with stored(deployment) as store:
        assert store.count_waiting(CORPUS, (START, END)) == 0


def test_a_month_of_a_live_source_is_open_until_its_grace_has_passed(deployment: Deployment) -> None:
    given: dict[str, Any] = {"window": reddit.MONTH, "params": deployment.params}
    with refused("MonthOpen") as error:
        refresh.require_closed(CORPUS, now=datetime.fromtimestamp(END + HOUR, tz=UTC), **given)
    assert error.value.fields["retry_after"] == 47 * HOUR
    assert error.value.exit_code == 75
    refresh.require_closed(CORPUS, now=datetime.fromtimestamp(END + 48 * HOUR, tz=UTC), **given)
    dumps = deployment.params.corpora[CORPUS].model_copy(update={"source": "dump"})
    given["params"] = deployment.params.model_copy(update={"corpora": {CORPUS: dumps}})
    refresh.require_closed(CORPUS, now=datetime.fromtimestamp(START, tz=UTC), **given)


def test_a_corpus_of_dumps_has_nothing_to_refresh(deployment: Deployment) -> None:
    dumps = deployment.params.corpora[CORPUS].model_copy(update={"source": "dump"})
    deployment.params = deployment.params.model_copy(update={"corpora": {CORPUS: dumps}})
    with refused("NoListing", match=r"corpora\.posts\.source"):
        deployment.refresh_at(START + DAY)


def test_a_source_may_be_one_name_or_a_list() -> None:
    given = {"content": "texts", "scheme": "cradle", "subreddits": ["a"], "first_month": "2026-01", "last_month": None}
    assert Corpus.model_validate(given | {"source": "dump"}).sources == ("dump",)
    several = Corpus.model_validate(given | {"source": ["dump", "reddit", "dump"]})
    assert several.sources == ("dump", "reddit")
    with pytest.raises(ValueError, match="source"):
        Corpus.model_validate(given | {"source": []})
    values = read_params(reddit.ROOT)
    for wrong in ("twitter", ["dump", "twitter"]):
        values["corpora"][CORPUS]["source"] = wrong
        with pytest.raises(BadParams, match="section sources has no entry twitter"):
            validate(values, where="params.yaml")
    with pytest.raises(ValueError, match="overlap_hours"):
        Refresh(grace_hours=1, overlap_hours=24)


def test_a_deletion_replaces_a_stored_post(deployment: Deployment) -> None:
    when = datetime.fromtimestamp(START, tz=UTC)
    with deployment.vault() as vault, stored(deployment) as store:
        record_id = vault.record_id("t3_abc")
        vault.admit([(record_id, "t3_abc")], corpus=CORPUS, month="2026-09", now=when)
        post = StoredPost(record_id, BUSY, START + 5, "reddit", content={"author_id": "a", "title": "t"})
        given: dict[str, Any] = {"covers": {BUSY: (START, START + 10)}, "source": "reddit", "vault": vault}
        assert store.keep(CORPUS, [post], **given) == 1
        assert store.keep(CORPUS, [post], **given) == 0
        contents, drops = store.waiting(CORPUS, (START, END), vault=vault)
        assert [content["title"] for content in contents] == ["t"] and drops == {}
        store.keep(CORPUS, [replace(post, content=None, reason="deleted", deleted=True)], **given)
        assert store.waiting(CORPUS, (START, END), vault=vault) == ([], {record_id: "deleted"})
        assert store.covered(CORPUS) == {BUSY.lower(): [(START, START + 10)]}


def test_shards_of_an_addition_are_numbered_apart() -> None:
    assert addition(["data/memes/2022-12/records.parquet", "data/memes/2022-12/images/003.parquet"]) == 0
    assert addition(["data/memes/2022-12/records.parquet"]) == sys.maxsize
    assert addition(["data/memes/2022-12/images/200001.parquet", "data/memes/2022-12/images/200000.parquet"]) == 200_000


def test_a_trial_of_a_day_leaves_the_store_alone(deployment: Deployment, server: SandboxServer, tmp_path: Path) -> None:
    server.catalogue.clock = lambda: START + 3 * DAY
    window = Window(*(datetime.fromtimestamp(START + n * DAY, tz=UTC) for n in (1, 2)))
    now = datetime.fromtimestamp(START + 3 * DAY, tz=UTC)
    with deployment.vault() as vault:
        given: dict[str, Any] = {"params": deployment.params, "settings": deployment.settings, "vault": vault}
        done = collect.run(CORPUS, window=window, now=now, root=tmp_path / "trial", **given)
    assert done["kept"] == sum(
        window.start.timestamp() <= moment < window.end.timestamp()
        for moment in (int(item["created_utc"]) for item in server.catalogue._by_name.values())
    )


def test_a_dump_covers_a_subreddit_until_its_newest_post(
    deployment: Deployment, server: SandboxServer, tmp_path: Path
) -> None:
    items = [item for item in server.catalogue._by_name.values() if item["subreddit"] == BUSY]
    early = [item for item in items if item["created_utc"] < START + 5 * DAY]
    dump = tmp_path / "dumps" / f"{BUSY}_submissions.zst"
    dump.parent.mkdir()
    dump.write_bytes(zstandard.compress("".join(json.dumps(item) + "\n" for item in early).encode()))
    dump.with_name(f"{dump.name}.sha256").write_text(f"{hashlib.sha256(dump.read_bytes()).hexdigest()}  {dump.name}\n")
    corpus = deployment.params.corpora[CORPUS].model_copy(update={"source": ("dump", "arctic_shift")})
    deployment.params = deployment.params.model_copy(update={"corpora": {CORPUS: corpus}})
    deployment.settings = deployment.settings.model_copy(update={"dumps": tmp_path / "dumps"})
    real, server.catalogue.search = server.catalogue.search, reddit.down  # type: ignore[method-assign]
    deployment.publish_at(END + 49 * HOUR)
    gaps = gaps_of(deployment.month() / "gaps.parquet")
    # the dump has no file of the other subreddit
    assert gaps == {BUSY: [(int(max(item["created_utc"] for item in early)), END)], QUIET: [(START, END)]}
    server.catalogue.search = real  # type: ignore[method-assign]
    deployment.publish_at(END + 90 * HOUR)
    assert deployment.gaps() == []
    # without posts of a listing, the month can be collected again as a whole
    first = deployment.published()
    shutil.rmtree(deployment.month() / "texts")
    assert deployment.publish_at(END + 91 * HOUR)["first"] == 0
    assert sorted(deployment.published()) == sorted(first)
    assert len(deployment.published()) == sum(
        START <= item["created_utc"] < END for item in server.catalogue._by_name.values()
    )


def test_the_commands_use_the_parameters_of_their_folder(
    deployment: Deployment,
    server: SandboxServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    profile = (reddit.ROOT / "profiles" / "sandbox.yaml").read_text()
    values = overlay(read_params(reddit.ROOT), parse(profile, where="sandbox"))
    values["corpora"][CORPUS] |= {"subreddits": [BUSY, QUIET, "Gone"], "source": ["reddit", "arctic_shift"]}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    there = {"CLIENT_ID": CLIENT_ID, "CLIENT_SECRET": CLIENT_SECRET, "URL": server.address, "OAUTH_URL": server.address}
    environment = {f"REDDIT_{name}": value for name, value in there.items()}
    environment |= {"HOME": str(deployment.settings.home), "SECRET": (b"s" * 64).hex(), "CONTACT": "team@example.org"}
    for name, value in environment.items():
        monkeypatch.setenv(f"CORPUS_{name}", value)
    monkeypatch.chdir(tmp_path)
    with deployment.vault():
        pass
    server.catalogue.clock = lambda: START + DAY
    monkeypatch.setattr(commands, "now", lambda: datetime.fromtimestamp(START + DAY, tz=UTC))
    commands.refresh(CORPUS, every=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["read"], found["closed"]) == (2, 1)
    assert found["new"] == found["stored"] > 0
    with refused("MonthOpen"):
        commands.collect(CORPUS, reddit.MONTH.key)
    assert not (tmp_path / "work").exists()
