"""Decode probabilities per label to the most probable label set that the scheme's hard rules allow.

Thresholds per label can produce sets that no annotator could have written (`no_crisis` beside a crisis, both times of
one type); a choice among the valid sets cannot (SPEC 2.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pipelines.taxonomy import Category

Scores = npt.NDArray[np.float64]

# Ours: a label scored 0 (abstained from) costs log 1e-9, so a set contains it only if every valid set does.
FLOOR = 1e-9
DECIMALS = 9  # of a worth: smaller differences are rounding noise and must not decide between sets


def worth_of_sets(probabilities: Scores, *, category: Category, most: int = 4) -> tuple[list[frozenset[str]], Scores]:
    """Return the valid label sets, sorted by size and alphabetically, and their worth (a log-score) in every row.

    A set's worth is the sum of log p over its labels and log(1 - p) over the others (all of ``category.names``), less
    the part common to all sets: that is the sum of the log-odds of its own labels.

    Args:
        probabilities: shape (records, labels), in [0, 1], columns in the order of ``category.names``.
        category: the category, with the hard rules that say which sets are valid.
        most: labels in the largest set tried (CRADLE T2: no post carries more than four).

    Returns:
        The sets, and their worth, shape (records, sets).

    Raises:
        ValueError: the shape does not match, or a value is not a probability.
    """
    names = category.names
    scores = np.asarray(probabilities, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] != len(names):
        raise ValueError(f"expected probabilities of shape (records, {len(names)}), found {scores.shape}")
    if not np.all((scores >= 0) & (scores <= 1)):
        raise ValueError("a score is not between 0 and 1")
    sets = sorted(category.valid_sets(most=most), key=lambda labels: (len(labels), sorted(labels)))
    member = np.array([[name in labels for labels in sets] for name in names], dtype=np.float64)
    p = np.clip(scores, FLOOR, 1 - FLOOR)
    return sets, np.round(np.log(p / (1 - p)) @ member, DECIMALS)


def decode(probabilities: Scores, *, category: Category, most: int = 4) -> list[frozenset[str]]:
    """Return the most probable valid label set of every row, as :func:`worth_of_sets` scores them.

    Ties go to the smaller set, then alphabetically, never by row order.
    """
    sets, worth = worth_of_sets(probabilities, category=category, most=most)
    return [sets[best] for best in worth.argmax(axis=1)]
