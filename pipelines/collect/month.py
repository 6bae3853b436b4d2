"""Convert partition keys to half-open months, and calculate with sets of intervals of time."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Self

from pipelines.core.errors import ConfigError

# Shards of the n-th addition to a published month are numbered from n times this on.
ADDITION = 100_000
KEY = re.compile(r"([12][0-9]{3})-(0[1-9]|1[0-2])")


def addition(paths: Iterable[str]) -> int:
    """Return the number from which the shards of an addition are numbered, by its files; 0 for those of a whole month.

    Files without any shard are an addition without items, which keeps every shard of the month.
    """
    names = (PurePosixPath(path).name.partition(".")[0] for path in paths)
    return min((int(name) // ADDITION * ADDITION for name in names if name.isdigit()), default=sys.maxsize)


def first_post(shard: int, *, size: int) -> int:
    """Return the place of a shard's first post among the posts of its run."""
    return shard % ADDITION * size


@dataclass(frozen=True)
class Window:
    """A calendar month in UTC, from its start (included) to the start of the next month (excluded)."""

    start: datetime
    end: datetime

    @property
    def key(self) -> str:
        return f"{self.start:%Y-%m}"

    def __contains__(self, moment: datetime) -> bool:
        return self.start <= moment < self.end

    @classmethod
    def of(cls, interval: Interval) -> Self:
        return cls(*(datetime.fromtimestamp(second, tz=UTC) for second in interval))

    @classmethod
    def from_key(cls, key: str) -> Window:
        match = KEY.fullmatch(key)
        if not match:
            raise ConfigError("BadWindow", key=key)
        year, month = int(match[1]), int(match[2])
        start = datetime(year, month, 1, tzinfo=UTC)
        return cls(start, datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC))


Interval = tuple[int, int]
"""A start, which belongs to the interval, and an end, which does not, in seconds since the epoch."""
Gaps = Mapping[str, Sequence[Interval]]
"""Intervals of creation times by subreddit."""


def seconds_of(window: Window) -> Interval:
    return int(window.start.timestamp()), int(window.end.timestamp())


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
