"""Thresholds: the best F1 on validation, the same every time, and not taken from a handful of positives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.datasets.example import Example
from pipelines.metrics.decoding import Floats, decide, tune
from tests.refusals import refused

SEVERITY, FIGURATIVE = (task_of(load("figsim"), key) for key in ("severity", "figurative"))
METAPHOR, PUN, IRONY = FIGURATIVE.labels


def examples(truth: Sequence[Sequence[int]], *, split: str = "validation") -> list[Example]:
    """Return one example a row, with the labels whose column is 1."""
    found = []
    for number, row in enumerate(truth):
        labels = frozenset(label for label, one in zip(FIGURATIVE.labels, row, strict=True) if one)
        found.append(Example((f"{number:032x}", 0), split, "", None, labels=labels, group=f"{number:032x}/0"))
    return found


def one(scores: Sequence[float], truth: Sequence[int]) -> float:
    """Tune one label alone, as the paper does."""
    values = np.zeros((len(scores), 3))
    values[:, 0] = scores
    rows = [(t, 0, 0) for t in truth]
    return float(tune(values, examples=examples(rows), task=FIGURATIVE, mode="paper", min_positives=1)[0])


@pytest.mark.parametrize(
    ("scores", "truth", "expected"),
    [
        # the middle of the gap
        ([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1], 0.25),
        ([0.9, 0.8, 0.6, 0.7], [1, 1, 0, 0], 0.75),
        # F1, not accuracy: two of three right at .35 (F1 .8) beat one of one right at .75 (F1 .67)
        ([0.9, 0.6, 0.4, 0.3], [1, 0, 1, 0], 0.35),
        # of equals, the nearest to .5: .3 and .7 are both one mistake short of nothing
        ([0.2, 0.9], [0, 1], 0.5),
        ([0.2, 0.4, 0.45, 0.55, 0.6, 0.8], [0, 0, 0, 0, 0, 0], 0.5),
        # F1 is 2/3 with the first alone and 2/3 with the first four: .65 is nearer than .05
        ([0.7, 0.6, 0.5, 0.1], [1, 0, 0, 1], 0.65),
        # of two as near, the higher: 2/3 above .8 (one of one) and above .2 (two of four)
        ([0.9, 0.7, 0.3, 0.3, 0.1], [1, 0, 0, 1, 0], 0.8),
    ],
)
def test_the_threshold_of_the_best_f1(scores: list[float], truth: list[int], expected: float) -> None:
    assert one(scores, truth) == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=25))
def test_no_threshold_is_better(rows: list[tuple[int, bool]]) -> None:
    scores, truth = np.array([s / 40 for s, _ in rows]), np.array([t for _, t in rows])
    found = one(scores.tolist(), truth.astype(int).tolist())

    def f1(threshold: float) -> float:
        right = sum(t and s >= threshold for s, t in zip(scores, truth, strict=True))
        return 2 * right / max(1, truth.sum() + (scores >= threshold).sum())

    assert f1(found) == max(f1(step / 80) for step in range(81))
    assert f1(found) == pytest.approx(f1_score(truth, scores >= found, zero_division=0))


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(rng: object) -> None:
    values = np.random.default_rng(3).random((30, 3)).round(1)
    truth = examples(np.random.default_rng(4).integers(0, 2, (30, 3)).tolist())
    order = list(range(30))
    rng.shuffle(order)  # type: ignore[attr-defined]
    whole = {"task": FIGURATIVE, "mode": "improved", "min_positives": 16}
    assert (
        tune(values, examples=truth, **whole).tolist()
        == tune(values[order], examples=[truth[i] for i in order], **whole).tolist()
    )


def rare() -> tuple[Floats, list[Example]]:
    """Forty items: the first label has twenty positives, the second two with low scores, the third none."""
    truth = [(int(i < 20), int(i in (0, 1)), 0) for i in range(40)]
    values = np.array([[0.8 if i < 20 else 0.2, 0.12 if i < 2 else 0.1, 0.1] for i in range(40)])
    return values, examples(truth)


@pytest.mark.parametrize(
    ("mode", "least", "expected"),
    [
        ("paper", 5, [0.5, 0.11, 0.5]),
        # pooled, .5 finds twenty of twenty-two positives and nothing else (F1 .95); .11 adds the two and twenty others
        ("improved", 5, [0.5, 0.5, 0.5]),
        ("improved", 2, [0.5, 0.11, 0.5]),
    ],
)
def test_rare_labels_share_the_pooled_threshold_except_in_the_paper(
    mode: Any, least: int, expected: list[float]
) -> None:
    values, truth = rare()
    found = tune(values, examples=truth, task=FIGURATIVE, mode=mode, min_positives=least)
    assert found.tolist() == pytest.approx(expected)


def test_the_pooled_threshold_is_learned_from_the_frequent_labels() -> None:
    values, truth = rare()
    values[:, 0] = np.where(np.arange(40) < 20, 0.4, 0.2)
    found = tune(values, examples=truth, task=FIGURATIVE, mode="improved", min_positives=5)
    assert found == pytest.approx([0.3, 0.3, 0.3])


def test_thresholds_are_float64_between_two_scores_of_float32() -> None:
    low = np.float32(0.3)
    high = np.nextafter(low, np.float32(1))
    values = np.zeros((2, 3), np.float32)
    values[:, 0] = (low, high)
    truth = examples([(0, 0, 0), (1, 0, 0)])
    found = tune(values, examples=truth, task=FIGURATIVE, mode="paper", min_positives=1)
    assert decide(values, task=FIGURATIVE, thresholds=found) == [frozenset(), frozenset({METAPHOR})]


def test_a_label_is_given_from_its_threshold_on() -> None:
    values = np.array([[0.5, 0.29, 0.9], [0.49, 0.3, 0.1], [0, 0, 0]])
    found = decide(values, task=FIGURATIVE, thresholds=np.array([0.5, 0.3, 0.95]))
    assert found == [frozenset({METAPHOR}), frozenset({PUN}), frozenset()]


def test_a_class_is_the_most_probable_one_and_of_equals_the_least() -> None:
    values = np.array([[0.1, 0.2, 0.4, 0.2, 0.1], [0.0, 0.4, 0.1, 0.4, 0.1]])
    found = decide(values, task=SEVERITY, thresholds=np.full(5, 0.99))
    assert found == [frozenset({"Suicide ideation"}), frozenset({"Wish to be dead"})]
    some = [replace(e, labels=frozenset({"None"})) for e in examples([(0, 0, 0), (0, 0, 0)])]
    assert tune(values, examples=some, task=SEVERITY, mode="paper", min_positives=1).tolist() == [0.5] * 5


@pytest.mark.parametrize("change", [{"split": "train"}, {"split": "test"}, {"labels": None}])
def test_a_planted_leak_and_a_hidden_label_are_refused(change: dict[str, Any]) -> None:
    values, truth = rare()
    truth[7] = replace(truth[7], **change)
    said = f"1 examples of {change['split']} were refused: only validation may" if "split" in change else None
    with refused("LeakRefused", match=said):
        tune(values, examples=truth, task=FIGURATIVE, mode="improved", min_positives=5)


@pytest.mark.parametrize("wrong", [np.zeros((39, 3)), np.zeros((40, 2)), np.full((40, 3), np.nan), np.full((40, 3), 2)])
def test_scores_that_do_not_fit_are_refused(wrong: Floats) -> None:
    with refused("BadScores"):
        tune(wrong, examples=rare()[1], task=FIGURATIVE, mode="improved", min_positives=5)
    if wrong.shape != (39, 3):
        with refused("BadScores"):
            decide(wrong, task=FIGURATIVE, thresholds=np.full(3, 0.5))
