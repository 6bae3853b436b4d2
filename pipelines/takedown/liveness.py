"""Decide which records are due for a check at their source, and check them within a budget of requests.

A source omits posts that it does not show, and a partial outage looks the same. Every request therefore includes a post
that was just listed (the control): an answer that lacks the control proves nothing about the other posts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache

from pipelines.collect.month import Window
from pipelines.collect.service import SubredditClosed
from pipelines.collect.sources import Lookup
from pipelines.collect.submission import Dropped, Submission
from pipelines.core.config.operate import Band, Sweep
from pipelines.core.errors import DataError
from pipelines.store.vault.checks import CLOSED, MARKS, MISSING, SEEN, Known


class SweepImplausible(DataError):
    """A source's answers suggest an outage; if they were believed, the sweep would take down much of a corpus."""


class LivenessContext:
    """The requests to a source of one sweep: count and interpret them, and cache which subreddits are readable."""

    def __init__(self, source: Lookup, *, corpus: str, subreddits: Sequence[str], terms: Sweep, believe: bool) -> None:
        self._source, self._corpus, self._subreddits = source, corpus, subreddits
        self._terms, self.believe = terms, believe
        # one of the names is the control
        self.batch = source.at_once - 1
        self._open: dict[str, bool] = {}
        self._control: list[str] = []
        self.requests = 0

    def open(self) -> None:
        """Choose the control post of this sweep: the newest post of the first subreddit that has one."""
        for subreddit in self._subreddits:
            self.shows(subreddit)
            if self._control:
                return

    def spent(self) -> str | None:
        """Return the exhausted limit of the sweep, ``requests`` or ``remain``; ``None`` if a request is allowed."""
        if self.requests >= self._terms.requests:
            return "requests"
        left = self._source.remaining()
        return "remain" if left is not None and left < self._terms.remain else None

    def shows(self, subreddit: str) -> bool:
        """Return whether the source shows a subreddit; each subreddit is requested once per sweep."""
        name = subreddit.lower()
        if name not in self._open:
            self.requests += 1
            try:
                newest = self._source.newest(subreddit)
            except SubredditClosed:
                self._open[name] = False
            else:
                self._open[name] = True
                self._control = self._control or [n for n in (newest,) if n]
        return self._open[name]

    def ask(self, fullnames: Sequence[str]) -> dict[str, str]:
        """Ask the source for posts; return each one's outcome: ``seen``, ``deleted``, ``removed``, or ``missing``."""
        shown, proven = self._info(fullnames)
        if not proven and not shown.keys() >= set(fullnames) and any(self._open.values()):
            # the control itself may have been deleted since it was listed
            self._open.clear()
            self._control.clear()
            self.open()
            shown, proven = self._info(fullnames)
        missing = len(set(fullnames) - shown.keys())
        if missing and not proven and any(self._open.values()):
            detail = f"an answer lacks the control post and {missing} of the {len(fullnames)} posts that were requested"
            raise SweepImplausible(corpus=self._corpus, detail=detail)
        # without a control, as every subreddit is closed, an answer proves no miss
        absent = MISSING if proven else CLOSED
        return {name: _outcome(shown[name]) if name in shown else absent for name in fullnames}

    def _info(self, fullnames: Sequence[str]) -> tuple[Mapping[str, Submission | Dropped], bool]:
        self.requests += 1
        shown = self._source.info([*fullnames, *self._control])
        return shown, self.believe or any(name in shown for name in self._control)

    def hides(self, subreddit: str | None) -> bool:
        """Return whether a post may be missing only because its subreddit (``None``: any of the corpus) is closed."""
        return not all(self.shows(name) for name in ([subreddit] if subreddit else self._subreddits))


def _outcome(post: Submission | Dropped) -> str:
    return post.reason if isinstance(post, Dropped) and post.reason in MARKS else SEEN


QUARANTINED = "quarantined"


def band_of(month: str, *, bands: Sequence[Band], now: datetime) -> Band:
    """Return the age band (with its re-check interval) of the records of a month."""
    age = now - _end(month)
    return next(b for b in bands if b.until_days is None or age < timedelta(days=b.until_days))


def name_of(known: Known, *, bands: Sequence[Band], now: datetime) -> str:
    """Return the displayed name of a record's age band: ``quarantined``, ``under 30 days`` or ``older``."""
    if known.quarantined:
        return QUARANTINED
    end = band_of(known.month, bands=bands, now=now).until_days
    return "older" if end is None else f"under {end} days"


def due_at(known: Known, *, terms: Sweep, now: datetime) -> datetime:
    """Return when a record's re-check is due: never checked ones at once, quarantined ones in the next run."""
    if known.checked_at is None:
        return known.first_seen
    if known.quarantined:
        return known.checked_at + timedelta(hours=terms.recheck_hours)
    return known.checked_at + timedelta(days=band_of(known.month, bands=terms.bands, now=now).every_days)


def queue(records: Iterable[Known], *, terms: Sweep, now: datetime) -> list[Known]:
    """Return the records whose re-check is due now: quarantined ones first, then by how long they have been due."""
    times = {known: due_at(known, terms=terms, now=now) for known in records}
    ready = [known for known, time in times.items() if time <= now]
    return sorted(ready, key=lambda known: (not known.quarantined, times[known], known.record_id))


@cache
def _end(month: str) -> datetime:
    return Window.from_key(month).end
