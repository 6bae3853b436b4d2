"""Read posts from Arctic Shift's search API, for months that Reddit's listing no longer reaches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import requests

from pipelines.collect.month import Window
from pipelines.collect.sources.page_cache import ListingPage, ResumeJournal, gather
from pipelines.collect.sources.service import check_address, refusal, user_agent
from pipelines.collect.submission import Dropped, Submission, created_of, fullname_of
from pipelines.config.collect import ArcticShift
from pipelines.config.settings import Settings
from pipelines.errors import SourceUnavailable

# The longest pause inside a task after the rate limit is used up; a longer wait leads to a 429 and a task retry.
MAX_PAUSE_SECONDS = 120.0


class ArcticShiftSource:
    """The source Arctic Shift; its pages by ``created_utc`` overlap by one second, so that no post is missed."""

    name = "arctic_shift"

    def __init__(
        self,
        settings: Settings,
        *,
        params: ArcticShift,
        journal: ResumeJournal | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Create the session; nothing is sent yet.

        Raises:
            BadParams: the contact is missing, or the address is not https.
        """
        self._params = params
        self._journal = journal
        self._pause = pause
        self._address = check_address(settings.arctic_shift_url, setting="CORPUS_ARCTIC_SHIFT_URL")
        self._session = requests.Session()
        self._session.headers["User-Agent"] = user_agent(settings.contact)

    def submissions(self, window: Window, *, subreddits: Sequence[str]) -> Iterator[Submission | Dropped]:
        """Yield the archived posts of the month, oldest first; posts that were deleted are yielded as ``Dropped``.

        Raises:
            SourceThrottled: 429, with the seconds to wait.
            SourceRefused: another 4xx.
            SourceUnavailable: 5xx, a timeout, a malformed response, or more posts in a second than a page holds.
        """
        return gather(self.name, window=window, subreddits=subreddits, pages=self._pages, journal=self._journal)

    def ping(self, subreddit: str) -> None:
        """Send a request that returns no posts: one second of a subreddit before Reddit existed.

        Raises:
            SourceError: as :meth:`submissions`.
        """
        self._page(subreddit, after=0, before=1)

    def _pages(self, subreddit: str, *, cursor: str | None, window: Window) -> Iterator[ListingPage]:
        after = int(cursor) if cursor else int(window.start.timestamp()) - 1
        known: set[str | None] = set()
        while True:
            items = self._page(subreddit, after=after, before=int(window.end.timestamp()))
            names = {fullname_of(i) for i in items}
            times = [int(created.timestamp()) for i in items if (created := created_of(i))]
            following = max(times, default=after) - 1
            full = len(items) >= self._params.page_size
            if full and following <= after:
                raise SourceUnavailable(source=self.name, detail=f"over {len(items)} posts within two seconds")
            more = bool(names - known) and following > after
            yield ListingPage(items, str(following) if more else None)
            if not more:
                return
            known, after = names, following

    def _page(self, subreddit: str, *, after: int, before: int) -> list[Mapping[str, Any]]:
        query: dict[str, str | int] = {
            "subreddit": subreddit,
            "after": after,
            "before": before,
            "limit": self._params.page_size,
            "sort": "asc",
        }
        try:
            response = self._session.get(
                f"{self._address}/api/posts/search",
                params=query,
                timeout=self._params.timeout_seconds,
                allow_redirects=False,
            )
            if response.status_code != 200:
                raise refusal(
                    self.name, status=response.status_code, headers=response.headers, what=f"r/{subreddit}"
                ) from None
            data = response.json()["data"]
        except requests.RequestException as error:
            raise SourceUnavailable(source=self.name, detail=type(error).__name__) from None
        except (ValueError, KeyError, TypeError):
            raise SourceUnavailable(source=self.name, detail="the response does not follow the API") from None
        if not isinstance(data, list) or not all(isinstance(i, dict) for i in data):
            raise SourceUnavailable(source=self.name, detail="the response does not follow the API")
        self._pace(response.headers)
        return data

    def _pace(self, headers: Mapping[str, str]) -> None:
        """Wait as long as the headers ask once the rate limit is used up, to avoid a 429."""
        try:
            remaining, reset = float(headers["x-ratelimit-remaining"]), float(headers["x-ratelimit-reset"])
        except (KeyError, ValueError):
            return
        if remaining < 1:
            self._pause(min(max(reset, 0.0), MAX_PAUSE_SECONDS))
