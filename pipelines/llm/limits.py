"""The turnstile before one provider: so many requests at once, so many a minute, and nobody while it asks to wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pipelines.config.label import Provider

# Ours: providers count a minute's allowance in shorter spans too, so at most this many seconds of it go at once.
BURST_SECONDS = 1.0


class Pace:
    """An allowance for each minute that refills evenly, kept as the time at which all of it will be back (GCRA)."""

    def __init__(self, per_minute: int | None) -> None:
        """``None`` allows anything."""
        self._seconds = 60 / per_minute if per_minute else 0.0
        self._full = 0.0

    def wait(self, now: float) -> float:
        """Return for how many seconds nothing may pass; one request that is larger than the burst may, alone."""
        if not self._seconds:
            return 0.0
        return self._full - max(BURST_SECONDS - self._seconds, 0.0) - now

    def take(self, amount: int, *, now: float) -> None:
        """Use up ``amount`` of the allowance."""
        self._full = max(self._full, now) + amount * self._seconds


class Gate:
    """One process's way to one provider; requests pass in the order in which they came."""

    def __init__(self, provider: Provider) -> None:
        """Take the account's limits; mapped tasks share an account through an Airflow pool, not through this."""
        self._slots = asyncio.Semaphore(provider.concurrency)
        self._door = asyncio.Lock()
        self._requests = Pace(provider.requests_per_minute)
        self._tokens = Pace(provider.tokens_per_minute)
        self._opens = 0.0

    def pause(self, seconds: float) -> None:
        """Let nobody pass for ``seconds``: the provider's Retry-After is meant for the account, not for a request."""
        self._opens = max(self._opens, time.monotonic() + seconds)

    @asynccontextmanager
    async def turn(self, *, tokens: int) -> AsyncIterator[None]:
        """Hold one of the provider's slots for a request of at most ``tokens``, read and written together."""
        async with self._slots:
            async with self._door:
                while (wait := self._wait(now := time.monotonic())) > 0:
                    await asyncio.sleep(wait)
                self._requests.take(1, now=now)
                self._tokens.take(tokens, now=now)
            yield

    def _wait(self, now: float) -> float:
        return max(self._opens - now, self._requests.wait(now), self._tokens.wait(now))
