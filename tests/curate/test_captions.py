"""Misreadings do not count as words of difference; words that people changed do."""

import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.collect.read.words import words
from pipelines.curate.dedupe.captions import Captions, caption_words

VOCABULARY = words("when the morning comes and nobody said hello to my tired little window plant again today")
CAPTION = st.lists(st.sampled_from(VOCABULARY), max_size=14)


def word_difference(a: str, b: str, *, limit: int = 1 << 14) -> int:
    """Return how many words differ between two captions, apart from misreadings, or ``limit`` if that many or more."""
    return int(Captions([a, b]).differences([0], [1], limit=limit)[0])


@pytest.mark.parametrize(
    ("a", "b", "difference"),
    [
        ("", "", 0),
        ("", "two words", 2),
        ("I can't wake up again", "ICANT WAKE UP AGAIN", 0),  # glued
        ("together we water plants", "to gether we wat er plants", 0),  # split
        ("together now we are", "toget hernow we are", 0),  # split elsewhere
        ("me at three in the morning", "rne at thr3e in the rnorning", 0),  # misread
        ("don't worry", "dont worry", 0),
        ("don't worry", "don t worry", 0),
        ("the lamp is tall", "the lamp is tail", 1),  # both are words
        ("i love mondays", "i live mondays", 1),
        ("me at three am", "me at four pm", 2),
        ("one two three four five", "one six seven eight five", 3),
        ("my plant said hello today", "hello today", 3),
        *((*pair, 0) for pair in (("f4il", "fail"), ("tomorow", "tomorrow"), ("lt", "it"), ("vvater", "water"))),
        *((*pair, 1) for pair in (("fall", "fail"), ("now", "not"), ("live", "love"), ("he", "me"), ("xy", "xz"))),
    ],
)
def test_word_difference(a: str, b: str, difference: int) -> None:
    assert word_difference(a, b) == difference
    assert word_difference(b, a) == difference
    assert word_difference(a, b, limit=2) == min(2, difference)


@given(CAPTION, st.integers(0, 5), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_true_text_is_compared_to_the_letter(caption: list[str], edits: int, rng: random.Random) -> None:
    """Without misreadings the difference is the number of replaced words, in whatever case and spacing."""
    edits = min(edits, len(caption))
    changed = list(caption)
    for k, place in enumerate(rng.sample(range(len(caption)), edits)):
        changed[place] = ("quartz", "zebra", "velvet", "oxygen", "jungle")[k]
    assert word_difference(" ".join(caption), "\n".join(changed).upper()) == edits


def misread(caption: list[str], rng: random.Random) -> str:
    text = " ".join(caption)
    for _ in range(rng.randint(0, 3)):
        cut = rng.randrange(len(text) + 1)
        text = rng.choice([text[:cut] + " " + text[cut:], text[:cut] + text[cut + 1 :], text.replace("l", "1", 1)])
    return text


@cache
def word_apart(a: str, b: str) -> int:
    return word_difference(a, b, limit=1)


def plainly(a: list[str], b: list[str]) -> int:
    """The same alignment without any shortcut: each cell from all cells that lead to it."""
    cost = {(0, 0): 0}
    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            before = [cost.get((i, j), 1 << 14)]
            before += [cost[i - 1, j] + 1] if i else []
            before += [cost[i, j - 1] + 1] if j else []
            before += [cost[i - 1, j - 1] + word_apart(a[i - 1], b[j - 1])] if i and j else []
            for p in range(1, min(3, i) + 1):
                for q in range(1, min(3, j) + 1):
                    if "".join(a[i - p : i]) == "".join(b[j - q : j]):
                        before.append(cost[i - p, j - q])
            cost[i, j] = min(before)
    return cost[len(a), len(b)]


@given(st.lists(CAPTION, min_size=1, max_size=6), st.randoms(use_true_random=False), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_many_pairs_at_once_equal_a_plain_alignment(captions: list[list[str]], rng: random.Random, limit: int) -> None:
    texts = [misread(c, rng) for c in captions] + [misread(c[:-1], rng) for c in captions]
    left, right = (x.ravel() for x in np.indices((len(texts), len(texts))))
    read = [caption_words(text) for text in texts]
    expected = [min(limit, plainly(read[i], read[j])) for i, j in zip(left, right, strict=True)]
    assert Captions(texts).differences(left, right, limit=limit).tolist() == expected


@given(st.lists(CAPTION, min_size=2, max_size=12))
@settings(max_examples=100, deadline=None)
def test_similar_captions_share_a_rare_word(captions: list[list[str]]) -> None:
    item, word = Captions([" ".join(c) for c in captions]).rare_words(range(len(captions)), most=3)
    rare = [set(word[item == i].tolist()) for i in range(len(captions))]
    for i, a in enumerate(captions):
        for j, b in enumerate(captions[:i]):
            if min(len(set(a)), len(set(b))) > 2 and len(set(a) - set(b)) < 3 and len(set(b) - set(a)) < 3:
                assert rare[i] & rare[j]


def test_no_captions() -> None:
    none = Captions([])
    assert none.differences([], [], limit=3).tolist() == []
    assert none.rare_words([], most=3)[0].tolist() == []
