"""Analyse a model's errors: over- and underprediction by label, and errors by kind of meme (FigSIM 5.3, F).

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

import numpy as np
import numpy.typing as npt

from pipelines.evaluate.model_scores import Board, Item, Json, Run, bounds, number
from pipelines.metrics.label_sets import Floats, LabelSet, matrix

Bools = npt.NDArray[np.bool_]
ANY = "Any"


@dataclass(frozen=True)
class Traits:
    """The gold labels of an item's other categories, by which a model's errors are broken down."""

    figurative: Mapping[Item, LabelSet] = field(default_factory=dict)
    phenomena: Sequence[str] = ()
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
        self.columns: list[Floats] = []
        self._runs = runs

    def add(self, part: Bools, whole: Bools) -> int:
        """Add the rate of ``part`` within ``whole``, and return its index among the rates."""
        for counted in (part & whole, whole):
            by_run = counted.reshape(-1, self._runs, counted.shape[-1]).sum(axis=0)
            self.columns.append(by_run.T.astype(np.float64))
        return len(self.columns) // 2 - 1

    def drawn(self, board: Board) -> list[Json]:
        """Return all added rates with confidence intervals, each as a ``Rate`` of ``evaluate.json``."""
        rows = np.stack(self.columns, axis=2)
        whole, resampled = rows.sum(axis=(0, 1)), board.resampled(rows)
        return [_rate(whole[i], whole[i + 1], resampled[:, i : i + 2]) for i in range(0, len(whole), 2)]


def _rate(count: float, total: float, resampled: Floats) -> Json:
    part, whole = resampled[:, 0], resampled[:, 1]
    low, high = bounds(part[whole > 0] / whole[whole > 0]) if total else (None, None)
    return {
        "count": int(count),
        "of": int(total),
        "rate": number(count / total) if total else None,
        "low": low,
        "high": high,
    }


def analyse(board: Board, *, runs: Sequence[Run], traits: Traits) -> Json:
    """Return a model's error rates by label and by kind of meme, as ``Errors`` of ``evaluate.json``."""
    answers = gather(board, runs=runs)
    rates = Rates(runs=len(runs))
    wrong = rates.add(answers.wrong, answers.answered)
    by_label = _by_label(board, answers=answers, rates=rates)
    by_category = _by_category(board, answers=answers, rates=rates, traits=traits)
    by_figurative = _by_figurative(board, answers=answers, rates=rates, traits=traits) if _ordinal(board) else {}
    drawn = rates.drawn(board)
    return {
        "answers": int(answers.answered.sum()),
        "unanswered": int((~answers.answered).sum()),
        "wrong": drawn[wrong],
        "by_label": {label: {way: drawn[i] for way, i in ways.items()} for label, ways in by_label.items()},
        "by_category": {key: {value: drawn[i] for value, i in places.items()} for key, places in by_category.items()},
        "by_figurative": {
            name: {
                presence: {denominator: drawn[i] for denominator, i in places.items()}
                for presence, places in presences.items()
            }
            for name, presences in by_figurative.items()
        },
    }


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


def _by_label(board: Board, *, answers: TaskAnswers, rates: Rates) -> dict[str, dict[str, int]]:
    indexes = {}
    high, low = _too_high_low(answers)
    for i, label in enumerate(board.task.labels):
        true, said = answers.true[..., i], answers.said[..., i]
        with_label, without = answers.answered & true, answers.answered & ~true
        if _ordinal(board):
            indexes[label] = {"over": rates.add(high, with_label), "under": rates.add(low, with_label)}
        else:
            indexes[label] = {"over": rates.add(said, without), "under": rates.add(~said, with_label)}
    return indexes


def _by_category(board: Board, *, answers: TaskAnswers, rates: Rates, traits: Traits) -> dict[str, dict[str, int]]:
    indexes: dict[str, dict[str, int]] = {}
    for key, known in traits.kinds.items():
        indexes[key] = {}
        for value in traits.values[key]:
            here = np.array([known.get(item) == value for item in board.items], dtype=bool)
            indexes[key][value] = rates.add(answers.wrong, answers.answered & here)
    return indexes


def _by_figurative(
    board: Board, *, answers: TaskAnswers, rates: Rates, traits: Traits
) -> dict[str, dict[str, dict[str, int]]]:
    _, low = _too_high_low(answers)
    known = np.array([item in traits.figurative for item in board.items], dtype=bool)
    sets = [traits.figurative.get(item, frozenset()) for item in board.items]
    indexes = {}
    for name in (*traits.phenomena, ANY):
        has = np.array([bool(labels) if name == ANY else name in labels for labels in sets], dtype=bool)
        indexes[name] = {
            presence: {
                "of_wrong": rates.add(low, answers.wrong & here),
                "of_all": rates.add(low, answers.answered & here),
            }
            for presence, here in (("absent", known & ~has), ("present", known & has))
        }
    return indexes
