"""Measure the similarity of texts by shared shingles, and propose candidate pairs with MinHash.

A shingle is a run of ``texts.shingle_words`` words. A signature is datasketch's MinHash, computed once when a text is
collected. Signatures propose candidate pairs without comparing every pair; the texts confirm them (SPEC.md 2.6).
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
import numpy.typing as npt
from datasketch import MinHash, MinHashLSH

from pipelines.config.collect import Texts

# Signatures with different seeds or permutation schemes cannot be compared; affine32 keeps 32 bits per value.
SEED, SCHEME = 1, "affine32"
# Ours: expected share of pairs at the threshold that share no band; the requirement is 0.005.
MISSED = 0.001


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


def candidates(signatures: Sequence[bytes], *, threshold: float) -> Iterator[tuple[int, int]]:
    """Yield position pairs ``left < right`` whose signatures make a similarity of at least ``threshold`` likely.

    Each text is looked up among the previous ones. The bands miss at most ``MISSED`` of the pairs at the threshold, and
    fewer above it; they therefore also propose many pairs below it, which the comparison of the texts rejects.
    """
    if not signatures:
        return
    count = len(signatures[0]) // 4
    index = MinHashLSH(num_perm=count, params=bands(count, threshold=threshold))
    for right, data in enumerate(signatures):
        values: npt.NDArray[np.uint32] = np.frombuffer(data, "<u4").astype(np.uint32)
        made = MinHash(num_perm=count, seed=SEED, scheme=SCHEME, hashvalues=values)
        for left in sorted(index.query(made)):
            yield int(left), right
        index.insert(right, made, check_duplication=False)


def bands(count: int, *, threshold: float) -> tuple[int, int]:
    """Return the number and the length of the longest bands that miss few enough pairs at the threshold.

    Two texts of similarity s share none of ``b`` bands of ``r`` values with probability (1 - s^r)^b.
    """
    fitting = (r for r in range(count // 2, 0, -1) if (1 - threshold**r) ** (count // r) <= MISSED)
    length = next(fitting, 1)
    return count // length, length
