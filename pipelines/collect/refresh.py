"""Run the step ``refresh``: read the listings that are due, and fill the gaps of published months.

A run ends without a request where no subreddit is due. One subreddit that cannot be read does not stop the others.
Every page is stored with what it covers before the next is requested, so a killed run loses nothing.

A listing proves which posts exist only between two of its posts: the second of its oldest post may have further ones,
and an end before the limit proves nothing, since removed posts count towards the limit and are not shown. What a read
covers therefore begins after its oldest post, unless that is older than what the read was to reach.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.collect.admission import Admission, dated
from pipelines.collect.month import Gaps, Interval, Window, hours, minus, seconds_of, union, within
from pipelines.collect.read.decode import require_sandbox
from pipelines.collect.refresh_store import ListingRead, RefreshStore
from pipelines.collect.service import SubredditClosed
from pipelines.collect.sources import Listed, ListedPost, Monthly, open_source
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, SourceError, SourceRefused, SourceThrottled, SourceUnavailable
from pipelines.store.vault.vault import Vault

# Ours: so many posts of the page before are tried as the cursor if the one at its end was deleted meanwhile.
CURSORS = 5
# Ours: so many pages in a row without a new post end a listing that would not end.
BARREN = 3
HOUR = 3600
# Ours: a subreddit's highest rate counts half after a week, so that a quiet night does not hide a busy weekday.
HALF_LIFE = 7 * 24 * HOUR

log = logging.getLogger(__name__)


@dataclass
class ListingProgress:
    """What a read has seen so far: records, new ones, those of ``others`` (other subreddits, which are left out), and
    the creation times of the newest and the oldest record.
    """

    records: int = 0
    new: int = 0
    others: int = 0
    fresh: int = 0
    newest: int | None = None
    oldest: int | None = None
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ListingReader:
    """Reads the listings of one corpus into the store of refreshes."""

    admission: Admission
    source: Listed
    store: RefreshStore

    def read(self, subreddit: str, *, floor: int) -> ListingProgress:
        """Read a listing from its newest post back to ``floor`` (epoch seconds) and the known part above it."""
        corpus, started = self.admission.corpus, int(self.admission.now.timestamp())
        before = self.store.last_reads(corpus).get(subreddit.lower())
        done, ended = ListingProgress(), False
        for items, last in self._pages(subreddit, done):
            times = [int(item.created.timestamp()) for item in items if item.created]
            # a date in the future, beyond the time that a run takes, proves nothing
            times = [t for t in times if t <= started + HOUR]
            if not times:
                continue
            if done.newest is None:
                done.newest = max(times)
            # a listing is sorted: of one that is not, only what is newer than a whole page is certain
            done.oldest = times[-1] if times == sorted(times, reverse=True) else max(times)
            upper = max(done.newest, started - self.admission.params.refresh.settle_seconds)
            lower = floor if done.oldest < floor else done.oldest + 1
            done.fresh += sum(before is None or t >= before.mark for t in times)
            here = [item for item in items if item.subreddit.lower() == subreddit.lower()]
            done.others += len(items) - len(here)
            done.new += self._keep(subreddit, here, floor=floor, covers=(lower, upper))
            if done.oldest < floor:
                break
            ended = last
        self._note(subreddit, done, before=before, started=started, ended=ended)
        return done

    def _pages(self, subreddit: str, done: ListingProgress) -> Iterator[tuple[list[ListedPost], bool]]:
        """Yield each page, and whether the listing ends with it."""
        after, seen = "", {""}
        size, limit = self.source.params.listing.page_size, self.source.params.listing.limit
        shown, barren = set[str](), 0
        while done.records < limit and barren < BARREN:
            items, following = self._page(subreddit, after=after, limit=min(size, limit - done.records), done=done)
            names = [item.name for item in items]
            barren = 0 if set(names) - shown else barren + 1
            shown.update(names)
            more = bool(following) and following not in seen
            if items:
                done.records += len(items)
                done.names = names
                yield items, not more or done.records >= limit
            if not more:
                return
            seen.add(following)
            after = following

    def _page(self, subreddit: str, *, after: str, limit: int, done: ListingProgress) -> tuple[list[ListedPost], str]:
        items, following = self.source.page(subreddit, after=after, limit=limit)
        # an empty page after a cursor: the listing ends there, or the post that the cursor names was deleted
        for name in reversed(done.names[-CURSORS:-1] if after and not items else ()):
            items, following = self.source.page(subreddit, after=name, limit=limit)
            if items:
                break
        return items, following

    def _keep(self, subreddit: str, items: Sequence[ListedPost], *, floor: int, covers: Interval) -> int:
        taken = []
        for item in items:
            # a post without a usable date is counted as malformed, in the month in which it is seen
            created = item.created or self.admission.now
            if created.timestamp() >= floor:
                taken.append((self.source.named(item.post), subreddit, int(created.timestamp())))
        vault, corpus = self.admission.vault, self.admission.corpus
        known = self.store.known(corpus, [vault.record_id(post.fullname) for post, _, _ in taken])
        new_posts = self.admission.posts(taken, source=self.source.name, known=known)
        return self.store.keep(corpus, new_posts, covers={subreddit: covers}, source=self.source.name, vault=vault)

    def _note(
        self, subreddit: str, done: ListingProgress, *, before: ListingRead | None, started: int, ended: bool
    ) -> None:
        """Store the mark and the rate of a read, and warn if posts were lost from sight since the last one."""
        if done.newest is None or done.oldest is None:
            # an empty listing proves nothing: the next read looks again
            return
        since = max(before.mark, done.oldest) if before else done.oldest
        rate = done.fresh / max((started - since) / HOUR, 1 / 60)
        reach = done.oldest if ended else 0
        if before:
            rate = max(rate, before.rate * 0.5 ** ((started - before.at) / HALF_LIFE))
            reach = max(reach, before.reach)
        mark = max(done.newest, started - self.admission.params.refresh.settle_seconds)
        self.store.note_read(self.admission.corpus, subreddit, ListingRead(started, mark, rate, reach))
        if before and done.oldest >= before.mark:
            log.warning(
                "r/%s: the listing shows %d posts and ends %.1f h after the last read; the gap is on record",
                subreddit, done.records, (done.oldest + 1 - before.mark) / HOUR,
            )  # fmt: skip


def due(corpus: str, read: ListingRead | None, *, params: Params) -> int:
    """Return when a subreddit must be read again (epoch seconds), so that its listing does not overflow."""
    if read is None:
        return 0
    [listing] = filter(None, (params.sources[name].listing for name in params.corpora[corpus].sources))
    full = params.refresh.share * listing.limit / max(read.rate, 1e-9)
    return read.at + int(min(params.refresh.every_hours, full) * HOUR)


def run(
    corpus: str, *, params: Params, settings: Settings, vault: Vault, now: datetime, every: bool = False
) -> dict[str, Any]:
    """Read the subreddits that are due, or ``every`` one, and ask the other sources for gaps of published months.

    Of the returned counts, ``others`` are records of other subreddits, which are left out, ``waiting`` subreddits that
    are not due, and ``revise`` the published months of which posts have arrived.
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
