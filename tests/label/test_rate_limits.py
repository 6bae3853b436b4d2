"""A provider's limits hold for all requests together, in the order in which they came."""

from __future__ import annotations

import asyncio
import time

from pipelines.core.config.label import Provider
from pipelines.llm.sender import Gate, Pace
from tests.label import small_settings


def provider(*, concurrency: int = 4, requests: int | None = None, tokens: int | None = None) -> Provider:
    return small_settings.provider(
        concurrency=concurrency, requests_per_minute=requests, tokens_per_minute=tokens, max_retry_after_seconds=2
    )


def pass_through(gate: Gate, *, times: int, tokens: int = 1, busy: float = 0.0) -> tuple[list[int], list[float], int]:
    """Send ``times`` requests; return their order, when each passed (seconds) and how many were inside at most."""
    order: list[int] = []
    when: list[float] = []
    inside = most = 0

    async def one(number: int, begin: float) -> None:
        nonlocal inside, most
        async with gate.turn(tokens=tokens):
            order.append(number)
            when.append(time.monotonic() - begin)
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(busy)
            inside -= 1

    async def run() -> None:
        begin = time.monotonic()
        await asyncio.gather(*(one(n, begin) for n in range(times)))

    asyncio.run(run())
    return order, when, most


def test_so_many_at_once_and_first_come_first_served() -> None:
    order, _, most = pass_through(Gate(provider(concurrency=3)), times=12, busy=0.01)
    assert most == 3
    assert order == list(range(12))


def test_requests_a_minute() -> None:
    # 20 a second: a second's worth may go at once, the other six take .3 s
    _, when, _ = pass_through(Gate(provider(concurrency=50, requests=1200)), times=26)
    assert when[18] < 0.25
    assert 0.25 <= when[-1] < 2


def test_tokens_a_minute_and_a_request_larger_than_the_burst() -> None:
    # 1,000 a second, 2,000 each: the first goes alone, the second two seconds' worth less the burst later
    _, when, _ = pass_through(Gate(provider(tokens=60_000)), times=2, tokens=1_500)
    assert when[0] < 0.3
    assert 0.4 <= when[1] < 3


def test_pause_holds_everybody_back_and_may_be_prolonged() -> None:
    gate = Gate(provider())

    async def run() -> float:
        begin = time.monotonic()
        gate.pause(0.1)
        asyncio.get_running_loop().call_later(0.05, gate.pause, 0.2)
        async with gate.turn(tokens=1), gate.turn(tokens=1):
            return time.monotonic() - begin

    assert 0.24 <= asyncio.run(run()) < 2


def test_waiting_burns_no_processor() -> None:
    gate = Gate(provider(concurrency=32))
    gate.pause(0.5)
    before = time.thread_time()  # other threads of this process are clients of other tests
    pass_through(gate, times=200)
    assert time.thread_time() - before < 0.2


def test_allowance_refills_evenly() -> None:
    pace = Pace(60)
    passed, now = 0, 100.0
    while now < 160.0:
        if pace.wait(now) <= 0:
            pace.take(1, now=now)
            passed += 1
        now += 0.01
    assert 60 <= passed <= 61
    assert Pace(None).wait(0.0) == 0.0
