"""Measure multi-label splitting against iterative-stratification: deviations on T8's marginals, and time at scale."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from pipelines.curate.stratify import certificate, label_pairs, stratify, unit_counts

# FigSIM Table 8, the totals of its 21 columns (SPEC.md section 1.5). Lists of single-label categories are exclusive;
# in the other two the last entry is None, which is the empty set.
MULTI = {"F": [161, 121, 833, 146], "SR": [266, 81, 70, 282, 21, 401]}
SINGLE = {"SS": [189, 339, 163, 167, 30, 161], "M": [946, 74, 29], "C": [916, 133]}
SIZES = {"train": 633, "validation": 208, "test": 208}
PROPOSALS = 4_000_000
BASELINE = "iterative-stratification (knows no groups)"


def multi_label(totals: list[int], rng: np.random.Generator, *, times: int = 1) -> np.ndarray:
    """Draw an item x label matrix with exactly these totals, every item outside None with at least one label."""
    *labels, none = np.array(totals) * times
    items = rng.permutation(int(sum(SINGLE["SS"])) * times)
    matrix = np.zeros((len(items), len(totals)), bool)
    matrix[items[:none], -1] = True
    rest = items[none:]
    bag = rng.permutation(np.repeat(np.arange(len(labels)), labels))
    matrix[rest, bag[: len(rest)]] = True
    for label, count in enumerate(np.bincount(bag[len(rest) :], minlength=len(labels))):
        without = rest[~matrix[rest, label]]
        matrix[rng.choice(without, count, replace=False), label] = True
    return matrix


def figsim(seed: int, *, times: int = 1, grouped: float = 0.12, alike: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return an item x 21 matrix with T8's marginals (``times`` over) and each item's group.

    ``grouped`` of the items are in groups of two to six; ``alike`` groups items with similar labels, as near-duplicates
    have, else any items.
    """
    rng = np.random.default_rng(seed)
    parts = [multi_label(MULTI["F"], rng, times=times)]
    for name in ("SS", "SR", "M", "C"):
        if name in MULTI:
            parts.append(multi_label(MULTI[name], rng, times=times))
        else:
            labels = rng.permutation(np.repeat(np.arange(len(SINGLE[name])), np.array(SINGLE[name]) * times))
            parts.append(np.eye(len(SINGLE[name]), dtype=bool)[labels])
    matrix = np.hstack(parts)
    n = len(matrix)
    group = np.arange(n)
    order = np.lexsort(matrix.T) if alike else rng.permutation(n)
    at = np.sort(rng.choice(n // 6, int(n * grouped / 3.5), replace=False)) * 6
    for begin in at:
        members = order[begin : begin + rng.choice([2, 2, 3, 3, 5, 6])]
        group[members] = members.min()
    return matrix, np.unique(group, return_inverse=True)[1]


def ours(matrix: np.ndarray, group: np.ndarray, *, seed: int, proposals: int) -> np.ndarray:
    """Return one split index per item, from this project's splitter."""
    items = sparse.csr_matrix(matrix.astype(np.int32))
    sizes = np.bincount(group)
    pairs = unit_counts(group, label_pairs(items))
    found = stratify(sizes, unit_counts(group, items), ratios=SIZES, seed=seed, proposals=proposals, pairs=pairs)
    return found[group]


def theirs(matrix: np.ndarray, *, seed: int) -> np.ndarray:
    """Return one split index per item, from iterative-stratification 0.1.9, which does not support groups."""
    from iterstrat.ml_stratifiers import IterativeStratification

    ratios = np.array(list(SIZES.values())) / sum(SIZES.values())
    return IterativeStratification(matrix, ratios, np.random.RandomState(seed))


def figures(matrix: np.ndarray, group: np.ndarray, split: np.ndarray) -> dict[str, Any]:
    """Certify a split of a matrix."""
    names = [str(column) for column in range(matrix.shape[1])]
    return certificate(split, sparse.csr_matrix(matrix), names=names, ratios=SIZES, groups=group)


def line(name: str, mine: float, other: float, unit: str) -> None:
    """Print one comparison; the ratio is the baseline's value divided by ours."""
    record = {"name": name, "ours": round(mine, 4), "baseline": round(other, 4), "baseline_name": BASELINE}
    print(json.dumps({**record, "ratio": round(other / mine, 2), "unit": unit}))


def timed(make: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    """Return a split and the CPU seconds it took, which are independent of other load on the machine."""
    begin = time.process_time()
    return make(), time.process_time() - begin


def main() -> None:
    """Compare on ten matrices of FigSIM's size, then on one of a million items."""
    ours(*figsim(0), seed=0, proposals=1)  # compiles
    runs: dict[str, list[tuple[float, float]]] = {"max_deviation": [], "mean_deviation": [], "seconds": []}
    for seed in range(10):
        matrix, group = figsim(seed, alike=seed % 2 == 0)
        mine, my_time = timed(partial(ours, matrix, group, seed=seed, proposals=PROPOSALS))
        other, other_time = timed(partial(theirs, matrix, seed=seed))
        reports = figures(matrix, group, mine), figures(matrix, group, other)
        for name in ("max_deviation", "mean_deviation"):
            runs[name].append((reports[0][name], reports[1][name]))
        runs["seconds"].append((my_time, other_time))
    line("split_max_deviation", *np.max(runs["max_deviation"], axis=0), "items")
    line("split_mean_deviation", *np.mean(runs["mean_deviation"], axis=0), "items")
    line("split_seconds", *np.median(runs["seconds"], axis=0), "CPU s")

    matrix, group = figsim(1, times=954)
    mine, my_time = timed(partial(ours, matrix, group, seed=1, proposals=PROPOSALS))
    other, other_time = timed(partial(theirs, matrix, seed=1))
    line("split_seconds_1e6", my_time, other_time, "CPU s")
    line("split_mean_deviation_1e6", *(figures(matrix, group, s)["mean_deviation"] for s in (mine, other)), "items")


if __name__ == "__main__":
    main()
