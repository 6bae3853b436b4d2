"""Propose the pairs of texts to compare, from their MinHash signatures alone.

The stored signatures are the index: a new month is compared with all earlier ones without opening a text. Texts whose
signatures share a band are likely similar (locality-sensitive hashing; Leskovec, Rajaraman and Ullman, chapter 3). Each
band is sorted on its own, so that memory is that of the signatures and of the proposed pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.curate.grouping.hamming_search import equal_pairs
from pipelines.curate.grouping.kernels import compiled

Ints = npt.NDArray[np.int64]
Signatures = npt.NDArray[np.uint32]

# Ours: expected share of pairs at the threshold that share no band; the requirement is 0.005.
MISSED = 0.001
# Ours: expected share of pairs at the threshold whose signatures agree so little that they are not compared.
OVERLOOKED = 1e-9
# Ours: slots for each key, so that one in 8 to 16 is sorted needlessly, and the logarithm of the least number of slots.
SLOTS, MIN_BITS = 8, 10


def similar_pairs(signatures: Signatures, rows: Ints, *, threshold: float) -> Iterator[tuple[Ints, Ints]]:
    """Yield the pairs among ``rows`` whose texts may be similar, in blocks: ``left < right``, each pair once.

    ``rows`` ascend. The bands miss at most ``MISSED`` of the pairs at the threshold, and fewer above it. They also
    propose pairs below it; those whose signatures agree in fewer values than similar texts' do are left out.
    """
    count = signatures.shape[1]
    number, length = bands(count, threshold=threshold)
    least = least_agreeing(count, threshold=threshold)
    for band in range(number):
        keys = np.empty(len(rows), np.uint64)
        _hash(signatures, rows, band * length, (band + 1) * length, keys)
        for left, right in _equal_pairs(keys, rows=rows):
            found = np.empty(len(left), np.bool_)
            _agreeing(signatures, (left, right), (band, length), least, found)
            yield left[found], right[found]


def first_copies(signatures: Signatures) -> Ints:
    """Return for each row the first row with the same signature.

    Only these rows need be searched: a text that was posted n times would have n² pairs.
    """
    count = signatures.shape[1]
    everything, keys = np.arange(len(signatures)), np.empty(len(signatures), np.uint64)
    _hash(signatures, everything, 0, count, keys)
    order = np.argsort(keys, kind="stable")
    again = 1 + np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    # a signature whose hash is that of another one may be taken for no copy, which the search then finds
    equal = np.empty(len(again), np.bool_)
    _agreeing(signatures, (order[again - 1], order[again]), (0, 1), count, equal)
    start = np.arange(len(order))
    start[again[equal]] = 0
    first = np.empty(len(order), np.int64)
    first[order] = order[np.maximum.accumulate(start)]
    return first


def bands(count: int, *, threshold: float) -> tuple[int, int]:
    """Return the number and the length of the longest bands that miss few enough pairs at the threshold.

    Two texts of similarity s share none of ``b`` bands of ``r`` values with probability (1 - s^r)^b.
    """
    fitting = (r for r in range(count // 2, 0, -1) if (1 - threshold**r) ** (count // r) <= MISSED)
    length = next(fitting, 1)
    return count // length, length


def least_agreeing(count: int, *, threshold: float) -> int:
    """Return the number of values, of ``count``, in which all but ``OVERLOOKED`` of the similar pairs agree at least.

    Each value of two signatures is equal with the probability of the texts' similarity.
    """
    shares = (comb(count, k) * threshold**k * (1 - threshold) ** (count - k) for k in range(count))
    return next((k for k, below in enumerate(accumulate(shares)) if below > OVERLOOKED), count)


def _equal_pairs(keys: npt.NDArray[np.uint64], *, rows: Ints) -> Iterator[tuple[Ints, Ints]]:
    bits = max(MIN_BITS, (SLOTS * len(keys)).bit_length())
    shared = np.empty(len(keys), np.bool_)
    _mark_shared(keys, np.uint64(64 - bits), np.zeros(1 << (bits - 2), np.uint8), shared)
    some = np.flatnonzero(shared)
    for left, right in equal_pairs(keys[some]):
        yield rows[some[left]], rows[some[right]]


@compiled
def _hash(signatures: Any, rows: Any, begin: int, end: int, keys: Any) -> None:
    """Hash the values ``begin`` to ``end`` of each signature to 64 bits (FNV-1a, mixed)."""
    for i in range(len(rows)):
        key = np.uint64(0xCBF29CE484222325)
        for k in range(begin, end):
            key = (key ^ np.uint64(signatures[rows[i], k])) * np.uint64(0x100000001B3)
            key ^= key >> np.uint64(32)
        keys[i] = key


@compiled
def _mark_shared(keys: Any, shift: Any, slots: Any, shared: Any) -> None:
    """Mark the keys whose slot another key has, too: all keys that are equal to another one, and a few more.

    A slot is a key's upper bits; two bits count its keys up to two. Only the marked keys need be sorted.
    """
    for i in range(len(keys)):
        slot = keys[i] >> shift
        at, bit = slot >> np.uint64(2), (slot & np.uint64(3)) << np.uint64(1)
        slots[at] |= np.uint8(2 << bit) if (slots[at] >> bit) & 1 else np.uint8(1 << bit)
    for i in range(len(keys)):
        slot = keys[i] >> shift
        shared[i] = (slots[slot >> np.uint64(2)] >> (((slot & np.uint64(3)) << np.uint64(1)) + np.uint64(1))) & 1


@compiled
def _agreeing(signatures: Any, pairs: tuple[Any, Any], band: tuple[int, int], least: int, found: Any) -> None:
    """Mark the pairs that share no band before this one (number, length) and agree in at least ``least`` values."""
    for p in range(len(found)):
        a, b = pairs[0][p], pairs[1][p]
        earlier, length = False, band[1]
        for other in range(band[0]):
            same = 0
            while same < length and signatures[a, other * length + same] == signatures[b, other * length + same]:
                same += 1
            if same == length:
                earlier = True
                break
        count = 0
        if not earlier:
            for k in range(signatures.shape[1]):
                count += signatures[a, k] == signatures[b, k]
        found[p] = not earlier and count >= least
