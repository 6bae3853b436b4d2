"""Paired tests that see a real difference, see none where there is none, and are corrected."""

import random

import numpy as np
import pytest
from scipy.stats import binomtest

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.evaluate import model_scores, paired
from pipelines.evaluate.model_scores import Board, Run, Sampling
from pipelines.evaluate.paired import Entrant

SEVERITY = task_of(load("figsim"), "severity")


def board_of(n: int, *, copies: int = 1, resamples: int = 1000) -> Board:
    rng = random.Random(1)
    gold = tuple(frozenset({rng.choice(SEVERITY.labels)}) for _ in range(n) for _ in range(1))
    items = tuple((f"r{i:04d}", c) for i in range(n) for c in range(copies))
    groups = tuple(record for record, _ in items)
    return Board(SEVERITY, items, tuple(g for g in gold for _ in range(copies)), groups, Sampling(resamples, 7))


def run_of(board: Board, *, accuracy: float, seed: int) -> Run:
    """Copies of a record are answered alike."""
    rng = random.Random(seed)
    by_record: dict[str, frozenset[str]] = {}
    for (record, _), gold in zip(board.items, board.gold, strict=True):
        wrong = frozenset({rng.choice([label for label in SEVERITY.labels if label not in gold])})
        by_record.setdefault(record, gold if rng.random() < accuracy else wrong)
    return Run(seed, dict.fromkeys(board.items, "vote"), {item: by_record[item[0]] for item in board.items})


def entrant(board: Board, *runs: Run) -> Entrant:
    return Entrant.of(board, runs=runs, scored=model_scores.score(board, runs=runs, valid=False))


def test_a_real_difference_is_seen_by_all_three() -> None:
    board = board_of(200)
    strong, weak = (entrant(board, run_of(board, accuracy=a, seed=s)) for a, s in ((0.8, 1), (0.5, 2)))
    [pair] = paired.pairs(board, entrants={"weak": weak, "strong": strong})
    assert (pair["a"], pair["b"]) == ("strong", "weak")
    assert pair["macro_f1"]["low"] > 0 and pair["weighted_f1"]["low"] > 0
    assert max(pair["p"].values()) < 0.01
    assert pair["mcnemar"]["a_only"] > pair["mcnemar"]["b_only"]


def test_a_model_does_not_differ_from_itself() -> None:
    board = board_of(100)
    run = run_of(board, accuracy=0.6, seed=1)
    [pair] = paired.pairs(board, entrants={"x": entrant(board, run), "y": entrant(board, run, run)})
    assert pair["macro_f1"] == {"value": 0, "low": 0, "high": 0}
    assert set(pair["p"].values()) == set(pair["holm"].values()) == {1.0}


def test_equals_are_seldom_told_apart() -> None:
    board = board_of(120, resamples=300)
    small = [
        paired.pairs(
            board,
            entrants={
                "x": entrant(board, run_of(board, accuracy=0.6, seed=2 * i)),
                "y": entrant(board, run_of(board, accuracy=0.6, seed=2 * i + 1)),
            },
        )[0]["p"]
        for i in range(60)
    ]
    for test in paired.TESTS:
        assert np.mean([p[test] < 0.05 for p in small]) <= 0.15


def test_copies_in_one_group_add_no_certainty() -> None:
    found = []
    for copies in (1, 6):
        board = board_of(60, copies=copies)
        one, other = (entrant(board, run_of(board, accuracy=a, seed=3)) for a in (0.7, 0.55))
        [pair] = paired.pairs(board, entrants={"x": one, "y": other})
        found.append((pair["p"]["bootstrap"], pair["p"]["randomisation"]))
    assert found[0] == pytest.approx(found[1], abs=0.02)


def test_several_runs_count_by_their_mean() -> None:
    board = board_of(80)
    good, bad, other = (run_of(board, accuracy=a, seed=s) for a, s in ((0.9, 1), (0.3, 2), (0.6, 3)))
    [pair] = paired.pairs(board, entrants={"x": entrant(board, good, bad), "y": entrant(board, other)})
    own = [
        model_scores.plain(board, predicted=board.predicted(run), valid=False)["figures"]["macro_f1"]
        for run in (good, bad, other)
    ]
    assert pair["macro_f1"]["value"] == pytest.approx((own[0] + own[1]) / 2 - own[2], abs=2e-6)


@pytest.mark.parametrize(("a", "b"), [(14, 0), (30, 16), (0, 0), (5, 5), (3, 9), (1200, 1100)])
def test_mcnemar_is_the_exact_test(a: int, b: int) -> None:
    expected = binomtest(a, a + b).pvalue if a + b else 1.0
    assert paired.mcnemar(a, b) == pytest.approx(expected, abs=2e-6)


def test_holm_multiplies_by_the_tests_that_are_left() -> None:
    assert paired.holm([0.04, 0.001, 0.2, 0.012]) == pytest.approx([0.08, 0.004, 0.2, 0.036])
    assert paired.holm([0.02, 0.021, 0.9]) == pytest.approx([0.06, 0.06, 0.9])
    assert paired.holm([0.5, 0.6]) == [1.0, 1.0]


def test_fewer_models_leave_nothing_to_compare() -> None:
    board = board_of(10)
    assert paired.pairs(board, entrants={"x": entrant(board, run_of(board, accuracy=0.5, seed=1))}) == []
