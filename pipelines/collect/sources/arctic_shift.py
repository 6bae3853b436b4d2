"""Read posts from Arctic Shift's search API, for months that Reddit's listing no longer reaches."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import requests
from pydantic import Field

from pipelines.collect import service
from pipelines.collect.month import Window
from pipelines.collect.sources import ClosedEntry, Monthly
from pipelines.collect.submission import Dropped, Gathered, Submission, created_of, fullname_of, post_of
from pipelines.core.errors import SourceUnavailable

# The longest pause inside a task after the rate limit is used up; a longer wait leads to a 429 and a task retry.
MAX_PAUSE_SECONDS = 120.0
# The API ends long queries with these words, with status 422 and others (issues 12 and 66 of its repository); the same
# query with a smaller limit succeeds.
TIMED_OUT = re.compile(r"time[d ]*out|slow down", re.IGNORECASE)
TIMEOUTS = frozenset({504, 524})
# Ours: the pauses after the tries of one page; five tries halve a limit of 100 to the least one.
PAUSE_SECONDS, LEAST_LIMIT = (2.0, 4.0, 8.0, 16.0, 16.0), 10
# Ours: pages in a row with fewer posts than requested; an interval that is read to its end has two.
SHORT_PAGES = 50
# Ours: requests for a second whose posts fill a page of a limit that was reduced.
STUCK = 5


class QueryTimedOut(SourceUnavailable):
    """A query took too long, for the API or for this client."""


class ArcticShiftEntry(ClosedEntry):
    page_size: Annotated[int, Field(gt=0, le=100)]
    timeout_seconds: float


class ArcticShift(Monthly):
    """The source Arctic Shift; its pages by ``created_utc`` overlap by one second, so that no post is missed."""

    name = "arctic_shift"
    # a guess
    rate = 60
    setting = "arctic_shift_url"
    variables = ("CORPUS_CONTACT",)
    Parameters = ArcticShiftEntry
    params: ArcticShiftEntry
    pause: Callable[[float], None] = staticmethod(time.sleep)

    def connect(self) -> None:
        self._limit = self.params.page_size
        self._address = service.check_address(self.settings.arctic_shift_url, setting="CORPUS_ARCTIC_SHIFT_URL")
        self._session = service.BoundedSession(seconds=self.params.timeout_seconds)
        self._session.headers["User-Agent"] = service.user_agent(self.settings.contact)

    @classmethod
    def estimate(cls, params: ArcticShiftEntry, *, posts: float, subreddits: int) -> tuple[int, list[str]]:
        return subreddits * (math.ceil(posts / subreddits / params.page_size) + 1), []

    def months(self, window: Window, *, subreddits: Sequence[str]) -> Iterator[Submission | Dropped]:
        """Yield the archived posts of the month, oldest first; posts that were deleted are yielded as ``Dropped``."""
        gathered = Gathered(window, subreddits=subreddits, source=self.name)
        cursors: dict[str, int | None] = {}
        journal = self.journal
        # pages in the journal are not requested again
        for entry in journal.begin(f"{self.name}:{window.key}:{'+'.join(subreddits)}") if journal else ():
            cursors[entry["subreddit"]] = entry["cursor"]
            for item in entry["items"]:
                gathered.put(_revive(item["item"]), retrieved=item["retrieved"])
        for subreddit in subreddits:
            if (after := cursors.get(subreddit, int(window.start.timestamp()) - 1)) is None:
                continue
            # of the query, not of the response
            digest = hashlib.sha256(f"{self.name}:{subreddit}:{window.key}".encode()).hexdigest()
            for page, cursor in self._pages(subreddit, after=after, before=int(window.end.timestamp())):
                taken = [t for i in page if (t := _take(i, into=gathered, digest=digest))]
                if journal:
                    items = [{"retrieved": retrieved, "item": asdict(item)} for item, retrieved in taken]
                    journal.add({"subreddit": subreddit, "cursor": cursor, "items": items})
        yield from gathered
        if journal:
            journal.end()

    def probe(self, *, windows: Sequence[Window], subreddits: Sequence[str]) -> str:
        """Send a request that returns no posts: one second of a subreddit before Reddit existed."""
        self._request(subreddits[0], after=0, before=1, limit=1)
        return "answers"

    def _pages(
        self, subreddit: str, *, after: int, before: int
    ) -> Iterator[tuple[Sequence[Mapping[str, Any]], int | None]]:
        """Yield the pages of an interval, each with the ``after`` of the next one, if there is one."""
        known: set[str | None] = set()
        short = stuck = 0
        self._limit = self.params.page_size
        while True:
            items, limit = self._page(subreddit, after=after, before=before)
            names = {fullname_of(i) for i in items}
            times = self._times(items, after=after, before=before)
            following = max(times, default=after) - 1
            full = len(items) >= limit
            if full and following <= after:
                if limit >= self.params.page_size or stuck == STUCK:
                    raise SourceUnavailable(source=self.name, detail=f"over {len(items)} posts within two seconds")
                stuck += 1
                continue  # with a larger limit, as this page has succeeded
            stuck = 0
            short = 0 if full else short + 1
            more = bool(names - known) and following > after
            if more and short == SHORT_PAGES:
                raise SourceUnavailable(source=self.name, detail=f"{short} pages with fewer posts than requested")
            yield items, following if more else None
            if not more:
                return
            known, after = names, following

    def _times(self, items: Sequence[Mapping[str, Any]], *, after: int, before: int) -> list[int]:
        """Return the posts' times; posts out of order or outside the interval would move the cursor past others."""
        times = [int(created.timestamp()) for i in items if (created := created_of(i))]
        if times != sorted(times) or (times and not after <= times[0] <= times[-1] <= before):
            raise SourceUnavailable(source=self.name, detail="the posts are not those of the interval, oldest first")
        return times

    def _page(self, subreddit: str, *, after: int, before: int) -> tuple[list[Mapping[str, Any]], int]:
        """Return a page and its limit, which is halved after a query that timed out and doubled after others."""
        for seconds_until_next in PAUSE_SECONDS:
            limit = self._limit
            try:
                items = self._request(subreddit, after=after, before=before, limit=limit)
            except QueryTimedOut:
                self._limit = max(min(LEAST_LIMIT, self.params.page_size), limit // 2)
                self.pause(seconds_until_next)
            else:
                self._limit = min(self.params.page_size, 2 * limit)
                return items, limit
        return self._request(subreddit, after=after, before=before, limit=self._limit), self._limit

    def _request(self, subreddit: str, *, after: int, before: int, limit: int) -> list[Mapping[str, Any]]:
        query: dict[str, str | int] = {"subreddit": subreddit, "after": after, "before": before, "limit": limit}
        try:
            response = self._session.get(f"{self._address}/api/posts/search", params=query | {"sort": "asc"})
        except service.AnswerTooSlow as error:
            raise self._timed_out(subreddit, limit=limit, what=type(error).__name__) from None
        except (requests.RequestException, ValueError) as error:
            raise SourceUnavailable(source=self.name, detail=type(error).__name__) from None
        data = self._data(response, subreddit=subreddit, limit=limit)
        self._pace(response.headers)
        return [post_of(item, subreddit=subreddit, place=f"{after}:{n}") for n, item in enumerate(data)]

    def _data(self, response: requests.Response, *, subreddit: str, limit: int) -> list[Any]:
        try:
            body = response.json()
        except (ValueError, RecursionError):
            body = None
        error = body.get("error") if isinstance(body, dict) else None
        slow = isinstance(error, str) and TIMED_OUT.search(error) and response.status_code != 429
        if slow or response.status_code in TIMEOUTS:
            raise self._timed_out(subreddit, limit=limit, what=f"HTTP {response.status_code}")
        if response.status_code != 200:
            raise service.refusal(
                self.name, status=response.status_code, headers=response.headers, what=f"r/{subreddit}"
            )
        data = body.get("data") if isinstance(body, dict) else None
        if error is not None or not isinstance(data, list):
            raise SourceUnavailable(source=self.name, detail="the response does not follow the API")
        return data

    def _timed_out(self, subreddit: str, *, limit: int, what: str) -> QueryTimedOut:
        detail = f"the query of {limit} posts of r/{subreddit} timed out ({what})"
        return QueryTimedOut(source=self.name, detail=detail)

    def _pace(self, headers: Mapping[str, str]) -> None:
        remaining = service.finite(headers.get("x-ratelimit-remaining"))
        reset = service.seconds(headers.get("x-ratelimit-reset"))
        if remaining is not None and reset is not None and remaining < 1:
            self.pause(min(reset, MAX_PAUSE_SECONDS))


def _take(item: Mapping[str, Any], *, into: Gathered, digest: str) -> tuple[Submission | Dropped, float] | None:
    """Add an item; one of another subreddit is counted."""
    if item["subreddit"].lower() in into.wanted:
        return into.add(item, source_digest=digest)
    created = created_of(item)
    if created is not None and created not in into.window:
        return None
    other = Dropped(fullname_of(item) or f"malformed:{digest}", "other_subreddit")
    into.put(other, retrieved=0.0)
    return other, 0.0


def _revive(fields: dict[str, Any]) -> Submission | Dropped:
    if "reason" in fields:
        return Dropped(**fields)
    fields["created"] = datetime.fromisoformat(fields["created"])
    fields["media"] = tuple(tuple(m) for m in fields["media"])
    return Submission(**fields)
