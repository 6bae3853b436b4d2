"""An alert guarantees its recall with its confidence, by exact coverage and by draws, and says where it cannot."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, binom

from pipelines.metrics import alerts
from pipelines.metrics.alerts import CONFIDENCE, alert, judged, lower, misses, needed, upper

FLOOR, DRAWS = 0.9, 20_000


def recall_of(thresholds: np.ndarray) -> np.ndarray:
    """Return the true recall from a threshold on, of positives whose scores are uniform between 0 and 1."""
    return 1 - thresholds


@pytest.mark.parametrize("positives", [29, 50, 200])
def test_the_floor_holds_with_its_confidence_in_draws_as_by_exact_coverage(positives: int) -> None:
    drawn = np.random.default_rng(positives).random((DRAWS, positives))
    thresholds = alerts.threshold(drawn, floor=FLOOR)
    k = misses(positives, floor=FLOOR)
    exact = float(beta.sf(FLOOR, positives - k, k + 1))
    share = float((recall_of(thresholds) >= FLOOR).mean())
    assert exact >= CONFIDENCE
    assert abs(share - exact) <= 3 * math.sqrt(exact * (1 - exact) / DRAWS)
    assert (thresholds >= drawn.min(axis=1)).all(), "a threshold below every score would keep any promise"
    # one miss more would break it
    assert float(beta.sf(FLOOR, positives - k - 1, k + 2)) < CONFIDENCE


@pytest.mark.parametrize("positives", [29, 50, 200])
def test_an_alert_is_guaranteed_and_reports_recall_and_rate_together(positives: int) -> None:
    rng = np.random.default_rng(1)
    scores = np.concatenate([rng.beta(4, 2, positives), rng.beta(2, 4, 400)])
    found = alert(scores, truth=np.arange(len(scores)) < positives, floor=FLOOR)
    assert (found.positives, found.guarantee) == (positives, True)
    assert found.threshold is not None
    assert found.guaranteed_recall is not None
    assert found.threshold > scores.min()
    assert found.recall is not None
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
