import asyncio
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.collect import connection
from pipelines.collect.connection import HostGate, Meter, Refused, retry_after
from pipelines.core.errors import SourceThrottled

NOON = "Sat, 03 Dec 2022 12:00:00 GMT"


@pytest.mark.parametrize(
    ("asked", "date", "seconds"),
    [
        ("7", NOON, 7.0),
        ("0", "", 0.0),
        ("Sat, 03 Dec 2022 12:00:05 GMT", NOON, 5.0),
        ("Sat, 03 Dec 2022 11:00:00 GMT", NOON, 0.0),
        ("Sat, 03 Dec 2022 12:00:05 GMT", "", 60.0),
        ("Sat, 03 Dec 2022 12:00:05 GMT", "yesterday", 60.0),
        ("soon", NOON, None),
        ("Sat, 03 Dec 99999999999999999999 12:00:00 GMT", NOON, None),
        ("-3", NOON, None),
        ("", NOON, None),
        ("9" * 400, NOON, 1e8),
    ],
)
def test_retry_after_is_read_in_seconds_and_as_a_date(asked: str, date: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": asked, "date": date}, longest=60) == seconds


@given(st.text(st.characters(max_codepoint=255)), st.text(st.characters(max_codepoint=255)))
def test_no_header_however_odd_does_more_than_ask_for_a_wait(asked: str, date: str) -> None:
    seconds = retry_after({"retry-after": asked, "date": date}, longest=60)
    assert seconds is None or seconds >= 0


def test_a_closed_gate_holds_everyone_back_without_taking_slots_from_others() -> None:
    async def run() -> tuple[list[float], float]:
        total = asyncio.Semaphore(1)
        slow, quick = HostGate(per_host=4), HostGate(per_host=4)
        began = time.monotonic()
        slow.close("slow.test", seconds=0.4, longest=1)

        async def pass_through(gate: HostGate) -> float:
            async with gate.turn(total):
                return time.monotonic() - began

        waited = asyncio.gather(*(pass_through(slow) for _ in range(6)))
        await asyncio.sleep(0)
        return (await pass_through(quick)), await waited

    other, held = asyncio.run(run())
    assert other < 0.3
    assert min(held) >= 0.4


def test_a_host_that_asks_for_more_than_the_limit_stops_the_step() -> None:
    with pytest.raises(SourceThrottled, match=r"slow\.test.*120"):
        HostGate(per_host=1).close("slow.test", seconds=120, longest=60)


class Parts:
    """A connection that answers after so many seconds with so many bytes."""

    def __init__(self, *parts: tuple[float, int]) -> None:
        self.parts, self.now = list(parts), 100.0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        seconds, size = self.parts.pop(0)
        self.now += seconds
        return bytes(size)


@pytest.mark.parametrize(
    ("parts", "refused"),
    [
        ([(9, 1000), (2.5, 1499)], "too_slow"),
        ([(9, 1000), (2.5, 1500)], None),
        ([(9, 1), (1.9, 1), (0.6, 1)], "too_slow"),
        ([(9, 1), (1.9, 1)], None),
        ([(9, 50_000), (2.5, 1), (2.5, 2499)], "too_slow"),
        ([(9, 50_000), (2.5, 1), (2.5, 2500)], None),
        ([(0, 80_000), (0, 10_000), (0, 131_072)], None),
        ([(0, 80_000), (0, 10_000), (0, 131_073)], "too_large"),
    ],
)
def test_speed_counts_by_window_and_size_with_room_for_headers(
    parts: list[tuple[float, int]], refused: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Parts(*parts)
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: stream.now))
    meter, found = Meter(max_bytes=80_000, min_bytes_per_second=1000), None

    async def run() -> None:
        while stream.parts:
            await meter.read(stream, max_bytes=10**6)

    try:
        asyncio.run(run())
    except Refused as error:
        found = error.reason
    assert (found, stream.parts) == (refused, [])
