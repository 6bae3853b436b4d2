"""Measure finding all near-duplicates among 1e5 to 1e7 hashes: multi-index hashing against imagededup's BK-tree.

The BK-tree would take hours, so it answers as many queries as fit in ``BUDGET`` and the rest is extrapolated; its
answers must equal ours. At 1e6 its time per query at 1e5 is used, a lower bound: a larger tree is not faster.
imagededup depends on torch, so it is not a requirement of this project.

``python bench/near_duplicates.py HASHES ...`` measures the growth of ours only, in CPU seconds, with the peak memory:
of random hashes, and of pictures of which half are drawn on a few templates.
"""

from __future__ import annotations

import importlib
import json
import math
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.curate.dedupe.hamming_search import pair_blocks

RADIUS = 10
BUDGET = 45.0  # seconds spent on queries
MISSING = (
    "The baseline is missing: pip install --no-deps --target DIRECTORY imagededup, then run again with "
    "PYTHONPATH=DIRECTORY (without --no-deps it installs torch)."
)


def corpus(n: int, *, seed: int) -> np.ndarray:
    """Draw hashes, most of which have near-duplicates: n/2 pictures, each copy up to four bits away."""
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, 2**64, n // 2, dtype=np.uint64)[rng.integers(0, n // 2, n)]
    for _ in range(4):
        flipped = hashes ^ (np.uint64(1) << rng.integers(0, 64, n, dtype=np.uint64))
        hashes = np.where(rng.random(n) < 0.5, flipped, hashes)
    return hashes


def templates(n: int, *, seed: int) -> np.ndarray:
    """Draw hashes, of which half are up to 16 bits away from one of n/1000 templates, and half are random."""
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, 2**64, n, dtype=np.uint64)
    drawn = rng.random(n) < 0.5
    hashes[drawn] = hashes[rng.integers(0, max(1, n // 1000), int(drawn.sum()))]
    for _ in range(16):
        flipped = hashes ^ (np.uint64(1) << rng.integers(0, 64, n, dtype=np.uint64))
        hashes = np.where(drawn & (rng.random(n) < 0.7), flipped, hashes)
    return hashes


def distance(a: str, b: str) -> int:
    """Return the number of differing bits; many times faster than the baseline's own, which compares characters."""
    return (int(a, 16) ^ int(b, 16)).bit_count()


def pairs_within(hashes: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return all pairs within the radius: positions of both, and distances."""
    blocks = zip(*pair_blocks(hashes, radius=RADIUS), strict=True)
    return tuple(np.concatenate(columns) for columns in blocks)


def seconds_of_ours(hashes: np.ndarray) -> tuple[float, tuple[np.ndarray, ...]]:
    """Return the median of three searches, and the pairs."""
    times = []
    for _ in range(3):
        begin = time.monotonic()
        pairs = pairs_within(hashes)
        times.append(time.monotonic() - begin)
    return sorted(times)[1], pairs


def seconds_of_theirs(hashes: np.ndarray, pairs: tuple[np.ndarray, ...], tree: Any) -> tuple[float, float]:
    """Return seconds to build the tree and seconds per query.

    Raises:
        SystemExit: its answers differ from ours.
    """
    names = {str(i): f"{h:016x}" for i, h in enumerate(hashes.tolist())}
    begin = time.monotonic()
    built = tree(names, distance)
    building = time.monotonic() - begin
    begin, answers = time.monotonic(), 0
    for answers in range(1, len(hashes) + 1):
        i = answers - 1
        got = {int(name) for name, _ in built.search(names[str(i)], tol=RADIUS)} - {i}
        if got != set(pairs[1][pairs[0] == i]) | set(pairs[0][pairs[1] == i]):
            raise SystemExit(f"Query {i} gives answers that differ from ours.")
        if time.monotonic() - begin > BUDGET:
            break
    return building, (time.monotonic() - begin) / answers


def line(n: int, mine: float, other: float, baseline: str) -> None:
    """Print one comparison; the ratio is the baseline's time divided by ours."""
    record = {"name": f"near_duplicates_{n:.0e}".replace("+0", ""), "ours": round(mine, 3), "baseline": round(other, 1)}
    print(json.dumps({**record, "baseline_name": baseline, "ratio": round(other / mine), "unit": "s"}))


def growth(sizes: list[int]) -> None:
    """Print the CPU seconds and the peak memory of ours at each size, against the growth of n log n from the first."""
    kinds: dict[str, Callable[..., np.ndarray]] = {"uniform": corpus, "templates": templates}
    first: dict[str, tuple[int, float]] = {}
    pairs_within(corpus(10_000, seed=0))  # compiles
    for n in sizes:
        for kind, drawn in kinds.items():
            hashes = drawn(n, seed=3)
            used, found = time.process_time(), sum(len(block[0]) for block in pair_blocks(hashes, radius=RADIUS))
            cpu = time.process_time() - used
            begin, before = first.setdefault(kind, (n, cpu))
            grown = before * n * math.log(n) / (begin * math.log(begin))
            record = {"name": f"near_duplicates_{kind}_{n:.0e}".replace("+0", ""), "ours": round(cpu, 2)}
            record |= {"baseline": round(grown, 2), "baseline_name": f"n log n from {begin:,} hashes"}
            record |= {"ratio": round(grown / cpu, 2), "unit": "CPU s", "pairs": found}
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            print(json.dumps(record | {"peak_mb": peak}), flush=True)


def main() -> None:
    """Measure ours in full at both sizes and the baseline on a sample of queries."""
    try:
        tree = importlib.import_module("imagededup.handlers.search.bktree").BKTree
    except ImportError:
        sys.exit(MISSING)
    pairs_within(corpus(10_000, seed=0))  # compiles
    hashes = corpus(100_000, seed=1)
    mine, pairs = seconds_of_ours(hashes)
    building, query = seconds_of_theirs(hashes, pairs, tree)
    name = "imagededup BK-tree with a faster distance, one core"
    line(len(hashes), mine, building + query * len(hashes), f"{name} (extrapolated from the queries that fit)")
    mine, _ = seconds_of_ours(corpus(1_000_000, seed=2))
    line(1_000_000, mine, query * 1_000_000, f"{name} (lower bound: its time per query at 1e5)")


if __name__ == "__main__":
    if sizes := [int(size) for size in sys.argv[1:]]:
        growth(sizes)
    else:
        main()
