"""Find what must stay together, and what an earlier split has decided for it, so that splits neither leak nor move.

Items are linked when they are near-duplicates or share an author. Items without a split that are linked, directly or
through one another, are one unit. A unit linked to items of one split joins it; one linked to none is free; one linked
to two would make a leak wherever it went and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.curate.grouping.near_duplicates import components

Ints = NDArray[np.int64]
# Larger than any split index.
NONE = np.int64(1 << 40)


@dataclass(frozen=True)
class Links:
    """Who is linked: near-duplicate pairs by position, and the author of each item as a number."""

    left: Ints
    right: Ints
    author: Ints

    def edges(self) -> tuple[Ints, Ints]:
        """Return all links as edges of one graph, the authors being nodes behind the items."""
        n = len(self.author)
        return np.concatenate([self.left, np.arange(n)]), np.concatenate([self.right, n + self.author])


@dataclass(frozen=True)
class Units:
    """The unit of each item (its smallest member), and its split: an index, or -1 where it is free."""

    unit: Ints
    held: Ints
    excluded: NDArray[np.bool_]


def resolve(links: Links, *, assigned: Ints) -> Units:
    """Group items into units around those that have a split already (``assigned``: its index, or -1).

    Assigned items never move and pass nothing on: a newcomer between two of them is left out alone, and does not
    spoil what is linked to only one of them.
    """
    n = len(assigned)
    left, right = links.edges()
    held = np.concatenate([assigned, _authors_split(links, assigned)])
    loose = (held[left] < 0) & (held[right] < 0)
    part = components(len(held), left[loose], right[loose])

    one, other = np.concatenate([left, right]), np.concatenate([right, left])
    touching = (held[one] < 0) & (held[other] >= 0)
    low, high = np.full(len(held), NONE), np.full(len(held), -1, np.int64)
    np.minimum.at(low, part[one[touching]], held[other[touching]])
    np.maximum.at(high, part[one[touching]], held[other[touching]])
    contested = (high >= 0) & (low != high)

    excluded = (held < 0) & contested[part]
    held = np.where(held < 0, high[part], held)
    held[excluded] = -1
    inside = ~excluded[left] & ~excluded[right] & (held[left] == held[right])
    unit = components(len(held), left[inside], right[inside])
    return Units(unit[:n], held[:n], excluded[:n])


def _authors_split(links: Links, assigned: Ints) -> Ints:
    """Return the split that an author's items are in, or -1 where they have none or (by hand) two."""
    authors = int(links.author.max()) + 1 if len(links.author) else 0
    low, high = np.full(authors, NONE), np.full(authors, -1, np.int64)
    has = assigned >= 0
    np.minimum.at(low, links.author[has], assigned[has])
    np.maximum.at(high, links.author[has], assigned[has])
    return np.where(low == high, high, -1)


def leakage(links: Links, *, split: Ints) -> int:
    """Count near-duplicate pairs and authors that stand in two splits; items with -1 are in none."""
    a, b = split[links.left], split[links.right]
    pairs = int(((a >= 0) & (b >= 0) & (a != b)).sum())
    has = split >= 0
    standing = np.unique(np.column_stack([links.author[has], split[has]]), axis=0)
    return pairs + int((np.diff(standing[:, 0]) == 0).sum())
