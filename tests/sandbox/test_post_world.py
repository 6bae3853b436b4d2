"""The text posts: every case there, no two alike by chance, all three sources serve them as the truth says."""

from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from crisis_corpus_sandbox.reddit.narratives import recognise
from crisis_corpus_sandbox.reddit.post_world import (
    ALIKE,
    COMMUNITIES,
    EVERY,
    SMALLEST,
    UNLIKE,
    PostWorld,
    shingles,
    text_of,
)
from pipelines.collect.read.language import LanguageGate
from pipelines.collect.read.shingles import similarity
from pipelines.collect.read.words import words
from pipelines.core.config.collect import Sandbox
from pipelines.core.config.params import load
from pipelines.core.taxonomy import load as load_scheme

ROOT = Path(__file__).parents[2]
PARAMS = load(ROOT, profile="sandbox")
EARLY = {"deleted", "removed", "deleted_later"}


def of(size, *, seed=1):
    return Sandbox(seed=seed, months=("2022-11",), submissions=200, posts=size, port=1)


@pytest.mark.parametrize("size", [SMALLEST, SMALLEST + 7, 200, 800])
def test_every_case_occurs_and_counts_add_up(size):
    made = PostWorld(of(size)).build()
    found = Counter(p.case for p in made)
    assert {c.name: c.least for c in EVERY if found[c.name] < c.least} == {}
    assert len(made) == len({p.id for p in made}) == size
    assert {p.subreddit for p in made} == set(COMMUNITIES)
    with pytest.raises(ValueError, match="at least"):
        PostWorld(of(SMALLEST - 1))


def test_enough_distinct_posts_for_the_profiles_sample(posts):
    single = [p for p in posts if p.expected == "kept" and p.case not in ("copy", "near_copy")]
    assert len(single) >= PARAMS.sample["posts"].size + 20
    assert sum(PARAMS.split["posts"].sizes.values()) == PARAMS.sample["posts"].size


def test_kept_posts_carry_their_labels_and_nothing_else(posts):
    kept = [p for p in posts if p.expected == "kept"]
    assert [p.case for p in kept if recognise(text_of(p)) != set(p.cradle)] == []
    assert {label for p in kept for label in p.cradle} == set(load_scheme("cradle").category().names)


def test_lengths_and_languages_are_what_the_steps_expect(posts):
    gate = LanguageGate(PARAMS.language)
    for post in posts:
        count, english = len(words(text_of(post))), gate.judge(text_of(post)).language == "en"
        if post.expected == "kept":
            assert 5 <= count <= PARAMS.texts.max_words
            assert english
        elif post.expected == "too_short":
            assert count < PARAMS.texts.min_words
        elif post.expected == "too_long":
            assert len(words(post.body)) > PARAMS.texts.max_words
        elif post.expected == "not_english":
            assert not english
            assert post.language != "en"
        elif post.expected == "no_text":
            assert not post.body.strip()
    lengths = [len(p.body.split()) for p in posts if p.expected == "kept"]
    assert min(lengths) <= 10
    assert 650 <= max(lengths) <= 800


@pytest.mark.parametrize("seed", [1, 2])
def test_copies_are_alike_and_no_others(seed):
    kept = [(p, shingles(text_of(p))) for p in PostWorld(of(250, seed=seed)).build() if p.expected == "kept"]
    for (one, mine), (other, theirs) in combinations(kept, 2):
        copies = one.family == other.family != "" and "half_copy" not in (one.case, other.case)
        found = similarity(mine, theirs)
        assert found >= ALIKE if copies else found < UNLIKE + 0.1
    assert PARAMS.texts.shingle_words == 3
    assert UNLIKE + 0.1 < PARAMS.dedupe.similarity < ALIKE
