"""Measure the similarity of texts by shared shingles, and compute signatures, which propose pairs to compare.

A shingle is a run of ``texts.shingle_words`` words. A signature is datasketch's MinHash, computed once when a text is
collected (SPEC.md 2.6).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha1
from itertools import chain
from math import ceil
from typing import Any

import numpy as np
from datasketch import MinHash

from pipelines.core.config.collect import Texts

# Signatures with different seeds or permutation schemes cannot be compared; affine32 keeps 32 bits per value.
SEED, SCHEME = 1, "affine32"


def shingles(words: Sequence[str], *, size: int) -> set[str]:
    """Return all sequences of ``size`` words of a text; a shorter text is one sequence."""
    return {" ".join(words[i : i + size]) for i in range(max(1, len(words) - size + 1))}


def alike(runs: Sequence[set[str]], *, threshold: float) -> Iterator[tuple[int, int]]:
    """Yield every position pair ``left < right`` whose similarity is at least ``threshold``, without signatures.

    Sets that similar share at least ``threshold`` of the larger one, so they share one of the rarest remaining shingles
    of each, plus one (prefix filter; Bayardo, Ma and Srikant 2007).
    """
    frequency = Counter(chain.from_iterable(runs))
    index: dict[str, list[int]] = defaultdict(list)
    for right, own in enumerate(runs):
        rarest = sorted(own, key=lambda shingle: (frequency[shingle], shingle))
        # less a rounding error, which would only lengthen the prefix
        prefix = rarest[: len(own) - ceil(threshold * len(own) - 1e-9) + 1]
        for left in sorted({earlier for shingle in prefix for earlier in index[shingle]}):
            if similarity(runs[left], own) >= threshold:
                yield left, right
        for shingle in prefix:
            index[shingle].append(right)


def similarity(one: set[str], other: set[str]) -> float:
    """Return the Jaccard index of two sets of shingles."""
    return len(one & other) / len(one | other)


def signature(words: Sequence[str], *, params: Texts) -> bytes:
    """Return the MinHash signature of a text: ``permutations`` little-endian 32-bit numbers."""
    count = params.permutations
    digests = [sha1(s.encode(), usedforsecurity=False).digest()[:4] for s in shingles(words, size=params.shingle_words)]
    # datasketch would draw its permutations and hash in Python for every text
    made = MinHash(num_perm=count, seed=SEED, scheme=SCHEME, permutations=_permutations(count), hashfunc=int)
    made.update_batch(np.frombuffer(b"".join(digests), "<u4").tolist())
    return bytes(made.hashvalues.astype("<u4").tobytes())


@cache
def _permutations(count: int) -> Any:
    return MinHash(num_perm=count, seed=SEED, scheme=SCHEME).permutations
