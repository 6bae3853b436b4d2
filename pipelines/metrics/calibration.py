"""Calibrate a classifier's scores to probabilities on dev's gold.

Calibration is fitted on dev only, because the labels of train come from labellers and test must not influence a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipelines.core.errors import DataError
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import VALIDATION, Example, only, targets

Floats = npt.NDArray[np.float64]
Values = npt.NDArray[np.float64]
Targets = npt.NDArray[np.bool_]
Kind = Literal["single", "multi"]

# Ours: scores are clipped this far from 0 and 1 to keep logarithms finite; float32 holds nothing more certain.
SUREST = 1e-7
# Ours: the range of temperatures that is searched, from far overconfident to far underconfident.
TEMPERATURES = (0.02, 50.0)

# Ours: strength of the pull of a rare label's slope to the mean slope, in units of log-likelihood; about ten posts
# (SPEC 2.4 shrinks rare labels' thresholds to the pooled one for the same reason).
PULL = 10.0
BOUND = 1e-6  # ours: a few hundred posts support no more certainty; 0 is reserved for "abstained"


@dataclass(frozen=True)
class Calibration:
    """Platt's sigmoid for each label of a multi-label task, or a temperature and biases for a single-label task.

    ``sigmoids`` are slope and intercept on log-odds, shape (labels, 2); the log-scores of a single-label task are
    divided by the temperature, and the biases of the classes are added.
    """

    kind: Kind
    sigmoids: Floats
    temperature: float = 1.0
    biases: tuple[float, ...] = ()

    def __call__(self, scores: npt.NDArray[np.floating]) -> Floats:
        """Return probabilities of scores in [0, 1], shape (examples, labels); rows of a single-label task sum to 1."""
        values = evidence(scores, kind=self.kind)
        if self.kind == "multi":
            return probabilities(values, sigmoids=self.sigmoids)
        return shares(values / self.temperature + np.array(self.biases or 0.0), kind="single")

    def as_json(self) -> dict[str, Any]:
        """Return the calibration as JSON values."""
        classes = {"temperature": self.temperature, "biases": list(self.biases)}
        return {"kind": self.kind, "sigmoids": self.sigmoids.tolist(), **classes}

    @classmethod
    def of_json(cls, stored: dict[str, Any]) -> Calibration:
        """Build a calibration from the JSON values that :meth:`as_json` returns."""
        sigmoids = np.array(stored["sigmoids"], np.float64).reshape(-1, 2)
        return cls(stored["kind"], sigmoids, float(stored["temperature"]), tuple(stored["biases"]))


def fit(scores: npt.NDArray[np.floating], *, examples: Sequence[Example], task: Task) -> Calibration:
    """Fit a calibration of scores on dev: for a multi-label task by Platt scaling of each label.

    A single-label task has one temperature for all classes (Guo et al. 2017) and a bias of each class (Alexandari et
    al. 2020): the loss of an encoder weighs rare classes as much as frequent ones, so that with a weak signal the exact
    match of its most probable class would be below that of the majority class.
    """
    truth = targets(only(examples, splits={VALIDATION}), task=task) > 0
    if not len(truth):
        raise DataError("NothingToCalibrate", task=task.key)
    values = evidence(scores, kind=task.kind)
    if task.kind == "multi":
        centre = values.mean(axis=0)
        slopes, intercepts = fit_sigmoids(values - centre, targets=truth).T
        return Calibration("multi", np.stack([slopes, intercepts - slopes * centre], axis=1))
    return Calibration("single", np.zeros((0, 2)), *_temperature(values, truth=truth))


def evidence(scores: npt.NDArray[np.floating], *, kind: Kind) -> Floats:
    """Return scores in [0, 1] as log-odds (multi-label task) or as logarithms (single-label task)."""
    p = np.clip(np.asarray(scores, np.float64), SUREST, 1 - SUREST if kind == "multi" else 1)
    return np.asarray(np.log(p / (1 - p)) if kind == "multi" else np.log(p))


def shares(values: Floats, *, kind: Kind) -> Floats:
    """Return log-odds or log-scores (:func:`evidence`) as probabilities; a single-label task's sum to 1 in a row."""
    if kind == "multi":
        return np.asarray(1 / (1 + np.exp(-values)))
    raised = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def log_loss(chances: Floats, *, truth: npt.NDArray[np.bool_], task: Task) -> float:
    """Return the probabilities' mean log loss per example in nats, summed over the labels of a multi-label task."""
    p = np.clip(chances, SUREST, 1 - SUREST)
    cost = np.where(truth, np.log(p), np.log1p(-p) if task.kind == "multi" else 0.0)
    return float(-cost.sum(axis=1).mean())


def brier(chances: Floats, *, truth: npt.NDArray[np.bool_]) -> float:
    """Return the Brier score: the mean squared difference of probabilities and truth over examples and labels."""
    return float(np.mean((chances - truth) ** 2))


def _temperature(logs: Floats, *, truth: npt.NDArray[np.bool_]) -> tuple[float, tuple[float, ...]]:
    """Return temperature and biases with the least log loss; biases have a standard normal prior, for rare classes."""
    from scipy.optimize import minimize

    def loss(point: Floats) -> tuple[float, Floats]:
        slope, biases = np.exp(-point[0]), point[1:]
        p = shares(logs * slope + biases, kind="single")
        error = p - truth
        worth = -np.log(np.maximum(p[truth], SUREST)).sum() + biases @ biases / 2
        return float(worth), np.array([-(error * logs).sum() * slope, *(error.sum(axis=0) + biases)])

    bounds = [tuple(np.log(TEMPERATURES)), *[(None, None)] * logs.shape[1]]
    optimum = minimize(loss, np.zeros(1 + logs.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds).x
    return float(np.exp(optimum[0])), tuple(optimum[1:].tolist())


def fit_sigmoids(values: Values, *, targets: Targets) -> Values:
    """Fit a slope and an intercept for each label to held-out decision values; return them, shape (labels, 2).

    Platt's smoothed targets (Platt 1999) keep them finite on separable values. Slopes are shrunk to their mean, since
    five positives cannot determine a slope, and are never negative, so that a few posts cannot reverse a label. A label
    without positives, or without negatives, says nothing about slopes and has the mean of the others: of a scheme with
    many labels most have none on validation. ``values`` and ``targets`` have shape (posts, labels).
    """
    scale = values.std(axis=0)
    scale[scale == 0] = 1.0
    both = targets.any(axis=0) & ~targets.all(axis=0)
    known = both | ~both.any()
    fitted = np.zeros((2, values.shape[1]))
    fitted[:, known] = _sigmoids((values / scale)[:, known], targets=targets[:, known], slope=None)
    fitted[0] /= scale
    if not known.all():
        # of the values themselves: the spread of those of a label without positives is less for that reason
        slope = float(fitted[0, known].mean())
        fitted[:, ~known] = _sigmoids(values[:, ~known], targets=targets[:, ~known], slope=slope)
    return np.ascontiguousarray(fitted.T)


def _sigmoids(x: Values, *, targets: Targets, slope: float | None) -> tuple[Values, Values]:
    """Return the slopes and intercepts with the least loss; with ``slope``, all slopes are this one."""
    from scipy.optimize import minimize

    labels = x.shape[1]
    positives, negatives = targets.sum(axis=0), (~targets).sum(axis=0)
    wanted = np.where(targets, (positives + 1) / (positives + 2), 1 / (negatives + 2))

    def loss(point: Values) -> tuple[float, Values]:
        slopes, intercepts = point[:labels], point[labels:]
        z = x * slopes + intercepts
        away = slopes - slopes.mean()
        error = 1 / (1 + np.exp(-np.clip(z, -500, 500))) - wanted
        worth = np.sum(np.logaddexp(0, z) - wanted * z) + PULL * np.sum(away**2)
        return float(worth), np.concatenate([(error * x).sum(axis=0) + 2 * PULL * away, error.sum(axis=0)])

    start = np.concatenate([np.full(labels, slope or 1.0), np.log((positives + 1) / (negatives + 1))])
    bounds = [(0.0, None) if slope is None else (slope, slope)] * labels + [(None, None)] * labels
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500}).x
    return optimum[:labels], optimum[labels:]


def probabilities(values: Values, *, sigmoids: Values) -> Values:
    """Convert decision values of shape (posts, labels) to probabilities; ``sigmoids`` has shape (labels, 2)."""
    z = np.clip(values * sigmoids[:, 0] + sigmoids[:, 1], -500, 500)
    return np.clip(1 / (1 + np.exp(-z)), BOUND, 1 - BOUND)
