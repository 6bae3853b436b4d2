"""Answer queries from the sandbox's files by the rules of Reddit's and Arctic Shift's APIs, without HTTP."""

from __future__ import annotations

import io
import json
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import zstandard

from crisis_corpus_sandbox.reddit.listing import escaped
from pipelines.core.errors import BadParams

Item = dict[str, Any]
LISTING_END = 1000  # Reddit's limit
PAGE, MAX_PAGE = 25, 100
ARCTIC = "_submissions_arctic.zst"


class Catalogue:
    """The simulated submissions, both as Reddit shows them now and as Arctic Shift archived them."""

    def __init__(self, root: Path) -> None:
        path = root / "submissions.jsonl"
        if not path.is_file():
            raise BadParams(where="CORPUS_SANDBOX", detail="holds no submissions.jsonl; run corpus sandbox build")
        self._root = root
        # with a clock (seconds since the epoch), posts of its future are not shown yet
        self.clock: Callable[[], float] = lambda: float("inf")
        self._lock = threading.Lock()
        with path.open("rb") as file:
            items = [orjson.loads(line) for line in file if line.strip()]
        self._by_name = {str(i["name"]): i for i in items}
        self._new: dict[str, list[Item]] = {}
        for item in sorted(items, key=_age, reverse=True):
            # Listings omit deleted and removed posts; they can still be fetched by id.
            shown = self._new.setdefault(str(item["subreddit"]).lower(), [])
            if not item.get("removed_by_category") and item.get("author") != "[deleted]":
                shown.append(item)

    def knows(self, subreddit: str) -> bool:
        """Return whether a subreddit of that name exists."""
        return subreddit.lower() in self._new

    def new(self, subreddit: str, *, query: Mapping[str, str]) -> Item:
        """Return one page of ``/r/<subreddit>/new`` for ``limit`` and a fullname ``after``."""
        posts = self._new[subreddit.lower()]
        newest = bisect_left(posts, -self.clock(), key=lambda post: -float(post["created_utc"]))
        posts = posts[newest : newest + LISTING_END]
        names, start = [p["name"] for p in posts], 0
        if after := query.get("after"):
            start = names.index(after) + 1 if after in names else len(posts)
        end = start + min(max(int(query.get("limit", PAGE)), 1), MAX_PAGE)
        page = posts[start:end]
        return _listing(page, after=page[-1]["name"] if page and end < len(posts) else None)

    def info(self, *, query: Mapping[str, str]) -> Item:
        """Return the posts of ``/api/info?id=`` in the order requested; unknown ids are silently omitted."""
        names = query.get("id", "").split(",")[:MAX_PAGE]
        page = [self._by_name[n] for n in names if n in self._by_name]
        return _listing(page)

    def search(self, *, query: Mapping[str, str]) -> list[Item]:
        """Return one response of Arctic Shift's post search, ordered by ``created_utc``."""
        with self._lock:
            posts: Sequence[Item] = self._archive.get(query.get("subreddit", "").lower(), [])
        after, before = float(query.get("after", 0)), min(float(query.get("before", "inf")), self.clock() + 1)
        size = int(query.get("limit", PAGE))
        if not 1 <= size <= MAX_PAGE:
            raise ValueError("limit")
        ordered = posts if query.get("sort", "desc") == "asc" else reversed(posts)
        return [p for p in ordered if after < p["created_utc"] < before][:size]

    @cached_property
    def _archive(self) -> dict[str, list[Item]]:
        """Return the archive by subreddit, oldest first; Reddit's own items if there is no dump."""
        dumps = sorted(self._root.glob(f"dumps/*{ARCTIC}"))
        lines = (item for path in dumps for item in _rows(path))
        items = {str(i["name"]): i for i in (lines if dumps else map(escaped, self._by_name.values()))}
        archived: dict[str, list[Item]] = {}
        for item in sorted(items.values(), key=_age):
            archived.setdefault(str(item["subreddit"]).lower(), []).append(item)
        return archived


def _rows(path: Path) -> Iterator[Item]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
    with path.open("rb") as file, decompressor.stream_reader(file, read_across_frames=True) as reader:
        yield from map(json.loads, io.TextIOWrapper(reader, encoding="utf-8"))


def _listing(page: list[Item], *, after: str | None = None) -> Item:
    """Return a listing as Reddit sends it with ``raw_json``, without escapes."""
    data = {"after": after, "before": None, "dist": len(page), "modhash": None, "geo_filter": ""}
    return {"kind": "Listing", "data": data | {"children": [{"kind": "t3", "data": item} for item in page]}}


def _age(item: Item) -> tuple[float, int]:
    return float(item["created_utc"]), int(str(item["name"]).removeprefix("t3_"), 36)
