"""Fill gaps of the listings from the other sources of a corpus, each for just the missing intervals."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipelines.collect.admission import Admission
from pipelines.collect.intervals import Interval, minus
from pipelines.collect.month import Window
from pipelines.collect.sources import open_source
from pipelines.collect.submission import Dropped
from pipelines.config.collect import SourceName
from pipelines.config.settings import Settings
from pipelines.errors import SourceError, SourceRefused, SourceThrottled, SourceUnavailable
from pipelines.storage.refresh_store import RefreshStore

Gaps = Mapping[str, Sequence[Interval]]
"""Intervals of creation times by subreddit."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GapFiller:
    """Reads intervals of creation times from a source into the store of refreshes."""

    admission: Admission
    settings: Settings
    store: RefreshStore

    def fill(self, name: SourceName, gaps: Gaps) -> list[SourceError]:
        """Read gaps from one source; return the errors of the intervals that the source cannot show, which stay open.

        Raises:
            SourceNotApproved: the source may not be read.
            SourceError: a dump is damaged or has no checksum.
        """
        failures: list[SourceError] = []
        for interval, wanted in _jobs(name, gaps):
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

    def _read(self, name: SourceName, interval: Interval, subreddits: Sequence[str]) -> None:
        admission, window = self.admission, _window(interval)
        source = open_source(
            name,
            params=admission.params,
            settings=self.settings,
            today=admission.now.date(),
            state=self._state(name, interval, subreddits),
        )
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
        self.store.keep(corpus, posts, covers=dict.fromkeys(subreddits, interval), source=name, vault=vault)

    def _state(self, name: str, interval: Interval, subreddits: Sequence[str]) -> Path:
        what = self.admission.vault.record_id("+".join(subreddits), domain="resume")[:12]
        return self.settings.home / "resume" / f"{self.admission.corpus}-{name}-{interval[0]}-{interval[1]}-{what}"


def remaining(gaps: Gaps, store: RefreshStore, *, corpus: str) -> dict[str, list[Interval]]:
    """Return the parts of gaps that no read in the store covers; subreddits keep the case that ``gaps`` has."""
    covered = store.covered(corpus)
    left = {subreddit: minus(intervals, covered.get(subreddit.lower(), ())) for subreddit, intervals in gaps.items()}
    return {subreddit: intervals for subreddit, intervals in left.items() if intervals}


def _jobs(name: SourceName, gaps: Gaps) -> Iterator[tuple[Interval, list[str]]]:
    """Yield what to read at once: a dump is scanned once, a live source is asked for each interval."""
    wanted = {subreddit: intervals for subreddit, intervals in gaps.items() if intervals}
    if name == "dump" and wanted:
        every = [interval for intervals in wanted.values() for interval in intervals]
        yield (min(start for start, _ in every), max(end for _, end in every)), list(wanted)
        return
    for subreddit, intervals in wanted.items():
        for interval in intervals:
            yield interval, [subreddit]


def _window(interval: Interval) -> Window:
    return Window(*(datetime.fromtimestamp(second, tz=UTC) for second in interval))
