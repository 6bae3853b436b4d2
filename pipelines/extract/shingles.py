"""Measure the similarity of texts by shared shingles, and propose candidate pairs with MinHash.

A shingle is a run of ``texts.shingle_words`` words. A signature is datasketch's MinHash, computed once when a text is
collected. Signatures propose candidate pairs without comparing every pair; the texts confirm them (SPEC.md 2.6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from datasketch import MinHash, MinHashLSH

from pipelines.config.collect import Texts

# Signatures with different seeds or permutation schemes cannot be compared; affine32 keeps 32 bits per value.
SEED, SCHEME = 1, "affine32"


def shingles(words: Sequence[str], *, size: int) -> set[str]:
    """Return all sequences of ``size`` words of a text; a shorter text is one sequence."""
    return {" ".join(words[i : i + size]) for i in range(max(1, len(words) - size + 1))}


def similarity(one: set[str], other: set[str]) -> float:
    """Return the Jaccard index of two sets of shingles."""
    return len(one & other) / len(one | other)


def signature(words: Sequence[str], *, params: Texts) -> bytes:
    """Return the MinHash signature of a text: ``permutations`` little-endian 32-bit numbers."""
    made = MinHash(num_perm=params.permutations, seed=SEED, scheme=SCHEME)
    made.update_batch([s.encode() for s in sorted(shingles(words, size=params.shingle_words))])
    return bytes(made.hashvalues.astype("<u4").tobytes())


def candidates(signatures: Sequence[bytes], *, threshold: float) -> Iterator[tuple[int, int]]:
    """Yield position pairs ``left < right`` whose signatures make a similarity of at least ``threshold`` likely.

    Each text is looked up among the previous ones; datasketch chooses bands that miss few pairs at the threshold.
    """
    if not signatures:
        return
    count = len(signatures[0]) // 4
    # a missed pair is worse than a false candidate, which the comparison of the texts rejects
    index = MinHashLSH(threshold=threshold, num_perm=count, weights=(0.2, 0.8))
    for right, data in enumerate(signatures):
        values: npt.NDArray[np.uint32] = np.frombuffer(data, "<u4").astype(np.uint32)
        made = MinHash(num_perm=count, seed=SEED, scheme=SCHEME, hashvalues=values)
        for left in sorted(index.query(made)):
            yield int(left), right
        index.insert(right, made, check_duplication=False)
