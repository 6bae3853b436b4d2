"""Read the newest thousand posts of a subreddit from Reddit through PRAW, within the server's rate limit.

PRAW reads ``x-ratelimit-*`` and sleeps before the limit is reached. A 429 may still occur if another process uses the
same client id; the error then carries the seconds to wait, and the scheduler retries the task after them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import praw
import prawcore
from praw.models import Submission as PrawSubmission

from pipelines.collect.month import Window
from pipelines.collect.sources.page_cache import ListingPage, ResumeJournal, gather
from pipelines.collect.sources.service import SubredditClosed, check_address, refusal, user_agent
from pipelines.collect.submission import Dropped, Submission, created_of
from pipelines.config.collect import Reddit
from pipelines.config.settings import Settings
from pipelines.errors import BadParams, SourceError, SourceRefused, SourceUnavailable

log = logging.getLogger(__name__)


class RedditSource:
    """The source ``/r/<subreddit>/new``; logs a warning if the listing does not reach back to the month."""

    name = "reddit"

    def __init__(self, settings: Settings, *, params: Reddit, journal: ResumeJournal | None = None) -> None:
        """Configure PRAW for application-only OAuth; nothing is sent yet.

        Raises:
            BadParams: the client id, its secret or the contact is missing, or an address is not https.
        """
        for key in ("reddit_client_id", "reddit_client_secret"):
            if not getattr(settings, key):
                raise BadParams(where=f"CORPUS_{key.upper()}", detail="not set")
        # Below this level both log raw ids: the cursor is part of the address of every page.
        for noisy in ("prawcore", "urllib3"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        self._params = params
        self._journal = journal
        self._reddit = praw.Reddit(
            "DEFAULT",
            client_id=settings.reddit_client_id,
            client_secret=settings.reddit_client_secret,
            username=None,
            password=None,
            refresh_token=None,
            user_agent=user_agent(settings.contact),
            reddit_url=check_address(settings.reddit_url, setting="CORPUS_REDDIT_URL"),
            oauth_url=check_address(settings.reddit_oauth_url, setting="CORPUS_REDDIT_OAUTH_URL"),
            check_for_updates=False,
            check_for_async=False,
        )

    def submissions(self, window: Window, *, subreddits: Sequence[str]) -> Iterator[Submission | Dropped]:
        """Yield the listings' posts of the window, newest pages first; a retry requests only the missing pages.

        Raises:
            SourceThrottled: 429, with the seconds to wait.
            SourceRefused: bad credentials, or a subreddit that is private, banned or unknown.
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
        try:
            listing = self._reddit.get("api/info", params={"id": ",".join(fullnames)})
        except prawcore.exceptions.PrawcoreException as error:
            raise failure(error, subreddit=None) from None
        return {str(s.name): _plain(s) for s in listing if isinstance(s, PrawSubmission)}

    def page(self, subreddit: str, *, after: str, limit: int) -> tuple[list[Mapping[str, Any]], str]:
        """Return the listing's posts after a fullname (empty: from the newest on) and the next cursor, or an empty one.

        Raises:
            SubredditClosed: the subreddit is private, banned or unknown.
            SourceError: as :meth:`info`.
        """
        return self._page(subreddit, after=after, limit=limit)

    def newest(self, subreddit: str) -> str | None:
        """Return the fullname of a subreddit's newest post, or ``None`` if the subreddit shows no posts.

        Raises:
            SubredditClosed: the subreddit is private, banned or unknown.
            SourceError: as :meth:`info`.
        """
        items, _ = self._page(subreddit, after="", limit=1)
        return str(items[0]["name"]) if items else None

    def remaining(self) -> float | None:
        """Return the unused share of the client's rate limit, or ``None`` before the first response."""
        limits = self._reddit.auth.limits
        left, used = limits["remaining"], limits["used"]
        return None if left is None or used is None else float(left) / max(float(left) + float(used), 1.0)

    def _pages(self, subreddit: str, *, cursor: str | None, window: Window) -> Iterator[ListingPage]:
        """Yield pages until the listing ends, the limit is reached or the window is passed.

        A cursor is ``<posts seen>:<fullname>``.
        """
        seen, _, after = (cursor or "0:").partition(":")
        count, resumed = int(seen), bool(cursor)
        while True:
            items, following = self._page(subreddit, after=after, limit=self._params.listing_limit - count)
            if resumed and not items:
                # The post that the cursor names was deleted meanwhile; Reddit then returns an empty page.
                count, resumed, after = 0, False, ""
                continue
            count, resumed, after = count + len(items), False, following
            passed = any((created_of(i) or window.end) < window.start for i in items)
            more = bool(following) and not passed and count < self._params.listing_limit
            yield ListingPage(items, f"{count}:{following}" if more else None)
            if not more:
                if not passed and count >= self._params.listing_limit:
                    log.warning("r/%s: the newest %d posts do not cover all of %s", subreddit, count, window.key)
                return

    def _page(self, subreddit: str, *, after: str, limit: int) -> tuple[list[Mapping[str, Any]], str]:
        query: dict[str, str | int] = {"limit": min(limit, self._params.page_size), "show": "all"}
        if after:
            query["after"] = after
        try:
            listing = self._reddit.get(f"r/{subreddit}/new", params=query)
        except prawcore.exceptions.PrawcoreException as error:
            raise failure(error, subreddit=subreddit) from None
        return [_plain(s) for s in listing if isinstance(s, PrawSubmission)], str(listing.after or "")


def failure(error: Exception, *, subreddit: str | None) -> SourceError:
    """Return the project's error for a PRAW error; PRAW's text is left out, because it may contain URLs with ids.

    Args:
        error: what PRAW raised.
        subreddit: the requested listing, or ``None`` if posts were requested by fullname.
    """
    what = "posts by name" if subreddit is None else f"r/{subreddit}"
    if subreddit is not None and isinstance(error, prawcore.exceptions.Redirect | prawcore.exceptions.NotFound):
        return SubredditClosed(source="reddit", detail=f"{what} does not exist or is banned")
    if subreddit is not None and isinstance(error, prawcore.exceptions.Forbidden):
        return SubredditClosed(source="reddit", detail=f"HTTP 403 for {what}")
    if isinstance(error, prawcore.exceptions.OAuthException):
        return SourceRefused(source="reddit", detail="the token request was rejected")
    if isinstance(error, prawcore.exceptions.BadJSON):
        return SourceUnavailable(source="reddit", detail="the response is not JSON")
    if isinstance(error, prawcore.exceptions.ResponseException | prawcore.exceptions.TooManyRequests):
        response = error.response
        return refusal("reddit", status=response.status_code, headers=response.headers, what=what)
    return SourceUnavailable(source="reddit", detail=type(getattr(error, "original_exception", error)).__name__)


def _plain(submission: Any) -> dict[str, Any]:
    """Return the fields that Reddit sent; unlike attribute access, ``vars`` never requests missing ones."""
    item = {k: v for k, v in vars(submission).items() if not k.startswith("_")}
    author = item.get("author")
    item["author"] = "[deleted]" if author is None else str(author)
    item["subreddit"] = str(item.get("subreddit"))
    return item
