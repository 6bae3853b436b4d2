"""A source of another distribution: a folder of JSON Lines with ids, authors and deletion marks of its own scheme."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli.parts import check_parts
from pipelines.collect import collect
from pipelines.collect.month import Window
from pipelines.core.config.base import Distribution
from pipelines.core.config.collect import SourceEntry
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, SourceNotApproved
from pipelines.store import tables
from pipelines.store.exclusions import by_reason
from pipelines.store.vault.vault import Vault
from pipelines.takedown import selection, sweep
from tests import small_distribution
from tests.refusals import refused

MONTH = Window.from_key("2022-12")
NOW = datetime(2023, 1, 2, tzinfo=UTC)
CODE = '''
import json
from datetime import datetime
from pathlib import Path
from pipelines.collect.sources import ClosedEntry, Lookup, Monthly
from pipelines.collect.submission import Dropped, Submission


class ForumEntry(ClosedEntry):
    suffix: str = "jsonl"


class Forum(Monthly, Lookup):
    """Threads of a forum, exported a file a day."""

    name = "forum"
    scheme = "forum"
    at_once = 10
    Parameters = ForumEntry

    def connect(self):
        self.files = sorted(Path(self.address(self.settings)).glob(f"*.{self.params.suffix}"))

    def _read(self):
        for row in (json.loads(line) for path in self.files for line in path.read_text().splitlines()):
            created = datetime.fromisoformat(row["at"])
            post = Submission(
                fullname=row["thread"], author=row["by"], subreddit=row["board"], created=created, kind="text",
                title=row["topic"], body=row["words"], media=(), nsfw=False, spoiler=False, source="reddit",
                source_digest="",
            )
            yield created, Dropped(row["thread"], "deleted") if row.get("gone") else post

    def months(self, window, *, subreddits):
        for created, post in self._read():
            if created in window:
                yield post

    def probe(self, *, windows, subreddits):
        return f"{len(self.files)} files"

    def info(self, names):
        return {post.fullname: post for _, post in self._read() if post.fullname in names}

    def newest(self, subreddit):
        return max((post.fullname for _, post in self._read() if isinstance(post, Submission)), default=None)
'''


def row(thread: str, **more: Any) -> dict[str, Any]:
    text = {"topic": "a topic", "words": "the words of this thread are in English"}
    return {"thread": thread, "by": "Someone", "board": "help", "at": "2022-12-05T10:00:00+00:00"} | text | more


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "forum"
    folder.mkdir()
    write(folder, row("17"), row("t3_abc"), row("18", gone=True), row("19", at="2022-11-05T10:00:00+00:00"))
    monkeypatch.setenv("CORPUS_FORUM_URL", str(folder))
    return folder


def write(folder: Path, *rows: dict[str, Any]) -> None:
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Distribution]]:
    files, points = {"forum_source.py": CODE}, "[crisis_corpus.sources]\nforum = forum_source:Forum\n"
    (tmp_path / "site").mkdir()
    with small_distribution.installed(tmp_path / "site", monkeypatch, files=files, points=points):
        yield {"foreign": Distribution(**small_distribution.entry())}


@pytest.fixture
def with_forum(params: Params, distributions: dict[str, Distribution]) -> Params:
    entry = SourceEntry(live=False, ethics="none needed: invented", access_basis=None, approval=None, expires=None,
                        retention_days=None)  # fmt: skip
    corpus = params.corpora["posts"].model_copy(update={"source": "forum", "subreddits": ("help",)})
    changes = {"corpora": params.corpora | {"posts": corpus}, "sources": params.sources | {"forum": entry}}
    return params.model_copy(update=changes | {"distributions": distributions})


@pytest.fixture
def vault(settings: Settings) -> Iterator[Vault]:
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        yield vault


def collected(root: Path, params: Params, settings: Settings, vault: Vault) -> tuple[dict[str, Any], Any]:
    done = collect.run("posts", window=MONTH, params=params, settings=settings, vault=vault, now=NOW, root=root)
    return done, tables.read(collect.work(root, corpus="posts", month=MONTH.key) / "records.parquet", name="records")


def test_its_records_have_names_of_their_own(
    folder: Path, tmp_path: Path, with_forum: Params, settings: Settings, vault: Vault
) -> None:
    assert check_parts(with_forum) == []
    done, posts = collected(tmp_path, with_forum, settings, vault)
    assert (done["kept"], done["dropped"]) == (2, {"deleted": 1})
    expected = {vault.record_id("forum:17"), vault.record_id("forum:t3_abc")}
    assert set(posts["record_id"].to_pylist()) == expected and vault.record_id("t3_abc") not in expected
    assert set(posts["author_id"].to_pylist()) == {vault.author_id("forum:someone")} != {vault.author_id("someone")}
    # what the source says of itself does not count: retention goes by it
    assert set(posts["source"].to_pylist()) == {"forum"}
    assert sorted(vault.fullnames(expected).values()) == ["forum:17", "forum:t3_abc"]


def test_a_taken_down_record_does_not_come_back(
    folder: Path, tmp_path: Path, with_forum: Params, settings: Settings, vault: Vault
) -> None:
    record_id = selection._record("forum:17", schemes={"", "forum"}, vault=vault)
    vault.destroy([record_id], reason="request", now=NOW)
    _, posts = collected(tmp_path, with_forum, settings, vault)
    assert record_id not in posts["record_id"].to_pylist()
    drops = tables.read(collect.work(tmp_path, corpus="posts", month=MONTH.key) / "drops.parquet", name="drops")
    assert by_reason(drops["reason"].to_pylist()) == {"deleted": 1, "tombstoned": 1}
    with pytest.raises(BadParams, match="SCHEME:ID"):
        selection._record("elsewhere:17", schemes={"", "forum"}, vault=vault)


def test_the_sweep_asks_the_source_that_knows_the_ids(
    folder: Path, tmp_path: Path, with_forum: Params, settings: Settings, vault: Vault
) -> None:
    collected(tmp_path, with_forum, settings, vault)
    vault.admit([(vault.record_id("t3_zzz"), "t3_zzz")], corpus="posts", month=MONTH.key, now=NOW)
    write(folder, row("17", gone=True), row("t3_abc"))
    sources = sweep.clients("posts", params=with_forum, settings=settings, today=NOW.date())
    assert [source.name for source in sources] == ["forum"]
    terms: dict[str, Any] = {"params": with_forum, "terms": with_forum.sweep, "vault": vault, "believe": False}
    done = sweep.run("posts", sources=sources, now=datetime(2023, 3, 1, tzinfo=UTC), **terms)
    assert (done["asked"], done["seen"], done["deleted"], done["imported"]) == (2, 1, 1, 1)
    assert sweep.due(vault, "posts") == {vault.record_id("forum:17"): "deleted"}


def test_two_sources_of_one_scheme_share_its_records_without_repetition(
    folder: Path, tmp_path: Path, with_forum: Params, settings: Settings, vault: Vault
) -> None:
    collected(tmp_path, with_forum, settings, vault)
    [source] = sweep.clients("posts", params=with_forum, settings=settings, today=NOW.date())
    terms: dict[str, Any] = {"params": with_forum, "terms": with_forum.sweep, "vault": vault, "believe": False}
    done = sweep.run("posts", sources=[source, source], now=datetime(2023, 3, 1, tzinfo=UTC), **terms)
    assert (done["records"], done["due"], done["asked"], done["seen"]) == (2, 2, 2, 2)


def test_a_source_that_is_gone_is_named_and_left_out(with_forum: Params, caplog: pytest.LogCaptureFixture) -> None:
    gone = with_forum.model_copy(update={"distributions": {}})
    assert sweep.lookups(gone).keys() == {"reddit"} and sweep.lookups(gone, corpus="posts") == {}
    assert "source forum is skipped" in caplog.text


def test_it_is_refused_without_ethics_permission_or_a_fitting_entry(
    folder: Path, tmp_path: Path, with_forum: Params, settings: Settings, vault: Vault
) -> None:
    def changed(**changes: Any) -> Params:
        entry = with_forum.sources["forum"].model_copy(update=changes)
        return with_forum.model_copy(update={"sources": with_forum.sources | {"forum": entry}})

    with pytest.raises(SourceNotApproved, match="ethics"):
        collected(tmp_path, changed(ethics=None), settings, vault)
    with pytest.raises(SourceNotApproved, match="access_basis"):
        collected(tmp_path, changed(live=True), settings, vault)
    terms = {"access_basis": "a", "approval": "b", "expires": date(2030, 1, 1), "retention_days": 9}
    settings.create_secret()
    for wrong, detail in (({"pages": 3}, "pages"), ({"suffix": 7}, "suffix")):
        with pytest.raises(BadParams, match=rf"sources\.forum\.{detail}") as caught:
            collected(tmp_path, changed(**wrong), settings, vault)
        assert "7" not in str(caught.value)
        [fault] = check_parts(changed(**wrong))
        assert fault.startswith(f"sources.forum.{detail}: ") and "7" not in fault
    listing = with_forum.sources["reddit"].listing
    assert check_parts(changed(listing=listing)) == ["sources.forum.listing: only a source with listings has it"]
    assert collected(tmp_path, changed(live=True, **terms), settings, vault)[0]["kept"] == 2
    with refused("UnknownName", match="forum"):
        collected(tmp_path, with_forum.model_copy(update={"distributions": {}}), settings, vault)
    [fault] = check_parts(with_forum.model_copy(update={"distributions": {}}))
    assert fault.startswith("sources.forum: ")


WALL = """
from pipelines.collect.sources import Monthly
from pipelines.collect.sources.reddit import Reddit


class Wall(Reddit):
    name = "wall"


class Archive(Reddit, Monthly):
    name = "archive"
    months = None
"""


def test_beside_a_source_with_listings_a_corpus_reads_past_months_only(
    params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faults(*names: str) -> list[str]:
        corpus = params.corpora["posts"].model_copy(update={"source": names})
        sources = params.sources | dict.fromkeys(("wall", "archive"), params.sources["reddit"])
        changes = {"corpora": params.corpora | {"posts": corpus}, "sources": sources}
        return check_parts(params.model_copy(update=changes | {"distributions": distributions}))

    points = "[crisis_corpus.sources]\nwall = wall_source:Wall\narchive = wall_source:Archive\n"
    (tmp_path / "site").mkdir()
    with small_distribution.installed(tmp_path / "site", monkeypatch, files={"wall_source.py": WALL}, points=points):
        distributions = {"foreign": Distribution(**small_distribution.entry())}
        assert faults("wall") == faults("reddit", "dump") == faults("dump", "archive") == []
        for second in ("wall", "archive"):
            [fault] = faults("dump", "reddit", second)
            assert fault.startswith(f"corpora.posts.source: {second} cannot be read beside reddit")
