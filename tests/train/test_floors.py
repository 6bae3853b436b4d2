"""A recall floor raises alerts with a guarantee, changes no label, and what is stored raises the same alerts."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

from pipelines.core.taxonomy import load, tiers_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example
from pipelines.metrics import alerts, recall_constraints
from pipelines.metrics.alerts import CONFIDENCE, Alert, alert, judged, lower, misses, needed, upper
from pipelines.metrics.decoding import decode
from pipelines.metrics.label_sets import matrix
from pipelines.metrics.recall_constraints import raised
from tests.refusals import refused
from tests.train.silver_posts import floored

CRISES = task_of(load("cradle"), "labels")
SEVERITY = task_of(load("figsim"), "severity")
GRADES = task_of(load("cssrs"), "severity")
ACTIVE, HARM = "suicideideation_active_ongoing", "selfharm_ongoing"


def fit(scores: Any, *, examples: list[Example], task: Task, floors: dict[str, float]) -> dict[str, Alert]:
    return recall_constraints.fit(scores, examples=examples, task=floored(task, **floors))


def posts(sets: list[frozenset[str]], *, split: str = "validation") -> list[Example]:
    return [Example((f"{n:04}", 0), split, "", None, labels, f"{n}") for n, labels in enumerate(sets)]


def column(label: str) -> int:
    return CRISES.labels.index(label)


def a_dev(count: int = 400, *, seed: int = 1) -> tuple[Any, list[frozenset[str]]]:
    """Return valid sets and scores that tell them apart, but not well."""
    rng = np.random.default_rng(seed)
    valid = CRISES.category.valid_sets(most=2)
    sets = [valid[k] for k in rng.integers(0, len(valid), count)]
    z = rng.normal(-2.5, 1.2, (count, len(CRISES.labels))) + 3.0 * matrix(sets, labels=CRISES.labels)
    return 1 / (1 + np.exp(-z)), sets


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_every_set_is_one_that_the_hard_rules_allow(seed: int) -> None:
    scores = np.random.default_rng(seed).random((20, len(CRISES.labels))) ** 3
    for labels in decode(scores, category=CRISES.category):
        assert not CRISES.category.check(labels, mode="strict", tiers=tiers_of("improved")).violations


def test_a_floor_adds_alerts_and_changes_no_label() -> None:
    scores, sets = a_dev()
    alerts = fit(scores, examples=posts(sets), task=CRISES, floors={HARM: 0.9})
    found, carry = raised(scores, task=CRISES, alerts=alerts), matrix(sets, labels=CRISES.labels)[:, column(HARM)]
    warned = matrix(found, labels=CRISES.labels)
    assert alerts.keys() == {HARM}
    assert alerts[HARM].guarantee
    assert alerts[HARM].recall == (warned[:, column(HARM)] & carry).sum() / carry.sum() > 0.9
    assert alerts[HARM].alert_rate == warned[:, column(HARM)].mean() < 0.9
    assert not np.delete(warned, column(HARM), axis=1).any(), "labels without a floor have no alert"
    given = matrix(decode(scores, category=CRISES.category), labels=CRISES.labels)[:, column(HARM)]
    assert (given & carry).sum() / carry.sum() < 0.9, "the test needs a floor that the labels miss"


def test_of_two_labels_that_contradict_each_other_both_alerts_are_raised() -> None:
    past = "suicideideation_active_past"
    sets = [frozenset({ACTIVE})] * 30 + [frozenset({past})] * 30
    scores = np.full((60, len(CRISES.labels)), 0.01)
    scores[:, [column(ACTIVE), column(past)]] = 0.8, 0.3
    alerts = fit(scores, examples=posts(sets), task=CRISES, floors={ACTIVE: 0.9, past: 0.9})
    assert raised(scores, task=CRISES, alerts=alerts) == [{ACTIVE, past}] * 60
    assert [(one.recall, one.alert_rate) for one in alerts.values()] == [(1, 1), (1, 1)]


def test_a_floor_for_a_label_that_there_is_not_is_refused_and_a_floor_of_nought_is_none() -> None:
    scores, sets = a_dev(40)
    with pytest.raises(ValueError, match="selfharm_onging"):
        fit(scores, examples=posts(sets), task=CRISES, floors={"selfharm_onging": 0.9})
    assert fit(scores, examples=posts(sets), task=CRISES, floors={HARM: 0.0}) == {}


@pytest.mark.parametrize("task", [SEVERITY, GRADES], ids=["memes", "people"])
def test_in_an_order_an_alert_of_a_grade_covers_the_graver_ones(task: Any) -> None:
    *_, grave, gravest = task.labels
    sets = [frozenset({task.labels[n % len(task.labels)]}) for n in range(200)]
    rng = np.random.default_rng(2)
    scores = rng.dirichlet(np.ones(len(task.labels)), 200) * 0.5 + 0.5 * matrix(sets, labels=task.labels)
    alerts = fit(scores, examples=posts(sets), task=task, floors={grave: 0.9, gravest: 0.9})
    found, truth = (
        matrix(raised(scores, task=task, alerts=alerts), labels=task.labels),
        matrix(sets, labels=task.labels),
    )
    for k, label in ((-2, grave), (-1, gravest)):
        assert alerts[label].recall == (found & truth)[:, k].sum() / truth[:, k].sum() >= 0.9
    sure = np.zeros((1, len(task.labels)))
    sure[0, -1] = 1
    assert raised(sure, task=task, alerts=alerts) == [{grave, gravest}]
    assert decode(sure, category=task.category) == [{gravest}]


def test_what_is_stored_raises_the_same_alerts_and_serves_no_other_labels(tmp_path: Path) -> None:
    scores, sets = a_dev()
    alerts = fit(scores, examples=posts(sets), task=CRISES, floors={HARM: 0.9, ACTIVE: 0.85})
    recall_constraints.save(tmp_path / "new", task=CRISES, alerts=alerts, more=[1])
    again, stored = recall_constraints.load(tmp_path / "new", task=CRISES)
    assert again == alerts
    assert stored["more"] == [1]
    assert raised(scores.astype(np.float32), task=CRISES, alerts=again) == raised(scores, task=CRISES, alerts=alerts)
    with refused("OtherLabels"):
        recall_constraints.load(tmp_path / "new", task=SEVERITY)


@pytest.mark.parametrize("split", ["train", "test"])
def test_nothing_is_tuned_on_another_split(split: str) -> None:
    scores, sets = a_dev(20)
    with refused("LeakRefused"):
        fit(scores, examples=posts(sets, split=split), task=CRISES, floors={})


def test_scores_of_other_rows_or_that_are_no_probabilities_are_refused() -> None:
    scores, sets = a_dev(40)
    alerts = {HARM: alert(scores[:, column(HARM)], truth=np.arange(40) < 30, floor=0.9)}
    with refused("BadScores"):
        fit(scores[1:], examples=posts(sets), task=CRISES, floors={})
    for wrong in (math.nan, 1.5):
        bad = scores.copy()
        bad[3, column(HARM)] = wrong
        with refused("BadScores"):
            fit(bad, examples=posts(sets), task=CRISES, floors={HARM: 0.9})
        with refused("BadScores"):
            raised(bad, task=CRISES, alerts=alerts)


def test_what_a_stage_reports_is_of_the_probabilities_and_of_the_scores_before() -> None:
    scores, sets = a_dev()
    raw = np.full_like(scores, 0.5)
    task = floored(CRISES, selfharm_ongoing=0.9)
    alerts, report = recall_constraints.learned(scores, raw=raw, examples=posts(sets), task=task)
    assert report["raw_brier"] == 0.25
    assert report["brier"] == pytest.approx(float(np.mean((scores - matrix(sets, labels=CRISES.labels)) ** 2)))
    hits = [a == b for a, b in zip(decode(scores, category=CRISES.category), sets, strict=True)]
    assert report["exact"] == sum(hits) / len(hits)
    assert report["alerts"] == {HARM: asdict(alerts[HARM])}


FLOOR, DRAWS = 0.9, 20_000


@pytest.mark.parametrize("positives", [29, 50, 200])
def test_the_floor_holds_with_its_confidence_in_draws_as_by_exact_coverage(positives: int) -> None:
    drawn = np.random.default_rng(positives).random((DRAWS, positives))
    thresholds = alerts.threshold(drawn, floor=FLOOR)
    k = misses(positives, floor=FLOOR)
    exact = float(beta.sf(FLOOR, positives - k, k + 1))
    # the true recall from a threshold on, of positives whose scores are uniform between 0 and 1
    share = float((1 - thresholds >= FLOOR).mean())
    assert exact >= CONFIDENCE
    assert abs(share - exact) <= 3 * math.sqrt(exact * (1 - exact) / DRAWS)
    assert (thresholds >= drawn.min(axis=1)).all(), "a threshold below every score would keep any promise"
    # one miss more would break it
    assert float(beta.sf(FLOOR, positives - k - 1, k + 2)) < CONFIDENCE


@pytest.mark.parametrize("positives", [29, 50, 200])
def test_an_alert_is_guaranteed_and_reports_recall_and_rate_together(positives: int) -> None:
    rng = np.random.default_rng(1)
    scores = np.concatenate([rng.beta(4, 2, positives), rng.beta(2, 4, 400)])
    found: Any = alert(scores, truth=np.arange(len(scores)) < positives, floor=FLOOR)
    assert (found.positives, found.guarantee) == (positives, True)
    assert found.threshold > scores.min()
    assert FLOOR <= found.guaranteed_recall < found.recall <= 1
    assert found.recall == (scores[:positives].astype(np.float32) >= found.threshold).mean()
    assert found.alert_rate == (scores.astype(np.float32) >= found.threshold).mean() < 1


def test_twenty_positives_guarantee_nothing_and_get_a_best_effort() -> None:
    scores = np.linspace(0.05, 0.95, 100)
    truth = np.arange(100) >= 80
    found = alert(scores, truth=truth, floor=FLOOR)
    assert (found.guarantee, found.positives, found.recall) == (False, 20, 1.0)
    assert found.threshold == np.float32(scores[80])
    assert found.guaranteed_recall == pytest.approx((1 - CONFIDENCE) ** (1 / 20))
    assert found.alert_rate == 0.2


def test_the_least_positives_are_those_that_the_bound_needs() -> None:
    assert needed(0.9) == 29
    assert needed(0.85) == 19
    assert needed(1.0) == math.inf
    for recall in (0.5, 0.75, 0.9, 0.95, 0.99):
        n = int(needed(recall))
        assert lower(n, n) >= recall > lower(n - 1, n - 1)
        assert alert(np.linspace(0.1, 0.9, n), truth=np.full(n, True), floor=recall).guarantee
        assert not alert(np.linspace(0.1, 0.9, n - 1), truth=np.full(n - 1, True), floor=recall).guarantee


def test_tied_scores_can_only_raise_the_recall() -> None:
    """Draws from a few values: the recall, with its ties, is at least the floor as often as is promised."""
    values, weights = np.array([0.1, 0.3, 0.5, 0.9]), np.array([0.04, 0.1, 0.36, 0.5])
    drawn = np.random.default_rng(3).choice(values, p=weights, size=(DRAWS, 50))
    recall = np.array([weights[values >= t].sum() for t in values])
    thresholds = alerts.threshold(drawn, floor=FLOOR)
    assert (recall[np.searchsorted(values, thresholds)] >= FLOOR).mean() >= CONFIDENCE
    same = alert(np.full(60, 0.5), truth=np.arange(60) < 30, floor=FLOOR)
    assert (same.recall, same.alert_rate, same.guarantee) == (1.0, 1.0, True)


def test_a_label_without_positives_has_no_threshold_and_a_score_that_is_no_number_is_refused() -> None:
    none = alert(np.linspace(0, 1, 10), truth=np.full(10, False), floor=FLOOR)
    assert (none.threshold, none.guaranteed_recall, none.recall, none.alert_rate) == (None, None, None, 0.0)
    assert not none.guarantee
    with pytest.raises(ValueError, match="finite"):
        alert(np.array([0.1, math.nan]), truth=np.full(2, True), floor=FLOOR)


def test_positives_of_one_group_count_once_with_their_lowest_score() -> None:
    """Copies of one post are no evidence: sixty positives in thirty pairs allow what thirty positives allow."""
    scores = np.repeat(np.linspace(0.2, 0.9, 30), 2) + np.tile([0.0, 0.01], 30)
    groups = [f"pair {n // 2}" for n in range(60)]
    pairs = alert(scores, truth=np.full(60, True), floor=FLOOR, groups=groups)
    lone = alert(scores[::2], truth=np.full(30, True), floor=FLOOR)
    assert (pairs.positives, pairs.threshold, pairs.guaranteed_recall) == (30, lone.threshold, lone.guaranteed_recall)


def test_bounds_cover_at_least_as_often_as_they_say() -> None:
    for of in (1, 8, 29, 100):
        found = np.arange(of + 1)
        low, high = (np.array([bound(n, of) for n in found]) for bound in (lower, upper))
        for rate in (0.05, 0.5, 0.9, 0.99):
            chance = binom.pmf(found, of, rate)
            assert chance[low <= rate].sum() >= CONFIDENCE - 1e-9
            assert chance[high >= rate].sum() >= CONFIDENCE - 1e-9
    assert (lower(0, 5), upper(5, 5), lower(0, 0), upper(0, 0)) == (0.0, 1.0, 0.0, 1.0)


@pytest.mark.parametrize("positives", [5, 29, 60, 200])
def test_a_valid_guarantee_is_refuted_one_time_in_twenty_at_most(positives: int) -> None:
    found = np.arange(positives + 1)
    below = np.array([judged(n, positives, guaranteed=FLOOR) == "below" for n in found])
    assert binom.pmf(found, positives, FLOOR)[below].sum() <= 1 - CONFIDENCE
    assert judged(0, positives, guaranteed=FLOOR) == "below"
    assert judged(positives, positives, guaranteed=FLOOR) == ("too_few" if positives < 29 else "not_below")
