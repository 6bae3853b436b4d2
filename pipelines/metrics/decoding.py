"""Turn label probabilities into label sets: by thresholds per label, or as the most probable valid set.

Thresholds are tuned on validation (FigSIM 5.1). They can produce sets that no annotator could have written (`no_crisis`
beside a crisis, both times of one type); a choice among the sets that the scheme's hard rules allow cannot (SPEC 2.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from pipelines.core.errors import DataError
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import VALIDATION, Example, only, targets

if TYPE_CHECKING:
    from pipelines.core.taxonomy import Category

Floats = npt.NDArray[np.float64]
MIDDLE = 0.5
# Digits of a distance from .5 and of a set's worth: smaller differences are rounding noise and must not decide.
DECIMALS, WORTH_DECIMALS = 12, 9
# Ours: a label scored 0 (abstained from) costs log 1e-9, so a set contains it only if every valid set does.
FLOOR = 1e-9


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
    """
    values = checked(scores, task=task, rows=len(scores))
    if task.kind == "single":
        return [frozenset({task.labels[k]}) for k in values.argmax(axis=1).tolist()]
    return [frozenset(np.array(task.labels, object)[row]) for row in values >= thresholds]


def checked(scores: npt.NDArray[np.floating], *, task: Task, rows: int) -> Floats:
    """Return scores as float64 after a check that they are probabilities of shape (``rows``, labels)."""
    values = np.asarray(scores, np.float64)
    shape = (rows, len(task.labels))
    if values.shape != shape:
        raise DataError("BadScores", task=task.key, detail=f"their shape is {values.shape}, not {shape}")
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError("BadScores", task=task.key, detail="some are not between 0 and 1")
    return values


def _best(scores: Floats, *, truth: npt.NDArray[np.bool_]) -> float:
    """Return the threshold with the best F1 of binary decisions; inputs have shape (n,)."""
    ends = np.concatenate([[0.0], np.unique(scores), [1.0]])
    tried = np.unique(np.concatenate([(ends[1:] + ends[:-1]) / 2, [MIDDLE]]))
    # how many of the sorted scores are not below each threshold, and so are given
    above = len(scores) - np.searchsorted(np.sort(scores), tried, side="left")
    hits = truth.sum() - np.searchsorted(np.sort(scores[truth]), tried, side="left")
    f1 = 2 * hits / np.maximum(above + truth.sum(), 1)
    away = np.abs(tried - MIDDLE).round(DECIMALS)
    return float(tried[np.lexsort((-tried, away, -f1))[0]])


def worth_of_sets(probabilities: Floats, *, category: Category, most: int = 4) -> tuple[list[frozenset[str]], Floats]:
    """Return the valid label sets, sorted by size and alphabetically, and their worth (a log-score) in every row.

    A set's worth is the sum of log p over its labels and log(1 - p) over the others (all of ``category.names``), less
    the part common to all sets: that is the sum of the log-odds of its own labels.
    ``probabilities`` has shape (records, labels), the worth (records, sets); ``most`` is the number of labels in the
    largest set tried (CRADLE T2: no post carries more than four).
    """
    names = category.names
    scores = np.asarray(probabilities, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] != len(names):
        raise ValueError(f"expected probabilities of shape (records, {len(names)}), found {scores.shape}")
    if not np.all((scores >= 0) & (scores <= 1)):
        raise ValueError("a score is not between 0 and 1")
    sets = sorted(category.valid_sets(most=most), key=lambda labels: (len(labels), sorted(labels)))
    member = np.array([[name in labels for labels in sets] for name in names], dtype=np.float64)
    p = np.clip(scores, FLOOR, 1 - FLOOR)
    return sets, np.round(np.log(p / (1 - p)) @ member, WORTH_DECIMALS)


def decode(probabilities: Floats, *, category: Category, most: int = 4) -> list[frozenset[str]]:
    """Return the most probable valid label set of every row, as :func:`worth_of_sets` scores them."""
    sets, worth = worth_of_sets(probabilities, category=category, most=most)
    return [sets[best] for best in worth.argmax(axis=1)]
