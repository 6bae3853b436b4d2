"""Tune decision thresholds per label on validation and apply them (FigSIM 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipelines.datasets.example import VALIDATION, Example, only, targets
from pipelines.errors import DataError
from pipelines.taxonomy.task import Task

Floats = npt.NDArray[np.float64]
MIDDLE = 0.5
DECIMALS = 12  # of a distance from .5: smaller differences are rounding noise


class BadScores(DataError):
    """Scores are not probabilities, or their number differs from the number of examples or labels."""

    message = "The scores of task '{task}' do not match its examples, or are not probabilities: {detail}."
    remedy = (
        "If values are not between 0 and 1, training has diverged: lower the learning rate in params.yaml and train "
        "again. If the shape is wrong, correct the model's code: one row per example, one column per label."
    )


def tune(
    scores: npt.NDArray[np.floating],
    *,
    examples: Sequence[Example],
    task: Task,
    mode: Literal["paper", "improved"],
    min_positives: int,
) -> Floats:
    """Return for each label the threshold with the best F1 on validation, shape (labels,).

    The candidates are .5 and the midpoint of any two neighbouring scores. Ties go to the candidate nearest to .5, then
    to the higher one. ``paper`` stops there, also for a label without positives, whose F1 is 0 at any threshold, so
    that it gets .5. ``improved`` gives every label with fewer than ``min_positives`` positives the pooled threshold,
    which is the best for the F1 of all labels' decisions together (SPEC 2.4, trap 7): the best threshold of a handful
    of positives is chance.

    Args:
        scores: probabilities, shape (examples, labels), rows in the order of ``examples``.
        examples: examples of validation, with gold.
        task: the task. A single-label task does not use thresholds (see :func:`decide`): .5 for every label.
        mode: ``train.mode``.
        min_positives: ``train.min_positives``.

    Raises:
        LeakRefused: an example is not of validation.
        BadScores: the shape is wrong, or a value is not a probability.
    """
    truth = targets(only(examples, splits={VALIDATION}), task=task) > 0
    values = checked(scores, task=task, rows=len(truth))
    if task.kind == "single":
        return np.full(len(task.labels), MIDDLE)
    own = np.array([_best(values[:, k], truth=truth[:, k]) for k in range(len(task.labels))])
    if mode == "paper":
        return own
    pooled = _best(values.ravel(), truth=truth.ravel())
    return np.where(truth.sum(axis=0) < min_positives, pooled, own)


def decide(scores: npt.NDArray[np.floating], *, task: Task, thresholds: Floats) -> list[frozenset[str]]:
    """Return the label set of each row: all labels at or above their thresholds, or else the most probable label.

    Of equally probable classes the first is chosen, which in an ordinal task is the lowest. Keep thresholds as
    float64: in float32 a threshold between two scores may become equal to one of them.

    Args:
        scores: probabilities, shape (examples, labels).
        task: the task.
        thresholds: shape (labels,), from :func:`tune`; ignored for a single-label task.

    Raises:
        BadScores: the shape is wrong, or a value is not a probability.
    """
    values = checked(scores, task=task, rows=len(scores))
    if task.kind == "single":
        return [frozenset({task.labels[k]}) for k in values.argmax(axis=1).tolist()]
    return [frozenset(np.array(task.labels, object)[row]) for row in values >= thresholds]


def checked(scores: npt.NDArray[np.floating], *, task: Task, rows: int) -> Floats:
    """Return scores as float64 after a check that they are probabilities of shape (``rows``, labels).

    Raises:
        BadScores: the shape is wrong, or a value is not a probability.
    """
    values = np.asarray(scores, np.float64)
    shape = (rows, len(task.labels))
    if values.shape != shape:
        raise BadScores(task=task.key, detail=f"their shape is {values.shape}, not {shape}")
    if not ((values >= 0) & (values <= 1)).all():
        raise BadScores(task=task.key, detail="some are not between 0 and 1")
    return values


def _best(scores: Floats, *, truth: npt.NDArray[np.bool_]) -> float:
    """Return the threshold with the best F1 of binary decisions; inputs have shape (n,)."""
    ends = np.concatenate([[0.0], np.unique(scores), [1.0]])
    tried = np.unique(np.concatenate([(ends[1:] + ends[:-1]) / 2, [MIDDLE]]))
    # how many of the sorted scores are not below each threshold, and so are given
    given = len(scores) - np.searchsorted(np.sort(scores), tried, side="left")
    hits = truth.sum() - np.searchsorted(np.sort(scores[truth]), tried, side="left")
    f1 = 2 * hits / np.maximum(given + truth.sum(), 1)
    away = np.abs(tried - MIDDLE).round(DECIMALS)
    return float(tried[np.lexsort((-tried, away, -f1))[0]])
