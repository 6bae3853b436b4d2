"""Group linked items into units, determine the split of units that are linked to assigned items, and size the splits.

Items are linked if they are near-duplicates or share an author. Unassigned items that are linked, directly or through
other unassigned items, form one unit. A unit linked to assigned items of one split joins that split. A unit without
links to assigned items is free. A unit linked to two splits is excluded, because it would leak in either. Splits
therefore neither leak nor change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipelines.curate.dedupe.hamming_search import components
from pipelines.curate.items import Ints, Links

# Larger than any split index.
NONE = np.int64(1 << 40)


@dataclass(frozen=True)
class Units:
    """For each item, its unit (named by its smallest item), the unit's fixed split or -1, and if it is excluded."""

    unit: Ints
    held: Ints
    excluded: NDArray[np.bool_]


def resolve(links: Links, *, assigned: Ints) -> Units:
    """Group linked items into units, which a split keeps together, and exclude units that would leak.

    ``assigned`` is an item's split index, which it keeps, or -1. A link through an assigned item does not count: other
    new items that are linked to that item stay.
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
    """Return the split of each author's assigned items, or -1 if there is none or (after manual edits) two."""
    authors = int(links.author.max()) + 1 if len(links.author) else 0
    low, high = np.full(authors, NONE), np.full(authors, -1, np.int64)
    has = assigned >= 0
    np.minimum.at(low, links.author[has], assigned[has])
    np.maximum.at(high, links.author[has], assigned[has])
    return np.where(low == high, high, -1)


def leakage(links: Links, *, split: Ints) -> int:
    """Count the near-duplicate pairs and the authors that are in more than one split; -1 means no split."""
    pairs, _ = separated_pairs(links, assigned=split)
    has = split >= 0
    standing = np.unique(np.column_stack([links.author[has], split[has]]), axis=0)
    return pairs + int((np.diff(standing[:, 0]) == 0).sum())


def separated_pairs(links: Links, *, assigned: Ints) -> tuple[int, Ints]:
    """Return the number of near-duplicate pairs in two splits, and of each pair the item in the later split, once."""
    a, b = assigned[links.left], assigned[links.right]
    apart = (a >= 0) & (b >= 0) & (a != b)
    return int(apart.sum()), np.unique(np.where(a > b, links.left, links.right)[apart])


def target_sizes(items: int, *, ratios: Mapping[str, float], floor: Sequence[int] | None = None) -> list[int]:
    """Return the sizes of the splits of ``items`` items by the largest-remainder method, in the order of ``ratios``.

    Of equal remainders, the first is rounded up. A split that already has (``floor``) more than its share keeps it.
    FigSIM prints 633/208/208 of 1,049, which no rounding of 60:20:20 gives (629/210/210): pass those three as the
    weights.
    """
    weights = [Fraction(str(r)) for r in ratios.values()]
    floor = floor or [0] * len(weights)
    sizes: list[int | None] = [None] * len(weights)
    while True:
        rest = items - sum(s for s in sizes if s is not None)
        open_ = [i for i, s in enumerate(sizes) if s is None]
        exact = {i: rest * weights[i] / sum(weights[j] for j in open_) for i in open_}
        whole = {i: int(exact[i]) for i in open_}
        by_remainder = sorted(open_, key=lambda i: (whole[i] - exact[i], i))
        for i in by_remainder[: rest - sum(whole.values())]:
            whole[i] += 1
        over = [i for i in open_ if whole[i] < floor[i]]
        if not over:
            return [whole[i] if s is None else s for i, s in enumerate(sizes)]
        for i in over:
            sizes[i] = floor[i]
