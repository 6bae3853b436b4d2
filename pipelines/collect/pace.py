"""Limit the size and minimum speed of responses and the rate of requests to each host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from email.utils import parsedate_to_datetime

import httpcore

from pipelines.errors import SourceThrottled

WINDOW_SECONDS = 2.0  # ours: the first window is a grace period; a slow response ends after at most two windows
HEADER_BYTES = 131_072  # ours: httpcore rejects headers above 100 KiB
ATTEMPTS = 3  # ours: a picture with its retries and previews may take the time of three attempts


class Refused(Exception):
    """A picture is dropped for ``reason``; ``fetch_images`` always catches this exception.

    ``passing`` is true for a failure that a retry may resolve. ``wait`` is the delay that the host requested, in
    seconds.
    """

    def __init__(self, reason: str, *, passing: bool = False, wait: float | None = None) -> None:
        self.reason = reason
        self.passing = passing
        self.wait = wait


class Allowance:
    """The time and the waits that remain for one picture, with all its addresses, redirects and retries.

    ``seconds`` are of requests only; ``patience`` is for the delays that hosts ask for.
    """

    def __init__(self, *, attempt_seconds: float, max_retry_after_seconds: float) -> None:
        self.seconds = ATTEMPTS * attempt_seconds
        self.patience = max_retry_after_seconds
        self._attempt = attempt_seconds

    def attempt(self) -> float:
        """Return the seconds that the next attempt may take.

        Raises:
            Refused: ``timeout``, because none are left.
        """
        if self.seconds <= 0:
            raise Refused("timeout")
        return min(self._attempt, self.seconds)


class Meter:
    """Count the bytes of one response, and end the response if it is too large or too slow.

    The clock starts at the first byte; only the total time limit covers the wait for that byte. Each window of
    ``WINDOW_SECONDS`` is checked separately, so that a fast start cannot compensate for a slow rest.
    """

    def __init__(self, *, max_bytes: int, min_bytes_per_second: int) -> None:
        """Set the limits; ``max_bytes`` is for the body: an eighth is added for chunk framing, and HEADER_BYTES."""
        self._left = max_bytes + max_bytes // 8 + HEADER_BYTES
        self._rate = min_bytes_per_second
        self._since: float | None = None
        self._got = 0

    async def read(self, stream: httpcore.AsyncNetworkStream, *, max_bytes: int) -> bytes:
        """Read at most ``max_bytes`` from ``stream``.

        Raises:
            Refused: ``too_large`` or ``too_slow``.
        """
        while True:
            patience = None
            if self._since is not None:
                patience = max(0.01, self._since + WINDOW_SECONDS - time.monotonic())
            try:
                data = await stream.read(max_bytes, timeout=patience)
            except httpcore.ReadTimeout:
                self._judge()
            else:
                self._count(len(data))
                return data

    def _count(self, size: int) -> None:
        self._left -= size
        self._got += size
        if self._left < 0:
            raise Refused("too_large")
        if self._since is None:
            self._since = time.monotonic()
        elif size:
            self._judge()

    def _judge(self) -> None:
        now = time.monotonic()
        elapsed = now - (self._since or now)
        if elapsed < WINDOW_SECONDS:
            return
        if self._got < self._rate * elapsed:
            raise Refused("too_slow")
        self._since, self._got = now, 0


METER: ContextVar[Meter] = ContextVar("METER")


def retry_after(headers: Mapping[str, str], *, longest: float) -> float | None:
    """Return the delay in seconds that a response's ``Retry-After`` requests, or ``None`` without that header.

    A ``Retry-After`` date is compared with the response's own ``Date``, so that clock differences do not matter.
    Without ``Date`` the result is ``longest``, the maximum from the parameters.
    """
    asked = headers.get("retry-after", "").strip()
    if not asked:
        return None
    if asked.isascii() and asked.isdigit():
        return float(min(int(asked[:9]), 10**8))
    try:
        until = parsedate_to_datetime(asked)
    except (ValueError, OverflowError):
        return None
    try:
        return max(0.0, (until - parsedate_to_datetime(headers.get("date", ""))).total_seconds())
    except (ValueError, OverflowError, TypeError):
        return longest


class HostGate:
    """Limit the concurrent requests to one host; no request starts while the host asks clients to wait."""

    def __init__(self, *, per_host: int) -> None:
        self._slots = asyncio.Semaphore(per_host)
        self._opens = 0.0

    def close(self, host: str, *, seconds: float, longest: float) -> None:
        """Delay every request to ``host`` for ``seconds``.

        Raises:
            SourceThrottled: the host asks for more than ``longest`` seconds; the task is retried later.
        """
        if seconds > longest:
            raise SourceThrottled(source=host, retry_after=seconds)
        self._opens = max(self._opens, time.monotonic() + seconds)

    @asynccontextmanager
    async def turn(self, total: asyncio.Semaphore) -> AsyncIterator[None]:
        """Hold a slot of the host and one of ``total`` for a request; the latter not during a wait for the host."""
        async with self._slots:
            while True:
                while (wait := self._opens - time.monotonic()) > 0:
                    await asyncio.sleep(wait)
                async with total:
                    if self._opens > time.monotonic():
                        continue
                    yield
                    return
