"""The search is exact, the groups are right, and what is dropped always repeats something that stays."""

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.curate.dedupe.hamming_search import components, keepers, pair_blocks

WORDS = st.integers(min_value=0, max_value=2**64 - 1)


@st.composite
def clustered(draw: st.DrawFn) -> np.ndarray:
    """Hashes a few bits around few centres, many of them equal or in one bucket: the search's worst diet."""
    centres = draw(st.lists(WORDS, min_size=1, max_size=3))
    flips = st.lists(st.integers(0, 63), max_size=18)
    return np.array(
        draw(
            st.lists(
                st.builds(lambda c, bits: c ^ sum(1 << b for b in set(bits)), st.sampled_from(centres), flips),
                min_size=0,
                max_size=60,
            )
        ),
        dtype=np.uint64,
    )


def brute_force(hashes: np.ndarray, radius: int) -> np.ndarray:
    """Rows of (left, right, distance) in order."""
    distance = np.bitwise_count(hashes[:, None] ^ hashes[None, :])
    left, right = np.nonzero(np.triu(distance <= radius, 1))
    return np.stack([left, right, distance[left, right]], axis=1)


def found(hashes: np.ndarray, radius: int) -> np.ndarray:
    return ordered([np.stack(block, axis=1) for block in pair_blocks(hashes, radius=radius)])


def ordered(blocks: list[np.ndarray]) -> np.ndarray:
    """Return the rows of all blocks by left, then right."""
    rows = np.concatenate([np.empty((0, 3), dtype=np.int64), *blocks])
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


@pytest.mark.parametrize("radius", range(17))
def test_the_index_equals_brute_force(radius: int) -> None:
    """Large enough that buckets, not brute force, do the work up to a radius of 13."""
    rng = np.random.default_rng(radius)
    hashes = rng.integers(0, 2**64, 40, dtype=np.uint64)[rng.integers(0, 40, 3000)]
    for _ in range(6):
        flip = np.uint64(1) << rng.integers(0, 64, len(hashes), dtype=np.uint64)
        hashes = np.where(rng.random(len(hashes)) < 0.7, hashes ^ flip, hashes)
    assert np.array_equal(found(hashes, radius), brute_force(hashes, radius))


@pytest.mark.parametrize("radius", [1, 3, 7, 10])
def test_hashes_that_share_chunks_are_found_once(radius: int) -> None:
    """All share 48 bits, so every chunk proposes nearly every pair."""
    hashes = (np.arange(1000, dtype=np.uint64) * np.uint64(37)) & np.uint64(0xFFFF)
    for moved in (hashes, hashes << np.uint64(48), hashes << np.uint64(24)):
        assert np.array_equal(found(moved, radius), brute_force(moved, radius))


HASHES = st.one_of(clustered(), st.lists(WORDS, max_size=60).map(lambda x: np.array(x, np.uint64)))


@given(HASHES, st.integers(0, 16), st.one_of(st.integers(1, 9), st.just(1000)))
@settings(max_examples=200, deadline=None)
def test_blocks_of_any_size_hold_the_pairs_of_brute_force(hashes: np.ndarray, radius: int, block: int) -> None:
    blocks = [np.stack(b, axis=1) for b in pair_blocks(hashes, radius=radius, block=block)]
    assert all(len(b) <= block + len(hashes) for b in blocks)
    assert np.array_equal(ordered(blocks), brute_force(hashes, radius))


def test_a_radius_beyond_the_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="0 to 64"):
        list(pair_blocks(np.zeros(2, dtype=np.uint64), radius=65))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    n = draw(st.integers(1, 40))
    node = st.integers(0, n - 1)
    return n, draw(st.lists(st.tuples(node, node).filter(lambda e: e[0] != e[1]), max_size=60))


@given(graphs())
@settings(max_examples=100, deadline=None)
def test_components_equal_networkx(graph: tuple[int, list[tuple[int, int]]]) -> None:
    n, edges = graph
    reference = networkx.Graph(edges)
    reference.add_nodes_from(range(n))
    expected = {member: min(group) for group in networkx.connected_components(reference) for member in group}
    labels = components(n, [a for a, _ in edges], [b for _, b in edges])
    assert {i: int(label) for i, label in enumerate(labels)} == expected


@given(graphs(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_what_is_dropped_repeats_an_earlier_kept_item(graph: tuple[int, list[tuple[int, int]]], random: object) -> None:
    n, edges = graph
    order = list(range(n))
    random.shuffle(order)  # type: ignore[attr-defined]
    left, right = [a for a, _ in edges], [b for _, b in edges]
    keeper = keepers(order, left, right)
    kept = keeper == np.arange(n)
    rank = {item: i for i, item in enumerate(order)}
    direct = {(a, b) for a, b in edges} | {(b, a) for a, b in edges}
    for a, b in edges:
        assert not (kept[a] and kept[b])
    for item in range(n):
        earlier = [other for other in range(n) if (item, other) in direct and kept[other] and rank[other] < rank[item]]
        assert kept[item] == (not earlier)
        assert keeper[item] == (min(earlier, key=rank.__getitem__) if earlier else item)
