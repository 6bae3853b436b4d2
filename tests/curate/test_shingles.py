"""Signatures propose every pair that the texts confirm; alike means the same for any order of the rest."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pipelines.config.params import load
from pipelines.extract.shingles import candidates, shingles, signature, similarity

PARAMS = load(Path(__file__).resolve().parents[2]).texts
WORDS = [f"word{i}" for i in range(400)]


def test_shingles_are_runs_of_words() -> None:
    assert shingles(["a", "b", "c", "d"], size=3) == {"a b c", "b c d"}
    assert shingles(["a", "b"], size=3) == {"a b"}


@given(st.lists(st.sampled_from("abcdef"), min_size=1), st.lists(st.sampled_from("abcdef"), min_size=1))
def test_similarity_is_symmetric_and_one_only_for_the_same_runs(one: list[str], other: list[str]) -> None:
    left, right = shingles(one, size=2), shingles(other, size=2)
    assert similarity(left, right) == similarity(right, left)
    assert (similarity(left, right) == 1) == (left == right)


def test_near_copies_are_proposed_and_strangers_are_few() -> None:
    rng = random.Random(5)
    texts = [[rng.choice(WORDS) for _ in range(rng.randint(20, 300))] for _ in range(300)]
    copies = []
    for text in texts[:100]:
        copy = list(text)
        copy[rng.randrange(len(copy))] = "changed"
        copies.append(copy)
    everything = texts + copies
    proposed = set(candidates([signature(t, params=PARAMS) for t in everything], threshold=0.7))
    runs = [shingles(t, size=3) for t in everything]
    true = {(i, i + 300) for i in range(100) if similarity(runs[i], runs[i + 300]) >= 0.7}
    assert len(true) >= 95
    assert len(true & proposed) >= 0.98 * len(true)
    assert len(proposed - true) <= 20


def test_no_texts_have_no_pairs() -> None:
    assert list(candidates([], threshold=0.7)) == []


def test_a_signature_is_the_same_in_another_process() -> None:
    # pinned: stored signatures of old months are compared with those of new ones
    assert signature(["a", "b", "c", "d"], params=PARAMS)[:8].hex() == PINNED


PINNED = "cbe81b167c122b90"
