"""Compute flag rates, mean scores and paired tests of moderation systems, with intervals over near-duplicate groups.

Rates have Wilson's interval (1927) at the effective sample size of grouped items (Korn and Graubard 1998; Franco et al.
2019): n over the design effect, and the number of groups where no item or every item is flagged. Means and differences
have a percentile bootstrap over groups. Systems are compared on the items that both judged: McNemar's exact test, which
ignores groups, and a randomisation test that exchanges the two systems' flags for a whole group at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.metrics.bootstrap import BLOCK, CONFIDENCE, cluster_sums, percentile

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Json = dict[str, Any]
DIGITS = 6
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
TIE = 1e-12


def rate(flags: Bools, *, groups: Sequence[str]) -> Json:
    """Return how many of the items are flagged: ``flagged``, ``n``, ``rate`` and its interval (``low``, ``high``).

    Without items, the rate and its interval are ``None``.
    """
    n, flagged = len(flags), int(flags.sum())
    if not n:
        return {"flagged": 0, "n": 0, "rate": None, "low": None, "high": None}
    low, high = wilson(flagged / n, n=_effective(flags.astype(np.float64), groups=groups))
    return {"flagged": flagged, "n": n, "rate": rounded(flagged / n), "low": rounded(low), "high": rounded(high)}


def wilson(share: float, *, n: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of ``n`` items, which need not be a whole number."""
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def _effective(values: Floats, *, groups: Sequence[str]) -> float:
    """Return the effective number of items: divided by the design effect of the groups, if that is above 1."""
    n, p = len(values), float(values.mean())
    sums = cluster_sums(np.stack([values, np.ones(n)], axis=1), groups=groups)
    if p in (0.0, 1.0) or len(sums) < 2:
        return float(len(sums))
    residuals = sums[:, 0] - p * sums[:, 1]
    variance = len(sums) / (len(sums) - 1) * float((residuals**2).sum()) / n**2
    return n / max(1.0, variance * (n - 1) / (p * (1 - p)))


def mean(values: Floats, *, groups: Sequence[str], resamples: int, seed: int) -> Json:
    """Return ``n``, the ``mean`` of the values and its interval; ``None`` without values, or for one group."""
    if not len(values):
        return {"n": 0, "mean": None, "low": None, "high": None}
    sums = cluster_sums(np.stack([values, np.ones(len(values))], axis=1), groups=groups)
    drawn = np.concatenate([w @ sums for w in _weights(len(sums), resamples=resamples, seed=seed)])
    low, high = percentile(drawn[:, 0] / drawn[:, 1]) if len(sums) > 1 else (None, None)
    return {"n": len(values), "mean": rounded(float(values.mean())), "low": rounded(low), "high": rounded(high)}


def trend(flags: Bools, *, level: npt.NDArray[np.int64]) -> Json:
    """Return Cochran and Armitage's test for a trend of the rate over equally spaced levels: ``z`` and two-sided ``p``.

    It ignores groups. Both are ``None`` if no item or every item is flagged, or all have one level.
    """
    p = flags.mean() if len(flags) else 0.0
    spread = float(((level - level.mean()) ** 2).sum()) if len(level) else 0.0
    if p in (0.0, 1.0) or not spread:
        return {"z": None, "p": None}
    z = float(((level - level.mean()) * flags).sum()) / math.sqrt(p * (1 - p) * spread)
    return {"z": round(z, 2), "p": rounded(math.erfc(abs(z) / math.sqrt(2)))}


def difference(a: Bools, b: Bools, *, groups: Sequence[str], resamples: int, seed: int) -> tuple[Json, float]:
    """Return the difference of two systems' flag rates on the same items, and the p-value of the randomisation test."""
    apart = a.astype(np.float64) - b.astype(np.float64)
    found = mean(apart, groups=groups, resamples=resamples, seed=seed)
    if not len(apart):
        return {"value": None, "low": None, "high": None}, 1.0
    sums = cluster_sums(apart[:, None], groups=groups)[:, 0]
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(resamples, len(sums)))
    # the observed assignment is one of the exchanges
    hits = int((np.abs(signs @ sums) >= abs(sums.sum()) - TIE).sum())
    p = (1 + hits) / (1 + resamples)
    return {"value": found["mean"], "low": found["low"], "high": found["high"]}, rounded(p)


def adjusted(
    values: Floats, *, treated: Bools, strata: npt.NDArray[np.int64], groups: Sequence[str], resamples: int, seed: int
) -> Json:
    """Return the mean difference of treated and other items within strata: ``value``, interval, ``n`` and ``strata``.

    A stratum counts by n1 n0 / (n1 + n0), its weight in a common difference (Mantel and Haenszel); one without both
    kinds does not count. The value is ``None`` if no stratum has both.
    """
    if not len(values):
        return {"value": None, "low": None, "high": None, "n": 0, "strata": 0}
    inside = [(strata == kind) & (treated == on) for kind in sorted({*strata.tolist()}) for on in (True, False)]
    rows = np.stack([column for each in inside for column in (each.astype(np.float64), each * values)], axis=1)
    sums = cluster_sums(rows, groups=groups)
    value, used = _common(sums.sum(axis=0)[None])
    if not used:
        return {"value": None, "low": None, "high": None, "n": len(values), "strata": 0}
    every = np.concatenate([_common(w @ sums)[0] for w in _weights(len(sums), resamples=resamples, seed=seed)])
    low, high = percentile(every[~np.isnan(every)])
    ends = {"low": rounded(low), "high": rounded(high)}
    return {"value": rounded(float(value[0])), **ends, "n": len(values), "strata": used}


def _common(sums: Floats) -> tuple[Floats, int]:
    """Return the common difference of rows of sums (n1, t1, n0, t0 of each stratum), and how many strata count."""
    n1, t1, n0, t0 = (sums[:, i::4] for i in range(4))
    weight = n1 * n0 / np.maximum(n1 + n0, 1)
    apart = t1 / np.maximum(n1, 1) - t0 / np.maximum(n0, 1)
    total = weight.sum(axis=1)
    common: Floats = np.divide((weight * apart).sum(axis=1), total, out=np.full(len(total), np.nan), where=total > 0)
    return common, int((weight[0] > 0).sum())


def _weights(groups: int, *, resamples: int, seed: int) -> list[Floats]:
    """Return blocks of bootstrap weights (resamples, groups) that draw whole groups."""
    rng = np.random.default_rng(seed)
    sizes = [min(BLOCK, resamples - start) for start in range(0, resamples, BLOCK)]
    share = np.full(groups, 1 / groups)
    return [rng.multinomial(groups, share, size=size).astype(np.float64) for size in sizes]


def rounded(value: float | None) -> Any:
    """Return a number with six digits, so that metrics are the same on every machine."""
    return None if value is None else round(float(value), DIGITS)
