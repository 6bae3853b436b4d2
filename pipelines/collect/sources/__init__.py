"""Where submissions come from: a dump, Reddit itself or Arctic Shift, one schema behind one protocol.

``params.yaml`` names the source of a corpus; the partition step cannot tell which one it reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from pipelines.collect.month import Window
from pipelines.collect.submission import Dropped, Submission, created_of, parse, retrieved_of
from pipelines.config.collect import SourceName
from pipelines.config.params import Params
from pipelines.config.settings import Settings

DELETIONS = {"deleted", "removed", "deleted_later"}


class SubmissionSource(Protocol):
    """What the step ``collect`` reads; nothing comes out before the whole source was read and found sound."""

    @property
    def name(self) -> str:
        """Return the name under ``sources`` in ``params.yaml``."""

    def submissions(self, window: Window, *, subreddits: Sequence[str]) -> Iterator[Submission | Dropped]:
        """Yield every submission of the subreddits created in the window, each fullname once, in any order.

        Raises:
            SourceError: the source cannot be read as a whole.
        """


def open_source(
    name: SourceName, *, params: Params, settings: Settings, today: date, state: Path | None = None
) -> SubmissionSource:
    """Return the source ``name``, after its access basis was checked and before anything is sent.

    Args:
        today: the day the approval must still hold on.
        state: file in which a live source remembers what it has read, so that a retry goes on from there.

    Raises:
        SourceNotApproved: a live source without an access basis, an approval, a retention or a future expiry.
        BadParams: a setting the source needs is missing.
    """
    params.sources[name].check(name, today=today)
    if name == "dump":
        from pipelines.collect.sources.dump import DumpSource

        return DumpSource(settings.dumps, params=params.dump)
    from pipelines.collect.sources.journal import Journal

    journal = Journal(state, secret=settings.secret(), day=today) if state else None
    if name == "reddit":
        from pipelines.collect.sources.reddit import RedditSource

        return RedditSource(settings, params=params.reddit, journal=journal)
    from pipelines.collect.sources.arctic_shift import ArcticShiftSource

    return ArcticShiftSource(settings, params=params.arctic_shift, journal=journal)


def digest_of(source: str, *, subreddit: str, window: Window) -> str:
    """Return the ``source_digest`` of an API source: it names the query, never what came back."""
    return hashlib.sha256(f"{source}:{subreddit}:{window.key}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Taken:
    """A parsed item with the time (epoch seconds, 0.0 if unknown) at which the source last looked at it."""

    item: Submission | Dropped
    retrieved: float


class Gathered:
    """The items of one window, one for each fullname: a deletion outranks all, then the newest retrieval counts.

    Archives hold a post several times and disagree; what has been deleted in any of them is deleted.
    """

    def __init__(self, window: Window, *, subreddits: Sequence[str], source: str) -> None:
        self.window = window
        self.wanted = {s.lower() for s in subreddits}
        self.source = source
        self._items: dict[str, tuple[tuple[int, float], Submission | Dropped]] = {}

    def add(self, item: Mapping[str, Any], *, source_digest: str) -> Taken | None:
        """Take the item in and return it parsed, or ``None`` if it is not of this window and these subreddits.

        An item without a usable date belongs to no month and is counted, as malformed, in each that meets it.
        """
        subreddit = item.get("subreddit")
        if not isinstance(subreddit, str) or subreddit.lower() not in self.wanted:
            return None
        created = created_of(item)
        if created is not None and created not in self.window:
            return None
        parsed = parse(item, source=self.source, source_digest=source_digest)
        self.put(parsed, retrieved=retrieved_of(item))
        return Taken(parsed, retrieved_of(item))

    def put(self, parsed: Submission | Dropped, *, retrieved: float) -> None:
        """Take in a parsed item of the window; among equals the later one stays."""
        rank = 1
        if isinstance(parsed, Dropped):
            rank = 2 if parsed.reason in DELETIONS else 0 if parsed.reason == "malformed" else 1
        known = self._items.get(parsed.fullname)
        if known is None or (rank, retrieved) >= known[0]:
            self._items[parsed.fullname] = ((rank, retrieved), parsed)

    def __iter__(self) -> Iterator[Submission | Dropped]:
        return (item for _, item in self._items.values())
