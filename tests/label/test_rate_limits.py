"""A provider's limits hold for all requests together."""

from __future__ import annotations

import asyncio
import time

from pipelines.llm.sender import Gate
from pipelines.llm.vendor import Vendor
from tests.label import small_settings


def vendor(*, concurrency: int = 4, requests: int | None = None, tokens: int | None = None) -> Vendor:
    return small_settings.vendor(
        concurrency=concurrency, requests_per_minute=requests, tokens_per_minute=tokens, max_retry_after_seconds=2
    )


def pass_through(gate: Gate, *, times: int, tokens: int = 1) -> list[float]:
    """Send ``times`` requests; return when each passed, in seconds."""
    when: list[float] = []

    async def one(begin: float) -> None:
        async with gate.turn(tokens=tokens):
            when.append(time.monotonic() - begin)

    async def run() -> None:
        begin = time.monotonic()
        await asyncio.gather(*(one(begin) for _ in range(times)))

    asyncio.run(run())
    return when


def test_requests_a_minute() -> None:
    # 20 a second: a second's worth may go at once, the other six take .3 s
    when = pass_through(Gate(vendor(concurrency=50, requests=1200)), times=26)
    assert when[18] < 0.25
    assert 0.25 <= when[-1] < 2


def test_tokens_a_minute_and_a_request_larger_than_the_burst() -> None:
    # 1,000 a second, 2,000 each: the first goes alone, the second two seconds' worth less the burst later
    when = pass_through(Gate(vendor(tokens=60_000)), times=2, tokens=1_500)
    assert when[0] < 0.3
    assert 0.4 <= when[1] < 3


def test_pause_holds_everybody_back_and_may_be_prolonged() -> None:
    gate = Gate(vendor())

    async def run() -> float:
        begin = time.monotonic()
        gate.pause(0.1)
        asyncio.get_running_loop().call_later(0.05, gate.pause, 0.2)
        async with gate.turn(tokens=1), gate.turn(tokens=1):
            return time.monotonic() - begin

    assert 0.24 <= asyncio.run(run()) < 2


def test_waiting_burns_no_processor() -> None:
    gate = Gate(vendor(concurrency=32))
    gate.pause(0.5)
    before = time.thread_time()  # other threads of this process are clients of other tests
    pass_through(gate, times=200)
    assert time.thread_time() - before < 0.2
