"""Recalls on the gate set: refused on evidence, left to a person without."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import xlogy

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.evaluate.model_scores import Board
from pipelines.registry.promotion import scores
from pipelines.registry.promotion.scores import floor_of, paired_bounds, severe_of

TASK = task_of(load("figsim"), "severity")
LABEL = TASK.labels[-1]


def board(positives: int, *, of: int | None = None) -> Board:
    """Return a test of positives in so many groups."""
    items = tuple((f"{n:04d}", 0) for n in range(positives))
    groups = tuple(f"{n % (of or positives)}" for n in range(positives))
    return Board(TASK, items, (frozenset({LABEL}),) * positives, groups)


def given(board: Board, rows: range) -> dict[tuple[str, int], frozenset[str]]:
    return {board.items[row]: frozenset({LABEL}) for row in rows}


@pytest.mark.parametrize(("gained", "lost", "n"), [(1, 0, 44), (4, 9, 40), (0, 7, 25), (12, 12, 100)])
def test_bounds_are_where_the_score_under_the_likeliest_rates_is_the_quantile(gained: int, lost: int, n: int) -> None:
    """Tango's closed form against a numerical maximum of the likelihood under each difference."""
    for bound, z in zip(paired_bounds(gained, lost, of=n), (1.6449, -1.6449), strict=True):

        def unlikely(p_lost: float, d: float = bound) -> float:
            rest = 1 - 2 * p_lost - d
            return -(xlogy(gained, p_lost + d) + xlogy(lost, p_lost) + xlogy(n - gained - lost, rest))

        limits = max(0.0, -bound), (1 - bound) / 2
        p_lost = minimize_scalar(unlikely, bounds=limits, method="bounded", options={"xatol": 1e-10}).x
        score = (gained - lost - n * bound) / math.sqrt(n * (2 * p_lost + bound - bound**2))
        assert score == pytest.approx(z, abs=2e-3)


def test_bounds_without_an_item_on_which_two_models_differ() -> None:
    low, high = paired_bounds(0, 0, of=24)
    assert high == pytest.approx(2.7055 / (24 + 2.7055), abs=1e-3) and low == pytest.approx(-high)
    assert paired_bounds(0, 0, of=0) == (-1, 1)
    assert paired_bounds(5, 0, of=5)[1] == 1 and paired_bounds(0, 5, of=5)[0] == -1


def test_the_approver_reads_what_the_gate_set_could_not_decide() -> None:
    bounds = {"groups": 3, "low": -0.1, "high": 0.9}
    recall = {
        "a": {"verdict": "too_few", "needed": None, "floor": 0.5} | bounds,
        "b": {"verdict": "too_few", "needed": 12, "floor": 0.5} | bounds,
        "c": {"verdict": "below"},
    }
    rivals = {"gained": 1, "lost": 2, "margin": -0.05} | bounds
    severe = {v: {"verdict": v} | rivals for v in (scores.UNDECIDED, scores.INFERIOR, scores.NOT_INFERIOR)}
    figures = {"recall": recall, "severe": severe}
    assert list(scores.undecided({scores.METRIC: {}} | figures)) == []
    assert list(scores.undecided({scores.METRIC: {"candidate": 0.5}} | figures)) == [
        "a: 3 groups with it cannot confirm a recall of 0.50 (no number of them could); its bounds are -0.10 and 0.90",
        "b: 3 groups with it cannot confirm a recall of 0.50 (12 of them could); its bounds are -0.10 and 0.90",
        f"{scores.UNDECIDED} (severe): with 3 groups, 1 gained and 2 lost, the recall may be lower than the champion's"
        " by 0.10; 0.05 is tolerated",
    ]


def test_bounds_hold_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    for p_gained, p_lost, n in ((0.1, 0.1, 40), (0.05, 0.2, 60), (0.02, 0.12, 150)):
        drawn = rng.multinomial(n, [p_gained, p_lost, 1 - p_gained - p_lost], size=2000)
        counts, times = np.unique(drawn[:, :2], axis=0, return_counts=True)
        bounds = np.array([paired_bounds(int(g), int(lost), of=n) for g, lost in counts])
        truth = p_gained - p_lost
        for inside in (bounds[:, 0] <= truth, bounds[:, 1] >= truth):
            assert (times * inside).sum() / 2000 > 0.93


def test_a_floor_is_missed_only_on_evidence() -> None:
    whole = board(30)
    verdicts = {
        n: floor_of(whole, label=LABEL, floor=0.9, raised=given(whole, range(n)))["verdict"] for n in (20, 26, 30)
    }
    assert verdicts == {20: "below", 26: "not_below", 30: "not_below"}
    few = board(8)
    found = floor_of(few, label=LABEL, floor=0.9, raised=given(few, range(6)))
    assert (found["verdict"], found["needed"], found["recall"]) == ("too_few", 29, 0.75)
    none = floor_of(board(0), label=LABEL, floor=0.9, raised={})
    assert (none["verdict"], none["recall"], none["low"], none["high"]) == ("too_few", None, 0, 1)


def test_near_duplicates_are_one_piece_of_evidence() -> None:
    pairs = board(60, of=30)
    found = floor_of(pairs, label=LABEL, floor=0.9, raised=given(pairs, range(60)))
    assert (found["gold"], found["groups"]) == (60, 30)
    half = floor_of(pairs, label=LABEL, floor=0.9, raised=given(pairs, range(30)))
    assert half["recall"] == 0.5 and half["verdict"] == "below" and half["high"] < 0.1


@pytest.mark.parametrize(
    ("positives", "lost", "verdict"),
    [(60, 0, "not_inferior"), (60, 30, "inferior"), (60, 6, "undecided"), (10, 0, "undecided"), (10, 9, "inferior")],
)
def test_a_severe_label_is_shown_equal_or_worse_or_left_open(positives: int, lost: int, verdict: str) -> None:
    test = board(positives)
    champion, candidate = given(test, range(positives)), given(test, range(lost, positives))
    found = severe_of(test, label=LABEL, candidate=candidate, champion=champion, tolerance=0.1)
    assert (found["verdict"], found["lost"], found["gained"]) == (verdict, lost, 0)
    assert (found["recall"], found["champion"]) == (pytest.approx(1 - lost / positives), 1)


def test_a_recall_is_given_with_the_alert_rates_of_both_models() -> None:
    test, few = board(20), TASK.labels[0]
    test = replace(test, gold=(*test.gold[:5], *[frozenset({few})] * 15))
    every, right = given(test, range(20)), given(test, range(5))
    floor = floor_of(test, label=LABEL, floor=0.9, raised=every, champion=right)
    assert (floor["recall"], floor["alert_rate"], floor["champion_alert_rate"]) == (1, 1, 0.25)
    assert "champion_alert_rate" not in floor_of(test, label=LABEL, floor=0.9, raised=every)
    severe = severe_of(test, label=LABEL, candidate=every, champion=right, tolerance=0.1)
    assert (severe["alert_rate"], severe["champion_alert_rate"]) == (1, 0.25)
    one = board(1)
    assert floor_of(one, label=LABEL, floor=0.9, raised=given(one, range(1)))["alert_rate"] == 1


def test_what_is_gained_counts_against_what_is_lost() -> None:
    test = board(80)
    even, odd = ({item: frozenset({LABEL}) for item in itertools.islice(test.items, at, None, 2)} for at in (0, 1))
    found = severe_of(test, label=LABEL, candidate=even, champion=odd, tolerance=0.1)
    assert (found["gained"], found["lost"], found["verdict"]) == (40, 40, "undecided")
    assert found["low"] == pytest.approx(-found["high"])
