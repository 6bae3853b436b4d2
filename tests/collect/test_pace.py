import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.collect.pace import HostGate, retry_after
from pipelines.errors import SourceThrottled

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
