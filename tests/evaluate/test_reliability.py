"""Calibration equals scikit-learn's; floors hold on dev, and their results on test are reported honestly."""

import random
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.evaluate import reliability
from pipelines.evaluate.model_scores import Board, Run, Sampling
from pipelines.registry.promotion.scores import floor_of

TASK = task_of(load("cradle"), "labels")
A, B = TASK.labels[0], TASK.labels[4]


def board_of(golds: list[set[str]]) -> Board:
    items = tuple((f"r{i}", 0) for i in range(len(golds)))
    return Board(TASK, items, tuple(map(frozenset, golds)), tuple(r for r, _ in items), Sampling(resamples=100, seed=1))


def run_of(board: Board, scores: list[dict[str, float] | None], *, seed: int = 1, at: float = 0.5) -> Run:
    """Return a run that gives ``A`` wherever its probability reaches ``at``; ``None``: it refused."""
    known = {item: s for item, s in zip(board.items, scores, strict=True) if s is not None}
    return Run(
        seed,
        {item: "vote" if item in known else "refused" for item in board.items},
        {item: frozenset({A} if s[A] >= at else {"no_crisis"}) for item, s in known.items()},
        {item: tuple(s.get(label, 0.0) for label in TASK.labels) for item, s in known.items()},
    )


def test_brier_and_calibration_error_are_those_of_their_definitions() -> None:
    rng = random.Random(3)
    board = board_of([{label for label in (A, B) if rng.random() < 0.4} or {"no_crisis"} for _ in range(200)])
    scores = [{A: rng.random(), B: rng.random() ** 3, "no_crisis": 1.0} for _ in board.items]
    found = reliability.calibration(board, runs=[run_of(board, scores)])
    assert found is not None and found["n"] == 200
    for label in (A, B, "no_crisis"):
        y = np.array([label in gold for gold in board.gold])
        p = np.array([s[label] for s in scores])
        assert found["labels"][label]["brier"] == pytest.approx(brier_score_loss(y, p), abs=1e-7)
        assert found["labels"][label]["base"] == pytest.approx(y.mean() * (1 - y.mean()), abs=1e-7)
        bins = np.digitize(p, np.linspace(0, 1, 11)[1:-1])
        ece = sum(abs(y[bins == b].mean() - p[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins))
        assert found["labels"][label]["ece"] == pytest.approx(ece, abs=1e-7)
    assert found["brier"] == pytest.approx(np.mean([each["brier"] for each in found["labels"].values()]), abs=1e-7)


def test_bins_hold_every_probability_once() -> None:
    board = board_of([{A}, {A}, {"no_crisis"}])
    found = reliability.calibration(board, runs=[run_of(board, [{A: 1.0}, {A: 0.55}, None])])
    assert found is not None and found["n"] == 2
    bins = found["bins"]
    assert sum(b["n"] for b in bins) == 2 * len(TASK.labels)
    assert (bins[9]["n"], bins[9]["said"], bins[9]["seen"]) == (1, 1, 1)
    assert (bins[5]["n"], bins[5]["said"], bins[5]["seen"]) == (1, 0.55, 1)
    assert bins[0]["n"] == 2 * len(TASK.labels) - 2 and bins[3]["said"] is None


def test_without_probabilities_there_is_no_calibration() -> None:
    board = board_of([{A}])
    assert (
        reliability.calibration(board, runs=[Run(1, {board.items[0]: "vote"}, {board.items[0]: frozenset({A})})])
        is None
    )


def test_floors_are_held_against_the_labels_and_against_an_alert_from_dev() -> None:
    dev = board_of([{A}, {A}, {A}, {A}, {A}, {A}, {"no_crisis"}])
    test = board_of([{A}, {A}, {A}, {"no_crisis"}, {"no_crisis"}])
    on_dev = run_of(dev, [{A: 0.9}, {A: 0.7}, {A: 0.7}, {A: 0.6}, {A: 0.5}, {A: 0.4}, {A: 0.3}])
    on_test = run_of(test, [{A: 0.8}, {A: 0.45}, None, {A: 0.42}, {A: 0.1}])
    found = reliability.floors(test, runs=[on_test], dev=dev, dev_runs=[on_dev], wanted={A: 0.6, B: 0.9})
    own = found[A]
    # what was refused is missed
    assert (own["floor"], own["recall"]["count"], own["recall"]["of"]) == (0.6, 1, 3)
    assert (own["precision"]["count"], own["precision"]["of"]) == (1, 1)
    alert = own["alert"]
    assert (alert["dev"]["positives"], alert["dev"]["guarantee"]) == (6, True)
    assert alert["dev"]["threshold"] == pytest.approx(0.4)
    assert (alert["dev"]["recall"], alert["dev"]["alert_rate"]) == (1, pytest.approx(6 / 7))
    assert (alert["recall"]["count"], alert["recall"]["of"]) == (2, 3)
    assert (alert["precision"]["count"], alert["precision"]["of"]) == (2, 3)
    assert (alert["alert_rate"]["count"], alert["alert_rate"]["of"]) == (3, 5)
    assert alert["verdict"] == "too_few"
    # no record of dev or test has the other label: nothing is chosen, raised or claimed
    none = found[B]["alert"]
    assert (none["dev"]["positives"], none["dev"]["threshold"], none["dev"]["recall"]) == (0, None, None)
    assert (none["precision"]["of"], none["alert_rate"]["count"], none["verdict"]) == (0, 0, None)


def test_an_alert_that_misses_too_many_on_test_is_below_its_guarantee() -> None:
    dev, test = board_of([{A}] * 40 + [{"no_crisis"}] * 40), board_of([{A}] * 40 + [{"no_crisis"}] * 40)
    on_dev = run_of(dev, [{A: 0.6 + n / 200} for n in range(40)] + [{A: 0.1}] * 40)
    worse = run_of(test, [{A: 0.9 if n < 30 else 0.2} for n in range(40)] + [{A: 0.1}] * 40)
    same = run_of(test, [{A: 0.6 + n / 200} for n in range(40)] + [{A: 0.1}] * 40)
    for run, verdict in ((worse, "below"), (same, "not_below")):
        alert = reliability.floors(test, runs=[run], dev=dev, dev_runs=[on_dev], wanted={A: 0.9})[A]["alert"]
        assert (alert["dev"]["guarantee"], alert["verdict"]) == (True, verdict)


def test_an_alert_is_judged_on_groups_as_its_guarantee_and_the_gate_are() -> None:
    dev = board_of([{A}] * 40 + [{"no_crisis"}] * 40)
    on_dev = run_of(dev, [{A: 0.6 + n / 200} for n in range(40)] + [{A: 0.1}] * 40)
    test = board_of([{A}] * 120)
    test = replace(test, groups=tuple(f"g{n // 3}" for n in range(120)))
    # 12 of 40 groups miss one item of three: recall .90 of items and .70 of groups
    on_test = run_of(test, [{A: 0.2 if n < 36 and n % 3 == 0 else 0.99} for n in range(120)])
    alert = reliability.floors(test, runs=[on_test], dev=dev, dev_runs=[on_dev], wanted={A: 0.9})[A]["alert"]
    assert (alert["recall"]["count"], alert["recall"]["of"]) == (108, 120)
    assert (alert["groups"], alert["verdict"]) == ({"found": 28, "of": 40}, "below")
    raised = {item: frozenset({A}) for item, scores in on_test.scores.items() if max(scores) > 0.5}
    gate = floor_of(test, label=A, floor=alert["dev"]["guaranteed_recall"], raised=raised)
    assert (gate["verdict"], gate["groups"]) == (alert["verdict"], alert["groups"]["of"])


def test_a_model_without_probabilities_has_no_alert() -> None:
    board = board_of([{A}, {"no_crisis"}])
    run = Run(1, dict.fromkeys(board.items, "vote"), dict.fromkeys(board.items, frozenset({A})))
    found = reliability.floors(board, runs=[run], dev=board, dev_runs=[run], wanted={A: 0.9})[A]
    assert (found["recall"]["rate"], found["alert"]) == (1, None)
    scored = run_of(board, [{A: 0.9}, {A: 0.2}], seed=2)
    assert reliability.floors(board, runs=[run], dev=board, dev_runs=[scored], wanted={A: 0.9})[A]["alert"] is None
    assert reliability.floors(board, runs=[scored], dev=None, dev_runs=[], wanted={A: 0.9})[A]["alert"] is None
