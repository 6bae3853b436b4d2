"""Count what reviewers leave unread who read the first items of a day's queue, by gold label (declared: ``queues``).

The queue is ordered by the probability that an item has any of the queue's labels; the decisions of a set of labels are
taken as independent. An answer without probabilities has 1 or 0, and an item without an answer is last. Items of the
same probability are in random order, so that an expected share of them is read. The test set stands for a day: if
reviewers read ``k`` of ``arrivals`` items, they read the first ``k / arrivals`` of it. The shape in ``evaluate.json``::

    Queue = {
      "arrivals": int, "labels": [label],             # as declared
      "unanswered": int,                              # at the end of the queue, over all runs
      "read": {str(k): {label | "Any": {"share", "a_day": Cell}}},       # unread: of the items with the label; a day
      "curve": {label: [float]}                       # unread shares if 0, 1/20 … 20/20 of the items are read
    }                                                 # Any: items with any of the queue's labels

Means are over runs, intervals are percentiles of the bootstrap over groups and runs; each resample has its own queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.core.config.models import Queue
from pipelines.core.errors import BadParams
from pipelines.core.taxonomy.task import Task
from pipelines.evaluate.label_errors import ANY
from pipelines.evaluate.model_scores import DIGITS, Board, Json, Run, bounds, number
from pipelines.metrics.agreement_coefficients import ratio
from pipelines.metrics.label_sets import Floats, matrix

STEPS = np.linspace(0, 1, 21)


@dataclass(frozen=True)
class _Order:
    """A run's queue: the ``items`` in its order, and where the next level of probability begins."""

    items: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, chances: Floats) -> _Order:
        levels = -chances.round(DIGITS)
        items = np.argsort(levels, kind="stable")
        return cls(items, np.flatnonzero(np.diff(levels[items], prepend=-np.inf)))

    def unread(self, weights: Floats, *, marks: Floats, share: float) -> Floats:
        """Return the weight of unread items by mark, (resamples, marks), if reviewers read so much of the queue."""
        ordered = weights[:, self.items]
        sizes = np.add.reduceat(ordered, self.starts, axis=1)
        before = np.cumsum(sizes, axis=1) - sizes
        read = np.clip(ratio(share * ordered.sum(axis=1, keepdims=True) - before, sizes), 0, 1)
        levels = np.diff(np.append(self.starts, len(self.items)))
        left: Floats = (ordered * np.repeat(1 - np.nan_to_num(read), levels, axis=1)) @ marks[self.items]
        return left


def labels_of(wanted: Queue, *, task: Task) -> tuple[str, ...]:
    """Return the labels that order a queue: the declared ones, else all but the scheme's none."""
    if unknown := [label for label in wanted.labels if label not in task.labels]:
        raise BadParams(where=f"evaluate.queues ({task.key})", detail=f"the task has no label {', '.join(unknown)}")
    return wanted.labels or tuple(label for label in task.labels if label != task.category.none)


def any_of(chances: Floats, *, single: bool) -> Floats:
    """Return the probability of any of some labels (last axis): of exclusive ones their sum, else independent."""
    found: Floats = np.minimum(chances.sum(axis=-1), 1) if single else 1 - np.prod(1 - chances, axis=-1)
    return found


def chances(board: Board, *, run: Run, labels: Sequence[str]) -> Floats:
    """Return the probability of each item that it has any of some labels; -1 for an item without an answer."""
    own = [board.task.labels.index(label) for label in labels]
    found = np.full(len(board.items), -1.0)
    for place, item in enumerate(board.items):
        if scores := run.scores.get(item):
            found[place] = any_of(np.array(scores)[own], single=board.task.kind == "single")
        elif (answer := run.answers.get(item)) is not None:
            found[place] = float(not answer.isdisjoint(labels))
    return found


def queue(board: Board, *, runs: Sequence[Run], wanted: Queue) -> Json:
    """Return what is unread of a model's queue, as ``Queue`` of ``evaluate.json``."""
    labels, names = labels_of(wanted, task=board.task), (*board.task.labels, ANY)
    gold = matrix(board.gold, labels=board.task.labels).astype(np.float64)
    own = [board.task.labels.index(label) for label in labels]
    marks: Floats = np.column_stack([gold, gold[:, own].any(axis=1), np.ones(len(gold))])
    said = [chances(board, run=run, labels=labels) for run in runs]
    orders = [_Order.of(each) for each in said]
    _, place = np.unique(np.array(board.groups), return_inverse=True)
    one: Floats = np.ones((1, len(board.items)))

    def shares(weights: Floats, share: float) -> Floats:
        """Return unread by run and mark, (resamples, runs, marks, 2): of the items with the mark, and of all."""
        whole = (weights @ marks)[:, None]
        left = np.stack([order.unread(weights, marks=marks, share=share) for order in orders], axis=1)
        return np.stack([ratio(left, np.broadcast_to(whole, left.shape)), left / whole[..., -1:]], axis=-1)

    read: Json = {}
    for count in sorted(wanted.read):
        values = shares(one, count / wanted.arrivals)[0] * (1, wanted.arrivals)
        drawn = []
        for weights, chosen in zip(board.weights(), board.drawn_runs(len(runs), key=count), strict=True):
            each = shares(weights[:, place], count / wanted.arrivals) * (1, wanted.arrivals)
            drawn.append(np.einsum("brmk,br->bmk", each, chosen / chosen.sum(axis=1, keepdims=True)))
        resampled = np.concatenate(drawn) if drawn else np.zeros((0, *values.shape[1:]))
        read[str(count)] = {
            name: {part: _cell(values[:, i, k], resampled[:, i, k]) for k, part in enumerate(("share", "a_day"))}
            for i, name in enumerate(names)
        }
    curve = np.stack([shares(one, step)[0, ..., 0].mean(axis=0) for step in STEPS], axis=1)
    return {
        "arrivals": wanted.arrivals,
        "labels": list(labels),
        "unanswered": int(sum((each < 0).sum() for each in said)),
        "read": read,
        "curve": {name: [number(value) for value in curve[i]] for i, name in enumerate(names)},
    }


def _cell(values: Floats, drawn: Floats) -> Json:
    low, high = (None, None) if np.isnan(values).any() else bounds(drawn)
    std = number(values.std(ddof=1)) if len(values) > 1 else None
    return {"mean": number(values.mean()), "std": std, "n": len(values), "low": low, "high": high}
