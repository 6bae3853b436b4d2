"""Fill gaps of the listings from the other sources of a corpus, each for just the missing intervals."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pipelines.collect.admission import Admission
from pipelines.collect.intervals import Gaps, Interval, minus
from pipelines.collect.month import Window
from pipelines.collect.refresh_store import RefreshStore
from pipelines.collect.sources import open_source
from pipelines.collect.submission import Dropped
from pipelines.config.collect import MonthlySource
from pipelines.config.settings import Settings
from pipelines.errors import SourceError, SourceRefused, SourceThrottled, SourceUnavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GapFiller:
    """Reads intervals of creation times from a source into the store of refreshes."""

    admission: Admission
    settings: Settings
    store: RefreshStore

    def fill(self, name: MonthlySource, gaps: Gaps) -> list[SourceError]:
        """Read gaps from one source; return the errors of the intervals that the source cannot show, which stay open.

        Raises:
            SourceNotApproved: the source may not be read.
            SourceError: a dump is damaged or has no checksum.
        """
        failures: list[SourceError] = []
        for interval, wanted in _jobs(name, gaps, dumps=self.settings.dumps):
            subreddits = wanted
            while subreddits:
                try:
                    self._read(name, interval, subreddits)
                except (SourceThrottled, SourceUnavailable, SourceRefused) as error:
                    failures.append(error)
                    log.warning("%s", error)
                except SourceError as error:
                    if (missing := error.fields.get("subreddit")) is None:
                        raise
                    # no dump of this subreddit
                    failures.append(error)
                    subreddits = [s for s in subreddits if s != missing]
                    continue
                break
        return failures

    def _read(self, name: MonthlySource, interval: Interval, subreddits: Sequence[str]) -> None:
        admission, window = self.admission, _window(interval)
        state, today = self._state(name, interval, subreddits), admission.now.date()
        source = open_source(name, params=admission.params, settings=self.settings, today=today, state=state)
        found = [
            # a drop has neither subreddit nor date
            (item, subreddits[0], interval[0])
            if isinstance(item, Dropped)
            else (item, item.subreddit, int(item.created.timestamp()))
            for item in source.submissions(window, subreddits=subreddits)
        ]
        vault, corpus = admission.vault, admission.corpus
        known = self.store.known(corpus, [vault.record_id(item.fullname) for item, _, _ in found])
        posts = admission.posts(found, source=name, known=known)
        if name == "dump" and not _has_month(self.settings.dumps, window):
            # nothing says where a subreddit's own dump ends, except its newest post
            interval = interval[0], min(interval[1], window.newest)
        self.store.keep(corpus, posts, covers=dict.fromkeys(subreddits, interval), source=name, vault=vault)

    def _state(self, name: str, interval: Interval, subreddits: Sequence[str]) -> Path:
        what = self.admission.vault.record_id("+".join(subreddits), domain="resume")[:12]
        return self.settings.home / "resume" / f"{self.admission.corpus}-{name}-{interval[0]}-{interval[1]}-{what}"


def remaining(gaps: Gaps, store: RefreshStore, *, corpus: str) -> dict[str, list[Interval]]:
    """Return the parts of gaps that no read in the store covers; subreddits keep the case that ``gaps`` has."""
    covered = store.covered(corpus)
    left = {subreddit: minus(intervals, covered.get(subreddit.lower(), ())) for subreddit, intervals in gaps.items()}
    return {subreddit: intervals for subreddit, intervals in left.items() if intervals}


def _jobs(name: MonthlySource, gaps: Gaps, *, dumps: Path) -> Iterator[tuple[Interval, list[str]]]:
    """Yield what to read at once: a dump is scanned once, a live source is asked for each interval."""
    wanted = {subreddit: intervals for subreddit, intervals in gaps.items() if intervals}
    if name != "dump":
        yield from ((interval, [subreddit]) for subreddit, intervals in wanted.items() for interval in intervals)
        return
    hulls = {s: (min(start for start, _ in several), max(end for _, end in several)) for s, several in wanted.items()}
    if not hulls:
        return
    whole = min(start for start, _ in hulls.values()), max(end for _, end in hulls.values())
    if _has_month(dumps, _window(whole)):
        yield whole, list(hulls)
    else:
        yield from ((hull, [subreddit]) for subreddit, hull in hulls.items())


def _has_month(dumps: Path, window: Window) -> bool:
    """Return whether there is a dump of all of Reddit for the month in which a window begins."""
    return any(dumps.glob(f"[Rr][Ss]_{window.key}*.zst"))


@dataclass(frozen=True)
class _WatchedWindow(Window):
    """A window that remembers the newest of all times that a source has compared with it."""

    seen: list[datetime] = field(default_factory=list, compare=False)

    def __contains__(self, moment: datetime) -> bool:
        if not self.seen or moment > self.seen[-1]:
            self.seen.append(moment)
        return super().__contains__(moment)

    @property
    def newest(self) -> int:
        """Return the newest time in seconds since the epoch, 0 without any."""
        return int(self.seen[-1].timestamp()) if self.seen else 0


def _window(interval: Interval) -> _WatchedWindow:
    start, end = (datetime.fromtimestamp(second, tz=UTC) for second in interval)
    return _WatchedWindow(start, end)
