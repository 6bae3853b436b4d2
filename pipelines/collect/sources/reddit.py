"""Read the newest thousand posts of a subreddit from Reddit through PRAW, within the server's rate limit.

PRAW reads ``x-ratelimit-*`` and sleeps before the limit is reached. A 429 may still occur if another process uses the
same client id; the error then carries the seconds to wait, and the scheduler retries the task after them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.collect.month import Window
from pipelines.collect.sources.page_cache import ListingPage, ResumeJournal, gather, post_of
from pipelines.collect.sources.reddit_api import ANSWER_SECONDS, PrawClient
from pipelines.collect.submission import Dropped, Submission, created_of, fullname_of
from pipelines.config.collect import Reddit
from pipelines.config.settings import Settings
from pipelines.errors import SourceUnavailable

# Ours: consecutive pages without a new post; Reddit's own pages may lack posts that were removed meanwhile.
BARREN = 3

log = logging.getLogger(__name__)


class RedditSource:
    """The source ``/r/<subreddit>/new``; logs a warning if the listing does not reach back to the month."""

    name = "reddit"

    def __init__(
        self,
        settings: Settings,
        *,
        params: Reddit,
        journal: ResumeJournal | None = None,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """Configure PRAW for application-only OAuth; nothing is sent yet.

        Raises:
            BadParams: the client id, its secret or the contact is missing, or an address is not https.
        """
        self._params = params
        self._journal = journal
        self._client = PrawClient(settings, answer_seconds=answer_seconds)

    def submissions(self, window: Window, *, subreddits: Sequence[str]) -> Iterator[Submission | Dropped]:
        """Yield the listings' posts of the window, newest pages first; a retry requests only the missing pages.

        A subreddit that Reddit does not show is yielded as ``Uncollected``.

        Raises:
            SourceThrottled: 429, with the seconds to wait.
            SourceRefused: bad credentials, a blocked network, or Reddit shows none of the subreddits.
            SourceUnavailable: 5xx, a timeout or a malformed response, after PRAW's own retries.
        """
        return gather(self.name, window=window, subreddits=subreddits, pages=self._pages, journal=self._journal)

    def info(self, fullnames: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return the current state of at most 100 posts by fullname; posts that Reddit does not return are missing.

        Raises:
            SourceThrottled: 429, with the seconds to wait.
            SourceRefused: bad credentials, or Reddit refuses this client.
            SourceUnavailable: 5xx, a timeout or a malformed response, after PRAW's own retries.
        """
        items = self._client.listing("api/info", params={"id": ",".join(fullnames)}).items
        return {name: item for item in items if (name := fullname_of(item))}

    def _page(self, subreddit: str, *, after: str, limit: int) -> tuple[list[Mapping[str, Any]], str]:
        """Return the listing's posts after a fullname (empty: from the newest on) and the next cursor, or an empty one.

        Raises:
            SubredditClosed: the subreddit is private, banned or unknown.
            SourceError: as :meth:`info`.
        """
        query: dict[str, str | int] = {"limit": min(limit, self._params.page_size), "show": "all"}
        if after:
            query["after"] = after
        found = self._client.listing(f"r/{subreddit}/new", params=query, subreddit=subreddit)
        items = [post_of(i, subreddit=subreddit, place=f"{after}:{n}") for n, i in enumerate(found.items)]
        if items and all(item["subreddit"].lower() != subreddit.lower() for item in items):
            # as if every post had been read, and none were of the subreddit
            raise SourceUnavailable(source=self.name, detail=f"the listing of r/{subreddit} is that of another one")
        return items, found.after or ""

    def newest(self, subreddit: str) -> str | None:
        """Return the fullname of a subreddit's newest post, or ``None`` if the subreddit shows no posts.

        Raises:
            SubredditClosed: the subreddit is private, banned or unknown.
            SourceError: as :meth:`info`.
        """
        items, _ = self._page(subreddit, after="", limit=1)
        return next((name for item in items if (name := fullname_of(item))), None)

    def remaining(self) -> float | None:
        """Return the unused share of the client's rate limit, or ``None`` before the first response."""
        return self._client.remaining()

    def _pages(self, subreddit: str, *, cursor: str | None, window: Window) -> Iterator[ListingPage]:
        """Yield pages until the listing ends, the limit is reached or the window is passed.

        A cursor is ``<posts seen>:<fullname>``.

        Raises:
            SourceUnavailable: the listing repeats a cursor, or several pages in a row have no new post.
        """
        seen, _, after = (cursor or "0:").partition(":")
        count, resumed = int(seen), bool(cursor)
        cursors, names, barren = {after}, set[str | None](), 0
        while True:
            items, following = self._page(subreddit, after=after, limit=self._params.listing_limit - count)
            if resumed and not items:
                # The post that the cursor names was deleted meanwhile; Reddit then returns an empty page.
                count, resumed, after, cursors = 0, False, "", {""}
                continue
            fresh = {fullname_of(item) for item in items} - names
            barren = 0 if fresh - {None} else barren + 1
            count, resumed, after = count + len(items), False, following
            passed = _passed(items, window=window)
            more = bool(following) and not passed and count < self._params.listing_limit
            if more and (following in cursors or barren == BARREN):
                raise SourceUnavailable(source=self.name, detail=f"the listing of r/{subreddit} does not advance")
            cursors.add(following)
            names |= fresh
            yield ListingPage(items, f"{count}:{following}" if more else None)
            if not more:
                if not passed and count >= self._params.listing_limit:
                    log.warning("r/%s: the newest %d posts do not cover all of %s", subreddit, count, window.key)
                return


def _passed(items: Sequence[Mapping[str, Any]], *, window: Window) -> bool:
    """Return whether a page ends before the window: by its last post, or by every post if the order is broken."""
    times = [created for item in items if (created := created_of(item))]
    if not times:
        return False
    ordered = times == sorted(times, reverse=True)
    return (times[-1] if ordered else max(times)) < window.start
