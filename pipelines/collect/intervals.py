"""Add, subtract and cut sets of half-open intervals of time, in whole seconds since the epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Interval = tuple[int, int]
"""A start, which belongs to the interval, and an end, which does not."""
Gaps = Mapping[str, Sequence[Interval]]
"""Intervals of creation times by subreddit."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same set of seconds as sorted intervals that neither overlap nor touch."""
    merged: list[Interval] = []
    for start, end in sorted(i for i in intervals if i[0] < i[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def minus(intervals: Iterable[Interval], taken: Iterable[Interval]) -> list[Interval]:
    """Return the seconds of ``intervals`` that ``taken`` does not have."""
    left = union(intervals)
    for start, end in taken:
        left = [part for a, b in left for part in ((a, min(b, start)), (max(a, end), b)) if part[0] < part[1]]
    return left


def within(intervals: Iterable[Interval], whole: Interval) -> list[Interval]:
    """Return the seconds of ``intervals`` that lie in ``whole``."""
    return union((max(start, whole[0]), min(end, whole[1])) for start, end in intervals)


def hours(intervals: Iterable[Interval]) -> float:
    """Return the length of a set of intervals in hours."""
    return round(sum(end - start for start, end in intervals) / 3600, 2)
