"""Assign groups of gold posts to folds, so that no model labels a post whose author or copy it was fitted on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def deal(groups: Sequence[str], *, targets: npt.NDArray[np.bool_], most: int, seed: int) -> npt.NDArray[np.intp]:
    """Return the cross-validation fold of every row, shape (rows,); all rows of a group are in one fold.

    Groups with the rarest labels are assigned first, each to the fold with the fewest of that label, so that the other
    folds still have every label. The order of groups of equal rarity depends on ``seed`` and their names, never on the
    order of rows.

    Args:
        groups: author or near-duplicate group of each row.
        targets: which labels each row has, shape (rows, labels).
        most: number of folds, or fewer if there are fewer groups.
        seed: the seed of the random order.
    """
    rows: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        rows.setdefault(group, []).append(row)
    support = targets.sum(axis=0)

    def rarest(group: str) -> int:
        carried = np.flatnonzero(targets[rows[group]].any(axis=0))
        return int(min(carried, key=lambda label: (support[label], label))) if len(carried) else -1

    def turn(group: str) -> tuple[int, int, bytes]:
        label = rarest(group)
        rarity = int(support[label]) if label >= 0 else len(groups) + 1
        return rarity, -len(rows[group]), hashlib.sha256(f"{seed}/{group}".encode()).digest()

    count = max(1, min(most, len(rows)))
    carried = np.zeros((count, targets.shape[1]))
    sizes = np.zeros(count)
    fold = np.zeros(len(groups), dtype=np.intp)
    for group in sorted(rows, key=turn):
        label = rarest(group)
        chosen = min(range(count), key=lambda k: (carried[k, label] if label >= 0 else 0, sizes[k], k))
        fold[rows[group]] = chosen
        carried[chosen] += targets[rows[group]].sum(axis=0)
        sizes[chosen] += len(rows[group])
    return fold
