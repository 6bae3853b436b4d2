"""Read pages of a subreddit's listing and the state of posts from Reddit through PRAW, within its rate limit.

PRAW reads ``x-ratelimit-*`` and sleeps before the limit is reached. A 429 may still occur if another process uses the
same client id; the error then carries the seconds to wait, and the scheduler retries the task after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.collect.sources.page_cache import post_of
from pipelines.collect.sources.reddit_api import ANSWER_SECONDS, PrawClient
from pipelines.collect.submission import fullname_of
from pipelines.config.collect import Reddit
from pipelines.config.settings import Settings
from pipelines.errors import SourceUnavailable


class RedditSource:
    """The client of the listings ``/r/<subreddit>/new`` and of ``/api/info``."""

    name = "reddit"

    def __init__(self, settings: Settings, *, params: Reddit, answer_seconds: float = ANSWER_SECONDS) -> None:
        """Configure PRAW for application-only OAuth; nothing is sent yet.

        Raises:
            BadParams: the client id, its secret or the contact is missing, or an address is not https.
        """
        self._params = params
        self._client = PrawClient(settings, answer_seconds=answer_seconds)

    def info(self, fullnames: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return the current state of at most 100 posts by fullname; posts that Reddit does not return are missing.

        Raises:
            SourceThrottled: 429, with the seconds to wait.
            SourceRefused: bad credentials, or Reddit refuses this client.
            SourceUnavailable: 5xx, a timeout or a malformed response, after PRAW's own retries.
        """
        items = self._client.listing("api/info", params={"id": ",".join(fullnames)}).items
        return {name: item for item in items if (name := fullname_of(item))}

    def page(self, subreddit: str, *, after: str, limit: int) -> tuple[list[Mapping[str, Any]], str]:
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
        items, _ = self.page(subreddit, after="", limit=1)
        return next((name for item in items if (name := fullname_of(item))), None)

    def remaining(self) -> float | None:
        """Return the unused share of the client's rate limit, or ``None`` before the first response."""
        return self._client.remaining()
