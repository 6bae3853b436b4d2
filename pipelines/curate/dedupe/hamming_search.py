"""Find all pairs of image hashes within a Hamming radius, their clusters, and the items to keep.

The search is exact and takes far less than quadratic time. Multi-index hashing (Norouzi, Punjani and Fleet 2012): 64
bits are four chunks of 16; two hashes within ``radius`` bits differ in at least one chunk by at most a quarter of
``radius``, so only buckets that close are compared. Equal hashes are collapsed before the search and expanded after it.
Approximate top-k indexes are no substitute, because a cluster can be larger than any k (SPEC.md 2.6). Functions are
compiled on first use (``kernels``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from pipelines.curate.kernels import compiled

Counts = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Hashes = npt.NDArray[np.uint64]
Distances = npt.NDArray[np.uint8]
Pairs = tuple[Ints, Ints, Distances]

CHUNKS, CHUNK_BITS = 4, 16
# Pairs yielded at once, which limits the memory of a caller that reads each pair once (about 9 bytes per pair).
BLOCK = 1 << 21


@intrinsic  # type: ignore[untyped-decorator]
def _popcount(typing_context: Any, word: Any) -> Any:
    """Count the set bits of a word with one machine instruction instead of a dozen."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


class Search(NamedTuple):
    """The state of a search by one chunk of the hashes: hashes sorted by that chunk, bucket starts, and bit masks."""

    hashes: Any
    starts: Any
    masks: Any  # the differences in that chunk that are searched
    reach: Any  # the most bits by which each chunk may differ
    chunk: int
    radius: int


class PairBuffers(NamedTuple):
    """Reusable buffers for the pairs that a search by one chunk finds."""

    left: Any
    right: Any
    distance: Any


@compiled
def _reached_before(search: Search, difference: Any) -> bool:
    """Return whether an earlier pass has reported this pair."""
    for k in range(search.chunk):
        part = (difference >> np.uint64(CHUNK_BITS * k)) & np.uint64(0xFFFF)
        if np.int64(_popcount(part)) <= search.reach[k]:
            return True
    return False


@compiled
def _compare(search: Search, i: int, others: tuple[int, int], buffers: PairBuffers, count: int) -> int:
    """Compare one hash with a range of others; return the new count."""
    one = search.hashes[i]
    for j in range(others[0], others[1]):
        difference = one ^ search.hashes[j]
        bits = np.int64(_popcount(difference))
        if bits <= search.radius and not _reached_before(search, difference):
            buffers.left[count], buffers.right[count], buffers.distance[count] = i, j, bits
            count += 1
    return count


@compiled
def _scan(search: Search, state: Any, buffers: PairBuffers) -> int:
    """Search from ``state`` (bucket, mask, item) until the buffers are full or the pass ends; return the count."""
    starts, count = search.starts, 0
    buckets = len(starts) - 1
    first_mask, first_item = state[1], state[2]
    for bucket in range(state[0], buckets):
        masks = len(search.masks) if starts[bucket] < starts[bucket + 1] else 0
        for m in range(first_mask, masks):
            other = bucket ^ search.masks[m]
            if bucket <= other < buckets:
                for i in range(max(first_item, starts[bucket]), starts[bucket + 1]):
                    low = i + 1 if other == bucket else starts[other]
                    if count + starts[other + 1] - low > len(buffers.distance):
                        state[0], state[1], state[2] = bucket, m, i
                        return count
                    count = _compare(search, i, (low, starts[other + 1]), buffers, count)
            first_item = 0
        first_mask = 0
    state[0] = buckets
    return count


def _unique_blocks(hashes: Hashes, *, radius: int, block: int) -> Iterator[Pairs]:
    """Yield the pairs among distinct hashes in blocks, in no particular order."""
    popcounts = np.bitwise_count(np.arange(1 << CHUNK_BITS, dtype=np.uint32))
    whole, rest = divmod(radius, CHUNKS)
    reach = np.array([whole if k <= rest else whole - 1 for k in range(CHUNKS)], dtype=np.int64)
    plan = [(k, np.flatnonzero(popcounts <= reach[k])) for k in range(CHUNKS) if reach[k] >= 0]
    by_brute_force = len(hashes) <= 2 * sum(len(masks) for _, masks in plan)
    if by_brute_force:
        plan = [(0, np.zeros(1, dtype=np.int64))]
    for chunk, masks in plan:
        keys = (hashes >> np.uint64(CHUNK_BITS * chunk)).astype(np.uint16)
        if by_brute_force:
            keys[:] = 0
        order = np.argsort(keys, kind="stable").astype(np.int32)
        sizes = np.bincount(keys, minlength=1 if by_brute_force else 1 << CHUNK_BITS)
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        room = block + int(sizes.max(initial=0))
        buffers = PairBuffers(np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.uint8))
        search = Search(hashes[order], starts, masks, reach, chunk, radius)
        state = np.zeros(3, dtype=np.int64)
        while state[0] < len(starts) - 1:
            n = _scan(search, state, buffers)
            yield order[buffers.left[:n]], order[buffers.right[:n]], buffers.distance[:n].copy()


def cells(left_sizes: Counts, right_sizes: Counts, *, block: int = BLOCK) -> Iterator[tuple[Counts, Counts, Counts]]:
    """Yield the cells of rectangles ``left_sizes[i]`` by ``right_sizes[i]`` as arrays (rectangle, left, right)."""
    ends = np.cumsum(left_sizes * right_sizes)
    total = int(ends[-1]) if len(ends) else 0
    begins = ends - left_sizes * right_sizes
    for low in range(0, total, block):
        cells = np.arange(low, min(low + block, total))
        rows = np.searchsorted(ends, cells, side="right")
        lefts, rights = np.divmod(cells - begins[rows], right_sizes[rows])
        yield rows, lefts, rights


def _members(labels: npt.NDArray[Any]) -> tuple[Ints, Counts, Counts]:
    _, group, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return np.argsort(group, kind="stable").astype(np.int32), np.cumsum(sizes) - sizes, sizes


def equal_pairs(labels: npt.NDArray[Any], *, block: int = BLOCK) -> Iterator[tuple[Ints, Ints]]:
    """Yield all pairs ``left < right`` of positions with equal values in ``labels`` once, in blocks of limited size."""
    members, first, sizes = _members(labels)
    copies = np.arange(len(members)) - np.repeat(first, sizes)
    later = np.repeat(sizes, sizes) - copies - 1
    for row, _, offset in cells(np.ones_like(later), later, block=block):
        yield members[row], members[row + 1 + offset]


def pair_blocks(hashes: Hashes, *, radius: int, block: int = BLOCK) -> Iterator[Pairs]:
    """Yield the pairs within ``radius`` bits once: positions ``left < right`` (int32) and distance (uint8)."""
    if not 0 <= radius <= 64:
        raise ValueError(f"The radius of 64-bit hashes must be 0 to 64, not {radius}.")
    hashes = np.asarray(hashes, dtype=np.uint64)
    for left, right in equal_pairs(hashes, block=block):
        yield left, right, np.zeros(len(left), dtype=np.uint8)
    members, first, sizes = _members(hashes)
    for left, right, distance in _unique_blocks(hashes[members[first]], radius=radius, block=block):
        for row, a, b in cells(sizes[left], sizes[right], block=block):
            i, j = members[first[left[row]] + a], members[first[right[row]] + b]
            yield np.minimum(i, j), np.maximum(i, j), distance[row]


def components(n: int, left: npt.ArrayLike, right: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return for each of ``n`` items the smallest item that a chain of pairs connects to it."""
    edges = sparse.coo_array((np.ones(np.size(left), np.bool_), (left, right)), shape=(n, n))
    _, group = connected_components(edges, directed=False)
    smallest: npt.NDArray[np.int64] = np.unique(group, return_index=True)[1][group]
    return smallest


@compiled
def _keep(kept: Any, keeper: Any, earlier: Any, later: Any) -> None:
    for k in range(len(later)):
        if kept[earlier[k]] and kept[later[k]]:
            kept[later[k]] = False
            keeper[later[k]] = earlier[k]


def keepers(order: npt.ArrayLike, left: npt.ArrayLike, right: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return for each item the earliest kept item of which it is a near-duplicate, or itself if it is kept.

    Items are visited in ``order`` (positions, earliest first); one that is paired with an earlier kept item is dropped.
    """
    order = np.asarray(order, dtype=np.int64)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    a, b = rank[np.asarray(left, dtype=np.int64)], rank[np.asarray(right, dtype=np.int64)]
    earlier, later = np.minimum(a, b), np.maximum(a, b)
    by_later = np.lexsort((earlier, later))
    kept = np.ones(len(order), dtype=np.bool_)
    keeper = np.arange(len(order))
    _keep(kept, keeper, earlier[by_later], later[by_later])
    named: Counts = order[keeper[rank]]
    return named
