"""Read the submissions of a month from a dump or Arctic Shift through one protocol and one schema.

Reddit's listings show no months: :mod:`pipelines.collect.listing_reader` reads them into the store of refreshes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from pipelines.collect.month import Window
from pipelines.collect.submission import Dropped, Submission, created_of, parse, retrieved_of
from pipelines.core.config.collect import MonthlySource
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings

DELETIONS = {"deleted", "removed", "deleted_later"}


class SubmissionSource(Protocol):
    """The interface of a source; it returns no data before it has read and verified all of it."""

    @property
    def name(self) -> str:
        """Return the source's name in section ``sources`` of ``params.yaml``."""

    def submissions(self, window: Window, *, subreddits: Sequence[str]) -> Iterator[Submission | Dropped]:
        """Yield every submission of the subreddits created in the window, each fullname once, in any order."""


def open_source(
    name: MonthlySource, *, params: Params, settings: Settings, today: date, state: Path | None = None
) -> SubmissionSource:
    """Return the source if its approval is valid ``today``; a live one saves what it has read in ``state``."""
    params.sources[name].check(name, today=today)
    if params.sources[name].live:
        settings.require_secret_apart(name)
    if name == "dump":
        from pipelines.collect.sources.dump import DumpSource

        return DumpSource(settings.dumps, params=params.dump)
    from pipelines.collect.sources.arctic_shift import ArcticShiftSource, ResumeJournal

    journal = ResumeJournal(state, secret=settings.secret(), day=today) if state else None
    return ArcticShiftSource(settings, params=params.arctic_shift, journal=journal)


class Gathered:
    """The items of one month by fullname; of several copies, a deleted one is kept first, then the newest.

    Archives hold a post several times and disagree; a post that is deleted in any of them is deleted.
    """

    def __init__(self, window: Window, *, subreddits: Sequence[str], source: str) -> None:
        self.window = window
        self.wanted = {s.lower() for s in subreddits}
        self.source = source
        self._items: dict[str, tuple[tuple[int, float], Submission | Dropped]] = {}

    def add(self, item: Mapping[str, Any], *, source_digest: str) -> tuple[Submission | Dropped, float] | None:
        """Add an item of the window and the subreddits; return it with its retrieval time (epoch or 0.0).

        An item without a usable date is counted as malformed in every month that reads it.
        """
        subreddit = item.get("subreddit")
        if not isinstance(subreddit, str) or subreddit.lower() not in self.wanted:
            return None
        created = created_of(item)
        if created is not None and created not in self.window:
            return None
        parsed = parse(item, source=self.source, source_digest=source_digest)
        retrieved = retrieved_of(item)
        self.put(parsed, retrieved=retrieved)
        return parsed, retrieved

    def put(self, parsed: Submission | Dropped, *, retrieved: float) -> None:
        """Store an item of the month; of two items with equal rank and time, the one added later is kept."""
        rank = 1
        if isinstance(parsed, Dropped):
            rank = 2 if parsed.reason in DELETIONS else 0 if parsed.reason == "malformed" else 1
        known = self._items.get(parsed.fullname)
        if known is None or (rank, retrieved) >= known[0]:
            self._items[parsed.fullname] = ((rank, retrieved), parsed)

    def __iter__(self) -> Iterator[Submission | Dropped]:
        return (item for _, item in self._items.values())
