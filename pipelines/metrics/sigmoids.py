"""Fit Platt sigmoids that map decision values to calibrated probabilities (SPEC 2.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Targets = npt.NDArray[np.bool_]

# Ours: strength of the pull of a rare label's slope to the mean slope, in units of log-likelihood; about ten posts
# (SPEC 2.4 shrinks rare labels' thresholds to the pooled one for the same reason).
PULL = 10.0
BOUND = 1e-6  # ours: a few hundred posts support no more certainty; 0 is reserved for "abstained"


def fit_sigmoids(values: Values, *, targets: Targets) -> Values:
    """Return the slope and intercept per label, shape (labels, 2), that best fit held-out decision values.

    Platt's smoothed targets (Platt 1999) keep them finite on separable values. Slopes are shrunk to their mean, since
    five positives cannot determine a slope, and are never negative, so that a few posts cannot reverse a label.

    Args:
        values: held-out decision values, shape (posts, labels).
        targets: which labels the posts have, same shape.
    """
    from scipy.optimize import minimize

    labels = values.shape[1]
    positives, negatives = targets.sum(axis=0), (~targets).sum(axis=0)
    wanted = np.where(targets, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    scale = values.std(axis=0)
    scale[scale == 0] = 1.0
    x = values / scale

    def loss(point: Values) -> tuple[float, Values]:
        slopes, intercepts = point[:labels], point[labels:]
        z = x * slopes + intercepts
        away = slopes - slopes.mean()
        error = 1 / (1 + np.exp(-np.clip(z, -500, 500))) - wanted
        worth = np.sum(np.logaddexp(0, z) - wanted * z) + PULL * np.sum(away**2)
        return float(worth), np.concatenate([(error * x).sum(axis=0) + 2 * PULL * away, error.sum(axis=0)])

    start = np.concatenate([np.ones(labels), np.log((positives + 1) / (negatives + 1))])
    bounds = [(0.0, None)] * labels + [(None, None)] * labels
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500}).x
    return np.stack([found[:labels] / scale, found[labels:]], axis=1)


def probabilities(values: Values, *, sigmoids: Values) -> Values:
    """Return probabilities of decision values, shape (posts, labels); ``sigmoids`` has shape (labels, 2)."""
    z = np.clip(values * sigmoids[:, 0] + sigmoids[:, 1], -500, 500)
    return np.clip(1 / (1 + np.exp(-z)), BOUND, 1 - BOUND)
