"""Compute inter-annotator agreement, raw and corrected for chance.

Ratings are *codes*, integers of shape (items, raters): a class from 0, or :data:`MISSING`. Label sets are codes of
shape (items, raters, labels): 1 where the label was chosen, 0 where not, and :data:`MISSING` in every label if the
rater gave no answer. *Weights* of shape (resamples, items) say how often each item counts. Every statistic returns one
value per resample, so an estimate and its bootstrap are one computation (:func:`draws`). Without weights every item
counts once.

An undefined value is NaN in arrays and ``None`` in results, never 0 or 1: expected agreement is 1, all answers are the
same, or no item has two answers. Items with fewer than two answers are ignored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from itertools import combinations

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
MISSING = -1
# Landis and Koch (1977), table in section 3: the upper bound of each reading; below 0 is poor.
READINGS = ((0.20, "slight"), (0.40, "fair"), (0.60, "moderate"), (0.80, "substantial"), (1.0, "almost perfect"))


@dataclass(frozen=True)
class Estimate:
    """An agreement coefficient with its percentile interval; ``defined``: the share of resamples with a value."""

    value: float | None
    low: float | None
    high: float | None
    defined: float


def draws(items: int, *, resamples: int, rng: np.random.Generator) -> Floats:
    """Return how often each item counts, (1 + resamples, items): once in row 0, then as bootstrap resamples draw it."""
    # rng.multinomial fails on zero categories
    drawn = rng.multinomial(items, np.full(items, 1 / items), size=resamples) if items else np.ones((resamples, 0))
    return np.concatenate([np.ones((1, items)), drawn.astype(np.float64)])


def estimate(values: Floats, *, confidence: float) -> Estimate:
    """Return a coefficient with its percentile interval; ``values`` has it on all items, then on each resample."""
    resampled = values[1:][~np.isnan(values[1:])]
    share = len(resampled) / max(len(values) - 1, 1)
    if math.isnan(values[0]):
        return Estimate(None, None, None, share)
    if not len(resampled):
        return Estimate(float(values[0]), None, None, share)
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return Estimate(float(values[0]), float(low), float(high), share)


def printed(value: float, *, digits: int = 2) -> Decimal:
    """Return a number rounded to so many decimals, halves up, as FigSIM's tables print it."""
    # repr first: 0.405 is rounded as the decimal 0.405, not as its binary neighbour
    return Decimal(repr(round(value, 10))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


def landis_koch(value: float) -> str:
    """Return Landis and Koch's word for a kappa, such as ``substantial``, after rounding it to two decimals."""
    shown = float(printed(value))
    return "poor" if shown < 0 else next(word for end, word in READINGS if shown <= end)


def defined_mean(values: Floats) -> Floats:
    """Return the mean of the defined values over the last axis, or NaN if none is defined."""
    known = ~np.isnan(values)
    return ratio(np.where(known, values, 0.0).sum(axis=-1), known.sum(axis=-1).astype(np.float64))


def kappa(codes: Codes, *, classes: int, weights: Floats | None = None, quadratic: bool = False) -> Floats:
    """Return Cohen's kappa (1960); of more than two raters, the mean over their pairs, weighted by common items.

    If all raters answer all items, it is the plain mean (Light 1971). ``quadratic`` weighs a disagreement by the square
    of its distance (Cohen 1968); the classes must be in order.
    """
    weigh = _weights(weights, items=len(codes))
    place = np.arange(classes, dtype=np.float64)
    cost = (place[:, None] - place) ** 2 if quadratic else 1 - np.eye(classes)
    pairs = [_pair_kappa(codes[:, [a, b]], cost=cost, weigh=weigh) for a, b in combinations(range(codes.shape[1]), 2)]
    if not pairs:
        return np.full(len(weigh), np.nan)
    values, items = (np.stack(part, axis=-1) for part in zip(*pairs, strict=True))
    known = ~np.isnan(values)
    return ratio(np.where(known, values * items, 0.0).sum(axis=-1), (known * items).sum(axis=-1))


def _pair_kappa(codes: Codes, *, cost: Floats, weigh: Floats) -> tuple[Floats, Floats]:
    """Return the kappa of two raters and the number of their common items, both of shape (resamples,)."""
    classes = len(cost)
    both = (codes != MISSING).all(axis=1)
    cells = np.zeros((len(codes), classes * classes))
    cells[both, codes[both, 0] * classes + codes[both, 1]] = 1
    table = (weigh @ cells).reshape(-1, classes, classes)
    # counts are whole numbers, so "no disagreement expected" is exactly 0
    expected = np.einsum("ri,ij,rj->r", table.sum(axis=2), cost, table.sum(axis=1))
    items = table.sum(axis=(1, 2))
    return 1 - ratio(items * np.einsum("rij,ij->r", table, cost), expected), items


def by_label(sets: Codes, *, statistic: str, weights: Floats | None = None) -> Floats:
    """Return the ``statistic`` (``kappa`` or ``ac1``) of each label, chosen or not chosen, shape (resamples, labels).

    FigSIM's kappa of a multi-label category is the mean of these (3.3); CRADLE's Table 10 prints them and their mean.
    """
    function = {"kappa": kappa, "ac1": ac1}[statistic]
    columns = [function(sets[:, :, label], classes=2, weights=weights) for label in range(sets.shape[2])]
    return np.stack(columns, axis=-1)


def observed(codes: Codes, *, classes: int, weights: Floats | None = None) -> Floats:
    """Return the raters' observed agreement: the mean over items of the share of answer pairs that are equal."""
    counts, several = _counts(codes, classes=classes)
    return _mean(_alike(counts), several=several, weigh=_weights(weights, items=len(codes)))


def jaccard(sets: Codes, *, weights: Floats | None = None) -> Floats:
    """Return the raters' mean Jaccard index over items and pairs of their label sets; two empty sets have index 1."""
    answered = (sets != MISSING).all(axis=2)
    chosen = sets == 1
    shared, pairs = np.zeros(len(sets)), np.zeros(len(sets))
    for a, b in combinations(range(sets.shape[1]), 2):
        both = answered[:, a] & answered[:, b]
        inter = (chosen[:, a] & chosen[:, b]).sum(axis=1)
        union = (chosen[:, a] | chosen[:, b]).sum(axis=1)
        shared += np.where(both, np.where(union > 0, inter / np.maximum(union, 1), 1.0), 0.0)
        pairs += both
    return _mean(shared / np.maximum(pairs, 1), several=pairs > 0, weigh=_weights(weights, items=len(sets)))


def ac1(codes: Codes, *, classes: int, weights: Floats | None = None) -> Floats:
    """Return Gwet's AC1 (2008) of two or more raters.

    It is undefined here if only one class was ever chosen (ours; the formula gives 1): a label that was never used
    shows nothing about how well people agree on it.
    """
    weigh = _weights(weights, items=len(codes))
    counts, several = _counts(codes, classes=classes)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    usual = ratio(weigh @ (share * several[:, None]), (weigh @ several.astype(np.float64))[:, None])
    chance = (usual * (1 - usual)).sum(axis=1) / max(classes - 1, 1)
    alike = _mean(_alike(counts), several=several, weigh=weigh)
    used = (weigh @ (counts * several[:, None]) > 0).sum(axis=1)
    return np.where(used > 1, ratio(alike - chance, 1 - chance), np.nan)


def alpha(codes: Codes, *, distance: Floats, weights: Floats | None = None) -> Floats:
    """Return Krippendorff's alpha (2011) for any number of raters and a ``distance`` of shape (classes, classes).

    The distance is used unsquared: pass :func:`nominal` or :func:`masi`.
    """
    weigh = _weights(weights, items=len(codes))
    counts, several = _counts(codes, classes=len(distance))
    counts = counts * several[:, None]
    apart = ((counts @ distance) * counts).sum(axis=1) / np.maximum(counts.sum(axis=1) - 1, 1)
    total = weigh @ counts
    expected = ((total @ distance) * total).sum(axis=1)
    return 1 - ratio((total.sum(axis=1) - 1) * (weigh @ apart), expected)


def ordinal_alpha(codes: Codes, *, classes: int, weights: Floats | None = None) -> Floats:
    """Return Krippendorff's alpha for ordered classes; the distance of two classes counts the answers between them."""
    weigh = _weights(weights, items=len(codes))
    counts, several = _counts(codes, classes=classes)
    counts = counts * several[:, None]
    # an answer is not paired with itself
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(classes)
    pairs /= np.maximum(counts.sum(axis=1) - 1, 1)[:, None, None]
    met = (weigh @ pairs.reshape(len(codes), classes * classes)).reshape(-1, classes, classes)
    total = weigh @ counts
    middle = total.cumsum(axis=1) - total / 2
    distance = (middle[:, :, None] - middle[:, None, :]) ** 2
    expected = np.einsum("ri,rij,rj->r", total, distance, total)
    return 1 - ratio((total.sum(axis=1) - 1) * (met * distance).sum(axis=(1, 2)), expected)


def nominal(classes: int) -> Floats:
    """Return the nominal distance: 0 between equal classes, 1 between different ones."""
    return 1 - np.eye(classes)


def masi(sets: Codes) -> Floats:
    """Return the MASI distance (Passonneau 2006) of each pair of ``sets`` (sets, labels); two empty sets have 0.

    It is 1 - J * M: J is Jaccard's index; M is 1 for equal sets, 2/3 if one contains the other, 1/3 if they overlap.
    """
    size = sets.sum(axis=1)
    inter = sets @ sets.T
    union = size[:, None] + size - inter
    within = inter == np.minimum(size[:, None], size)
    factor = np.select([inter == union, within & (inter > 0), inter > 0], [1.0, 2 / 3, 1 / 3], 0.0)
    distance: Floats = 1 - np.where(union > 0, inter / np.maximum(union, 1), 1.0) * factor
    return distance


def distinct(sets: Codes) -> tuple[Codes, Codes]:
    """Return each answer's label set as an integer code, shape (items, raters), and the label sets by code."""
    flat = sets.reshape(-1, sets.shape[2])
    answered = (flat != MISSING).all(axis=1)
    codes = np.full(len(flat), MISSING, dtype=np.int64)
    known, codes[answered] = np.unique(flat[answered], axis=0, return_inverse=True)
    return codes.reshape(sets.shape[:2]), known


def _weights(weights: Floats | None, *, items: int) -> Floats:
    return np.ones((1, items)) if weights is None else weights


def _counts(codes: Codes, *, classes: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    counts = (codes[:, :, None] == np.arange(classes)).sum(axis=1).astype(np.float64)
    return counts, counts.sum(axis=1) > 1


def _alike(counts: Floats) -> Floats:
    answers = counts.sum(axis=1)
    share: Floats = (counts * (counts - 1)).sum(axis=1) / np.maximum(answers * (answers - 1), 1)
    return share


def _mean(values: Floats, *, several: npt.NDArray[np.bool_], weigh: Floats) -> Floats:
    return ratio(weigh @ (values * several), weigh @ several.astype(np.float64))


def ratio(part: Floats, whole: Floats) -> Floats:
    """Return ``part`` divided by ``whole``, element by element; NaN where ``whole`` is 0."""
    quotient: Floats = np.full(np.broadcast(part, whole).shape, np.nan)
    np.divide(part, whole, out=quotient, where=whole > 0)
    return quotient
