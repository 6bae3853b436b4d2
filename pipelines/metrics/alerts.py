"""Choose alert thresholds that guarantee a recall with a confidence, and test a guarantee on new items.

A model gives *labels*, the most probable set, which no recall floor forces, and beside them an *alert* for each label
that must not be missed. An alert is raised from a threshold on: the k-th lowest score of the n positives of dev, for
the largest k whose guarantee reaches the floor. On new items drawn as dev's were, the recall of that threshold follows
Beta(n - k + 1, k), or lies above it if scores are tied. Its 5 % quantile is thus reached with 95 % confidence; it is
also the Clopper-Pearson lower bound of n - k + 1 positives found of n. A threshold that bounds the expected recall
(conformal risk control) misses the floor in up to half of all dev sets.

Floor .9 needs 29 positives. With fewer, the threshold is the lowest score of a positive, a best effort without
guarantee: ``guaranteed_recall`` is then what the positives do support, below the floor. Without positives there is no
threshold, and no item raises the alert.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.floating]
Verdict = Literal["below", "not_below", "too_few"]

# A verdict on test as cards and reports print it; without a guaranteed recall there is none.
VERDICTS: Mapping[str | None, str] = {
    "below": "below the guarantee",
    "not_below": "not below the guarantee",
    "too_few": "too few positives to decide",
    None: "–",
}
CONFIDENCE = 0.95  # of a one-sided bound; the report's intervals have the same (SPEC 2.5)
DECIMALS = 9  # of a number of positives: smaller differences are rounding noise


@dataclass(frozen=True)
class Alert:
    """The alert of one label: its threshold, fitted on dev, with the recall that it guarantees and its measures on dev.

    Of ``positives`` of one group (near-duplicates, one author) one counts. Without positives there is no threshold and
    no recall. On new items the recall is at least ``guaranteed_recall``, with that confidence.
    """

    floor: float
    confidence: float
    positives: int
    threshold: float | None
    guaranteed_recall: float | None
    guarantee: bool
    recall: float | None
    alert_rate: float


def alert(scores: Scores, *, truth: npt.NDArray[np.bool_], floor: float, groups: Sequence[str] | None = None) -> Alert:
    """Fit the alert threshold of one label on dev.

    Scores, shape (items,), are compared as float32, as tables store them. Positives of one group are not independent:
    only their lowest score counts, and the guarantee is of groups of which every positive is found. By default each
    item is a group.
    """
    values = np.asarray(scores, np.float32)
    if not np.isfinite(values).all():
        raise ValueError("a score is not a finite number")
    own = values[truth]
    if groups is not None and len(own):
        place = np.unique(np.asarray(groups)[truth], return_inverse=True)[1]
        lowest = np.full(place.max() + 1, np.inf, np.float32)
        np.minimum.at(lowest, place, own)
    else:
        lowest = own
    n = len(lowest)
    if not n:
        return Alert(floor, CONFIDENCE, 0, None, None, False, None, 0.0)
    limit = threshold(lowest, floor=floor)
    bound = lower(n - misses(n, floor=floor), n)
    raised = values >= limit
    return Alert(
        floor, CONFIDENCE, n, float(limit), bound, bound >= floor, float(raised[truth].mean()), float(raised.mean())
    )


def threshold(positives: Scores, *, floor: float) -> Scores:
    """Return the alert threshold that keeps a recall, from the scores of one or more positives (last axis) of dev."""
    k = misses(positives.shape[-1], floor=floor)
    return np.asarray(np.partition(positives, k, axis=-1)[..., k])


@cache
def misses(positives: int, *, floor: float) -> int:
    """Return how many of dev's positives may lie below an alert's threshold; 0 also if none guarantees the floor."""
    allowed = 0
    while allowed + 1 < positives and lower(positives - allowed - 1, positives) >= floor:
        allowed += 1
    return allowed


def needed(recall: float) -> float:
    """Return the least number of positives on dev that can guarantee a recall; infinite for a recall of 1."""
    if recall >= 1:
        return math.inf
    return max(1, math.ceil(round(math.log(1 - CONFIDENCE) / math.log(recall), DECIMALS))) if recall > 0 else 0


def lower(hits: int, total: int) -> float:
    """Return the one-sided lower bound of Clopper and Pearson (1934) for the rate ``hits`` / ``total``."""
    from scipy.stats import beta

    return float(beta.ppf(1 - CONFIDENCE, hits, total - hits + 1)) if hits else 0.0


def upper(hits: int, total: int) -> float:
    """Return the one-sided upper bound of Clopper and Pearson (1934) for the rate ``hits`` / ``total``."""
    return 1 - lower(total - hits, total)


def judged(hits: int, total: int, *, guaranteed: float) -> Verdict:
    """Test an alert's guaranteed recall on new items, of which ``hits`` of ``total`` positives raised the alert.

    It is ``below`` if the upper bound of the recall is: a valid guarantee is refuted with probability ``1 -
    CONFIDENCE`` at most. It is ``too_few`` if even no miss among so few positives could confirm it, so that a person
    has to decide.
    """
    if upper(hits, total) < guaranteed:
        return "below"
    return "too_few" if total < needed(guaranteed) else "not_below"
