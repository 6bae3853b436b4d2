"""The decoded set is valid whatever the scores, and the most probable of all valid ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.taxonomy import Category, Label, load, tiers_of
from pipelines.metrics.decoding import decode

CATEGORY = load("cradle").category()
NAMES = CATEGORY.names
SETS = CATEGORY.valid_sets(most=4)
rows = st.lists(st.floats(0, 1), min_size=len(NAMES), max_size=len(NAMES))


def scored(**given: float) -> np.ndarray:
    return np.array([[given.get(name, 0.01) for name in NAMES]])


def worth(row: list[float], labels: frozenset[str]) -> float:
    clipped = {name: min(max(p, 1e-9), 1 - 1e-9) for name, p in zip(NAMES, row, strict=True)}
    return sum(math.log(p if name in labels else 1 - p) for name, p in clipped.items())


@given(rows)
@settings(deadline=None, max_examples=40)
def test_no_valid_set_is_more_probable(row: list[float]) -> None:
    [labels] = decode(np.array([row]), category=CATEGORY)
    assert not CATEGORY.check(labels, mode="strict", tiers=tiers_of("improved")).violations
    assert worth(row, labels) >= max(worth(row, other) for other in SETS) - 1e-6


@given(st.lists(rows, min_size=2, max_size=4))
@settings(deadline=None, max_examples=15)
def test_a_row_is_decoded_the_same_beside_any_others(table: list[list[float]]) -> None:
    together = decode(np.array(table), category=CATEGORY)
    assert together == [decode(np.array([row]), category=CATEGORY)[0] for row in table]


@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        ({"no_crisis": 0.9, "rape_past": 0.6}, {"no_crisis"}),
        ({"no_crisis": 0.6, "rape_past": 0.9}, {"rape_past"}),
        ({"rape_past": 0.9, "rape_ongoing": 0.8}, {"rape_past"}),
        ({"selfharm_past": 0.8, "rape_past": 0.9}, {"selfharm_past", "rape_past"}),
        ({"selfharm_past": 0.3}, {"selfharm_past"}),
        (
            {"suicideideation_active_ongoing": 0.7, "suicideideation_passive_ongoing": 0.9},
            {"suicideideation_passive_ongoing"},
        ),
        (
            {"suicideideation_active_past": 0.7, "suicideideation_passive_ongoing": 0.9},
            {"suicideideation_active_past", "suicideideation_passive_ongoing"},
        ),
    ],
)
def test_hard_rules_bind(scores: dict[str, float], labels: set[str]) -> None:
    assert decode(scored(**scores), category=CATEGORY) == [labels]


def test_equal_scores_fall_to_the_alphabet_among_single_labels() -> None:
    assert decode(np.full((1, len(NAMES)), 0.1), category=CATEGORY) == [{min(NAMES)}]


def test_an_ordinal_category_gets_one_label() -> None:
    category = load("figsim").category("severity")
    scores = np.full((3, len(category.names)), 0.4)
    scores[np.arange(3), [0, 1, 2]] = 0.8
    assert [len(labels) for labels in decode(scores, category=category)] == [1, 1, 1]


@pytest.mark.parametrize("scores", [np.zeros((2, 3)), np.full((1, len(NAMES)), math.nan), np.full((1, len(NAMES)), 2)])
def test_what_is_no_probability_is_refused(scores: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"probabilit|between 0 and 1"):
        decode(scores, category=CATEGORY)


def test_of_sixty_labels_only_small_sets_are_tried() -> None:
    labels = tuple(Label(f"label_{n}", code=f"l{n}", definition=f"It is {n}.") for n in range(60))
    many = Category("multi", task="Which?", labels=labels)
    assert len(many.valid_sets()) == 1 + 60 + 60 * 59 // 2
    scores = np.full((1, 60), 0.01)
    scores[0, :3] = 0.9
    [found] = decode(scores, category=many)
    assert len(found) == 2 and found < {"label_0", "label_1", "label_2"}
