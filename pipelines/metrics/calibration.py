"""Turns a classifier's scores into probabilities that mean what they say, by what dev's gold says of them.

Everything here is fitted on dev alone: train's labels are a labeller's, and test's are an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipelines.datasets.example import VALIDATION, Example, only, targets
from pipelines.errors import DataError
from pipelines.metrics.sigmoids import fit_sigmoids, probabilities
from pipelines.taxonomy.task import Task

Floats = npt.NDArray[np.float64]
Kind = Literal["single", "multi"]

# Ours: what a score of 0 or 1 is moved to, so that its logarithm is finite; float32 knows nothing surer.
SUREST = 1e-7
# Ours: the temperatures that are looked at, from far too sure to far too modest.
TEMPERATURES = (0.02, 50.0)


class NothingToCalibrate(DataError):
    """Dev has no gold of the task: nothing can be said of how sure a model is."""

    message = "The classifier of task '{task}' cannot be calibrated: dev has no gold of it."
    remedy = "Annotate dev (posts of its split with gold of '{task}'), and run the stage again."


@dataclass(frozen=True)
class Calibration:
    """Platt's sigmoid for each label of a multi-label task, one temperature for a single-label one.

    Args:
        kind: the task's.
        sigmoids: slope and intercept on the scores' log-odds, shape (labels, 2); without rows for a single-label task.
        temperature: what the logarithms of a single-label task's scores are divided by; 1 for a multi-label one.
    """

    kind: Kind
    sigmoids: Floats
    temperature: float = 1.0

    def __call__(self, scores: npt.NDArray[np.floating]) -> Floats:
        """Return probabilities of scores in [0, 1], shape (examples, labels); single: rows that add up to 1."""
        found = evidence(scores, kind=self.kind)
        if self.kind == "multi":
            return probabilities(found, sigmoids=self.sigmoids)
        return shares(found / self.temperature, kind="single")

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {"kind": self.kind, "sigmoids": self.sigmoids.tolist(), "temperature": self.temperature}

    @classmethod
    def of_json(cls, stored: dict[str, Any]) -> Calibration:
        """Return what :meth:`as_json` gave."""
        sigmoids = np.array(stored["sigmoids"], np.float64).reshape(-1, 2)
        return cls(stored["kind"], sigmoids, float(stored["temperature"]))


def fit(scores: npt.NDArray[np.floating], *, examples: Sequence[Example], task: Task) -> Calibration:
    """Fit on dev: per label by Platt scaling, where rare labels share a slope (``label.offline.calibrate``).

    A single-label task has one temperature for all classes (Guo et al. 2017), which leaves the order of the classes as
    it is.

    Args:
        scores: in [0, 1], shape (examples, labels), rows in the order of ``examples``.
        examples: of validation, with gold.
        task: whose labels.

    Raises:
        LeakRefused: an example is not of validation.
        NothingToCalibrate: there are none.
    """
    truth = targets(only(examples, splits={VALIDATION}), task=task) > 0
    if not len(truth):
        raise NothingToCalibrate(task=task.key)
    found = evidence(scores, kind=task.kind)
    if task.kind == "multi":
        return Calibration("multi", _sigmoids(found, truth=truth))
    return Calibration("single", np.zeros((0, 2)), _temperature(found, truth=truth))


def evidence(scores: npt.NDArray[np.floating], *, kind: Kind) -> Floats:
    """Return what scores in [0, 1] say on a scale that can be added up: log-odds (multi), logarithms (single)."""
    p = np.clip(np.asarray(scores, np.float64), SUREST, 1 - SUREST if kind == "multi" else 1)
    return np.asarray(np.log(p / (1 - p)) if kind == "multi" else np.log(p))


def shares(found: Floats, *, kind: Kind) -> Floats:
    """Return the probabilities that evidence stands for: each label's own (multi), rows that add up to 1 (single)."""
    if kind == "multi":
        return np.asarray(1 / (1 + np.exp(-found)))
    raised = np.exp(found - found.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def log_loss(found: Floats, *, truth: npt.NDArray[np.bool_], task: Task) -> float:
    """Return the mean over examples of what the labels cost in nats, a multi-label task's added up: lower is better."""
    p = np.clip(found, SUREST, 1 - SUREST)
    cost = np.where(truth, np.log(p), np.log1p(-p) if task.kind == "multi" else 0.0)
    return float(-cost.sum(axis=1).mean())


def brier(found: Floats, *, truth: npt.NDArray[np.bool_]) -> float:
    """Return the mean squared distance of the probabilities from what is true, over all examples and labels."""
    return float(np.mean((found - truth) ** 2))


def _sigmoids(odds: Floats, *, truth: npt.NDArray[np.bool_]) -> Floats:
    """Return slopes and intercepts, fitted about the mean of each label's log-odds.

    Far from nought, as those of a label that train lacks are, the optimiser stops before it has begun, for all labels.
    """
    centre = odds.mean(axis=0)
    slopes, intercepts = fit_sigmoids(odds - centre, targets=truth).T
    return np.stack([slopes, intercepts - slopes * centre], axis=1)


def _temperature(logs: Floats, *, truth: npt.NDArray[np.bool_]) -> float:
    from scipy.optimize import minimize_scalar

    def loss(point: float) -> float:
        return float(-np.log(np.maximum(shares(logs / np.exp(point), kind="single")[truth], SUREST)).mean())

    bounds = tuple(np.log(TEMPERATURES))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))
