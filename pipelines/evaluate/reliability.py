"""Measure the calibration of probabilities, and the precision that a recall floor of a label costs.

Calibration is measured per label: of the items to which a model gives a label with probability .3, three in ten should
have the label. The expected calibration error of a rare label is small for any model. The Brier score is therefore
given too, and for comparison the Brier score of always predicting the label's frequency.

The ECE of few answers is too high, because chance alone moves frequencies off their probabilities (``noise``), and a
resample adds that chance once more: percentiles of resampled ECEs can lie above the truth altogether. Its interval
therefore inverts a test. Let the true differences of predicted and observed frequencies be t times the observed ones,
t from 0 (calibrated), and let chance add the deviations of the resamples from the data: the interval has all t times
ECE whose 95 % range of possible ECEs contains the measured one. It is widened to contain that one. The shapes in
``evaluate.json``::

    Calibration = {                                   # over test answers with probabilities
      "n": int,                                       # answers, over all runs
      "ece": float, "brier": float,                   # means over the labels
      "intervals": {"ece" | "brier": [low, high]},    # 95 %
      "noise": float,                                 # the ECE that perfectly calibrated answers of this number have
      "labels": {label: {"ece", "brier", "base", "noise": float, "interval": [low, high]}},    # interval: of the ECE;
                                                      # base: the Brier score of always saying its frequency
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

from pipelines.evaluate.label_errors import Rates, gather
from pipelines.evaluate.model_scores import Board, Json, Run, bounds, number
from pipelines.metrics.bootstrap import CONFIDENCE
from pipelines.metrics.label_sets import Floats, matrix
from pipelines.metrics.recall_constraints import MIN_POSITIVES, highest

Bools = npt.NDArray[np.bool_]
BLOCKS = 2  # of 1,000 resamples (ours): ten columns a label are expensive, and the ends of an interval need no more
SCALES = np.linspace(0, 3, 13)  # the multiples t that are tried; between them, ranges are interpolated
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
    eces = np.array([_ece(said[:, i], true=true[:, i]) for i in range(said.shape[1])])
    drawn = resampled_errors(board, runs=runs)
    ends = error_intervals(eces, drawn=drawn)
    noise = np.mean([_noise(s.said[s.known]) for s in scored if s.known.any()], axis=0)
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
        "intervals": {"ece": ends[-1], "brier": list(bounds(drawn.brier))},
        "noise": number(noise.mean()),
        "labels": labels,
        "bins": _bins(said.ravel(), true=true.ravel()),
    }


@dataclass(frozen=True)
class ResampledErrors:
    """The differences of predicted and observed frequency by label and bin, (labels, bins), as shares of all answers.

    ``gaps`` is that of the data, ``drawn`` has one for each resample, and ``brier`` the resampled mean Brier scores.
    """

    gaps: Floats
    drawn: Floats
    brier: Floats

    def errors(self, gaps: Floats) -> Floats:
        """Return the ECE of each label and, as the last column, their mean; ``gaps`` has shape (..., labels, bins)."""
        eces = np.abs(gaps).sum(axis=-1)
        return np.concatenate([eces, eces.mean(axis=-1, keepdims=True)], axis=-1)


def resampled_errors(board: Board, *, runs: Sequence[Run]) -> ResampledErrors:
    """Resample the calibration errors of a model over groups and runs."""
    scored = [_Probabilities.of(board, run=run) for run in runs]
    items, labels = scored[0].said.shape
    rows = np.zeros((items, len(scored), labels * BINS + 2))
    for run, one in enumerate(scored):
        known = np.flatnonzero(one.known)
        off = one.said[known] - one.true[known]
        columns = np.arange(labels) * BINS + _place(one.said[known])
        rows[known[:, None], run, columns] = off
        rows[known, run, -2], rows[known, run, -1] = (off**2).mean(axis=1), 1
    sums = np.concatenate([rows.sum(axis=(0, 1))[None], board.resampled(rows, blocks=BLOCKS)])
    sums = sums[sums[:, -1] > 0]
    sums = sums[:, :-1] / sums[:, -1:]
    gaps = sums[:, :-1].reshape(len(sums), labels, BINS)
    return ResampledErrors(gaps[0], gaps[1:], sums[1:, -1])


def error_intervals(eces: Floats, *, drawn: ResampledErrors) -> list[list[float | None]]:
    """Return the interval of each label's ECE and, last, of their mean (see the module's docstring)."""
    values = np.append(eces, eces.mean())
    if not len(drawn.drawn):
        return [[None, None] for _ in values]
    chance = drawn.drawn - drawn.gaps
    tail = 100 * (1 - CONFIDENCE) / 2
    expected = [np.percentile(drawn.errors(t * drawn.gaps + chance), [tail, 100 - tail], axis=0) for t in SCALES]
    lowest, highest = np.maximum.accumulate(np.array(expected), axis=0).swapaxes(0, 1)
    ends = []
    for i, value in enumerate(values):
        low, high = np.interp(value, highest[:, i], SCALES), np.interp(value, lowest[:, i], SCALES)
        ends.append([number(low * value), number(max(1.0, high) * value)])
    return ends


def _place(said: Floats) -> npt.NDArray[np.int64]:
    """Return the bin of each value; one on an edge belongs to the bin above it, except 1, which belongs to the last."""
    return np.minimum((said * BINS).astype(np.int64), BINS - 1)


def _noise(said: Floats) -> Floats:
    """Return the ECE to expect of each label if all probabilities are right (normal approximation in each bin)."""
    place = _place(said)
    found = np.zeros(said.shape[1])
    for i in range(said.shape[1]):
        p, others, variance = (
            np.bincount(place[:, i], weights=part[:, i], minlength=BINS) for part in (said, 1 - said, said * (1 - said))
        )
        # of less than one expected event, the mean deviation is at most twice that expectation
        found[i] = np.minimum(np.sqrt(2 * variance / np.pi), 2 * np.minimum(p, others)).sum() / len(said)
    return found


def _sums(said: Floats, *, true: Floats) -> tuple[Floats, Floats, Floats]:
    """Return, for each bin, the number of values and the sums of predicted and of true values."""
    place = _place(said)
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
