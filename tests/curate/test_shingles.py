"""Signatures propose every pair that the texts confirm; alike means the same for any order of the rest."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats

from pipelines.collect.read.shingles import alike, shingles, signature, similarity
from pipelines.core.config.params import load
from pipelines.curate.dedupe.text_pairs import bands, first_copies, least_agreeing, similar_pairs

PARAMS = load(Path(__file__).resolve().parents[2]).texts
WORDS = [f"word{i}" for i in range(400)]


def candidates(signatures: list[bytes], *, threshold: float) -> set[tuple[int, int]]:
    values = np.frombuffer(b"".join(signatures), "<u4").reshape(len(signatures), PARAMS.permutations)
    rows = np.arange(len(signatures))
    found = [
        pair for one, other in similar_pairs(values, rows, threshold=threshold) for pair in zip(one, other, strict=True)
    ]
    assert len(set(found)) == len(found), "each pair is proposed once"
    return {(int(left), int(right)) for left, right in found}


def test_shingles_are_runs_of_words() -> None:
    assert shingles(["a", "b", "c", "d"], size=3) == {"a b c", "b c d"}
    assert shingles(["a", "b"], size=3) == {"a b"}


@given(st.lists(st.sampled_from("abcdef"), min_size=1), st.lists(st.sampled_from("abcdef"), min_size=1))
def test_similarity_is_symmetric_and_one_only_for_the_same_runs(one: list[str], other: list[str]) -> None:
    left, right = shingles(one, size=2), shingles(other, size=2)
    assert similarity(left, right) == similarity(right, left)
    assert (similarity(left, right) == 1) == (left == right)


def altered(pool: list[str], *, rng: np.random.Generator, length: int, pieces: int) -> tuple[list[str], list[str]]:
    """Return a text and a copy of it with whole clauses moved, cut or replaced: not the words changed one by one."""
    text = [pool[i] for i in rng.zipf(1.3, length) % len(pool)]
    copy = list(text)
    for _ in range(pieces):
        at, size = int(rng.integers(0, len(copy))), int(rng.integers(1, 6))
        clause = copy[at : at + size]
        del copy[at : at + size]
        kind = rng.integers(3)
        if kind == 0:
            copy += clause
        elif kind == 1:
            copy[at:at] = [pool[i] for i in rng.integers(0, len(pool), size)]
    return text, copy


def every_pair(runs: list[set[str]], *, threshold: float) -> set[tuple[int, int]]:
    """Compare all pairs: the number of common shingles is a product of matrices."""
    column = {shingle: j for j, shingle in enumerate(sorted(set().union(*runs)))}
    cells = [(i, column[shingle]) for i, run in enumerate(runs) for shingle in run]
    rows = sparse.csr_matrix((np.ones(len(cells), np.int64), tuple(zip(*cells, strict=True))))
    common, sizes = sparse.triu(rows @ rows.T, k=1).tocoo(), np.array([len(run) for run in runs])
    alike = common.data / (sizes[common.row] + sizes[common.col] - common.data)
    return {
        (int(i), int(j)) for i, j in zip(common.row[alike >= threshold], common.col[alike >= threshold], strict=True)
    }


def near_the_threshold(pairs: int) -> list[list[str]]:
    """Return texts of which consecutive ones are between .70 and .75 alike."""
    rng, pool, texts = np.random.default_rng(19), [f"w{i}" for i in range(3000)], list[list[str]]()
    while len(texts) < 2 * pairs:
        length = int(rng.integers(12, 260))
        one, other = altered(pool, rng=rng, length=length, pieces=int(rng.integers(1, 2 + length // 16)))
        if 0.7 <= similarity(shingles(one, size=3), shingles(other, size=3)) <= 0.75:
            texts += [one, other]
    return texts


@pytest.mark.parametrize("pairs", [300, pytest.param(2000, marks=pytest.mark.faults)])
def test_pairs_at_the_threshold_are_proposed(pairs: int) -> None:
    threshold = 0.7
    texts = near_the_threshold(pairs)
    signatures = [signature(text, params=PARAMS) for text in texts]
    runs = [shingles(text, size=3) for text in texts]
    true = every_pair(runs, threshold=threshold)
    assert len(true) >= pairs
    proposed = candidates(signatures, threshold=threshold)
    assert len(true & proposed) >= 0.995 * len(true)
    assert set(alike(runs, threshold=threshold)) == true, "the join without signatures misses none"


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("count", [16, 64, 128, 256])
def test_bands_fit_the_signature_and_miss_few(count: int, threshold: float) -> None:
    number, length = bands(count, threshold=threshold)
    assert number >= 2 and number * length <= count
    assert (1 - threshold**length) ** number <= 0.001


@given(
    st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12), max_size=12), st.sampled_from([0.3, 0.7, 1])
)
def test_the_join_finds_what_comparing_every_pair_finds(texts: list[list[str]], threshold: float) -> None:
    runs = [shingles(text, size=2) for text in texts]
    true = [(i, j) for j in range(len(runs)) for i in range(j) if similarity(runs[i], runs[j]) >= threshold]
    assert list(alike(runs, threshold=threshold)) == true


def test_no_texts_have_no_pairs() -> None:
    assert candidates([], threshold=0.7) == set()


def test_equal_signatures_name_the_first_one() -> None:
    rows = np.array([[3, 1], [2, 2], [3, 1], [3, 1], [2, 1]], np.uint32)
    assert first_copies(rows).tolist() == [0, 1, 0, 0, 4]


@pytest.mark.parametrize(("count", "threshold", "least"), [(128, 0.7, 57), (128, 1.0, 128), (16, 0.5, 0)])
def test_signatures_that_agree_too_little_are_not_compared(count: int, threshold: float, least: int) -> None:
    assert least_agreeing(count, threshold=threshold) == least
    below = stats.binom.cdf(least - 1, count, threshold)
    assert below <= 1e-9 < stats.binom.cdf(least, count, threshold)


def test_a_signature_is_the_same_in_another_process() -> None:
    # pinned: stored signatures of old months are compared with those of new ones
    assert signature(["a", "b", "c", "d"], params=PARAMS)[:8].hex() == PINNED


PINNED = "cbe81b167c122b90"
