"""Compile the inner loops of the stages ``dedupe`` and ``split`` in advance, by running them on random items."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from pipelines.curate.dedupe.captions import Captions
from pipelines.curate.dedupe.text_pairs import text_kinds_and_pairs
from pipelines.curate.grouping.hamming_search import components, keepers, pair_blocks
from pipelines.curate.split.stratify import label_pairs, stratify

ITEMS, LABELS, RADIUS, LIMIT = 60, 4, 16, 3


def run() -> None:
    """Compile every numba kernel for the argument types of ``dedupe`` and ``split`` unless the cache contains it."""
    rng = np.random.default_rng(1)
    hashes = rng.integers(0, 1 << 20, ITEMS, dtype=np.uint64)
    found = list(pair_blocks(hashes, radius=RADIUS))
    left, right = (np.concatenate([block[side] for block in found]) for side in (0, 1))
    Captions(f"word{n % 7} and some other words {n % 5}" for n in range(ITEMS)).differences(left, right, limit=LIMIT)
    signatures = rng.integers(0, 3, (ITEMS, 16), dtype=np.uint32)
    texts = [f"word{n % 7} and some other words" for n in range(ITEMS)]
    text_kinds_and_pairs(
        signatures,
        np.arange(ITEMS),
        opened=lambda batches: lambda number: [texts[row] for row in batches[number]],
        similarity=0.5,
        shingle_words=2,
    )
    components(ITEMS, left, right)
    keepers(np.arange(ITEMS), left, right)
    labels = sparse.csr_matrix(rng.integers(0, 2, (ITEMS, LABELS)).astype(np.int32))
    sizes, ratios = np.ones(ITEMS, np.int64), {"train": 6, "dev": 2, "test": 2}
    held = np.full(ITEMS, -1, np.int64)
    stratify(sizes, labels, ratios=ratios, seed=1, proposals=1000, pairs=label_pairs(labels), assigned=held)
