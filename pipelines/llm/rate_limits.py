"""Limit concurrent requests, requests and tokens per minute for a provider, and pause while it asks to wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pipelines.config.label import Provider

# Ours: providers also count a minute's allowance over shorter spans, so at most this many seconds of it go at once.
BURST_SECONDS = 1.0


class Pace:
    """A rate limit per minute that refills continuously, stored as the time at which it will be full (GCRA)."""

    def __init__(self, per_minute: int | None) -> None:
        """Allow ``per_minute`` requests or tokens; ``None`` means no limit."""
        self._seconds = 60 / per_minute if per_minute else 0.0
        self._full = 0.0

    def wait(self, now: float) -> float:
        """Return the seconds until the limit lets a request start; 0 or less means now.

        A request above the burst size may start alone.
        """
        if not self._seconds:
            return 0.0
        return self._full - max(BURST_SECONDS - self._seconds, 0.0) - now

    def take(self, amount: int, *, now: float) -> None:
        """Count ``amount`` requests or tokens against the limit, at the time ``now`` (monotonic seconds)."""
        self._full = max(self._full, now) + amount * self._seconds


class Gate:
    """Limits the requests of this process to one model provider; requests start in the order of their arrival."""

    def __init__(self, provider: Provider) -> None:
        """Set the account's limits; mapped tasks share an account through an Airflow pool, not through this object."""
        self._slots = asyncio.Semaphore(provider.concurrency)
        self._door = asyncio.Lock()
        self._requests = Pace(provider.requests_per_minute)
        self._tokens = Pace(provider.tokens_per_minute)
        self._opens = 0.0

    def pause(self, seconds: float) -> None:
        """Block all requests to the provider for ``seconds``: a Retry-After applies to the account, not one request."""
        self._opens = max(self._opens, time.monotonic() + seconds)

    @asynccontextmanager
    async def turn(self, *, tokens: int) -> AsyncIterator[None]:
        """Wait until the limits let a request of at most ``tokens`` tokens start; hold its slot inside the context."""
        async with self._slots:
            async with self._door:
                while (wait := self._wait(now := time.monotonic())) > 0:
                    await asyncio.sleep(wait)
                self._requests.take(1, now=now)
                self._tokens.take(tokens, now=now)
            yield

    def _wait(self, now: float) -> float:
        return max(self._opens - now, self._requests.wait(now), self._tokens.wait(now))
