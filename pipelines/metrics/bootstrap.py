"""Bootstrap intervals of every metric (BCa), and of paired differences (percentile), over clusters.

Posts of one author or one near-duplicate group are not independent, so whole groups are resampled (SPEC 2.5). A
resample is a row of multinomial weights, and all resamples are one matrix product: 10,000 resamples of 600 records by
15 labels take about a second. Both systems of a comparison use the same resamples.

Macro-F1 is biased and skewed in small samples, because resamples lose rare labels. The bias-corrected and accelerated
interval (BCa; Efron 1987) allows for both; its acceleration comes from leaving out one group at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from pipelines.metrics.label_sets import NAMES, Floats, Key, LabelSet, Tally, figures, tally

CONFIDENCE = 0.95  # SPEC 2.5
# the kind of each interval of evaluate.json; all draw whole groups of near-duplicates
INTERVALS = {
    "figures": "BCa bootstrap over groups and runs",
    "rates": "percentile bootstrap over groups and runs",
    "pairs": "percentile bootstrap over groups and runs",
    "calibration": "bootstrap over groups and runs, test inversion",
}
# resamples per block: 1,000 x 4,000 clusters are 32 MB
BLOCK = 1000
NORMAL = NormalDist()
Z = NORMAL.inv_cdf((1 + CONFIDENCE) / 2)
TIE = 1e-12


@dataclass(frozen=True)
class Interval:
    """The value of a metric with its BCa interval, whose ends equal the value if every resample gives the same."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedDifference:
    """A metric's difference between two systems; ``probability`` is the share of resamples above 0, ties count half."""

    value: float
    low: float
    high: float
    probability: float


@dataclass(frozen=True)
class Draws:
    """The metrics of one system on all records, in each bootstrap resample, and with each cluster left out in turn."""

    values: Mapping[str, float]
    resampled: Mapping[str, Floats]
    without: Mapping[str, Floats]

    def intervals(self) -> dict[str, Interval]:
        """Return each metric of the system with its BCa interval, by name."""
        return {
            name: Interval(value, *bca(value, resampled=self.resampled[name], without=[self.without[name]]))
            for name, value in self.values.items()
        }

    def minus(self, other: Draws) -> dict[str, PairedDifference]:
        """Return each metric's difference from another system; both need the same gold, groups and seed."""
        differences = {}
        for name in NAMES:
            more = self.resampled[name] - other.resampled[name]
            probability = float(np.mean((more > TIE) + 0.5 * (np.abs(more) <= TIE)))
            differences[name] = PairedDifference(self.values[name] - other.values[name], *percentile(more), probability)
        return differences


def percentile(values: Floats) -> tuple[float, float]:
    """Return the percentile interval (low, high) of a statistic's resampled values."""
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def wilson(share: float, *, n: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of ``n`` items, which need not be a whole number."""
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def bca(value: float, *, resampled: Floats, without: Sequence[Floats]) -> tuple[float, float]:
    """Return the bias-corrected and accelerated interval of a statistic (Efron and Tibshirani 1993, 14.3 and 15.4).

    It is the percentile interval where BCa is undefined: all resamples lie on one side of the value, or no unit that is
    left out changes it. ``without`` has, for each kind of unit that is resampled (clusters, runs), the statistic
    without one unit each.
    """
    # ties count half; sums of the same parts may differ in the last bit
    less, more = np.count_nonzero(resampled < value - TIE), np.count_nonzero(resampled <= value + TIE)
    below = (less + more) / (2 * len(resampled))
    moved = [left.mean() - left for left in without if len(left)]
    # (n - 1) U / n of each unit, as in scipy.stats.bootstrap of several samples
    moved = [u * (len(u) - 1) / len(u) for u in moved]
    spread = sum(float((u**2).sum()) for u in moved)
    if not 0 < below < 1 or spread < 1e-24:
        return percentile(resampled)
    bias = NORMAL.inv_cdf(below)
    skew = sum(float((u**3).sum()) for u in moved) / (6 * spread**1.5)
    shares = []
    for z in (NORMAL.inv_cdf((1 - CONFIDENCE) / 2), NORMAL.inv_cdf((1 + CONFIDENCE) / 2)):
        scale = 1 - skew * (bias + z)
        if scale <= 0:
            return percentile(resampled)
        shares.append(100 * NORMAL.cdf(bias + (bias + z) / scale))
    low, high = np.percentile(resampled, shares)
    return float(low), float(high)


def draw(
    gold: Mapping[Key, LabelSet],
    *,
    predicted: Mapping[Key, LabelSet | None],
    labels: Sequence[str],
    groups: Mapping[Key, str],
    resamples: int,
    seed: int,
) -> Draws | None:
    """Compute the metrics of one system on all gold records and on bootstrap resamples of them.

    A record without a valid answer counts as wrong. Whole clusters are resampled: ``groups`` maps records to clusters,
    and a record that it lacks is a cluster of one. The function returns ``None`` if gold is empty.
    """
    records = sorted(gold)
    if not records:
        return None
    counts = tally([gold[r] for r in records], predicted=[predicted.get(r) for r in records], labels=labels)
    clusters = cluster_sums(counts.flat(), groups=[groups.get(r, str(r)) for r in records])
    drawn = weights(len(clusters), resamples=resamples, rng=np.random.default_rng(seed))
    parts = [figures(Tally.of_flat(block.astype(np.float64) @ clusters)) for block in drawn]
    whole = figures(counts.total())
    without = figures(Tally.of_flat(clusters.sum(axis=0) - clusters))
    return Draws(
        values={name: float(whole[name]) for name in NAMES},
        resampled={name: np.concatenate([part[name] for part in parts]) for name in NAMES},
        without={name: without[name] for name in NAMES},
    )


def weights(
    units: int, *, resamples: int, rng: np.random.Generator, draws: int | None = None
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield in blocks how often each of some units is drawn, shape (resamples, units), of ``draws`` or ``units``."""
    for start in range(0, resamples, BLOCK):
        yield rng.multinomial(draws or units, np.full(units, 1 / units), size=min(BLOCK, resamples - start))


def cluster_sums(rows: Floats, *, groups: Sequence[str]) -> Floats:
    """Return the sum of the rows of each group, in the order of the groups' names; ``groups`` has each row's group."""
    _, place = np.unique(np.array(groups), return_inverse=True)
    sums = np.zeros((place.max() + 1, rows.shape[1]))
    np.add.at(sums, place, rows)
    return sums
