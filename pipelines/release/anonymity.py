"""Metadata made so coarse that at least k authors share every combination of it (k-anonymity, Sweeney 2002).

Authors are counted, not rows: five posts of one person hide nobody. Each row is made coarser only as far as it needs
(local recoding): first its month becomes a quarter and a year, then its subreddit ``other``, then the year goes as
well. Who is alone even then is left out and counted. Labels are what is released, not what is hidden: they stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ANY = "any"
OTHER = "other"


@dataclass(frozen=True)
class Person:
    """One row before it is made coarser: whose it is (a pseudonym, for counting) and its metadata in full.

    What is not known of it (an imported post's month) is as coarse as can be from the start.
    """

    author: str
    month: str | None
    subreddit: str | None


@dataclass(frozen=True)
class Coarse:
    """What may be released of each row, in the order given.

    Args:
        values: column -> value; ``None``: the row must stay out.
        levels: rows by how coarse they are (``month+subreddit`` .. ``any+other``).
        suppressed: rows that stay out.
        smallest: the number of authors of the smallest class that is released; 0 where none is.
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
# From fine to coarse. Where values of two levels look alike, their classes are one on paper, and so the larger.
PATH = (
    ("month", "subreddit"),
    ("quarter", "subreddit"),
    ("year", "subreddit"),
    ("year", OTHER),
    (ANY, OTHER),
)


def coarsen(rows: Sequence[Person], *, columns: Sequence[str], k: int) -> Coarse:
    """Make every row so coarse that its class has at least ``k`` authors.

    Args:
        rows: any order; the result does not depend on it.
        columns: which of ``month`` and ``subreddit`` are released; with none, nothing has to be made coarser.
        k: at least 1.
    """
    values: list[Mapping[str, str] | None] = [None if columns else {} for _ in rows]
    levels: dict[str, int] = {}
    smallest, left = 0, list(range(len(rows))) if columns else []
    for month, subreddit in PATH:
        level = "+".join(x for x, c in ((month, "month"), (subreddit, "subreddit")) if c in columns)
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
            if authors < k:
                left += members
                continue
            smallest = min(smallest or authors, authors)
            levels[level] = levels.get(level, 0) + len(members)
            for i in members:
                values[i] = dict(combination)
    return Coarse(tuple(values), levels, suppressed=len(left), smallest=smallest)
