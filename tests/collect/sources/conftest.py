"""A small Reddit in files: 240 posts of one subreddit over two months, as shown live and as two archives saw them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard

from crisis_corpus_sandbox.reddit.listing import escaped, write_frames
from crisis_corpus_sandbox.server import CLIENT_ID, CLIENT_SECRET, SandboxServer
from pipelines.collect.month import Window
from pipelines.collect.sources import Monthly, open_source
from pipelines.collect.submission import Dropped, Submission
from pipelines.core.config.collect import Listing
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from tests.collect.listed_source import ListedSource, with_source

Item = dict[str, Any]
ROOT = Path(__file__).parents[3]
TODAY = date(2023, 2, 1)
START = int(datetime(2022, 11, 20, tzinfo=UTC).timestamp())
STEP = 2 * 3600


def original(number: int) -> Item:
    short = f"{50_000_000 + number:x}"
    # Four posts share each second here and there, so that paging meets ties.
    created = START + STEP * (number - number % 4 if number % 20 < 4 else number)
    item: Item = {
        "id": short,
        "name": f"t3_{short}",
        "author": f"author_{number % 17}",
        "subreddit": "Elsewhere" if number % 30 == 7 else "SuicideMeme",
        "created_utc": float(created),
        "title": f"Post {number} about <tea> & ☕ rain",
        "selftext": "",
        "url": f"https://i.redd.it/{number}.jpg",
        "post_hint": "image",
        "is_self": False,
        "over_18": number % 9 == 0,
        "spoiler": number % 11 == 0,
        "removed_by_category": None,
        "preview": {"images": [{"source": {"url": f"https://preview.redd.it/{number}.jpg?a=1&s=2", "width": 900}}]},
    }
    if number % 8 == 1:
        item |= {"is_self": True, "selftext": "plain words\nin two lines", "post_hint": None, "preview": None}
    if number % 8 == 2:
        item |= {
            "is_gallery": True,
            "post_hint": None,
            "preview": None,
            "gallery_data": {"items": [{"media_id": "b"}, {"media_id": "a"}]},
            "media_metadata": {m: {"s": {"u": f"https://preview.redd.it/{number}{m}.jpg?a=1&s=3"}} for m in "ab"},
        }
    if number % 16 == 3:
        item |= {"crosspost_parent": "t3_abc", "crosspost_parent_list": [{"name": "t3_abc", "subreddit": "Elsewhere"}]}
    return item


def gone(number: int) -> str | None:
    return {5: "deleted", 25: "moderator", 45: "later"}.get(number % 60)


def live(number: int) -> Item:
    kind = gone(number)
    item = original(number)
    if kind in ("deleted", "later"):
        return item | {"author": "[deleted]", "selftext": "[deleted]", "removed_by_category": "deleted"}
    return item | {"removed_by_category": kind} if kind else item


def pushshift(number: int) -> Item:
    item = original(number) if gone(number) == "later" else live(number)
    return escaped(item) | {"retrieved_on": int(item["created_utc"]) + 60}


def arctic(number: int) -> Item:
    item = original(number) if gone(number) == "later" else live(number)
    meta: Item = {"retrieved_2nd_on": int(item["created_utc"]) + 36 * 3600}
    if gone(number) == "later":
        meta |= {"was_deleted_later": True, "removal_type": "deleted"}
    return escaped(item) | {"created_utc": int(item["created_utc"]), "_meta": meta}


def frame(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(content)


@pytest.fixture(scope="session")
def write_dump() -> Callable[..., Path]:
    """Write lines as a dump of several frames, cut anywhere, with its checksum."""

    def write(path: Path, lines: Iterable[bytes | Item], *, frames: int = 1, end: bytes = b"\n") -> Path:
        rows = [x if isinstance(x, bytes) else json.dumps(x, ensure_ascii=False).encode() for x in lines]
        content = b"\n".join(rows) + end
        size = -(-len(content) // frames)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_frames(path, frames=(frame(content[i : i + size]) for i in range(0, len(content), size)))
        return path

    return write


@pytest.fixture(scope="session")
def numbers() -> range:
    return range(240)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory, numbers: range, write_dump: Callable[..., Path]) -> Path:
    root = tmp_path_factory.mktemp("reddit")
    (root / "submissions.jsonl").write_text("".join(json.dumps(live(n)) + "\n" for n in numbers))
    write_dump(root / "dumps/SuicideMeme_submissions.zst", map(pushshift, numbers), frames=3)
    write_dump(root / "dumps/SuicideMeme_submissions_arctic.zst", map(arctic, numbers), frames=2)
    return root


@pytest.fixture
def server(root: Path) -> Iterable[SandboxServer]:
    with SandboxServer(root) as server:
        yield server


@pytest.fixture(scope="session")
def params() -> Params:
    return load(ROOT, profile="sandbox")


@pytest.fixture
def settings(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CORPUS_SECRET", "5a" * 32)
    return Settings.from_env().model_copy(update={"dumps": root / "dumps", "contact": "team@example.org"})


Opener = Callable[..., Any]


@pytest.fixture
def opened(params: Params, settings: Settings, request: pytest.FixtureRequest) -> Opener:
    """Open a source; a live one against a server, with small pages unless told otherwise."""

    def opened(
        name: Any, *, at: SandboxServer | None = None, state: Path | None = None, page: int = 25, **changes: Any
    ) -> Any:
        address = at.address if at else "http://127.0.0.1:9"
        there = dict.fromkeys(("reddit_url", "reddit_oauth_url", "arctic_shift_url"), address)
        there |= {"reddit_client_id": CLIENT_ID, "reddit_client_secret": CLIENT_SECRET}
        small = with_source(params, "reddit", listing=Listing(limit=1000, page_size=page))
        small, moved = with_source(small, "arctic_shift", page_size=page), settings.model_copy(update=there | changes)
        if name == "reddit":
            return ListedSource(moved, params=small, today=TODAY)
        return open_source(name, Monthly, params=small, settings=moved, today=TODAY, state=state)

    return opened


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Collect the waits of PRAW, which then take no time."""
    waits: list[float] = []
    clock = SimpleNamespace(sleep=waits.append, monotonic=time.monotonic, monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr("prawcore.sessions.time", clock)
    monkeypatch.setattr("prawcore.rate_limit.time", clock)
    return waits


@pytest.fixture
def read() -> Callable[..., dict[str, Submission | Dropped]]:
    """Read a month; kept items come without the two columns that name their source."""

    def read(source: Any, key: str = "2022-12", *subreddits: str) -> dict[str, Submission | Dropped]:
        items = list(source.submissions(Window.from_key(key), subreddits=subreddits or ("suicidememe",)))
        found = {i.fullname: replace(i, source="", source_digest="") if isinstance(i, Submission) else i for i in items}
        assert len(found) == len(items)
        return found

    return read
