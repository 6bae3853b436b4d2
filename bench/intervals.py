"""Simulate how often 95 % intervals cover the truth, through the functions that `evaluate` and `agreement` use.

Test sets are drawn from a population whose scores are known. Ours and the baseline see the same sets: BCa against the
percentile interval of macro-F1 with rare labels; drawing items and runs against drawing items, where runs differ by
seed; test inversion against percentiles of the calibration error; drawing near-duplicate groups against drawing
items for alpha.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.evaluate import model_scores, reliability
from pipelines.evaluate.model_scores import Board, Run, Sampling
from pipelines.metrics import agreement_coefficients as c
from pipelines.metrics.bootstrap import percentile

SETS, RESAMPLES = 1_000, 1_000
TASK = task_of(load("figsim"), "severity")
SHARES = np.array([0.5, 0.25, 0.15, 0.07, 0.03])  # of the labels: the last has few items in every set
Ends = tuple[float | None, float | None]


@dataclass(frozen=True)
class Coverage:
    """How often the intervals of ours and of the baseline contain the truth, and how wide they are on average."""

    ours: float
    baseline: float
    widths: tuple[float, float]

    @classmethod
    def of(cls, truth: float, intervals: Sequence[tuple[Ends, Ends]]) -> Coverage:
        """Count the intervals (ours, baseline) that contain ``truth``."""
        ends = np.array(intervals, dtype=np.float64)
        inside = (ends[:, :, 0] <= truth) & (truth <= ends[:, :, 1])
        ours, baseline = inside.mean(axis=0)
        mine, other = (ends[:, :, 1] - ends[:, :, 0]).mean(axis=0)
        return cls(float(ours), float(baseline), (float(mine), float(other)))


def confusion(right: float) -> np.ndarray:
    """Return the population's joint shares of true and predicted label; errors go to a neighbouring label."""
    classes = len(SHARES)
    found = np.zeros((classes, classes))
    for k in range(classes):
        others = [j for j in (k - 1, k + 1) if 0 <= j < classes]
        found[k, k] = right
        found[k, others] = (1 - right) / len(others)
    return found * SHARES[:, None]


def macro_f1(joint: np.ndarray) -> float:
    """Return the macro-F1 of a joint distribution of true and predicted labels."""
    return float(np.mean(2 * joint.diagonal() / (joint.sum(axis=0) + joint.sum(axis=1))))


def answered(truth: np.ndarray, *, right: float, rng: np.random.Generator) -> np.ndarray:
    """Draw predictions for true labels from the population of :func:`confusion`."""
    joint = confusion(right)
    limits = (joint / joint.sum(axis=1, keepdims=True)).cumsum(axis=1)
    return (rng.random(len(truth))[:, None] > limits[truth]).sum(axis=1)


def board_of(truth: np.ndarray, *, resamples: int, seed: int) -> Board:
    """Return a test set with these true labels, each item its own group."""
    items = tuple((f"r{i:04d}", 0) for i in range(len(truth)))
    gold = tuple(frozenset({TASK.labels[k]}) for k in truth)
    return Board(TASK, items, gold, tuple(r for r, _ in items), Sampling(resamples, seed))


def run_of(board: Board, said: np.ndarray, *, seed: int, scores: np.ndarray | None = None) -> Run:
    """Return a run with these predicted labels and, if given, probabilities."""
    answers = {item: frozenset({TASK.labels[k]}) for item, k in zip(board.items, said, strict=True)}
    given = {} if scores is None else dict(zip(board.items, map(tuple, scores.tolist()), strict=True))
    return Run(seed, dict.fromkeys(board.items, "vote"), answers, given)


def of_macro_f1(*, items: int, sets: int, resamples: int) -> Coverage:
    """Compare BCa and percentile intervals of macro-F1 of one run."""
    right, found = 0.75, []
    for number in range(sets):
        rng = np.random.default_rng([1, number])
        truth = rng.choice(len(SHARES), size=items, p=SHARES)
        board = board_of(truth, resamples=resamples, seed=number)
        run = run_of(board, answered(truth, right=right, rng=rng), seed=1)
        scored = model_scores.score(board, runs=[run], valid=False)
        cell = scored.cell("macro_f1")
        found.append(((cell["low"], cell["high"]), percentile(scored.drawn["macro_f1"])))
    return Coverage.of(macro_f1(confusion(right)), found)


def of_runs(*, items: int, runs: int, sets: int, resamples: int, spread: float = 0.05) -> Coverage:
    """Compare intervals over items and runs with intervals over items, of models whose runs differ by seed."""
    middle, found = 0.75, []
    for number in range(sets):
        rng = np.random.default_rng([2, number])
        truth = rng.choice(len(SHARES), size=items, p=SHARES)
        board = board_of(truth, resamples=resamples, seed=number)
        rights = middle + spread * rng.uniform(-math.sqrt(3), math.sqrt(3), size=runs)
        made = [run_of(board, answered(truth, right=r, rng=rng), seed=i) for i, r in enumerate(rights)]
        cell = model_scores.score(board, runs=made, valid=False).cell("exact")
        alone = [model_scores.score(board, runs=[one], valid=False).drawn["exact"] for one in made]
        found.append(((cell["low"], cell["high"]), percentile(np.mean(alone, axis=0))))
    return Coverage.of(middle, found)


def of_calibration(*, items: int, sets: int, resamples: int, off: float) -> Coverage:
    """Compare test inversion and percentiles of the calibration error; ``off``: how far answers are too sure."""
    found, gaps = [], np.zeros((len(SHARES), reliability.BINS))
    for number in range(sets):
        rng = np.random.default_rng([3, number])
        sharp = rng.dirichlet(40 * SHARES, size=items)
        # the label is drawn from `sharp`; what is said moves towards the most probable label
        truth = (rng.random(items)[:, None] > sharp.cumsum(axis=1)).sum(axis=1).clip(max=len(SHARES) - 1)
        said = (1 - off) * sharp + off * np.eye(len(SHARES))[sharp.argmax(axis=1)]
        board = board_of(truth, resamples=resamples, seed=number)
        run = run_of(board, said.argmax(axis=1), seed=1, scores=said)
        measured = reliability.calibration(board, runs=[run])
        drawn = reliability.resampled(board, said=said[None], bins=reliability.BINS)
        for k, bins in enumerate(np.minimum((said * reliability.BINS).astype(int), reliability.BINS - 1).T):
            gaps[k] += np.bincount(bins, weights=(said - sharp)[:, k], minlength=reliability.BINS)
        if measured is not None:
            found.append((tuple(measured["intervals"]["ece"]), percentile(drawn.eces(drawn.drawn)[:, -1])))
    # the error of the population in the same bins, over the probabilities of all sets
    return Coverage.of(float(np.abs(gaps).sum(axis=1).mean() / (items * sets)), found)


def of_alpha(*, groups: int, copies: int, sets: int, resamples: int) -> Coverage:
    """Compare intervals of alpha that draw groups of near-duplicates with intervals that draw items."""
    # two classes, equally frequent; each of two raters errs in a fifth: alpha is 1 - 2 * .2 * .8 / .5
    found, truth = [], 1 - 2 * 0.2 * 0.8 / 0.5
    for number in range(sets):
        rng = np.random.default_rng([4, number])
        codes = rng.integers(0, 2, size=(groups, 1)) ^ (rng.random((groups, 2)) < 0.2)
        codes = np.repeat(codes.astype(np.int64), copies, axis=0)
        place = np.repeat(np.arange(groups), copies)
        ends = []
        for weights in (
            c.draws(groups, resamples=resamples, rng=rng)[:, place],
            c.draws(len(codes), resamples=resamples, rng=rng),
        ):
            estimate = c.estimate(c.alpha(codes, distance=c.nominal(2), weights=weights), confidence=0.95)
            ends.append((estimate.low, estimate.high))
        found.append((ends[0], ends[1]))
    return Coverage.of(truth, found)


def line(name: str, found: Coverage, baseline: str) -> None:
    """Print one comparison; the ratio is how many times further from 95 % the baseline is."""
    misses = [abs(share - 0.95) for share in (found.ours, found.baseline)]
    record = {
        "name": name,
        "ours": round(found.ours, 4),
        "baseline": round(found.baseline, 4),
        "baseline_name": baseline,
    }
    ratio = round(misses[1] / max(misses[0], 1 / SETS), 2)
    print(json.dumps({**record, "ratio": ratio, "unit": "covered by 95 % intervals"}), flush=True)


def main() -> None:
    """Simulate sets of the papers' sizes (208 memes, 600 posts)."""
    simulations: dict[tuple[str, str], Callable[[], Coverage]] = {}
    given = {"sets": SETS, "resamples": RESAMPLES}
    for items in (60, 208, 600):
        name = f"intervals_macro_f1_{items}_items"
        simulations[name, "percentile bootstrap"] = lambda items=items: of_macro_f1(items=items, **given)
    for runs in (3, 5):
        name = f"intervals_exact_{runs}_runs"
        simulations[name, "bootstrap over items only"] = lambda runs=runs: of_runs(items=208, runs=runs, **given)
    for off in (0.05, 0.3):
        name = f"intervals_ece_{off}_too_sure"
        simulations[name, "percentile bootstrap"] = lambda off=off: of_calibration(items=600, off=off, **given)
    simulations["intervals_alpha_copies", "bootstrap over items"] = lambda: of_alpha(groups=100, copies=3, **given)
    for (name, baseline), simulate in simulations.items():
        line(name, simulate(), baseline)


if __name__ == "__main__":
    main()
