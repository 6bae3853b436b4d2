"""Months, and intervals of time: what was read, and what is missing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.collect.month import Interval, Window, hours, minus, union, within
from tests.refusals import refused

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)))


def seconds(intervals: list[Interval]) -> set[int]:
    return {second for start, end in intervals for second in range(start, end)}


@given(INTERVALS, INTERVALS)
def test_intervals_are_added_subtracted_and_cut(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    for found, expected in (
        (union([*some, *others]), seconds(some) | seconds(others)),
        (minus(some, others), seconds(some) - seconds(others)),
        (within(some, (10, 20)), seconds(some) & set(range(10, 20))),
    ):
        assert seconds(found) == expected
        assert all(start < end for start, end in found)
        assert all(one[1] < two[0] for one, two in pairwise(found)) or found == minus(some, others)
    assert hours([(0, 1800), (3600, 5400)]) == 1


@given(st.datetimes(min_value=datetime(2005, 6, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_every_instant_is_in_its_own_month_only(moment: datetime) -> None:
    window = Window.from_key(f"{moment:%Y-%m}")
    assert moment in window
    assert moment not in Window.from_key(f"{window.end:%Y-%m}")
    assert window.end not in window
    assert window.end - timedelta(microseconds=1) in window


@pytest.mark.parametrize("key", ["", "2022-13", "2022-00", "2022-1", "2022-12-01", "december", "2022/12", "2022-12\n"])
def test_what_is_no_month_is_refused_with_the_form_wanted(key: str) -> None:
    with refused("BadWindow", match="YYYY-MM"):
        Window.from_key(key)
