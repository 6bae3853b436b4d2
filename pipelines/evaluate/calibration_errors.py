"""Compute confidence intervals of expected calibration errors (ECE) by resampling.

The ECE of few answers is too high, because chance alone moves frequencies off their probabilities (:func:`noise`), and
a resample adds that chance once more: percentiles of resampled ECEs can lie above the truth altogether. The interval
therefore inverts a test. Let the true differences of predicted and observed frequency be t times the observed ones, t
from 0 (calibrated), and let chance add the deviations of the resamples from the data: the interval has all t times ECE
whose 95 % range of possible ECEs contains the measured one. It is widened to contain that one. Coverage is simulated in
``bench/intervals.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.evaluate.model_scores import Board, number
from pipelines.metrics.bootstrap import CONFIDENCE
from pipelines.metrics.label_sets import Floats, matrix

BLOCKS = 2  # of 1,000 resamples (ours): ten columns a label are expensive, and the ends of an interval need no more
SCALES = np.linspace(0, 3, 13)  # the multiples t that are tried; between them, ranges are interpolated


@dataclass(frozen=True)
class ResampledErrors:
    """The differences of predicted and observed frequency by label and bin, (labels, bins), as shares of all answers.

    ``gaps`` are those of the data, ``drawn`` those of each resample, and ``brier`` the resampled mean Brier scores.
    """

    gaps: Floats
    drawn: Floats
    brier: Floats

    def eces(self, gaps: Floats) -> Floats:
        """Return the ECE of each label and, as the last column, their mean; ``gaps`` has shape (..., labels, bins)."""
        found = np.abs(gaps).sum(axis=-1)
        return np.concatenate([found, found.mean(axis=-1, keepdims=True)], axis=-1)

    def intervals(self) -> list[list[float | None]]:
        """Return the 95 % interval (low, high) of each label's ECE and, last, of the labels' mean ECE."""
        values = self.eces(self.gaps)
        if not len(self.drawn):
            return [[None, None] for _ in values]
        chance = self.drawn - self.gaps
        tail = 100 * (1 - CONFIDENCE) / 2
        ranges = [np.percentile(self.eces(t * self.gaps + chance), [tail, 100 - tail], axis=0) for t in SCALES]
        lowest, highest = np.maximum.accumulate(np.array(ranges), axis=0).swapaxes(0, 1)
        ends = []
        for i, value in enumerate(values):
            low, high = np.interp(value, highest[:, i], SCALES), np.interp(value, lowest[:, i], SCALES)
            ends.append([number(low * value), number(max(1.0, high) * value)])
        return ends


def resampled(board: Board, *, said: Floats, bins: int) -> ResampledErrors:
    """Resample a model's calibration errors over groups of items and over runs (one for each seed).

    Args:
        said: probabilities, shape (runs, items, labels); NaN for an answer without probabilities.
        bins: the number of bins of equal width.
    """
    true = matrix(board.gold, labels=board.task.labels)
    runs, items, labels = said.shape
    rows = np.zeros((items, runs, labels * bins + 2))
    for run, values in enumerate(said):
        known = np.flatnonzero(~np.isnan(values).any(axis=1))
        off = values[known] - true[known]
        columns = np.arange(labels) * bins + place(values[known], bins=bins)
        rows[known[:, None], run, columns] = off
        rows[known, run, -2], rows[known, run, -1] = (off**2).mean(axis=1), 1
    sums = np.concatenate([rows.sum(axis=(0, 1))[None], board.resampled(rows, blocks=BLOCKS)])
    sums = sums[sums[:, -1] > 0]
    shares = sums[:, :-1] / sums[:, -1:]
    gaps = shares[:, :-1].reshape(len(shares), labels, bins)
    return ResampledErrors(gaps[0], gaps[1:], shares[1:, -1])


def noise(said: Floats, *, runs: int, bins: int) -> Floats:
    """Return the ECE of each label that chance alone causes if all probabilities are right.

    The normal approximation is used in each bin. ``said`` are the probabilities, shape (answers, labels); the answers
    of several runs to an item share its chance.
    """
    where = place(said, bins=bins)
    found = np.zeros(said.shape[1])
    for i in range(said.shape[1]):
        p, others, variance = (
            np.bincount(where[:, i], weights=part[:, i], minlength=bins) for part in (said, 1 - said, said * (1 - said))
        )
        # of less than one expected event, the mean deviation is at most twice that expectation
        found[i] = np.minimum(np.sqrt(2 * runs * variance / np.pi), 2 * np.minimum(p, others)).sum() / len(said)
    return found


def place(said: Floats, *, bins: int) -> npt.NDArray[np.int64]:
    """Return the bin of each probability; one on an edge is in the bin above it, except 1, which is in the last."""
    return np.minimum((said * bins).astype(np.int64), bins - 1)
