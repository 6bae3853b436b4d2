"""Serve Reddit's OAuth API, Arctic Shift's post search, an image host and the vendors from one loopback server.

Unmodified PRAW (a Reddit client) and the vendors' own clients work with the server. The server enforces rate
limits and credentials, and serves pictures slowly, truncated, redirected or not at all, as specified by
``images.json``. The server logs nothing, since paths hold ids; ``/_sandbox/requests`` returns the number of requests
for each kind of path.
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import zstandard

from crisis_corpus_sandbox.reddit.image_host import ImageHost, send
from crisis_corpus_sandbox.reddit.listing import escaped
from crisis_corpus_sandbox.vendors.vendors import Vendors
from pipelines.core.errors import BadParams
from pipelines.operate.services.mlflow_app import local

Item = dict[str, Any]
LISTING_END = 1000  # Reddit's limit
PAGE, MAX_PAGE = 25, 100
ARCTIC = "_submissions_arctic.zst"


class Catalogue:
    """The simulated submissions, both as Reddit shows them now and as Arctic Shift archived them."""

    def __init__(self, root: Path) -> None:
        """Read ``submissions.jsonl``; the archive is read on its first use."""
        path = root / "submissions.jsonl"
        if not path.is_file():
            raise BadParams(where="CORPUS_SANDBOX", detail="holds no submissions.jsonl; run corpus sandbox build")
        self._root = root
        # with a clock (seconds since the epoch), posts of its future are not shown yet
        self.clock: Callable[[], float] = lambda: float("inf")
        with path.open("rb") as file:
            items = [orjson.loads(line) for line in file if line.strip()]
        self._by_name = {str(i["name"]): i for i in items}
        self._new: dict[str, list[Item]] = {}
        for item in sorted(items, key=_age, reverse=True):
            # Listings omit deleted and removed posts; they can still be fetched by id.
            shown = self._new.setdefault(str(item["subreddit"]).lower(), [])
            if not item.get("removed_by_category") and item.get("author") != "[deleted]":
                shown.append(item)

    def knows(self, subreddit: str) -> bool:
        """Return whether a subreddit of that name exists."""
        return subreddit.lower() in self._new

    def new(self, subreddit: str, *, query: Mapping[str, str]) -> Item:
        """Return one page of ``/r/<subreddit>/new`` for ``limit`` and a fullname ``after``."""
        posts = self._new[subreddit.lower()]
        newest = bisect_left(posts, -self.clock(), key=lambda post: -float(post["created_utc"]))
        posts = posts[newest : newest + LISTING_END]
        names, start = [p["name"] for p in posts], 0
        if after := query.get("after"):
            start = names.index(after) + 1 if after in names else len(posts)
        end = start + min(max(int(query.get("limit", PAGE)), 1), MAX_PAGE)
        page = posts[start:end]
        return _listing(page, after=page[-1]["name"] if page and end < len(posts) else None)

    def info(self, *, query: Mapping[str, str]) -> Item:
        """Return the posts of ``/api/info?id=`` in the order requested; unknown ids are silently omitted."""
        names = query.get("id", "").split(",")[:MAX_PAGE]
        page = [self._by_name[n] for n in names if n in self._by_name]
        return _listing(page)

    def search(self, *, query: Mapping[str, str]) -> list[Item]:
        """Return one response of Arctic Shift's post search, ordered by ``created_utc``."""
        posts: Sequence[Item] = self._archive.get(query.get("subreddit", "").lower(), [])
        after, before = float(query.get("after", 0)), min(float(query.get("before", "inf")), self.clock() + 1)
        size = int(query.get("limit", PAGE))
        if not 1 <= size <= MAX_PAGE:
            raise ValueError("limit")
        ordered = posts if query.get("sort", "desc") == "asc" else reversed(posts)
        return [p for p in ordered if after < p["created_utc"] < before][:size]

    @cached_property
    def _archive(self) -> dict[str, list[Item]]:
        """Return the archive by subreddit, oldest first; Reddit's own items if there is no dump."""
        dumps = sorted(self._root.glob(f"dumps/*{ARCTIC}"))
        lines = (item for path in dumps for item in _rows(path))
        items = {str(i["name"]): i for i in (lines if dumps else map(escaped, self._by_name.values()))}
        archived: dict[str, list[Item]] = {}
        for item in sorted(items.values(), key=_age):
            archived.setdefault(str(item["subreddit"]).lower(), []).append(item)
        return archived


def _rows(path: Path) -> Iterator[Item]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
    with path.open("rb") as file, decompressor.stream_reader(file, read_across_frames=True) as reader:
        yield from map(json.loads, io.TextIOWrapper(reader, encoding="utf-8"))


def _listing(page: list[Item], *, after: str | None = None) -> Item:
    """Return a listing as Reddit sends it with ``raw_json``, without escapes."""
    data = {"after": after, "before": None, "dist": len(page), "modhash": None, "geo_filter": ""}
    return {"kind": "Listing", "data": data | {"children": [{"kind": "t3", "data": item} for item in page]}}


def _age(item: Item) -> tuple[float, int]:
    return float(item["created_utc"]), int(str(item["name"]).removeprefix("t3_"), 36)


# The credentials of the demo's client; there is nothing to protect.
CLIENT_ID = CLIENT_SECRET = "sandbox"  # noqa: S105
# Reddit grants 1,000 requests in ten minutes. The default is wide enough that PRAW, which spreads its requests over
# the whole period, never waits in a demo.
BUDGET, PERIOD_SECONDS = 60_000, 600.0
ROUTES = (
    ("token", re.compile(r"/api/v1/access_token")),
    ("listing", re.compile(r"/r/(?P<subreddit>\w+)/new/?(?:\.json)?")),
    ("info", re.compile(r"/api/info/?(?:\.json)?")),
    ("arctic", re.compile(r"/api/posts/search")),
    ("image", re.compile(r"/i/(?P<file>[\w.-]+)")),
    ("preview", re.compile(r"/p/(?P<file>[\w.-]+)")),
    ("requests", re.compile(r"/_sandbox/requests")),
    ("vendor", re.compile(r"/(?P<vendor>openai|anthropic|google|azure|guard|local)(?P<rest>/.*)")),
)
# Left out of /_sandbox/requests: requests about the server itself, and the vendors' requests, which are frequent.
UNCOUNTED = ("requests", "vendor")


class RequestBudget:
    """A simulated rate limit, whose period starts at the first request; ``x-ratelimit-*`` headers report its state."""

    def __init__(self, requests: int, *, period: float, clock: Callable[[], float]) -> None:
        self._requests, self._period, self._clock = requests, period, clock
        self._lock = threading.Lock()
        self._used, self._end = 0, -math.inf

    def spend(self) -> tuple[bool, dict[str, str]]:
        """Count a request; return whether it is allowed, and the rate limit headers."""
        with self._lock:
            now = self._clock()
            if now >= self._end:
                self._used, self._end = 0, now + self._period
            self._used += 1
            left, reset = self._requests - self._used, max(0, math.ceil(self._end - now))
            headers = {"x-ratelimit-used": str(min(self._used, self._requests)), "x-ratelimit-reset": str(reset)}
            headers["x-ratelimit-remaining"] = f"{max(left, 0)}.0"
            if left < 0:
                headers["retry-after"] = str(max(reset, 1))
            return left >= 0, headers


class SandboxServer(ThreadingHTTPServer):
    """The server of one sandbox folder (the offline Reddit), listening on loopback once constructed.

    As a context manager it answers in a thread of this process; ``outage_after`` (the number of API requests that are
    answered before it returns ``outage_status``) may be changed while it runs.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        root: Path,
        *,
        port: int = 0,
        budget: int = BUDGET,
        period: float = PERIOD_SECONDS,
        private: Sequence[str] = (),
        outage_after: int | None = None,
        outage_status: int = 503,
        clock: Callable[[], float] = time.monotonic,
        vendors: Vendors | None = None,
    ) -> None:
        """Read the sandbox and bind the port; port 0 takes any free one."""
        self.catalogue = Catalogue(root)
        self.images = ImageHost(root)
        truth = root / "truth_images.json"
        seed = int(orjson.loads(truth.read_bytes()).get("seed", 0)) if truth.is_file() else 0
        self.vendors = vendors or Vendors(root, seed=seed)
        self.reddit, self.arctic = (RequestBudget(budget, period=period, clock=clock) for _ in range(2))
        self.private = {s.lower() for s in private}
        self.credentials = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        self.tokens: set[str] = set()
        self.outage_after, self.outage_status = outage_after, outage_status
        self.lock = threading.Lock()
        self.counts = Counter({name: 0 for name, _ in ROUTES if name not in UNCOUNTED} | {"other": 0})
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def address(self) -> str:
        """Return the server's address, ``http://127.0.0.1:<port>``."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> SandboxServer:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: disconnected clients are common here, and a traceback could quote a path."""

    def down(self) -> bool:
        """Count an API request; return whether the simulated outage has begun (after ``outage_after`` requests)."""
        with self.lock:
            if not self.outage_after:
                return self.outage_after == 0
            self.outage_after -= 1
            return False

    def token(self) -> str:
        """Issue and return a new access token of the simulated Reddit."""
        with self.lock:
            token = f"sandbox-token-{len(self.tokens)}"
            self.tokens.add(token)
        return token


class Handler(BaseHTTPRequestHandler):
    """Handle one HTTP connection to the sandbox; methods named after the routes answer requests."""

    server: SandboxServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "sandbox", ""
    timeout = 30
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        """Answer a GET, a POST, or a DELETE (used by the vendors' file APIs only)."""
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if local(self.headers.get("Host") or "", self.headers.get("Origin")):
            self._route()
        else:
            self.answer({"message": "Forbidden", "error": 403}, status=403)

    do_POST = do_DELETE = do_GET

    def end_headers(self) -> None:
        """Send the header that announces the end of the connection, so that clients do not reuse it."""
        if self.close_connection:
            self.send_header("Connection", "close")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because paths contain ids."""

    def _route(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        for name, pattern in ROUTES:
            if match := pattern.fullmatch(parts.path):
                if name in self.server.counts:
                    with self.server.lock:
                        self.server.counts[name] += 1
                getattr(self, f"_{name}")(query, **match.groupdict())
                return
        with self.server.lock:
            self.server.counts["other"] += 1
        self.answer({"message": "Not Found", "error": 404}, status=404)

    def answer(self, value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send ``value`` as a JSON response."""
        sent = {"Content-Type": "application/json; charset=UTF-8", **(headers or {})}
        send(self, orjson.dumps(value), status=status, headers=sent)

    def _requests(self, _: Mapping[str, str]) -> None:
        with self.server.lock:
            counts = dict(self.server.counts)
        self.answer(counts)

    def _token(self, _: Mapping[str, str]) -> None:
        if self.command != "POST" or self.headers.get("Authorization") != f"Basic {self.server.credentials}":
            self.answer({"message": "Unauthorized", "error": 401}, status=401)
            return
        form = dict(parse_qsl(self._body.decode("ascii", "replace")))
        if form.get("grant_type") not in ("client_credentials", "password"):
            self.answer({"error": "unsupported_grant_type"})
            return
        token = {"access_token": self.server.token(), "token_type": "bearer", "expires_in": 86400, "scope": "*"}
        self.answer(token)

    def _admitted(self) -> dict[str, str] | None:
        """Return the headers for an admitted request to Reddit's API, or answer it with the error and return None."""
        kind, _, token = (self.headers.get("Authorization") or "").partition(" ")
        granted, headers = self.server.reddit.spend()
        if self.server.down():
            self.answer({"message": "Out", "error": self.server.outage_status}, status=self.server.outage_status)
        elif kind.lower() != "bearer" or token not in self.server.tokens:
            self.answer({"message": "Unauthorized", "error": 401}, status=401, headers=headers)
        elif not granted:
            self.answer({"message": "Too Many Requests", "error": 429}, status=429, headers=headers)
        else:
            return headers
        return None

    def _listing(self, query: Mapping[str, str], *, subreddit: str) -> None:
        if (headers := self._admitted()) is None:
            return
        if subreddit.lower() in self.server.private:
            self.answer({"reason": "private", "message": "Forbidden", "error": 403}, status=403, headers=headers)
        elif not self.server.catalogue.knows(subreddit):
            self.answer({"reason": "banned", "message": "Not Found", "error": 404}, status=404, headers=headers)
        else:
            self.answer(self.server.catalogue.new(subreddit, query=query), headers=headers)

    def _info(self, query: Mapping[str, str]) -> None:
        if (headers := self._admitted()) is not None:
            self.answer(self.server.catalogue.info(query=query), headers=headers)

    def _arctic(self, query: Mapping[str, str]) -> None:
        granted, headers = self.server.arctic.spend()
        if self.server.down():
            self.answer({"data": None, "error": "Out"}, status=self.server.outage_status)
        elif not granted:
            self.answer({"data": None, "error": "Too Many Requests"}, status=429, headers=headers)
        else:
            try:
                self.answer({"data": self.server.catalogue.search(query=query)}, headers=headers)
            except ValueError:
                self.answer({"data": None, "error": "Invalid parameter"}, status=400, headers=headers)

    def _image(self, query: Mapping[str, str], *, file: str) -> None:
        self.server.images.serve(self, file=file, query=query)

    _preview = _image

    def _vendor(self, _: Mapping[str, str], *, vendor: str, rest: str) -> None:
        query = urlsplit(self.path).query
        self.server.vendors.serve(self, vendor=vendor, path=rest, query=query, body=self._body)


def serve(root: Path, *, port: int) -> None:
    """Serve a sandbox folder on loopback until the process ends."""
    with suppress(KeyboardInterrupt):
        SandboxServer(root, port=port).serve_forever()
