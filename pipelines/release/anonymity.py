"""Generalise released metadata so that at least k authors share every combination (k-anonymity, Sweeney 2002).

Authors are counted, not rows: five posts of one person protect no one. Each row is generalised only as far as needed
(local recoding): its month becomes a quarter, then a year, then its subreddit becomes ``other``, then the year is
dropped. Rows whose class is still too small are left out and counted. Labels are released unchanged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ANY = "any"
OTHER = "other"


@dataclass(frozen=True)
class Person:
    """The author (a pseudonym) and the complete metadata of one row of a release, before generalisation.

    Unknown metadata (such as an imported post's month) has the coarsest value from the start.
    """

    author: str
    month: str | None
    subreddit: str | None


@dataclass(frozen=True)
class Coarse:
    """The generalised metadata of all rows of a release, in the order of the input.

    Args:
        values: for each row, column -> value, or ``None`` if the row must be left out.
        levels: number of rows by level of generalisation (``month+subreddit`` .. ``any+other``).
        suppressed: number of rows left out.
        smallest: the number of authors of the smallest class (rows of equal values) that is released; 0 without any.
    """

    values: tuple[Mapping[str, str] | None, ...]
    levels: Mapping[str, int]
    suppressed: int
    smallest: int


def _quarter(month: str) -> str:
    return f"{month[:4]}-Q{(int(month[5:7]) + 2) // 3}"


MONTHS: dict[str, Callable[[str], str]] = {
    "month": lambda month: month,
    "quarter": _quarter,
    "year": lambda month: month[:4],
    ANY: lambda _: ANY,
}
SUBREDDITS: dict[str, Callable[[str], str]] = {"subreddit": lambda name: name.lower(), OTHER: lambda _: OTHER}
# From fine to coarse. Rows of a later level may join a class of an earlier one with equal values.
PATH = (
    ("month", "subreddit"),
    ("quarter", "subreddit"),
    ("year", "subreddit"),
    ("year", OTHER),
    (ANY, OTHER),
)


def coarsen(rows: Sequence[Person], *, columns: Sequence[str], k: int) -> Coarse:
    """Generalise metadata until at least ``k`` authors share each combination of values.

    Args:
        rows: the rows of a release in any order, on which the generalisation does not depend.
        columns: which of ``month`` and ``subreddit`` are released; with none, nothing is generalised.
        k: the least number of authors of a class, at least 1.
    """
    values: list[Mapping[str, str] | None] = [None if columns else {} for _ in rows]
    levels: dict[str, int] = {}
    released = set[tuple[tuple[str, str], ...]]()
    smallest, left = 0, list(range(len(rows))) if columns else []
    for month, subreddit in PATH:
        step = {"month": month, "subreddit": subreddit}
        classes: dict[tuple[tuple[str, str], ...], list[int]] = defaultdict(list)
        for i in left:
            row = rows[i]
            found = {
                "month": MONTHS[month](row.month) if row.month else ANY,
                "subreddit": SUBREDDITS[subreddit](row.subreddit) if row.subreddit else OTHER,
            }
            classes[tuple((c, found[c]) for c in columns)].append(i)
        left = []
        for combination, members in classes.items():
            authors = len({rows[i].author for i in members})
            if authors < k and combination not in released:
                left += members
                continue
            if combination not in released:
                smallest = min(smallest or authors, authors)
                released.add(combination)
            level = "+".join(value if value in (ANY, OTHER) else step[column] for column, value in combination)
            levels[level] = levels.get(level, 0) + len(members)
            for i in members:
                values[i] = dict(combination)
    return Coarse(tuple(values), levels, suppressed=len(left), smallest=smallest)
