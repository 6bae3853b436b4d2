"""The text posts: every case there, no two alike by chance, all three sources serve them as the truth says."""

from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from crisis_corpus_sandbox.reddit.narratives import recognise
from crisis_corpus_sandbox.reddit.post_world import (
    ALIKE,
    COMMUNITIES,
    COPIES,
    DROPPED,
    EVERY,
    SMALLEST,
    UNLIKE,
    PostWorld,
    counts,
    shingles,
    similarity,
    text_of,
)
from pipelines.collect.month import Window
from pipelines.collect.read.language import LanguageGate
from pipelines.collect.read.words import words
from pipelines.collect.sources.dump import DumpSource
from pipelines.collect.submission import Submission
from pipelines.core.config.collect import Sandbox
from pipelines.core.config.params import load
from tests.sandbox.served import kept_by_source

ROOT = Path(__file__).parents[2]
PARAMS = load(ROOT, profile="sandbox")
EARLY = {"deleted", "removed", "deleted_later"}


def of(size, *, seed=1):
    return Sandbox(seed=seed, months=("2022-11",), submissions=200, posts=size, port=1)


def test_the_communities_are_those_of_the_corpus():
    assert set(COMMUNITIES) == set(PARAMS.corpora["posts"].subreddits)


def test_the_same_seed_gives_the_same_posts_and_another_others():
    first, again, other = (PostWorld(of(120, seed=s)).build() for s in (1, 1, 2))
    assert first == again
    assert {p.body for p in first} != {p.body for p in other}


@pytest.mark.parametrize("size", [SMALLEST, SMALLEST + 7, 200, 800])
def test_every_case_occurs_and_counts_add_up(size):
    assert sum(counts(size).values()) == size
    made = PostWorld(of(size)).build()
    found = Counter(p.case for p in made)
    assert {c.name: c.least for c in EVERY if found[c.name] < c.least} == {}
    assert len(made) == len({p.id for p in made}) == size
    assert {p.subreddit for p in made} == set(COMMUNITIES)
    with pytest.raises(ValueError, match="at least"):
        counts(SMALLEST - 1)


def test_enough_distinct_posts_for_the_profiles_sample(posts):
    single = [p for p in posts if p.expected == "kept" and p.case not in ("copy", "near_copy")]
    assert len(single) >= PARAMS.sample["posts"].size + 20
    assert sum(PARAMS.split["posts"].sizes.values()) == PARAMS.sample["posts"].size


def test_kept_posts_carry_their_labels_and_nothing_else(posts):
    kept = [p for p in posts if p.expected == "kept"]
    assert [p.case for p in kept if recognise(text_of(p)) != set(p.cradle)] == []
    assert {label for p in kept for label in p.cradle} == {
        *(f"{kind}_{when}" for kind in (
            "suicideideation_active", "suicideideation_passive", "selfharm", "domesticviolence", "rape",
            "sexualharassment", "childabuse_endangerment",
        ) for when in ("ongoing", "past")),
        "no_crisis",
    }  # fmt: skip


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


def test_copies_come_after_their_originals_many_in_another_community(posts):
    originals = {p.family: p for p in posts if p.family and p.rank == 0}
    copies = [p for p in posts if p.case in {c.name for c in COPIES}]
    assert all(p.created >= originals[p.family].created for p in copies)
    assert all(p.cradle == originals[p.family].cradle for p in copies)
    elsewhere = sum(p.subreddit != originals[p.family].subreddit for p in copies)
    own = sum(p.author == originals[p.family].author for p in copies)
    assert len(copies) * 0.3 < elsewhere < len(copies)
    assert len(copies) * 0.3 < own < len(copies)
    assert all(p.body == originals[p.family].body for p in copies if p.case == "copy")
    near = [(p, originals[p.family]) for p in copies if p.case == "near_copy"]
    assert near and all((p.title, p.body) != (o.title, o.body) for p, o in near)


def test_about_two_of_a_hundred_posts_speak_to_a_model(posts):
    injected = [p for p in posts if p.injected]
    assert 0.01 < len(injected) / len(posts) < 0.03
    assert all("no_crisis" in p.body or "empty list" in p.body for p in injected)
    assert not any("no_crisis" in p.body for p in posts if not p.injected)


def test_the_dumps_tell_what_the_truth_says(built, known_posts):
    source = DumpSource(built / "dumps", params=PARAMS.dump)
    for month in known_posts["months"]:
        items = source.submissions(Window.from_key(month), subreddits=COMMUNITIES)
        found = {i.fullname: i for i in items}
        truth = {p["fullname"]: p for p in known_posts["posts"] if p["month"] == month}
        assert set(found) == set(truth)
        for name, item in found.items():
            expected = truth[name]["expected"]
            assert (expected in EARLY) == (not isinstance(item, Submission))
            if isinstance(item, Submission):
                assert item.subreddit == truth[name]["subreddit"]
                assert (item.kind == "text") == (expected != "not_text")
                assert bool(item.body.strip()) == (expected not in ("not_text", "no_text"))
                if expected == "kept":
                    assert recognise(f"{item.title}\n{item.body}") == set(truth[name]["labels"])
            else:
                assert item.reason == expected


def test_all_three_sources_serve_the_same_posts(built, known_posts, tmp_path, monkeypatch):
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path))
    months = known_posts["months"]
    kept = kept_by_source(built, params=PARAMS, corpus="posts", months=months, subreddits=COMMUNITIES)
    lost = {c.name for c in DROPPED[:4]}
    expected = {p["fullname"] for p in known_posts["posts"] if p["case"] not in lost}
    assert set(kept["dump"]) == set(kept["reddit"]) == expected
    assert kept["arctic_shift"].items() <= kept["dump"].items()
    assert kept["dump"] == kept["reddit"]
