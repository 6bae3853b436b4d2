"""Group linked items into units, determine the split of units that are linked to assigned items, and size the splits.

Items are linked if they are near-duplicates or share an author. Unassigned items that are linked, directly or through
other unassigned items, form one unit. A unit linked to assigned items of one split joins that split. A unit without
links to assigned items is free. A unit linked to two splits is excluded, because it would leak in either. Splits of
ours therefore neither leak nor change. A published split is taken as its authors made it: its items may leak.
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
    held, excluded = held[:n], excluded[:n]
    inside = ~excluded[links.left] & ~excluded[links.right] & (held[links.left] == held[links.right])
    # an author whose published items are in two splits is a node in each of them
    key = links.author * (held.max(initial=0) + 2) + held + 1
    author, rows = np.unique(key, return_inverse=True)[1], np.flatnonzero(~excluded)
    left, right = np.concatenate([links.left[inside], rows]), np.concatenate([links.right[inside], n + author[rows]])
    return Units(components(2 * n, left, right)[:n], held, excluded)


def _authors_split(links: Links, assigned: Ints) -> Ints:
    """Return the split of each author's assigned items, or -1 if there is none or (in a published split) two."""
    authors = int(links.author.max()) + 1 if len(links.author) else 0
    low, high = np.full(authors, NONE), np.full(authors, -1, np.int64)
    has = assigned >= 0
    np.minimum.at(low, links.author[has], assigned[has])
    np.maximum.at(high, links.author[has], assigned[has])
    return np.where(low == high, high, -1)


def straddling(links: Links, *, split: Ints) -> tuple[NDArray[np.bool_], Ints]:
    """Return which near-duplicate pairs, and which authors, are in more than one split; -1 means no split."""
    one, other, has = split[links.left], split[links.right], split >= 0
    standing = np.unique(np.column_stack([links.author[has], split[has]]), axis=0)[:, 0]
    return (one >= 0) & (other >= 0) & (one != other), np.unique(standing[1:][np.diff(standing) == 0])


def leakage(links: Links, *, split: Ints, imported: NDArray[np.bool_]) -> int:
    """Count the near-duplicate pairs and the authors in more than one split that have an item of ours."""
    pairs, authors = straddling(links, split=split)
    ours = ~(imported[links.left] & imported[links.right])
    return int((pairs & ours).sum()) + len(np.intersect1d(authors, links.author[(split >= 0) & ~imported]))


def separated_items(links: Links, *, assigned: Ints, imported: NDArray[np.bool_]) -> tuple[int, Ints]:
    """Return the number of near-duplicate pairs in two splits with an item of ours, and our items to withhold.

    These are ours of each pair, or the one in the later split if both are, and ours by authors who have imported items
    too and are in two splits.
    """
    pairs, authors = straddling(links, split=assigned)
    pairs &= ~(imported[links.left] & imported[links.right])
    left, right = links.left[pairs], links.right[pairs]
    ours = np.where(~imported[left] & (imported[right] | (assigned[left] > assigned[right])), left, right)
    shared = np.intersect1d(authors, links.author[imported & (assigned >= 0)])
    by_author = np.flatnonzero((assigned >= 0) & ~imported & np.isin(links.author, shared))
    return int(pairs.sum()), np.union1d(ours, by_author)


def leaking(links: Links, *, split: Ints, unit: Ints) -> NDArray[np.bool_]:
    """Return which items have an item in their unit that is linked to one of an earlier split."""
    pairs, _ = straddling(links, split=split)
    left, right = links.left[pairs], links.right[pairs]
    has = split >= 0
    earliest = np.full(links.author.max(initial=0) + 1, NONE)
    np.minimum.at(earliest, links.author[has], split[has])
    linked = has & (split > earliest[links.author])
    linked[np.where(split[left] > split[right], left, right)] = True
    return has & np.isin(unit, unit[linked])


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
