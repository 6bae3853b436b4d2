"""Intervals of time: what was read, and what is missing."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipelines.collect.month import Interval, hours, minus, union, within

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)))


def seconds(intervals: list[Interval]) -> set[int]:
    return {second for start, end in intervals for second in range(start, end)}


@given(INTERVALS, INTERVALS)
def test_sets_of_seconds_are_added_subtracted_and_cut(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    for found, expected in (
        (union([*some, *others]), seconds(some) | seconds(others)),
        (minus(some, others), seconds(some) - seconds(others)),
        (within(some, (10, 20)), seconds(some) & set(range(10, 20))),
    ):
        assert seconds(found) == expected
        assert all(start < end for start, end in found)
        assert all(one[1] < two[0] for one, two in pairwise(found)) or found == minus(some, others)
    assert hours([(0, 1800), (3600, 5400)]) == 1
