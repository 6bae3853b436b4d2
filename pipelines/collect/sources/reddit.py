"""Read pages of a subreddit's listing and the state of posts from Reddit through PRAW, within its rate limit.

PRAW reads ``x-ratelimit-*`` and sleeps before the limit is reached. A 429 may still occur if another process uses the
same client id; the error then carries the seconds to wait, and the scheduler retries the task after them.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit

import prawcore
import requests
from prawcore.const import ACCESS_TOKEN_PATH
from pydantic import Field

from pipelines.collect import service
from pipelines.collect.month import Window
from pipelines.collect.sources import ClosedEntry, Listed, ListedPost, Lookup
from pipelines.collect.submission import Dropped, Submission, created_of, fullname_of, parse, post_of
from pipelines.core.config.collect import Listing
from pipelines.core.errors import BadParams, SourceError, SourceRefused, SourceUnavailable

# Ours: for one answer from the request to the last byte; a page usually takes two seconds.
ANSWER_SECONDS = 60.0
# Reddit's window of its rate limit: no header may make prawcore sleep longer.
WINDOW_SECONDS = 600
CURSOR = re.compile(r"t[1-9]_[0-9a-z]{1,13}")
# In a token answer with status 200.
PASSING = ("temporarily_unavailable", "server_error", 429, 500, 502, 503, 504)
REASONS = frozenset({"private", "banned", "quarantined", "gated", "gold_only"})
BLOCKED = "it requires a login or a registered client (HTTP 403 without Reddit's JSON)"


class RedditListing(Listing):
    limit: Annotated[int, Field(gt=0, le=1000)]
    page_size: Annotated[int, Field(gt=0, le=100)]


class RedditEntry(ClosedEntry):
    listing: RedditListing


class Reddit(Listed, Lookup):
    """The client of the listings ``/r/<subreddit>/new`` and of ``/api/info``: PRAW with application-only OAuth."""

    name = "reddit"
    # Reddit grants 1,000 in ten minutes (as sweep.requests in params.yaml)
    rate = 100
    at_once = 100
    setting = "reddit_oauth_url"
    variables = ("CORPUS_REDDIT_CLIENT_ID", "CORPUS_REDDIT_CLIENT_SECRET", "CORPUS_CONTACT")
    Parameters = RedditEntry
    params: RedditEntry
    answer_seconds = ANSWER_SECONDS

    def connect(self) -> None:
        import praw

        settings = self.settings
        for key in ("reddit_client_id", "reddit_client_secret"):
            if not getattr(settings, key):
                raise BadParams(where=f"CORPUS_{key.upper()}", detail="not set")
        # Below this level both log raw ids: the cursor is part of the address of every page.
        for noisy in ("prawcore", "urllib3"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        self._reddit = praw.Reddit(
            "DEFAULT",
            client_id=settings.reddit_client_id,
            client_secret=settings.reddit_client_secret,
            username=None,
            password=None,
            refresh_token=None,
            user_agent=service.user_agent(settings.contact),
            reddit_url=service.check_address(settings.reddit_url, setting="CORPUS_REDDIT_URL"),
            oauth_url=service.check_address(settings.reddit_oauth_url, setting="CORPUS_REDDIT_OAUTH_URL"),
            check_for_updates=False,
            check_for_async=False,
            requestor_class=RepairingRequestor,
            requestor_kwargs={"session": service.BoundedSession(seconds=self.answer_seconds)},
        )

    @classmethod
    def estimate(cls, params: RedditEntry, *, posts: float, subreddits: int) -> tuple[int, list[str]]:
        listing = params.listing
        note = (
            f"Reddit lists the newest {listing.limit:,} posts of a subreddit only: earlier months stay empty; "
            "set the corpus's source to dump or arctic_shift for them"
        )
        return subreddits * math.ceil(listing.limit / listing.page_size), [note]

    def probe(self, *, windows: Sequence[Window], subreddits: Sequence[str]) -> str:
        self.newest(subreddits[0])
        return "the credentials are accepted"

    def _listing(
        self, path: str, *, params: dict[str, str | int], subreddit: str | None = None
    ) -> tuple[list[dict[str, Any]], str]:
        try:
            answer = self._reddit.request(method="GET", path=path, params=params)
        except SourceError:
            raise
        # any exception: PRAW's parsers raise KeyError, TypeError, RecursionError and others for malformed answers
        except Exception as error:
            raise failure(error, subreddit=subreddit) from None
        return parsed(answer, paged=subreddit is not None)

    def info(self, names: Sequence[str]) -> dict[str, Submission | Dropped]:
        """Return the current state of at most 100 posts by fullname; posts that Reddit does not return are missing."""
        items, _ = self._listing("api/info", params={"id": ",".join(names)})
        return {name: self._parsed(item, query="") for item in items if (name := fullname_of(item))}

    def page(self, subreddit: str, *, after: str, limit: int) -> tuple[list[ListedPost], str]:
        query: dict[str, str | int] = {"limit": min(limit, self.params.listing.page_size), "show": "all"}
        if after:
            query["after"] = after
        listed, following = self._listing(f"r/{subreddit}/new", params=query, subreddit=subreddit)
        items = [post_of(i, subreddit=subreddit, place=f"{after}:{n}") for n, i in enumerate(listed)]
        if items and all(item["subreddit"].lower() != subreddit.lower() for item in items):
            # as if every post had been read, and none were of the subreddit
            raise SourceUnavailable(source=self.name, detail=f"the listing of r/{subreddit} is that of another one")
        posts = [
            ListedPost(str(i.get("name")), i["subreddit"], created_of(i), self._parsed(i, query=subreddit))
            for i in items
        ]
        return posts, following

    def _parsed(self, item: Mapping[str, Any], *, query: str) -> Submission | Dropped:
        created = created_of(item)
        # of the query, not of the response
        digest = hashlib.sha256(f"{self.name}:{query}:{created:%Y-%m}".encode()).hexdigest() if created else ""
        return parse(item, source=self.name, source_digest=digest, raw=True)

    def newest(self, subreddit: str) -> str | None:
        items, _ = self.page(subreddit, after="", limit=1)
        return next((item.post.fullname for item in items if self.own(item.post.fullname)), None)

    def remaining(self) -> float | None:
        limits = self._reddit.auth.limits
        left, used = limits["remaining"], limits["used"]
        return None if left is None or used is None else float(left) / max(float(left) + float(used), 1.0)


class RepairingRequestor(prawcore.Requestor):  # type: ignore[misc] # untyped
    """A requestor that keeps from prawcore every header and status that it cannot parse."""

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        response: requests.Response = super().request(*args, **kwargs)
        repair(response)
        status = response.status_code
        if status >= 300 and status != 401 and status not in prawcore.sessions.Session.RETRY_STATUSES:
            raise prawcore.ResponseException(response)
        if status == 200 and _asks_token(response) and not _is_token(_json(response)):
            raise SourceUnavailable(source="reddit", detail="the token response does not follow the API")
        return response


def repair(response: requests.Response) -> None:
    """Replace the headers that prawcore parses: unusable ones raise there, or make it sleep for years."""
    headers = response.headers
    names = [f"x-ratelimit-{name}" for name in ("remaining", "used", "reset")]
    left, used = (service.finite(headers.get(name)) for name in names[:2])
    reset = service.seconds(headers.get(names[2]))
    usable = left is not None and used is not None and reset is not None and left >= 0 and used >= 0
    for name in names:
        headers.pop(name, None)
    if usable:
        kept = (min(left or 0, 1e6), min(used or 0, 1e6), min(reset or 0, WINDOW_SECONDS))
        headers.update({name: str(int(value)) for name, value in zip(names, kept, strict=True)})
    if response.status_code == 401:
        headers["www-authenticate"] = 'Bearer error="invalid_token"'


def failure(error: Exception, *, subreddit: str | None) -> SourceError:
    """Return the project's error for an exception of PRAW, without its text, which may contain URLs with ids."""
    if isinstance(error, prawcore.exceptions.OAuthException):
        if error.error in PASSING:
            return SourceUnavailable(source="reddit", detail="no token is issued now")
        return SourceRefused(source="reddit", detail="the token request was rejected")
    if isinstance(error, prawcore.exceptions.BadJSON):
        return SourceUnavailable(source="reddit", detail="the response is not JSON")
    if isinstance(error, prawcore.exceptions.ResponseException):
        return _of_response(error.response, subreddit=subreddit)
    if isinstance(error, prawcore.exceptions.RequestException):
        return SourceUnavailable(source="reddit", detail=type(error.original_exception).__name__)
    return SourceUnavailable(source="reddit", detail=f"the response does not follow the API ({type(error).__name__})")


def _of_response(response: requests.Response, *, subreddit: str | None) -> SourceError:
    status, body = response.status_code, _json(response)
    token = _asks_token(response)
    what = "the token" if token else "posts by name" if subreddit is None else f"r/{subreddit}"
    if status == 403 and body is None:
        return SourceRefused("SourceBlocked", source="reddit", detail=BLOCKED)
    if subreddit is not None and not token:
        reason = _closed(status, body=body, location=response.headers.get("location", ""))
        if reason:
            return service.SubredditClosed(source="reddit", subreddit=subreddit, reason=reason)
    return service.refusal("reddit", status=status, headers=response.headers, what=what)


def _closed(status: int, *, body: dict[str, Any] | None, location: str) -> str | None:
    """Return why a subreddit is closed, or ``None`` if the answer does not concern the subreddit."""
    if status in (301, 302, 303, 307, 308):
        return "not_found" if "/subreddits/search" in location else None
    if body is None or status not in (403, 404, 451):
        return None
    named = body.get("reason")
    if isinstance(named, str) and named in REASONS:
        return named
    return {403: "forbidden", 404: "not_found"}.get(status, "legal")


def _asks_token(response: requests.Response) -> bool:
    return urlsplit(response.url or "").path.endswith(ACCESS_TOKEN_PATH)


def _is_token(body: dict[str, Any] | None) -> bool:
    """Return whether a body is a token, or the error in its place."""
    if body is None or "error" in body:
        return body is not None
    token, expires, scope = (body.get(key) for key in ("access_token", "expires_in", "scope"))
    usable = isinstance(token, str) and token.isascii() and token.isprintable() and bool(token)
    return usable and isinstance(expires, int) and isinstance(scope, str)


def _json(response: requests.Response) -> dict[str, Any] | None:
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def parsed(answer: Any, *, paged: bool) -> tuple[list[dict[str, Any]], str]:
    """Return the posts in a page's JSON, an empty one for each child that is none, and the next cursor, if any."""
    data = answer.get("data") if isinstance(answer, dict) and answer.get("kind") == "Listing" else None
    children = data.get("children") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(children, list):
        raise SourceUnavailable(source="reddit", detail="the response is not a listing")
    after = data.get("after")
    if paged and ("after" not in data or not (after is None or (isinstance(after, str) and CURSOR.fullmatch(after)))):
        raise SourceUnavailable(source="reddit", detail="the listing has no valid cursor")
    posts = [child.get("data") if isinstance(child, dict) and child.get("kind") == "t3" else None for child in children]
    return [post if isinstance(post, dict) else {} for post in posts], (paged and after) or ""
