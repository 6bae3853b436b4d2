"""Intervals equal scipy's where scipy has them, and cover as often as they say, in simulations with few draws.

``bench/intervals.py`` is the longer run of the same simulations.
"""

import numpy as np
import pytest
from scipy import stats

from bench import intervals
from bench.intervals import SHARES, answered, board_of, run_of
from pipelines.evaluate import label_errors, model_scores, reliability
from pipelines.evaluate.label_errors import Traits
from pipelines.metrics import bootstrap, label_sets
from pipelines.metrics.label_sets import Tally


def macro_of(rows: np.ndarray) -> np.ndarray:
    return label_sets.figures(Tally.of_flat(rows))["macro_f1"]


def test_bca_of_macro_f1_is_scipys() -> None:
    rng = np.random.default_rng(1)
    truth = rng.choice(len(SHARES), size=80, p=SHARES)
    board = board_of(truth, resamples=10, seed=1)
    said = board.predicted(run_of(board, answered(truth, right=0.7, rng=rng), seed=1))
    rows = label_sets.tally(board.gold, predicted=said, labels=board.task.labels).flat()

    def statistic(places: np.ndarray, axis: int = -1) -> np.ndarray:
        return macro_of(rows[places.astype(int)].sum(axis=axis - 1 if axis < 0 else axis))

    theirs = stats.bootstrap(
        (np.arange(80),), statistic, n_resamples=3000, method="BCa", vectorized=True, rng=np.random.default_rng(2)
    )
    ours = bootstrap.bca(
        float(macro_of(rows.sum(axis=0))),
        resampled=theirs.bootstrap_distribution,
        without=[macro_of(rows.sum(axis=0) - rows)],
    )
    assert ours == pytest.approx((theirs.confidence_interval.low, theirs.confidence_interval.high), abs=1e-9)


def test_bca_of_two_kinds_of_units_is_scipys() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.exponential(size=30), rng.normal(size=12)

    def statistic(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        return a.mean(axis=axis) - b.mean(axis=axis)

    theirs = stats.bootstrap((first, second), statistic, n_resamples=2000, method="BCa", rng=np.random.default_rng(4))
    without = [(first.sum() - first) / 29 - second.mean(), first.mean() - (second.sum() - second) / 11]
    ours = bootstrap.bca(float(first.mean() - second.mean()), resampled=theirs.bootstrap_distribution, without=without)
    assert ours == pytest.approx((theirs.confidence_interval.low, theirs.confidence_interval.high), abs=1e-9)


def test_where_bca_is_undefined_the_interval_is_the_percentiles() -> None:
    resampled = np.linspace(0, 1, 201)
    expected = pytest.approx((0.025, 0.975))
    assert bootstrap.bca(2.0, resampled=resampled, without=[np.array([1.0, 2.0])]) == expected
    assert bootstrap.bca(0.5, resampled=resampled, without=[np.array([0.5, 0.5])]) == expected
    assert bootstrap.bca(1.0, resampled=np.ones(9), without=[np.ones(4)]) == (1.0, 1.0)


def test_bca_covers_macro_f1_with_rare_labels_better_than_percentiles() -> None:
    found = intervals.of_macro_f1(items=208, sets=120, resamples=200)
    assert found.ours >= 0.89, "three standard errors of 120 sets are .06"
    # three items of the rarest label on average
    few = intervals.of_macro_f1(items=100, sets=200, resamples=200)
    assert few.ours > few.baseline + 0.01


def test_intervals_of_several_runs_cover_other_seeds_and_those_over_items_do_not() -> None:
    found = intervals.of_runs(items=100, runs=3, sets=80, resamples=200, spread=0.08)
    assert found.ours >= 0.88
    assert found.baseline < found.ours - 0.05


@pytest.mark.parametrize("off", [0, 0.3])
def test_the_interval_of_the_calibration_error_covers_it_also_if_there_is_none(off: float) -> None:
    found = intervals.of_calibration(items=200, sets=80, resamples=200, off=off)
    assert found.ours >= 0.87, "three standard errors of 80 sets are .08"
    assert found.ours >= found.baseline - 0.01


def test_alpha_of_copies_is_covered_only_if_groups_are_drawn() -> None:
    found = intervals.of_alpha(groups=80, copies=3, sets=150, resamples=200)
    assert found.ours >= 0.89
    assert found.baseline < 0.85


def test_the_variance_over_runs_is_not_too_small() -> None:
    """Runs are constant over items here, so that all spread is theirs: its variance is s²/R, not (R - 1)/R of it."""
    truth = np.zeros(40, dtype=int)
    board = board_of(truth, resamples=20_000, seed=5)
    runs = [run_of(board, np.full(40, k), seed=k) for k in (0, 1, 0)]
    drawn = model_scores.score(board, runs=runs, valid=False).drawn["exact"]
    assert drawn.var() == pytest.approx(np.var([1, 0, 1], ddof=1) / 3, rel=0.03)


def test_one_run_has_the_draws_of_the_items_alone_and_equal_models_the_same_draws() -> None:
    rng = np.random.default_rng(6)
    truth = rng.choice(len(SHARES), size=60, p=SHARES)
    board = board_of(truth, resamples=300, seed=6)
    said = [answered(truth, right=0.7, rng=rng) for _ in range(3)]
    runs = [run_of(board, each, seed=i) for i, each in enumerate(said)]
    first, again = (model_scores.score(board, runs=runs, valid=False) for _ in range(2))
    assert (first.drawn["macro_f1"] == again.drawn["macro_f1"]).all()
    [whole] = [np.concatenate(list(board.weights()))]
    alone = model_scores.score(board, runs=runs[:1], valid=False).drawn["exact"]
    assert alone == pytest.approx(whole @ (said[0] == truth) / 60)


def test_rates_of_several_runs_are_wider_than_if_the_runs_were_fixed() -> None:
    rng = np.random.default_rng(7)
    truth = rng.choice(len(SHARES), size=200, p=SHARES)
    board = board_of(truth, resamples=400, seed=7)
    runs = [run_of(board, answered(truth, right=right, rng=rng), seed=i) for i, right in enumerate((0.5, 0.7, 0.9))]
    wrong = label_errors.analyse(board, runs=runs, traits=Traits())["wrong"]
    fixed = label_errors.Rates()
    answers = label_errors.gather(board, runs=runs)
    fixed.add(answers.wrong, answers.answered)
    [narrow] = fixed.draw(board)
    assert (wrong["count"], wrong["of"], wrong["rate"]) == (narrow["count"], narrow["of"], narrow["rate"])
    assert wrong["high"] - wrong["low"] > 2 * (narrow["high"] - narrow["low"])


def test_calibrated_answers_have_the_error_of_chance_and_an_interval_down_to_zero() -> None:
    rng = np.random.default_rng(8)
    sharp = rng.dirichlet(20 * SHARES, size=600)
    truth = (rng.random(600)[:, None] > sharp.cumsum(axis=1)).sum(axis=1).clip(max=len(SHARES) - 1)
    board = board_of(truth, resamples=1000, seed=8)
    found = reliability.calibration(board, runs=[run_of(board, sharp.argmax(axis=1), seed=1, scores=sharp)])
    assert found is not None
    assert found["noise"] == pytest.approx(found["ece"], rel=0.5)
    low, high = found["intervals"]["ece"]
    assert low < 0.02 and high >= found["ece"]
    low, high = found["intervals"]["brier"]
    assert low < found["brier"] < high
    assert all(each["interval"][0] <= each["ece"] <= each["interval"][1] for each in found["labels"].values())
