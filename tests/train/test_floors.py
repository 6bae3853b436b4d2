"""Decoding predicts the labels that must not be missed, never an impossible set, and reports the cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipelines.datasets.example import Example, LeakRefused
from pipelines.errors import BadParams
from pipelines.metrics import recall_constraints
from pipelines.metrics.decoding import decode
from pipelines.metrics.recall_constraints import MIN_POSITIVES, OtherLabels, decide, encoded, fit, highest
from pipelines.metrics.thresholds import BadScores
from pipelines.taxonomy import load, tiers_of
from pipelines.taxonomy.task import task_of

CRISES = task_of(load("cradle"), "labels")
SEVERITY = task_of(load("figsim"), "severity")
ACTIVE, ACTIVE_PAST, HARM = "suicideideation_active_ongoing", "suicideideation_active_past", "selfharm_ongoing"
NONE = np.full(len(CRISES.labels), math.inf)


def posts(sets: list[frozenset[str]], *, split: str = "validation") -> list[Example]:
    return [Example((f"{n:04}", 0), split, "", None, labels, f"{n}") for n, labels in enumerate(sets)]


def column(label: str) -> int:
    return CRISES.labels.index(label)


def a_row(**scores: float) -> Any:
    row = np.full((1, len(CRISES.labels)), 0.01)
    for label, score in scores.items():
        row[0, column(label)] = score
    return row


def a_dev(count: int = 200, *, seed: int = 1) -> tuple[Any, list[frozenset[str]]]:
    """Return valid sets and scores that tell them apart, but not well."""
    rng = np.random.default_rng(seed)
    valid = CRISES.category.valid_sets(most=2)
    sets = [valid[k] for k in rng.integers(0, len(valid), count)]
    z = rng.normal(-2.5, 1.2, (count, len(CRISES.labels))) + 3.0 * encoded(sets, task=CRISES)
    return 1 / (1 + np.exp(-z)), sets


share = st.floats(0.01, 0.99)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(share, st.booleans()), min_size=1, max_size=30), st.floats(0.05, 1))
def test_the_threshold_meets_the_floor_and_no_higher_one_does(found: list[tuple[float, bool]], floor: float) -> None:
    scores, truth = np.array([s for s, _ in found]), np.array([t for _, t in found])
    assume(truth.any() and (np.diff(np.unique(scores)) > 1e-9).all())
    threshold = highest(scores, truth=truth, floor=floor)
    assert (scores[truth] >= threshold).mean() >= floor - 1e-9
    for higher in scores[scores > threshold]:
        above = scores > higher
        assert (above & truth).sum() / truth.sum() < floor


def test_a_share_of_positives_is_not_missed_by_the_last_bit() -> None:
    """.55 of 20 is 11.000000000000002 in floating point: eleven are enough."""
    scores = np.linspace(0.05, 0.95, 20)
    threshold = highest(scores, truth=np.full(20, True), floor=0.55)
    assert (scores >= threshold).sum() == 11


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_every_set_is_one_that_the_hard_rules_allow_and_a_lone_floor_always_wins(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.random((20, len(CRISES.labels))) ** 3
    keep = np.where(np.arange(len(CRISES.labels)) == rng.integers(len(CRISES.labels)), 0.05, math.inf)
    for labels, row in zip(decide(scores, task=CRISES, thresholds=keep), scores, strict=True):
        assert not CRISES.category.check(labels, mode="strict", tiers=tiers_of("improved")).violations
        assert encoded([labels], task=CRISES)[0][row >= keep].all()


def test_without_floors_it_is_the_most_probable_valid_set() -> None:
    scores, _ = a_dev()
    assert decide(scores, task=CRISES, thresholds=NONE) == decode(scores, category=CRISES.category)


def test_a_floor_wins_over_what_contradicts_it_and_is_silent_below_its_threshold() -> None:
    keep = NONE.copy()
    keep[column(ACTIVE)] = 0.1
    sure = a_row(no_crisis=0.95, **{ACTIVE: 0.1})
    assert decide(sure, task=CRISES, thresholds=keep) == [{ACTIVE}]
    below = a_row(no_crisis=0.95, **{ACTIVE: 0.09})
    assert decide(below, task=CRISES, thresholds=keep) == [{"no_crisis"}]


def test_of_two_floors_that_contradict_each_other_the_stronger_stays_and_the_report_says_so() -> None:
    sets = [frozenset({ACTIVE})] * 6 + [frozenset({ACTIVE_PAST})] * 6
    scores = np.concatenate([a_row(**{ACTIVE: 0.8, ACTIVE_PAST: 0.3})] * 12)
    wanted = {ACTIVE: 0.9, ACTIVE_PAST: 0.9}
    thresholds, report = fit(scores, examples=posts(sets), task=CRISES, floors=wanted)
    assert decide(scores, task=CRISES, thresholds=thresholds) == [{ACTIVE}] * 12
    assert report[ACTIVE] | {"threshold": 0, "floor": 0} == {
        "floor": 0, "positives": 6, "supported": True, "threshold": 0, "recall": 1.0, "precision": 0.5,
        "answered_recall": 1.0, "answered_precision": 0.5,
    }  # fmt: skip
    assert report[ACTIVE_PAST]["recall"] == 1.0
    assert report[ACTIVE_PAST]["answered_recall"] == 0.0
    assert report[ACTIVE_PAST]["answered_precision"] is None


def test_a_floor_is_met_on_dev_and_others_are_not_forced() -> None:
    scores, sets = a_dev()
    free, _ = fit(scores, examples=posts(sets), task=CRISES, floors={})
    thresholds, report = fit(scores, examples=posts(sets), task=CRISES, floors={HARM: 0.95})
    answered, before = (
        encoded(decide(scores, task=CRISES, thresholds=r), task=CRISES)[:, column(HARM)] for r in (thresholds, free)
    )
    carry = encoded(sets, task=CRISES)[:, column(HARM)]
    assert report[HARM]["answered_recall"] == (answered & carry).sum() / carry.sum() >= 0.95
    assert report[HARM]["answered_precision"] == (answered & carry).sum() / answered.sum()
    assert (before & carry).sum() / carry.sum() < 0.95, "the test needs a floor that binds"
    assert (answered >= before).all(), "a floor only adds"
    assert np.isinf(free).all()
    assert np.isinf(thresholds).sum() == len(CRISES.labels) - 1


def test_a_floor_that_dev_cannot_support_is_reported() -> None:
    few = [frozenset({HARM})] * (MIN_POSITIVES - 1) + [frozenset({"no_crisis"})] * 20
    scores = np.concatenate([a_row(**{HARM: 0.4})] * len(few))
    thresholds, report = fit(scores, examples=posts(few), task=CRISES, floors={HARM: 0.9})
    assert np.isinf(thresholds).all()
    assert report[HARM] == {
        "floor": 0.9, "positives": MIN_POSITIVES - 1, "supported": False, "threshold": None, "recall": None,
        "precision": None, "answered_recall": None, "answered_precision": None,
    }  # fmt: skip
    _, enough = fit(
        np.concatenate([scores, scores[:1]]), examples=posts([*few, few[0]]), task=CRISES, floors={HARM: 0.9}
    )
    assert enough[HARM]["supported"]


def test_a_floor_for_a_label_that_there_is_not_is_refused_and_a_floor_of_nought_is_none() -> None:
    scores, sets = a_dev(40)
    with pytest.raises(BadParams, match="selfharm_onging"):
        fit(scores, examples=posts(sets), task=CRISES, floors={"selfharm_onging": 0.9})
    thresholds, report = fit(scores, examples=posts(sets), task=CRISES, floors={"of_another_scheme": 0.0})
    assert report == {}
    assert np.isinf(thresholds).all()


def test_one_class_is_given_where_only_one_can_be() -> None:
    rng = np.random.default_rng(1)
    scores = rng.dirichlet(np.ones(len(SEVERITY.labels)), 100)
    sets = [frozenset({SEVERITY.labels[k]}) for k in rng.integers(0, len(SEVERITY.labels), 100)]
    free, _ = fit(scores, examples=posts(sets), task=SEVERITY, floors={})
    assert decide(scores, task=SEVERITY, thresholds=free) == [{SEVERITY.labels[k]} for k in scores.argmax(axis=1)]
    gravest = SEVERITY.labels[-1]
    thresholds, report = fit(scores, examples=posts(sets), task=SEVERITY, floors={gravest: 0.8})
    answered = decide(scores, task=SEVERITY, thresholds=thresholds)
    assert all(len(labels) == 1 for labels in answered)
    assert report[gravest]["answered_recall"] >= 0.8
    forced = scores[:, -1] >= thresholds[-1]
    assert [a == {gravest} for a in answered] == (forced | (scores.argmax(axis=1) == len(SEVERITY.labels) - 1)).tolist()
    assert (forced & (scores.argmax(axis=1) != len(SEVERITY.labels) - 1)).any(), "the test needs a floor that binds"


def test_what_is_stored_decides_the_same_and_serves_no_other_labels(tmp_path: Path) -> None:
    scores, sets = a_dev()
    thresholds, _ = fit(scores, examples=posts(sets), task=CRISES, floors={HARM: 0.9})
    recall_constraints.save(tmp_path / "new", task=CRISES, thresholds=thresholds, more=[1])
    again, stored = recall_constraints.load(tmp_path / "new", task=CRISES)
    assert (again == thresholds).all()
    assert np.isfinite(again).sum() == 1
    assert stored["more"] == [1]
    with pytest.raises(OtherLabels):
        recall_constraints.load(tmp_path / "new", task=SEVERITY)


@pytest.mark.parametrize("split", ["train", "test"])
def test_nothing_is_tuned_on_another_split(split: str) -> None:
    scores, sets = a_dev(20)
    with pytest.raises(LeakRefused):
        fit(scores, examples=posts(sets, split=split), task=CRISES, floors={})


def test_scores_of_other_rows_are_refused() -> None:
    scores, sets = a_dev(20)
    with pytest.raises(BadScores):
        fit(scores[1:], examples=posts(sets), task=CRISES, floors={})


def test_what_a_stage_reports_is_of_the_probabilities_and_of_the_scores_before() -> None:
    scores, sets = a_dev()
    raw = np.full_like(scores, 0.5)
    thresholds, report = recall_constraints.learned(
        scores, raw=raw, examples=posts(sets), task=CRISES, floors={HARM: 0.9}
    )
    assert report["raw_brier"] == 0.25
    assert report["brier"] == pytest.approx(float(np.mean((scores - encoded(sets, task=CRISES)) ** 2)))
    for used, name in ((thresholds, "exact"), (NONE, "exact_without_floors")):
        hits = [a == b for a, b in zip(decide(scores, task=CRISES, thresholds=used), sets, strict=True)]
        assert report[name] == sum(hits) / len(hits)
    assert report["exact"] != report["exact_without_floors"], "the test needs a floor that binds"
    assert set(report["floors"]) == {HARM}
