"""Fetch pictures from addresses in posts; no other module opens such addresses.

The addresses are untrusted. Each is checked before it is used and again at each redirect: scheme, exact host, port,
the resolved peer, size, time and rate (``connection.py``). Addresses with http, which posts before 2018 have,
are requested by https. A picture that cannot be fetched is dropped with a reason; the step stops if a host asks to wait
longer than the parameters allow.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
import time
from collections.abc import Sequence
from functools import cache
from http import HTTPStatus

import httpcore
import httpx

from pipelines.collect.connection import (
    METER,
    Allowance,
    CheckedBackend,
    HostGate,
    Meter,
    Refused,
    Resolver,
    retry_after,
    system_resolver,
)
from pipelines.core.config.collect import Fetch
from pipelines.core.errors import BadParams

BACKOFF_SECONDS = 0.5  # ours: 0.5, 1, 2 ... between tries, without jitter, as nothing here draws random numbers
REDIRECTS = frozenset({301, 302, 303, 307, 308})
NAMED: dict[int, str] = {HTTPStatus.NOT_FOUND: "not_found", HTTPStatus.GONE: "gone"}
# The host removed the picture, so its cached previews must not be collected either.
FINAL = frozenset({"gone", "placeholder"})
# Reasons that say nothing about the picture, those of its decoder and OCR included; so do 429 and 5xx responses.
PASSING = frozenset({"timeout", "too_slow", "connection", "truncated", "decoder_timeout", "ocr_timeout"})
# Imgur redirects the addresses of removed pictures to this path of its own hosts.
REMOVED = "/removed.png"

# httpcore writes addresses to its debug log, and no log may contain addresses
logging.getLogger("httpcore").setLevel(logging.INFO)


async def fetch_images(
    jobs: Sequence[tuple[str, ...]],
    *,
    params: Fetch,
    contact: str = "",
    resolver: Resolver = system_resolver,
    tls: ssl.SSLContext | None = None,
) -> list[bytes | str]:
    """Fetch one picture for each job, several at once; each job's addresses are tried until one works.

    A job is a picture's addresses, tried in order; the previews of a removed picture (``gone``, ``placeholder``) are
    not tried. The result is in the order of the jobs: the picture, or the reason why the first address failed:
    ``address`` (malformed, or with credentials or an explicit port), ``scheme``, ``host_not_allowed``,
    ``private_address``, ``redirects``, ``not_found``, ``gone``, ``http_<code>``, ``content_type``,
    ``content_encoding``, ``too_large``, ``too_slow``, ``timeout``, ``truncated``, ``empty``, ``placeholder`` or
    ``connection``. All pictures are held in memory: pass at most one shard.

    ``timeout_seconds`` limits one attempt with its redirects, and three times as long a job with all its attempts,
    without the time spent waiting for a slot. 5xx responses, truncated responses and connection errors are retried
    ``retries`` times. A ``Retry-After`` delays every job of the host; it is limited by ``max_retry_after_seconds`` per
    job and does not count as a retry. ``contact`` is inserted into the user agent. ``resolver`` and ``tls`` replace the
    system's name resolution and root certificates.

    Raises:
        BadParams: the user agent is not printable ASCII.
        SourceThrottled: a host asks to wait longer than ``max_retry_after_seconds``; nothing is returned.
    """
    backend = CheckedBackend(allow_loopback=params.allow_loopback, resolver=resolver)
    # max_connections is None: the gates limit the connections, and waiting must not count towards the timeout
    async with httpcore.AsyncConnectionPool(
        ssl_context=tls or _trust(), max_connections=None, keepalive_expiry=15, network_backend=backend
    ) as pool:
        fetcher = _Fetcher(params, pool=pool, agent=user_agent(params, contact=contact))
        tasks = [asyncio.create_task(fetcher.job(addresses)) for addresses in jobs]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def may_pass(reason: str) -> bool:
    """Return whether a picture that was dropped for ``reason`` may be read at another time."""
    return reason in PASSING or reason == f"http_{HTTPStatus.TOO_MANY_REQUESTS}" or reason.startswith("http_5")


@cache
def _trust() -> ssl.SSLContext:
    return httpcore.default_ssl_context()


def user_agent(params: Fetch, *, contact: str) -> str:
    """Return the crawler's user agent, with the operator's contact."""
    agent = params.user_agent.replace("{contact}", contact or "no contact given")
    if not (agent.isascii() and agent.isprintable()):
        raise BadParams(where="fetch.user_agent", detail="not printable ASCII (it includes CORPUS_CONTACT)")
    return agent


class _Fetcher:
    def __init__(self, params: Fetch, *, pool: httpcore.AsyncConnectionPool, agent: str) -> None:
        self._params = params
        self._pool = pool
        self._agent = agent
        self._total = asyncio.Semaphore(params.concurrency)
        self._gates: dict[str, HostGate] = {host: HostGate(per_host=params.per_host) for host in params.hosts}
        self._placeholders = params.placeholder_digests

    async def job(self, addresses: tuple[str, ...]) -> bytes | str:
        first = ""
        allowance = Allowance(
            attempt_seconds=self._params.timeout_seconds, max_retry_after_seconds=self._params.max_retry_after_seconds
        )
        for address in addresses:
            answer = await self._persist(address, allowance)
            if isinstance(answer, bytes):
                return answer
            first = first or answer
            if answer in FINAL:
                return answer
        return first or "address"

    async def _persist(self, address: str, allowance: Allowance) -> bytes | str:
        """Try one address until it works, fails permanently, or has used up its retries or the job's allowance."""
        tries, backoff = 0, BACKOFF_SECONDS
        while True:
            try:
                return await self._follow(address, allowance)
            except Refused as refused:
                if refused.wait is not None:
                    allowance.patience -= max(refused.wait, backoff)
                else:
                    tries += 1
                if not refused.passing or tries > self._params.retries or allowance.patience < 0:
                    return refused.reason
            await asyncio.sleep(backoff)
            backoff *= 2

    async def _follow(self, address: str, allowance: Allowance) -> bytes:
        """Follow redirects from ``address`` to a picture, with checks at every step, within one time limit."""
        left = allowance.attempt()
        url = self._checked(address)
        for _ in range(self._params.max_redirects + 1):
            async with self._gates[url.host].turn(self._total):
                started = time.monotonic()
                try:
                    async with asyncio.timeout(left):
                        answer = await self._request(url)
                except TimeoutError:
                    raise Refused("timeout") from None
                finally:
                    spent = time.monotonic() - started
                    left -= spent
                    allowance.seconds -= spent
            if isinstance(answer, bytes):
                return answer
            url = self._checked(answer, base=url)
        raise Refused("redirects")

    def _checked(self, address: str, *, base: httpx.URL | None = None) -> httpx.URL:
        """Return ``address`` parsed (relative to ``base`` for a redirect), or refuse it if it is not allowed."""
        try:
            url = base.join(address) if base else httpx.URL(address)
            if url.scheme == "http" and not self._params.allow_http:
                url = url.copy_with(scheme="https")
        except (httpx.InvalidURL, ValueError):
            raise Refused("address") from None
        if url.scheme not in ("http", "https"):
            raise Refused("scheme")
        if url.userinfo or not (url.port is None or (self._params.allow_loopback and 0 < url.port < 65_536)):
            raise Refused("address")
        if url.host not in self._gates:
            raise Refused("host_not_allowed")
        if url.path == REMOVED:
            raise Refused("placeholder")
        return url

    async def _request(self, url: httpx.URL) -> bytes | str:
        """Return the picture's bytes or the target of a redirect, after one request."""
        METER.set(Meter(max_bytes=self._params.max_bytes, min_bytes_per_second=self._params.min_bytes_per_second))
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        headers = {
            b"Host": url.netloc,
            b"User-Agent": self._agent.encode(),
            b"Accept": b"image/*",
            b"Accept-Encoding": b"identity",
        }
        answered = False
        try:
            async with self._pool.stream("GET", target, headers=list(headers.items())) as response:
                answered = True
                return await self._answer(url, response=response)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError):
            raise Refused("truncated" if answered else "connection", passing=True) from None

    async def _answer(self, url: httpx.URL, *, response: httpcore.Response) -> bytes | str:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        status = response.status
        if status in REDIRECTS and "location" in headers:
            return headers["location"]
        if status != HTTPStatus.OK:
            self._refuse_status(url, status=status, headers=headers)
        if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise Refused("content_encoding")
        if not headers.get("content-type", "").strip().lower().startswith("image/"):
            raise Refused("content_type")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:18]) > self._params.max_bytes:
            raise Refused("too_large")
        return await self._body(response)

    def _refuse_status(self, url: httpx.URL, *, status: int, headers: dict[str, str]) -> None:
        reason = NAMED.get(status, f"http_{status}")
        wait = None
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            longest = self._params.max_retry_after_seconds
            wait = retry_after(headers, longest=longest)
            if wait is not None:
                self._gates[url.host].close(url.host, seconds=wait, longest=longest)
        passing = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS
        raise Refused(reason, passing=passing, wait=wait)

    async def _body(self, response: httpcore.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_stream():
            body += chunk
            if len(body) > self._params.max_bytes:
                raise Refused("too_large")
        if not body:
            raise Refused("empty")
        if hashlib.sha256(body).hexdigest() in self._placeholders:
            raise Refused("placeholder")
        return bytes(body)
