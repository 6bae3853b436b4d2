"""Hash and caption must both agree, however a pair was proposed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.collect.read.words import words
from pipelines.core.config.collect import Dedupe
from pipelines.curate.dedupe.hamming_search import components
from pipelines.curate.dedupe.image_pairs import MIRROR, Pairs, Pictures, kinds, pairs_of_items, pairs_of_kinds
from tests.curate.test_captions import word_difference

PARAMS = Dedupe(
    radius=10,
    radius_no_text=6,
    radius_long_caption=16,
    long_caption=6,
    word_difference=3,
    misread_words=2,
    listed_copies=100,
    similarity=0.7,
)
LONG = "nobody told me that the plant on the window needs water"


def pictures(*items: tuple[int | None, str]) -> Pictures:
    """Items as (bits that are set in the hash, or None for a flat picture; caption)."""
    hashes = np.array([(1 << bits) - 1 if bits is not None else 0 for bits, _ in items], dtype=np.uint64)
    return Pictures(
        hashes=hashes,
        hashed=np.array([bits is not None for bits, _ in items]),
        digests=[f"{bits}" for bits, _ in items],
        texts=[text for _, text in items],
        energies=np.full(len(items), 50.0),
        inner=hashes.copy(),
        outer=hashes.copy(),
    )


def find(given_: Pictures, *, listed: int = 100) -> Pairs:
    known = kinds(given_)
    return pairs_of_items(pairs_of_kinds(given_, known, params=PARAMS), known, listed=listed)


def as_list(pairs: Pairs) -> list[tuple[int, int, int, int]]:
    columns = (pairs.left.tolist(), pairs.right.tolist(), pairs.hamming.tolist(), pairs.words.tolist())
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize(
    ("bits", "one", "other", "words_apart"),
    [
        (0, "", "", 0),
        (6, "", "", 0),
        (7, "", "", None),  # without text the picture must be closer
        (6, "hello", "tired", 1),  # no word agrees either
        (7, "hello", "tired", None),
        (10, "hello tired plant", "hello plant", 1),
        (11, "hello tired plant", "hello plant", None),
        (16, LONG, LONG.upper(), 0),
        (16, LONG, LONG.replace("plant", "cat").replace("water", "food"), 2),
        (0, LONG, LONG.replace("plant", "cat").replace("water", "food").replace("told", "warned"), None),
        (18, LONG, LONG, 0),
        (19, LONG, LONG, None),
        (17, LONG, LONG.replace("plant", "cat"), None),
        (10, LONG, LONG + " made with PicJoin", 3),  # a watermark
        (0, "one more episode", "one more episode jokebarn.example/fun", 3),
        (11, LONG, LONG + " made with PicJoin", None),
        (0, LONG, LONG + " and so does the one on the door", None),  # another caption that begins like this one
        (0, "we ride", "we ride at dawn or so", None),
        (0, LONG, LONG.replace("plant", "cat").replace("water", "food").replace("told", "warned") + " today", None),
    ],
)
def test_the_rule_and_watermarks(bits: int, one: str, other: str, words_apart: int | None) -> None:
    found = as_list(find(pictures((0, one), (bits, other))))
    assert found == ([] if words_apart is None else [(0, 1, bits, words_apart)])


def test_a_mirrored_copy_is_found_without_its_pixels() -> None:
    copies = pictures((0, LONG), (0, LONG), (0, "hello"))
    copies = replace(copies, hashes=copies.hashes ^ np.array([0, MIRROR, MIRROR], np.uint64))
    copies = replace(copies, inner=copies.hashes, outer=copies.hashes)
    assert as_list(find(copies)) == [(0, 1, 0, 0)]
    nearly = pictures((9, LONG), (0, LONG))
    nearly.hashes[1] ^= MIRROR
    nearly.inner[1] ^= MIRROR
    nearly.outer[1] ^= MIRROR
    assert as_list(find(nearly)) == [(0, 1, 9, 0)]


def test_a_picture_in_bars_is_found_by_its_inner_hash() -> None:
    shots = pictures((0, LONG), (40, "9:41 " + LONG), (44, LONG[:20]))
    assert as_list(find(shots)) == []
    shots = replace(shots, inner=shots.inner[[0, 0, 2]])
    assert as_list(find(shots)) == [(0, 1, 0, 2)]
    marked = pictures((0, LONG), (40, LONG + " r/everydaything"))
    assert as_list(find(replace(marked, outer=marked.outer[[0, 0]]))) == [(0, 1, 0, 2)]
    short = pictures((0, "hello"), (40, "hello"))
    assert as_list(find(replace(short, inner=short.inner[[0, 0]]))) == [(0, 1, 0, 0)]


def test_lines_that_were_read_in_another_order_are_the_same_caption() -> None:
    lines = LONG.split()
    assert as_list(find(pictures((0, LONG), (2, " ".join(lines[6:] + lines[:6]))))) == [(0, 1, 2, 0)]
    # other captions beside the same sign, with two more words in common
    assert as_list(find(pictures((0, "open daily Priya what is this"), (2, "open daily this is fine everyone")))) == []


@pytest.mark.parametrize(
    ("bits", "energy", "said", "found"),
    [
        (6, 140.0, LONG.upper(), 1),
        (7, 99.0, LONG, 1),
        (7, 101.0, LONG, 0),
        (7, 50.0, LONG.upper(), 0),
        (16, 99.0, LONG, 1),
        (16, 101.0, LONG, 0),
        (16, 50.0, LONG.upper(), 0),
    ],
)
def test_replaced_words_leave_contrast_and_capitals(bits: int, energy: float, said: str, found: int) -> None:
    replaced = said.replace("plant", "cat").replace("PLANT", "CAT")
    for other, expected in ((replaced, found), (said + " today", 1)):
        copies = pictures((0, LONG), (bits, other))
        copies.energies[1] = energy
        assert len(as_list(find(copies))) == expected


@pytest.mark.parametrize(("energy", "found"), [(26.0, 1), (28.0, 0)])
def test_the_caption_decides_on_a_screenshot_of_text(energy: float, found: int) -> None:
    shots = pictures((0, LONG), (30, "7:33 " + LONG))
    shots.energies[0] = energy
    assert len(as_list(find(shots))) == found
    replaced = LONG.replace("plant", "cat")
    for other in (replaced, replaced.replace("told me", "toldme")):
        for energies in ([energy, 60.0], [energy, energy], [energy - 17, energy]):
            pages = pictures((0, LONG), (30, other))
            pages.energies[:] = energies
            assert as_list(find(pages)) == []
    swapped = pictures((0, LONG), (30, LONG.replace("nobody", "x").replace("that", "nobody").replace("x", "that")))
    swapped.energies[:] = energy
    assert len(as_list(find(swapped))) == found
    swapped.energies[1] = 60.0
    assert as_list(find(swapped)) == []


@pytest.mark.parametrize(("energy", "found"), [(9.0, 1), (11.0, 0)])
def test_words_may_be_replaced_on_empty_pages_with_the_same_capitals(energy: float, found: int) -> None:
    for other, expected in ((LONG.replace("plant", "cat"), found), (LONG.replace("plant", "cat").upper(), 0)):
        pages = pictures((0, LONG), (30, other))
        pages.energies[:] = energy
        assert len(as_list(find(pages))) == expected


@pytest.mark.parametrize(("energy", "found"), [(9.0, 1), (11.0, 0)])
def test_a_short_caption_decides_on_an_empty_page(energy: float, found: int) -> None:
    pages = pictures((0, "so close so far"), (30, "so close so far memeworks.example"))
    pages.energies[:] = energy
    assert len(as_list(find(pages))) == found
    others = pictures((0, "so close so far"), (30, "so close so good"), (50, "so close"))
    others.energies[:] = energy
    assert as_list(find(others)) == []


def test_two_long_captions_that_differ_in_many_words_are_different() -> None:
    many = [f"word{n}" for n in range(50)]
    assert as_list(find(pictures((0, " ".join(many)), (2, " ".join([*"abcd", *many[8:]]))))) == []


def test_a_flat_picture_repeats_only_its_own_bytes_and_words() -> None:
    flat = pictures((None, ""), (None, ""), (None, "hello"), (0, ""))
    assert as_list(find(flat)) == [(0, 1, 0, 0)]
    other_bytes = replace(flat, digests=["a", "b", "c", "d"])
    assert as_list(find(other_bytes)) == []


TEXT = st.sampled_from(["", "hello", "good morning", LONG, LONG[7:]])
ITEM = st.tuples(st.one_of(st.none(), st.integers(0, 40)), TEXT)


@given(st.lists(ITEM, max_size=25))
@settings(max_examples=80, deadline=None)
def test_equals_the_rule_applied_to_every_pair(items: list[tuple[int | None, str]]) -> None:
    expected = []
    for j, (b, second) in enumerate(items):
        for i, (a, first) in enumerate(items[:j]):
            apart = word_difference(first, second)
            agreeing = max(len(words(first)), len(words(second))) - apart
            replaced = apart > abs(len(words(first)) - len(words(second)))
            radius = (16 if replaced else 18) if agreeing >= 6 else 10 if agreeing else 6
            if a is None or b is None:
                if a is b and first == second:
                    expected.append((i, j, 0, 0))
            elif apart < 3 and abs(a - b) <= radius:
                expected.append((i, j, abs(a - b), apart))
    assert as_list(find(pictures(*items))) == sorted(expected)


@given(st.lists(ITEM, max_size=25), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_a_shorter_list_of_copies_keeps_the_groups(items: list[tuple[int | None, str]], listed: int) -> None:
    given_ = pictures(*items)
    every, short = find(given_), find(given_, listed=listed)
    assert set(as_list(short)) <= set(as_list(every))
    groups = [components(len(items), p.left, p.right).tolist() for p in (every, short)]
    assert groups[0] == groups[1]


def test_many_copies_make_few_pairs() -> None:
    found = find(pictures(*[(5, LONG)] * 5000), listed=10)
    assert len(found.left) == 10 * 9 // 2 + 4990
