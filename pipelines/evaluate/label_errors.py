"""Analyse a model's errors: over- and underprediction by label, and errors by kind of item (FigSIM 5.3, F).

Counts are summed over a model's runs and leave out missing answers. Each rate has a percentile interval from a
bootstrap that draws groups of items, and runs if there are several. In the ordinal task, overprediction is an answer
above the true class and underprediction an answer below it, counted by the true class (FigSIM Figure 4). In a
multi-label task they are the false positives and false negatives of each label (FigSIM Figures 7 and 8).

The caption of FigSIM's Table 12 states proportions of samples, but the table's N add up to the 55 misclassified items
(SPEC 17). Both rates are therefore given: ``of_wrong`` (of the misclassified items) and ``of_all``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.evaluate.model_scores import Board, Item, Json, Run, bounds, number
from pipelines.metrics.label_sets import Floats, LabelSet, matrix

Bools = npt.NDArray[np.bool_]
ANY = "Any"


@dataclass(frozen=True)
class Traits:
    """The gold labels of an item's other categories, by which a model's errors are broken down.

    Args:
        sets: by category of :attr:`Scheme.errors_by`, the label sets.
        kinds: by category that no model predicts and that has one label an item, that label.
        values: by category of both, the labels.
    """

    sets: Mapping[str, Mapping[Item, LabelSet]] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[Item, str]] = field(default_factory=dict)
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskAnswers:
    """The answers of all runs of one model to one task: ``answered`` (runs, items).

    ``true`` and ``said`` (runs, items, labels) are whether gold and the answer have a label.
    """

    answered: Bools
    true: Bools
    said: Bools

    @property
    def wrong(self) -> Bools:
        """Which answers differ from gold, shape (runs, items); a missing answer does not count as wrong."""
        unlike: Bools = (self.true != self.said).any(axis=-1)
        return self.answered & unlike


class Rates:
    """Error rates that are resampled together; each has a numerator and a denominator of shape (items, runs)."""

    def __init__(self, *, runs: int = 1) -> None:
        self._columns: list[Floats] = []
        self._rates: list[Json] = []
        self._runs = runs

    def add(self, part: Bools, whole: Bools, **named: Any) -> Json:
        """Add the rate of ``part`` within ``whole``; return it with what it is ``named``, for :meth:`draw` to fill."""
        for counted in (part & whole, whole):
            by_run = counted.reshape(-1, self._runs, counted.shape[-1]).sum(axis=0)
            self._columns.append(by_run.T.astype(np.float64))
        self._rates.append(named)
        return named

    def draw(self, board: Board) -> list[Json]:
        """Fill all added rates, with confidence intervals, each as a ``Rate`` of ``evaluate.json``; return them."""
        rows = np.stack(self._columns, axis=2)
        counts, resampled = rows.sum(axis=(0, 1)), board.resampled(rows)
        for i, rate in enumerate(self._rates):
            count, total = counts[2 * i : 2 * i + 2]
            part, whole = resampled[:, 2 * i], resampled[:, 2 * i + 1]
            low, high = bounds(part[whole > 0] / whole[whole > 0]) if total else (None, None)
            share = number(count / total) if total else None
            rate |= {"count": int(count), "of": int(total), "rate": share, "low": low, "high": high}
        return self._rates


def analyse(board: Board, *, runs: Sequence[Run], traits: Traits) -> Json:
    """Return a model's error rates by label and by kind of item, as ``Errors`` of ``evaluate.json``."""
    answers = gather(board, runs=runs)
    rates = Rates(runs=len(runs))
    errors = {
        "answers": int(answers.answered.sum()),
        "unanswered": int((~answers.answered).sum()),
        "wrong": rates.add(answers.wrong, answers.answered),
        "by_label": _by_label(board, answers=answers, rates=rates),
        "by_category": _by_category(board, answers=answers, rates=rates, traits=traits),
        "by_labels": _by_labels(board, answers=answers, rates=rates, traits=traits) if _ordinal(board) else {},
    }
    rates.draw(board)
    return errors


def _ordinal(board: Board) -> bool:
    return board.task.ordinal and board.task.kind == "single"


def gather(board: Board, *, runs: Sequence[Run]) -> TaskAnswers:
    """Return the answers of a model's runs, and gold, as arrays; a missing answer is a row without labels."""
    predicted = [board.predicted(run) for run in runs]
    labels, nothing = board.task.labels, LabelSet()
    true = matrix(board.gold, labels=labels)
    return TaskAnswers(
        answered=np.array([[answer is not None for answer in row] for row in predicted], dtype=bool),
        true=np.broadcast_to(true, (len(runs), *true.shape)),
        said=np.array([matrix([answer or nothing for answer in row], labels=labels) for row in predicted], dtype=bool),
    )


def _too_high_low(answers: TaskAnswers) -> tuple[Bools, Bools]:
    true, said = answers.true.argmax(axis=-1), answers.said.argmax(axis=-1)
    return answers.answered & (said > true), answers.answered & (said < true)


def _by_label(board: Board, *, answers: TaskAnswers, rates: Rates) -> Json:
    by_label = {}
    high, low = _too_high_low(answers)
    for i, label in enumerate(board.task.labels):
        true, said = answers.true[..., i], answers.said[..., i]
        with_label, without = answers.answered & true, answers.answered & ~true
        if _ordinal(board):
            by_label[label] = {"over": rates.add(high, with_label), "under": rates.add(low, with_label)}
        else:
            by_label[label] = {"over": rates.add(said, without), "under": rates.add(~said, with_label)}
    return by_label


def _by_category(board: Board, *, answers: TaskAnswers, rates: Rates, traits: Traits) -> Json:
    by_category: Json = {key: {} for key in traits.kinds}
    for key, known in traits.kinds.items():
        for value in traits.values[key]:
            here = np.array([known.get(item) == value for item in board.items], dtype=bool)
            by_category[key][value] = rates.add(answers.wrong, answers.answered & here)
    return by_category


def _by_labels(board: Board, *, answers: TaskAnswers, rates: Rates, traits: Traits) -> Json:
    _, low = _too_high_low(answers)
    by_labels: Json = {}
    for key, known in traits.sets.items():
        sets = [known.get(item) for item in board.items]
        by_labels[key] = {name: {} for name in (*traits.values[key], ANY)}
        for name in by_labels[key]:
            for presence in ("absent", "present"):
                has = [
                    s is not None and (bool(s) if name == ANY else name in s) == (presence == "present") for s in sets
                ]
                here = np.array(has, dtype=bool)
                by_labels[key][name][presence] = {
                    "of_wrong": rates.add(low, answers.wrong & here),
                    "of_all": rates.add(low, answers.answered & here),
                }
    return by_labels
