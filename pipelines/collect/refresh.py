"""Run the step ``refresh``: read the listings that are due, and fill the gaps of published months.

A run ends without a request where no subreddit is due. One subreddit that cannot be read does not stop the others.
Every page is stored with what it covers before the next is requested, so a killed run loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.collect.admission import Admission, dated
from pipelines.collect.listing_reader import HOUR, ListingProgress, ListingReader, due
from pipelines.collect.month import Gaps, Interval, Window, hours, minus, seconds_of, union, within
from pipelines.collect.read.decode import require_sandbox
from pipelines.collect.refresh_store import ListingRead, RefreshStore
from pipelines.collect.service import SubredditClosed
from pipelines.collect.sources import Listed, Monthly, open_source
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, SourceError, SourceRefused, SourceThrottled, SourceUnavailable
from pipelines.store.vault.vault import Vault

log = logging.getLogger(__name__)


def run(
    corpus: str, *, params: Params, settings: Settings, vault: Vault, now: datetime, every: bool = False
) -> dict[str, Any]:
    """Read the subreddits that are due, or ``every`` one, and ask the other sources for gaps of published months.

    Returns:
        ``read`` and ``waiting`` (not due) subreddits, ``closed`` ones, ``records`` seen, ``new`` ones, ``others`` (of
        other subreddits, left out), ``gaps`` (of the months that are not published, with their hours), ``next`` (when
        the next read is due) and ``revise``: published months of which posts have arrived.
    """
    described = params.corpora[corpus]
    if (source := params.listing(corpus)) is None:
        raise ConfigError("NoListing", corpus=corpus)
    listing = open_source(source, Listed, params=params, settings=settings, today=now.date())
    if described.content == "images":
        require_sandbox(params.images.decode)
    admission, seconds = Admission(corpus, params, vault, now), int(now.timestamp())
    with RefreshStore.open(settings.refresh_url) as store:
        known = store.last_reads(corpus)
        ready = [
            s for s in described.subreddits if every or due(corpus, known.get(s.lower()), params=params) <= seconds
        ]
        floors = {s: _floor(known.get(s.lower()), params=params, now=now) for s in ready}
        done, failures = _read_each(floors, ListingReader(admission, listing, store))
        counts: dict[str, Any] = {"read": len(done), "waiting": len(described.subreddits) - len(ready)}
        counts |= {name: sum(getattr(read, name) for read in done) for name in ("records", "new", "others")}
        fill_published(corpus, admission=admission, settings=settings, store=store)
        counts |= ledger(corpus, params=params, store=store)
    closed = [error.fields for error in failures if isinstance(error, SubredditClosed)]
    if failure := next((error for error in failures if not isinstance(error, SubredditClosed)), None):
        raise failure
    if len(closed) == len(described.subreddits):
        names = ", ".join(f"r/{fields['subreddit']} ({fields['reason']})" for fields in closed)
        raise SourceRefused("AllClosed", source=source, count=len(closed), names=names)
    return counts | {"closed": len(closed)}


def read_listings(
    source: str, gaps: dict[str, list[Interval]], *, admission: Admission, settings: Settings, store: RefreshStore
) -> list[SourceError]:
    """Read the listings that may show gaps of a month; return the errors of those that could not be read."""
    params, known = admission.params, store.last_reads(admission.corpus)
    listing = open_source(source, Listed, params=params, settings=settings, today=admission.now.date())
    floors = {}
    for subreddit, intervals in gaps.items():
        before = known.get(subreddit.lower())
        if before is None or max(end for _, end in intervals) > before.reach:
            first = min(start for start, _ in intervals)
            floors[subreddit] = min(first, _floor(before, params=params, now=admission.now, first=first))
    return _read_each(floors, ListingReader(admission, listing, store))[1]


def _read_each(floors: dict[str, int], reader: ListingReader) -> tuple[list[ListingProgress], list[SourceError]]:
    """Read listings back to their floors; return what the reads saw, and the errors of those that failed."""
    done: list[ListingProgress] = []
    failures: list[SourceError] = []
    for subreddit, floor in floors.items():
        try:
            done.append(reader.read(subreddit, floor=floor))
        except (SubredditClosed, SourceUnavailable) as error:
            failures.append(error)
            log.warning("%s", error)
    return done, failures


def fill_published(corpus: str, *, admission: Admission, settings: Settings, store: RefreshStore) -> None:
    """Ask the sources other than the listing for the gaps of published months, each month once in a while."""
    params, seconds = admission.params, int(admission.now.timestamp())
    terms, closed = params.refresh, store.closed(corpus)
    for month, open_gaps in store.open_gaps(corpus).items():
        at, tried = closed[month]
        if seconds - tried < terms.retry_hours * HOUR or seconds - at > terms.retry_days * 24 * HOUR:
            continue
        filler = GapFiller(admission, settings, store)
        for name in params.corpora[corpus].sources:
            if name != params.listing(corpus) and (left := remaining(open_gaps, store, corpus=corpus)):
                filler.fill(name, left)
        store.tried(corpus, month, at=seconds)


def ledger(corpus: str, *, params: Params, store: RefreshStore) -> dict[str, Any]:
    """Return the state of a corpus's refreshes: posts that wait for their month, gaps, next read, months to revise."""
    reads, covered, closed = store.last_reads(corpus), store.covered(corpus), store.closed(corpus)
    # the gaps of these months are in their tables
    published = [seconds_of(Window.from_key(month)) for month in closed]
    gaps: list[Interval] = []
    for name, read in reads.items():
        if known := union(covered.get(name, ())):
            gaps += minus([(known[0][0], read.mark)], [*known, *published])
    following = min((due(corpus, read, params=params) for read in reads.values()), default=None)
    unread = [name for name in params.corpora[corpus].subreddits if name.lower() not in reads]
    return {
        "stored": store.count_waiting(corpus),
        "gaps": len(gaps),
        "gap_hours": hours(gaps),
        "unread": len(unread),
        "next": following and datetime.fromtimestamp(following, tz=UTC).isoformat(),
        "revise": [month for month in sorted(closed) if _arrived(corpus, month, store=store)],
    }


def require_closed(corpus: str, *, window: Window, params: Params, now: datetime) -> None:
    """Check that a month of a live source has ended, and its grace has passed."""
    live = next((name for name in params.corpora[corpus].sources if params.sources[name].live), None)
    left = window.end.timestamp() + params.refresh.grace_hours * HOUR - now.timestamp()
    if live and left > 0:
        raise SourceError("MonthOpen", source=live, month=window.key, retry_after=left)


def _floor(read: ListingRead | None, *, params: Params, now: datetime, first: int | None = None) -> int:
    """Return how far back a read goes: behind the mark for late posts, at first to the start of the open month."""
    if read:
        return read.mark - int(params.refresh.overlap_hours * HOUR)
    if first is not None:
        return first
    open_month = datetime.fromtimestamp(now.timestamp() - params.refresh.grace_hours * HOUR, tz=UTC)
    return int(open_month.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp())


def _arrived(corpus: str, month: str, *, store: RefreshStore) -> bool:
    """Return whether posts of a published month, or proof that a gap of it has none, have arrived since."""
    interval = seconds_of(Window.from_key(month))
    if store.count_waiting(corpus, interval):
        return True
    covered = store.covered(corpus)
    return any(
        within(covered.get(subreddit, ()), gap)
        for subreddit, gaps in store.open_gaps(corpus).get(month, {}).items()
        for gap in gaps
    )


@dataclass(frozen=True)
class GapFiller:
    """Reads intervals of creation times from a source into the store of refreshes."""

    admission: Admission
    settings: Settings
    store: RefreshStore

    def fill(self, name: str, gaps: Gaps) -> list[SourceError]:
        """Read gaps from one source; return the errors of those that it cannot show, which stay open."""
        failures: list[SourceError] = []
        for interval, wanted in self._open(name).jobs(gaps):
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

    def _open(self, name: str, *, state: Path | None = None) -> Monthly:
        terms: dict[str, Any] = {"params": self.admission.params, "today": self.admission.now.date(), "state": state}
        return open_source(name, Monthly, settings=self.settings, **terms)

    def _read(self, name: str, interval: Interval, subreddits: Sequence[str]) -> None:
        admission, window = self.admission, _WatchedWindow.of(interval)
        what = admission.vault.record_id("+".join(subreddits), domain="resume")[:12]
        state = self.settings.home / "resume" / f"{admission.corpus}-{name}-{interval[0]}-{interval[1]}-{what}"
        source = self._open(name, state=state)
        found = source.submissions(window, subreddits=subreddits)
        items = [dated(item, subreddits[0], interval[0]) for item in found]
        vault, corpus = admission.vault, admission.corpus
        known = self.store.known(corpus, [vault.record_id(item.fullname) for item, _, _ in items])
        posts = admission.posts(items, source=name, known=known)
        covers = dict.fromkeys(subreddits, source.covers(interval, newest=window.newest))
        self.store.keep(corpus, posts, covers=covers, source=name, vault=vault)


def remaining(gaps: Gaps, store: RefreshStore, *, corpus: str) -> dict[str, list[Interval]]:
    """Return the parts of gaps that no read in the store covers; subreddits keep the case that ``gaps`` has."""
    covered = store.covered(corpus)
    left = {subreddit: minus(intervals, covered.get(subreddit.lower(), ())) for subreddit, intervals in gaps.items()}
    return {subreddit: intervals for subreddit, intervals in left.items() if intervals}


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
        return int(self.seen[-1].timestamp()) if self.seen else 0
