"""Measure the calibration of probabilities, and the precision that a recall floor of a label costs.

Calibration is measured per label: of the items to which a model gives a label with probability .3, three in ten should
have the label. The expected calibration error of a rare label is small for any model. The Brier score is therefore
given too, and for comparison the Brier score of always predicting the label's frequency. The shapes in
``evaluate.json``::

    Calibration = {                                   # over test answers with probabilities
      "n": int,                                       # answers, over all runs
      "ece": float, "brier": float,                   # means over the labels
      "intervals": {"ece" | "brier": [low, high]},    # 95 %, see calibration_errors.py
      "noise": float,                                 # the ECE that perfectly calibrated answers of this number have
      "labels": {label: {"ece", "interval", "noise", "brier", "base": float}},      # interval: of the ECE; base: the
                                                      # Brier score of always saying its frequency
      "bins": [{"low", "high": float, "n": int, "said": float | null, "seen": float | null}]   # all labels together
    }
    Floor = {
      "floor": float,
      "recall": Rate, "precision": Rate,              # of the original answers, over all test records: a missing
                                                      # answer is a miss
      "met": bool | null,                             # recall reached the floor; null: no test item carries the label
      "tuned": {                                      # by probabilities, threshold from dev; null: no probabilities
        "positives": int,                             # dev items that carry the label; fewer than five: threshold null
        "threshold": float | null,                    # the highest whose recall on dev reaches the floor
        "dev": {"recall", "precision": float | null},
        "recall": Rate, "precision": Rate             # at that threshold, on test
      } | null
    }                                                 # "tuned" is of the run of the first seed
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.evaluate import calibration_errors
from pipelines.evaluate.label_errors import Rates, gather
from pipelines.evaluate.model_scores import Board, Json, Run, bounds, number
from pipelines.metrics.label_sets import Floats, matrix
from pipelines.metrics.recall_constraints import MIN_POSITIVES, highest

Bools = npt.NDArray[np.bool_]
BINS = 10  # of equal width, as in Guo et al. (2017); fewer than their 15, for 600 posts (ours)


@dataclass(frozen=True)
class _Probabilities:
    """The items with probabilities in one run: ``known`` (items,), ``said`` and ``true`` (items, labels)."""

    known: Bools
    said: Floats
    true: Bools

    @classmethod
    def of(cls, board: Board, *, run: Run) -> _Probabilities:
        nothing = (math.nan,) * len(board.task.labels)
        said = np.array([run.scores.get(item, nothing) for item in board.items], dtype=np.float64)
        return cls(np.asarray(~np.isnan(said).any(axis=1)), said, matrix(board.gold, labels=board.task.labels))


def calibration(board: Board, *, runs: Sequence[Run]) -> Json | None:
    """Return ``Calibration`` of ``evaluate.json`` over all runs, or ``None`` if no run has probabilities."""
    scored = [_Probabilities.of(board, run=run) for run in runs]
    said = np.concatenate([s.said[s.known] for s in scored])
    true = np.concatenate([s.true[s.known] for s in scored]).astype(np.float64)
    if not len(said):
        return None
    briers, seen = ((said - true) ** 2).mean(axis=0), true.mean(axis=0)
    eces = [_ece(said[:, i], true=true[:, i]) for i in range(said.shape[1])]
    errors = calibration_errors.resampled(board, said=np.stack([s.said for s in scored]), bins=BINS)
    ends, noise = errors.intervals(), calibration_errors.noise(said, runs=len(runs), bins=BINS)
    labels = {
        label: {
            "ece": number(eces[i]),
            "interval": ends[i],
            "noise": number(noise[i]),
            "brier": number(briers[i]),
            "base": number(seen[i] * (1 - seen[i])),
        }
        for i, label in enumerate(board.task.labels)
    }
    return {
        "n": len(said),
        "ece": number(np.mean(eces)),
        "brier": number(briers.mean()),
        "intervals": {"ece": ends[-1], "brier": list(bounds(errors.brier))},
        "noise": number(noise.mean()),
        "labels": labels,
        "bins": _bins(said.ravel(), true=true.ravel()),
    }


def _sums(said: Floats, *, true: Floats) -> tuple[Floats, Floats, Floats]:
    """Return, for each bin, the number of values and the sums of predicted and of true values."""
    # a value on an edge belongs to the bin above it, except 1, which belongs to the last bin
    place = np.minimum((said * BINS).astype(int), BINS - 1)
    columns = (np.ones(len(said)), said, true)
    n, p, y = (np.bincount(place, weights=c, minlength=BINS).astype(np.float64) for c in columns)
    return n, p, y


def _ece(said: Floats, *, true: Floats) -> float:
    _, p, y = _sums(said, true=true)
    return float(np.abs(p - y).sum() / len(said))


def _bins(said: Floats, *, true: Floats) -> list[Json]:
    n, p, y = _sums(said, true=true)
    return [
        {
            "low": i / BINS,
            "high": (i + 1) / BINS,
            "n": int(n[i]),
            "said": number(p[i] / n[i]) if n[i] else None,
            "seen": number(y[i] / n[i]) if n[i] else None,
        }
        for i in range(BINS)
    ]


def floors(
    board: Board,
    *,
    runs: Sequence[Run],
    dev: Board | None,
    dev_runs: Sequence[Run],
    wanted: Mapping[str, float],
) -> Json:
    """Return for each label the recall and precision of the answers, and those at a threshold chosen on dev.

    Args:
        board: the test set.
        runs: one model's runs on test.
        dev: the dev set, ``None`` if there is none.
        dev_runs: the same model's runs on dev.
        wanted: label of the task -> required recall.
    """
    answers = gather(board, runs=runs)
    found: Json = {}
    for label, floor in wanted.items():
        i = board.task.labels.index(label)
        rates = Rates()
        true, said = answers.true[..., i], answers.said[..., i]
        rates.add(said, true)
        rates.add(true, said)
        recall, precision = rates.drawn(board)
        met = recall["rate"] >= floor if recall["of"] else None
        tuned = _tuned(board, runs=runs, dev=dev, dev_runs=dev_runs, label=i, floor=floor) if dev else None
        found[label] = {"floor": floor, "recall": recall, "precision": precision, "met": met, "tuned": tuned}
    return found


def _tuned(
    board: Board, *, runs: Sequence[Run], dev: Board, dev_runs: Sequence[Run], label: int, floor: float
) -> Json | None:
    by_seed = {run.seed: run for run in dev_runs if run.scores}
    both = sorted((run for run in runs if run.scores and run.seed in by_seed), key=lambda run: run.seed)
    if not both:
        return None
    on_dev, on_test = _Probabilities.of(dev, run=by_seed[both[0].seed]), _Probabilities.of(board, run=both[0])
    p, y = on_dev.said[on_dev.known, label], on_dev.true[on_dev.known, label]
    at = highest(p, truth=y, floor=floor) if y.sum() >= MIN_POSITIVES else None
    found: Json = {"positives": int(y.sum()), "threshold": at, "dev": {"recall": None, "precision": None}}
    given = p >= (math.inf if at is None else at)
    if at is not None:
        hits = float((given & y).sum())
        found["dev"] = {"recall": number(hits / y.sum()), "precision": number(hits / given.sum())}
    # without probabilities the values are NaN, which is below every threshold
    said = on_test.said[:, label] >= (math.inf if at is None else at)
    rates = Rates()
    rates.add(said[None], on_test.true[None, :, label])
    rates.add(on_test.true[None, :, label], said[None])
    found["recall"], found["precision"] = rates.drawn(board)
    return found
