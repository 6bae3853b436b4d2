"""Test whether features differ between groups of items: Kruskal-Wallis, Dunn's test, Bonferroni, effect sizes.

The tests need independent observations, and items of one author or one near-duplicate group are none. Each test
therefore uses one item of each such unit, drawn with a fixed seed (one draw for all tests).

Bonferroni's family are all tests of a corpus: with m tests (features x factors) and P pairs of levels, Kruskal-Wallis'
p-values are multiplied by m and those of a pair by m P. Pairs are only tested after a significant Kruskal-Wallis test.
Then the probability of any false finding among all tests and pairs is at most alpha, whichever differences exist: the
tests whose levels do not differ share alpha m0/m, and the equal pairs of the others at most alpha/m per test.

Dunn's test takes its variance from the ranks of all levels, which is too small for two equal levels if the others lie
between their values. A pair is therefore significant only if the Wilcoxon-Mann-Whitney test of these two levels, which
no other level can influence, is so as well.

Where most units have the same value of a feature, H is not distributed as chi-square, so a p-value at most alpha is
replaced by that of a permutation test if this is larger (:func:`permuted_p`).

Sources: Kruskal and Wallis (1952); Dunn (1964), with its correction for ties; eta squared of H (Tomczak and Tomczak
2014), whose interval inverts the noncentral chi-square distribution of H; Cliff's delta (1993), with DeLong's variance
(1988) and an interval on Fisher's z scale. Benjamini and Hochberg's q (1995) is for exploration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Floats = NDArray[np.float64]
Json = dict[str, Any]
# Ours: of Poisson variables, those with a mean of 30 leave the normal approximation's bounds for p = .0008 with
# probability .0010, with 20 .0016, with 5 .0020, with 1 .0037.
FEW = 30
# Ours: so many permutations of those that were drawn may reach the observed statistic, for the smallest bound of p
HITS = 4
BLOCK = 2**21  # values that are permuted at once


def is_sparse(samples: Sequence[Floats]) -> bool:
    """Return whether most values are the same, and fewer than :data:`FEW` others are expected in the smallest level."""
    whole = np.concatenate(samples)
    others = 1 - np.unique(whole, return_counts=True)[1].max() / len(whole)
    return bool(others < 0.5 and min(map(len, samples)) * others < FEW)


def permuted_p(samples: Sequence[Floats], *, bound: float, seed: int) -> float:
    """Return the p-value of H under permutations of the levels: of enough to tell whether it is at most ``bound``.

    The chi-square distribution of H is far too small in the tail if few items of a level are expected to have another
    value than the most frequent one: if two of the three such items among 600 are in a level of 6, H is 131 and its
    p-value 3e-30, while chance does this once in 4,000 times. A permutation test is valid for any feature (Fisher
    1935), and its p-value counts the observed assignment among the drawn ones (Phipson and Smyth 2010).
    """
    ranks = stats.rankdata(np.concatenate(samples))
    ranks -= ranks.mean()
    sizes = np.array([len(sample) for sample in samples])
    starts = np.cumsum(sizes) - sizes

    def spread(rows: Floats) -> Floats:
        """Return what H depends on: the squared sum of the centred ranks of each level, by its size."""
        squares: Floats = (np.add.reduceat(rows, starts, axis=1) ** 2 / sizes).sum(axis=1)
        return squares

    least = spread(ranks[None])[0] * (1 - 1e-9)
    rng = np.random.default_rng(seed)
    many, hits = math.ceil(HITS / bound), 0
    for start in range(0, many, block := max(1, BLOCK // len(ranks))):
        rows = np.tile(ranks, (min(block, many - start), 1))
        hits += int((spread(rng.permuted(rows, axis=1, out=rows)) >= least).sum())
    return (1 + hits) / (1 + many)


@dataclass(frozen=True)
class Plan:
    """The settings of all tests of a corpus.

    ``alpha`` is the greatest probability of any false finding, ``confidence`` that of intervals. A level with fewer
    than ``least`` units is not tested. ``seed`` is of the draw of one item of each unit.
    """

    alpha: float
    confidence: float
    least: int
    seed: int


@dataclass(frozen=True)
class Factor:
    """What items are compared by: the ``levels`` in their order, and the level of each item, ``None`` without one."""

    levels: tuple[str, ...]
    of: Sequence[str | None]


def compare(features: Mapping[str, Floats], *, factors: Mapping[str, Factor], units: Sequence[str], plan: Plan) -> Json:
    """Return the tests of every feature (values of each item, NaN where it has none) by every factor.

    ``family`` is the number of tests, m. Of a test, ``levels`` has the figures of those with enough units,
    ``p_adjusted`` and ``q`` are of the largest of its p-values (``p_permuted`` is there if it was needed), and
    ``pairs`` follow a significant one.
    """
    order = np.random.default_rng(plan.seed).permutation(len(units))
    unit = np.unique(np.array(units, str), return_inverse=True)[1]
    results: dict[str, dict[str, Json]] = {}
    tested: list[tuple[Json, dict[str, Floats]]] = []
    for factor, compared in factors.items():
        level = np.array([compared.levels.index(name) if name is not None else -1 for name in compared.of], np.int64)
        results[factor] = {}
        for feature, values in features.items():
            rows = order[(level[order] >= 0) & np.isfinite(values[order])]
            rows = rows[np.unique(unit[rows], return_index=True)[1]]
            samples = {name: values[rows[level[rows] == i]] for i, name in enumerate(compared.levels)}
            cell, kept = _described(samples, least=plan.least, confidence=plan.confidence)
            results[factor][feature] = cell
            whole = np.concatenate([*kept.values(), np.zeros(0)])
            if len(kept) > 1 and np.ptp(whole) > 0:
                cell |= _omnibus(list(kept.values()), confidence=plan.confidence)
                tested.append((cell, kept))
    family = len(tested)
    if tested:
        largest = [_confirmed(cell, list(kept.values()), tests=family, plan=plan) for cell, kept in tested]
        for (cell, _), p, q in zip(tested, largest, stats.false_discovery_control(largest), strict=True):
            cell["p_adjusted"] = min(1.0, p * family)
            cell["q"] = float(q)
            cell["significant"] = cell["p_adjusted"] <= plan.alpha
    for cell, kept in tested:
        if cell["significant"]:
            cell["pairs"] = pairs(kept, tests=family, plan=plan)
    return {"family": family, "factors": results}


def by_feature(features: Mapping[str, Floats], *, factors: Mapping[str, Factor], plan: Plan) -> Json:
    """Return the tests of FigSIM 4.3 as we read it, by factor and feature: each feature is a family of its own.

    All items are compared, copies and those of one author too. Kruskal-Wallis' p is not adjusted, and Dunn's is by
    the feature's pairs of levels; with many features, some of these differences are there by chance alone.
    """
    results: dict[str, dict[str, Json]] = {factor: {} for factor in factors}
    for factor, compared in factors.items():
        level = np.array([compared.levels.index(name) if name is not None else -1 for name in compared.of], np.int64)
        for feature, values in features.items():
            rows = {name: values[(level == i) & np.isfinite(values)] for i, name in enumerate(compared.levels)}
            kept = {name: sample for name, sample in rows.items() if len(sample) >= plan.least}
            if len(kept) < 2 or np.ptp(np.concatenate([*kept.values()])) == 0:
                continue
            h, p = stats.kruskal(*kept.values())
            pairs: list[Json] = [
                {"a": a, "b": b, "z": z, "p_adjusted": min(1.0, q * len(kept) * (len(kept) - 1) / 2)}
                for (a, b), (z, q) in dunn(kept).items()
            ]
            for pair in pairs:
                pair["significant"] = pair["p_adjusted"] <= plan.alpha
            told = {"n": sum(map(len, kept.values())), "h": float(h), "p": float(p), "pairs": pairs}
            results[factor][feature] = told | {"significant": bool(p <= plan.alpha)}
    return results


def _confirmed(cell: Json, samples: Sequence[Floats], *, tests: float, plan: Plan) -> float:
    """Return the largest p-value of a test of so many; ``p_permuted`` is added where the others may be too small."""
    p = max(cell["p"], cell.get("p_wilcoxon", 0.0))
    if p > plan.alpha or not is_sparse(samples):
        return float(p)
    cell["p_permuted"] = permuted_p(samples, bound=plan.alpha / tests, seed=plan.seed)
    return float(max(p, cell["p_permuted"]))


def _described(samples: Mapping[str, Floats], *, least: int, confidence: float) -> tuple[Json, dict[str, Floats]]:
    """Return the figures of the levels with enough units, and these levels' values."""
    kept = {name: sample for name, sample in samples.items() if len(sample) >= least}
    levels = {name: _level(sample, confidence=confidence) for name, sample in kept.items()}
    left_out = [name for name in samples if name not in kept]
    return {"n": sum(map(len, kept.values())), "levels": levels, "left_out": left_out}, kept


def _level(sample: Floats, *, confidence: float) -> Json:
    """Return the figures of one level; the interval of the mean is Student's."""
    mean, sd = float(sample.mean()), float(sample.std(ddof=1))
    width = float(stats.t.ppf((1 + confidence) / 2, len(sample) - 1)) * sd / float(np.sqrt(len(sample)))
    figures = {"mean": mean, "low": mean - width, "high": mean + width, "sd": sd, "median": float(np.median(sample))}
    return {"n": len(sample), **figures}


def _omnibus(samples: Sequence[Floats], *, confidence: float) -> Json:
    """Return the Kruskal-Wallis test with its effect size."""
    h, p = stats.kruskal(*samples)
    return {
        "h": float(h),
        "df": len(samples) - 1,
        "p": float(p),
        "eta_squared": eta_squared(float(h), k=len(samples), n=sum(map(len, samples)), confidence=confidence),
    }


def eta_squared(h: float, *, k: int, n: int, confidence: float) -> Json:
    """Return eta squared of H, (H - k + 1) / (n - k), and its interval; each at least 0 and at most 1."""
    tail = (1 - confidence) / 2
    # the noncentrality under which H is at its upper or lower tail; 0 if it is there without a difference
    bounds = [float(special.chndtrinc(h, k - 1, 1 - tail)), float(special.chndtrinc(h, k - 1, tail))]
    central = float(stats.chi2.cdf(h, k - 1))
    low, high = (
        0.0 if central < share or not np.isfinite(bound) else bound
        for bound, share in zip(bounds, (1 - tail, tail), strict=True)
    )
    interval = dict(zip(("value", "low", "high"), (h - k + 1, low, high), strict=True))
    # one unit in each level leaves no variance within them
    return {name: min(1.0, max(0.0, x / (n - k))) if n > k else None for name, x in interval.items()}


def pairs(samples: Mapping[str, Floats], *, tests: int, plan: Plan) -> list[Json]:
    """Return Dunn's test of every pair of levels, adjusted for all pairs of all ``tests``."""
    many = tests * len(samples) * (len(samples) - 1) / 2
    results = []
    for (a, b), (z, p) in dunn(samples).items():
        both = [samples[a], samples[b]]
        wilcoxon = float(stats.kruskal(*both).pvalue) if np.ptp(np.concatenate(both)) > 0 else 1.0
        pair: Json = {"a": a, "b": b, "z": z, "p": p, "p_wilcoxon": wilcoxon}
        adjusted = min(1.0, many * max(p, wilcoxon))
        if adjusted <= plan.alpha:
            adjusted = min(1.0, many * _confirmed(pair, both, tests=many, plan=plan))
        delta = cliffs_delta(*both, confidence=plan.confidence)
        results.append(pair | {"p_adjusted": adjusted, "delta": delta, "significant": adjusted <= plan.alpha})
    return results


def dunn(samples: Mapping[str, Floats]) -> dict[tuple[str, str], tuple[float, float]]:
    """Return z and the two-sided p-value, not adjusted, of every pair of levels (Dunn 1964)."""
    whole = np.concatenate(list(samples.values()))
    n = len(whole)
    ranks = stats.rankdata(whole)
    _, tied = np.unique(whole, return_counts=True)
    variance = n * (n + 1) / 12 - float((tied.astype(float) ** 3 - tied).sum()) / (12 * (n - 1))
    ends = np.cumsum([len(sample) for sample in samples.values()])
    mean = dict(zip(samples, (part.mean() for part in np.split(ranks, ends[:-1])), strict=True))
    results = {}
    for a, b in combinations(samples, 2):
        z = (mean[a] - mean[b]) / np.sqrt(variance * (1 / len(samples[a]) + 1 / len(samples[b])))
        results[a, b] = float(z), float(2 * stats.norm.sf(abs(z)))
    return results


def cliffs_delta(a: Floats, b: Floats, *, confidence: float) -> Json:
    """Return Cliff's delta, P(a > b) - P(a < b), and its interval, which is undefined if the delta is 1 or -1."""
    n, m = len(a), len(b)
    ranks = stats.rankdata(np.concatenate([a, b]))
    # placements: the share of the other sample below a value, ties counted half
    below_a, below_b = (ranks[:n] - stats.rankdata(a)) / m, (ranks[n:] - stats.rankdata(b)) / n
    delta = float(2 * below_a.mean() - 1)
    if abs(delta) >= 1:
        return {"value": delta, "low": None, "high": None}
    error = 2 * float(np.sqrt(below_a.var(ddof=1) / n + below_b.var(ddof=1) / m))
    width = float(stats.norm.ppf((1 + confidence) / 2)) * error / (1 - delta**2)
    low, high = (float(np.tanh(np.arctanh(delta) + sign * width)) for sign in (-1, 1))
    return {"value": delta, "low": low, "high": high}
