"""Compute class weights for the loss, so that rare labels are learned.

FigSIM 5.1 reweights the classes and does not say how; the formulas are SPEC 1.2, item 8. They use train alone: label
frequencies of validation or test are answers that a model must not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.datasets.example import TRAIN, Example, only, targets
from pipelines.taxonomy.task import Task


@dataclass(frozen=True)
class Weights:
    """The loss weights of the labels, in the task's order, shape (labels,).

    ``values`` are class weights of cross-entropy for a single-label task, ``pos_weight`` of binary cross-entropy for a
    multi-label one. ``empty`` names the labels that no example has: their weight is 0 and they cannot be learned,
    which a report must state.
    """

    values: npt.NDArray[np.float32]
    empty: tuple[str, ...]


def weigh(examples: Sequence[Example], *, task: Task, max_pos_weight: float) -> Weights:
    """Compute the loss weights of the task's labels from the examples of train.

    Single: n / (K n_k), where K counts all classes of the task. Multi: min(negatives / positives, ``max_pos_weight``),
    and 1 for a label that every example has (ours: there is nothing to balance, and 0 would unlearn it).

    Args:
        examples: examples of train.
        task: the task whose labels are weighed.
        max_pos_weight: ``train.max_pos_weight``.

    Raises:
        LeakRefused: an example is not in train.
        BadParams: an example of a single-label task does not have exactly one gold label.
    """
    found = targets(only(examples, splits={TRAIN}), task=task).astype(np.float64)
    n, positives = len(found), found.sum(axis=0)
    some = np.maximum(positives, 1)
    if task.kind == "single":
        values = n / (len(task.labels) * some)
    else:
        values = np.where(positives == n, 1.0, np.minimum((n - positives) / some, max_pos_weight))
    values = np.where(positives > 0, values, 0.0)
    empty = tuple(label for label, count in zip(task.labels, positives, strict=True) if not count)
    return Weights(values.astype(np.float32), empty)
