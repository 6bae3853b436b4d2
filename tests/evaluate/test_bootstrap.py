"""Intervals that cover, that know clusters, and that no order changes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pipelines.metrics import bootstrap, label_sets

LABELS = ("a", "b", "c")


def answers(n: int, *, accuracy: float, seed: int) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    rng = random.Random(seed)
    gold = {f"{i:04d}": frozenset({rng.choice(LABELS)}) for i in range(n)}
    wrong = {record: frozenset({LABELS[(LABELS.index(min(values)) + 1) % 3]}) for record, values in gold.items()}
    return gold, {r: gold[r] if rng.random() < accuracy else wrong[r] for r in gold}


def drawn(gold: dict, predicted: dict, *, groups: dict | None = None, resamples: int = 2000) -> bootstrap.Draws:
    made = bootstrap.draw(gold, predicted=predicted, labels=LABELS, groups=groups or {}, resamples=resamples, seed=1)
    assert made is not None
    return made


def test_an_interval_is_as_wide_as_theory_says() -> None:
    gold, predicted = answers(400, accuracy=0.8, seed=3)
    interval = drawn(gold, predicted).intervals()["exact"]
    error = np.sqrt(interval.value * (1 - interval.value) / 400)
    assert (interval.low, interval.high) == pytest.approx(
        (interval.value - 1.96 * error, interval.value + 1.96 * error), abs=0.006
    )


def test_values_are_those_of_the_metrics() -> None:
    gold, predicted = answers(50, accuracy=0.6, seed=5)
    scored = label_sets.score(gold, predicted=predicted, labels=LABELS)["all"]
    assert drawn(gold, predicted).values == pytest.approx(scored)


def test_copies_in_one_group_add_no_certainty() -> None:
    gold, predicted = answers(100, accuracy=0.7, seed=7)
    often = {f"{r}/{i}": r for r in gold for i in range(5)}
    single = drawn(gold, predicted).intervals()["exact"]
    grouped = drawn({r: gold[often[r]] for r in often}, {r: predicted[often[r]] for r in often}, groups=often)
    copied = grouped.intervals()["exact"]
    assert copied.high - copied.low == pytest.approx(single.high - single.low, rel=0.05)


def test_the_order_of_rows_changes_nothing() -> None:
    gold, predicted = answers(60, accuracy=0.7, seed=9)
    groups = {record: record[-1] for record in gold}
    backwards = [dict(reversed(part.items())) for part in (gold, predicted, groups)]
    one = drawn(gold, predicted, groups=groups)
    other = drawn(backwards[0], backwards[1], groups=backwards[2])
    assert one.intervals() == other.intervals()


def test_a_difference_is_paired_and_ties_count_half() -> None:
    gold, predicted = answers(200, accuracy=0.7, seed=11)
    better = dict(predicted)
    wrong = sorted(record for record in gold if predicted[record] != gold[record])
    better.update({record: gold[record] for record in wrong[:10]})
    difference = drawn(gold, better).minus(drawn(gold, predicted))["exact"]
    assert difference.value == pytest.approx(0.05)
    assert 0 < difference.low < 0.05 < difference.high
    assert difference.probability > 0.999
    assert drawn(gold, predicted).minus(drawn(gold, predicted))["exact"].probability == 0.5


def test_without_gold_there_is_no_figure() -> None:
    assert bootstrap.draw({}, predicted={}, labels=LABELS, groups={}, resamples=10, seed=0) is None
