"""Read a subreddit's listing from its newest post back to what is known, and store every page with what it covers.

A listing proves which posts exist only between two of its posts: the second of its oldest post may have further ones,
and an end before the limit proves nothing, since removed posts count towards the limit and are not shown. What a read
covers therefore begins after its oldest post, unless that is older than what the read was to reach.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pipelines.collect.admission import Admission
from pipelines.collect.month import Interval
from pipelines.collect.refresh_store import ListingRead, RefreshStore
from pipelines.collect.sources import Listed, ListedPost
from pipelines.core.config.params import Params

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
