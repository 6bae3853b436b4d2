"""Save the pages that a live source has read, so that a retry requests only the missing ones.

A retry needs the posts of the earlier pages as well as the cursor; otherwise the month would silently be incomplete.
The file therefore contains posts and is treated as content. Every page is encrypted under a key derived from the
project secret, and the file has mode 600. The file is valid only for the day and the query of the first attempt, and is
deleted when the source is fully read. It is in the task's scratch folder, never in DVC or git.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from pipelines.collect.month import Window
from pipelines.collect.sources import Gathered
from pipelines.collect.submission import Dropped, Submission, created_of, fullname_of
from pipelines.errors import SealBroken
from pipelines.storage.seal import seal, unseal

COLUMN = "state"
LENGTH_BYTES = 4


@dataclass(frozen=True)
class ListingPage:
    """One response of a listing API: its items and the cursor of the next page (``None`` on the last page)."""

    items: Sequence[Mapping[str, Any]]
    cursor: str | None


# Reads one subreddit page by page: subreddit, ``cursor`` (``None``: from the start) and ``window``.
Pages = Callable[..., Iterable[ListingPage]]


class ResumeJournal:
    """An append-only file of encrypted pages; a page that a crash left incomplete is removed and requested again."""

    def __init__(self, path: Path, *, secret: bytes, day: date) -> None:
        self._path = path
        self._key = hmac.digest(secret, b"crisis-corpus/collect/state", "sha512")
        self._day = day
        self._name = ""
        self._count = 0

    def begin(self, query: str) -> list[dict[str, Any]]:
        """Return the stored pages of an earlier attempt at the same query on the same day, oldest first."""
        self._name = f"{self._day}:{query}"
        self._count = 0
        self._path.parent.mkdir(parents=True, exist_ok=True)
        entries, whole = [], 0
        self._path.touch(mode=0o600)
        with self._path.open("r+b") as file:
            for entry in self._frames(file):
                entries.append(entry)
                whole = file.tell()
            file.truncate(whole)
        return entries

    def add(self, entry: Mapping[str, Any]) -> None:
        """Append one page of a listing, and wait until it is on disk."""
        sealed = seal(self._key, record_id=self._record, column=COLUMN, data=orjson.dumps(entry))
        with self._path.open("ab") as file:
            file.write(len(sealed).to_bytes(LENGTH_BYTES, "big") + sealed)
            file.flush()
            os.fsync(file.fileno())
        self._count += 1

    def end(self) -> None:
        """Delete the file, because the source was read completely."""
        self._path.unlink(missing_ok=True)

    @property
    def _record(self) -> str:
        return f"{self._name}:{self._count}"

    def _frames(self, file: BinaryIO) -> Iterator[dict[str, Any]]:
        while len(head := file.read(LENGTH_BYTES)) == LENGTH_BYTES:
            length = int.from_bytes(head, "big")
            sealed = file.read(length)
            try:
                data = unseal(self._key, record_id=self._record, column=COLUMN, data=sealed)
            except SealBroken:
                return
            self._count += 1
            yield orjson.loads(data)


def gather(
    source: str, *, window: Window, subreddits: Sequence[str], pages: Pages, journal: ResumeJournal | None
) -> Iterator[Submission | Dropped]:
    """Yield the posts of all subreddits in the window; pages in ``journal`` are not requested again."""
    gathered = Gathered(window, subreddits=subreddits, source=source)
    cursors: dict[str, str | None] = {}
    for entry in journal.begin(f"{source}:{window.key}:{'+'.join(subreddits)}") if journal else ():
        cursors[entry["subreddit"]] = entry["cursor"]
        for item in entry["items"]:
            gathered.put(_revive(item["item"]), retrieved=item["retrieved"])
    for subreddit in subreddits:
        if subreddit in cursors and cursors[subreddit] is None:
            continue
        # of the query, not of the response
        digest = hashlib.sha256(f"{source}:{subreddit}:{window.key}".encode()).hexdigest()
        for page in pages(subreddit, cursor=cursors.get(subreddit), window=window):
            taken = [t for i in page.items if (t := _take(i, into=gathered, digest=digest))]
            if journal:
                items = [{"retrieved": retrieved, "item": asdict(item)} for item, retrieved in taken]
                journal.add({"subreddit": subreddit, "cursor": page.cursor, "items": items})
    yield from gathered
    if journal:
        journal.end()


def post_of(item: Any, *, subreddit: str, place: str) -> Mapping[str, Any]:
    """Return an item of a response; one that is not a post or names no subreddit becomes a malformed post of it.

    ``place`` distinguishes items without an id, so that each is counted.
    """
    if isinstance(item, dict) and isinstance(item.get("subreddit"), str):
        return item
    return {"subreddit": subreddit, "name": fullname_of(item) if isinstance(item, dict) else None, "place": place}


def _take(item: Mapping[str, Any], *, into: Gathered, digest: str) -> tuple[Submission | Dropped, float] | None:
    """Add an item; one of another subreddit is counted."""
    if item["subreddit"].lower() in into.wanted:
        return into.add(item, source_digest=digest)
    created = created_of(item)
    if created is not None and created not in into.window:
        return None
    other = Dropped(fullname_of(item) or f"malformed:{digest}", "other_subreddit")
    into.put(other, retrieved=0.0)
    return other, 0.0


def _revive(fields: dict[str, Any]) -> Submission | Dropped:
    if "reason" in fields:
        return Dropped(**fields)
    fields["created"] = datetime.fromisoformat(fields["created"])
    fields["media"] = tuple(tuple(m) for m in fields["media"])
    return Submission(**fields)
