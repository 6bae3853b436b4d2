"""Analyse a model's errors by label, by kind of item (FigSIM 5.3, F), and by the types that CRADLE discusses.

Counts are summed over a model's runs and leave out missing answers. Each rate has a percentile interval from a
bootstrap that draws groups of items, and runs if there are several. In the ordinal task, overprediction is an answer
above the true class and underprediction an answer below it, counted by the true class (FigSIM Figure 4). In a
multi-label task they are the false positives and false negatives of each label (FigSIM Figures 7 and 8).

The caption of FigSIM's Table 12 states proportions of samples, but the table's N add up to the 55 misclassified items
(SPEC 17). Both rates are therefore given: ``of_wrong`` (of the misclassified items) and ``of_all``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.core.taxonomy import Category
from pipelines.evaluate.model_scores import MISSING, VOTE, Board, Item, Json, Run, bounds, number
from pipelines.metrics import label_sets
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
        said: by category of :attr:`Scheme.errors_by`, the labels that all runs of the best model of it gave an item.
    """

    sets: Mapping[str, Mapping[Item, LabelSet]] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[Item, str]] = field(default_factory=dict)
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    said: Mapping[str, Mapping[Item, LabelSet]] = field(default_factory=dict)


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
        gold, said = [known.get(item) for item in board.items], traits.said.get(key, {})
        told = [said.get(item) for item in board.items]
        by_labels[key] = {name: {} for name in (*traits.values[key], ANY)}
        for name, rated in by_labels[key].items():
            has = np.array([bool(s) if name == ANY else s is not None and name in s for s in gold], dtype=bool)
            right = [s == t if name == ANY else t is not None and name in t for s, t in zip(gold, told, strict=True)]
            absent = np.array([s is not None for s in gold], dtype=bool) & ~has
            for presence, here in (("absent", absent), ("present", has), ("identified", has & np.array(right, bool))):
                rated[presence] = {
                    "of_wrong": rates.add(low, answers.wrong & here),
                    "of_all": rates.add(low, answers.answered & here),
                }
    return by_labels


TYPE, TIME = "type", "time"
BOTH, NONE = "both", "none"


@dataclass(frozen=True)
class Group:
    """Labels that differ only in one attribute; ``labels`` maps the attribute's values to the labels' positions."""

    name: str
    labels: Mapping[str, int]


def has_crises(category: Category) -> bool:
    """Return whether the labels of a category are crises: all except ``none`` have attributes ``type`` and ``time``."""
    crises = [category.attributes[name] for name in category.names if name != category.none]
    return bool(crises) and all(TYPE in attributes and TIME in attributes for attributes in crises)


def groups(category: Category, *, attribute: str) -> list[Group]:
    """Return the groups of two or more labels of a category that differ only in ``attribute``, in scheme order."""
    alike: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}
    for i, name in enumerate(category.names):
        attributes = category.attributes[name]
        if name != category.none and attribute in attributes:
            rest = tuple((key, value) for key, value in attributes.items() if key != attribute)
            alike.setdefault(rest, {})[attributes[attribute]] = i
    return [Group("/".join(v for _, v in rest), labels) for rest, labels in alike.items() if len(labels) > 1]


def crises_of(board: Board, *, runs: Sequence[Run]) -> Json | None:
    """Return a model's errors on crisis labels, ``None`` if the labels have no ``type`` or ``time``.

    Counts are summed over a model's runs: refusals over all items, the other errors over answered items. A Rate is
    ``{"count", "of", "rate", "low", "high"}``; ``of`` is its denominator. As stored in ``evaluate.json``::

        "refusals": {label: {**Rate, "outcomes": {outcome: int}}}   # unanswered, of: items with the label in gold
        "confusions": {attribute: {                         # "level" (active, passive) and "time" (ongoing, past)
          "values": [value],
          "swaps": [{"gold": value, "said": value, **Rate}],  # only the other value, of: only this value in gold
          "hedges": [{"gold": value, **Rate}],              # the answer has both values, of: the same items
          "groups": {group: Matrix}, "total": Matrix        # by labels that differ only in this attribute, and together
        }}                                                  # Matrix: state of gold (values, both, none) -> the answer
        "over_extension": {type: {
          "over": Rate,                                     # the answer has the type, of: items without it in gold
          "of_said": Rate,                                  # the same items, of: answers with the type
          "beside": {label: Rate}                           # by the label that gold has instead, of: items with it
        }}
        "severity": {
          "missed": Rate, "alarms": Rate,                   # no crisis though gold has one, and a crisis though not
          "milder": Rate,                                   # the most severe label is less severe than gold's
          "recall": {str(severity): Rate}                   # highest first; its mean is severity_recall of Scores
        }
        "violations": {rule: int}                           # answers that break a rule of the scheme, soft ones too
    """
    category = board.task.category
    if not has_crises(category):
        return None
    answers = gather(board, runs=runs)
    attributes = dict.fromkeys(chain.from_iterable(category.attributes[name] for name in category.names))
    mixed = {key: alike for key in attributes if key != TYPE and (alike := groups(category, attribute=key))}
    return {
        "refusals": _refusals(board, runs=runs, answers=answers),
        "confusions": {key: _confusion(board, answers=answers, alike=alike) for key, alike in mixed.items()},
        "over_extension": _over_extension(board, answers=answers),
        "severity": _severity(board, answers=answers),
        "violations": label_sets.violations(
            (answer for run in runs for answer in board.predicted(run)), category=category
        ),
    }


def _refusals(board: Board, *, runs: Sequence[Run], answers: TaskAnswers) -> Json:
    rates = Rates(runs=len(runs))
    refusals = {label: rates.add(~answers.answered, answers.true[..., i]) for i, label in enumerate(board.task.labels)}
    rates.draw(board)
    for label, rate in refusals.items():
        carriers = [item for item, gold in zip(board.items, board.gold, strict=True) if label in gold]
        lost = Counter(run.outcomes.get(item, MISSING) for run in runs for item in carriers)
        lost.pop(VOTE, None)
        rate["outcomes"] = dict(sorted(lost.items()))
    return refusals


def _states(values: Bools, *, group: Group, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the state of each answer: the place of its only value in ``names``, or of ``both``, or of ``none``."""
    own = values[..., list(group.labels.values())]
    several = len(group.labels)
    count = own.sum(axis=-1)
    places = np.array([*map(names.index, group.labels), names.index(BOTH), names.index(NONE)])
    states: npt.NDArray[np.int64] = places[
        np.where(count == 1, own.argmax(axis=-1), np.where(count > 1, several, several + 1))
    ]
    return states


def _confusion(board: Board, *, answers: TaskAnswers, alike: Sequence[Group]) -> Json:
    values = list(dict.fromkeys(chain.from_iterable(group.labels for group in alike)))
    names = [*values, BOTH, NONE]
    # groups are concatenated along the axis of runs, so that a rate covers all of them
    gold, said = (
        np.concatenate([_states(side, group=group, names=names) for group in alike])
        for side in (answers.true, answers.said)
    )
    answered = np.concatenate([answers.answered] * len(alike))
    rates, swaps, hedges = Rates(runs=len(answers.answered)), [], []
    for i, value in enumerate(values):
        asked = answered & (gold == i)
        for j, other in enumerate(values):
            if i != j:
                swaps.append(rates.add(said == j, asked, gold=value, said=other))
        hedges.append(rates.add(said == len(values), asked, gold=value))
    rates.draw(board)
    parts = zip(alike, *(np.split(side, len(alike)) for side in (gold, said, answered)), strict=True)
    return {
        "values": values,
        "swaps": swaps,
        "hedges": hedges,
        "groups": {g.name: _matrix(true, said=own, answered=there, names=names) for g, true, own, there in parts},
        "total": _matrix(gold, said=said, answered=answered, names=names),
    }


def _matrix(gold: npt.NDArray[np.int64], *, said: npt.NDArray[np.int64], answered: Bools, names: Sequence[str]) -> Json:
    size = len(names)
    counts = np.bincount((gold * size + said)[answered], minlength=size * size).reshape(size, size)
    return {name: dict(zip(names, map(int, row), strict=True)) for name, row in zip(names, counts, strict=True)}


def _over_extension(board: Board, *, answers: TaskAnswers) -> Json:
    category = board.task.category
    rates = Rates(runs=len(answers.answered))
    types: dict[str, list[int]] = {}
    for i, name in enumerate(category.names):
        if name != category.none:
            types.setdefault(category.attributes[name][TYPE], []).append(i)
    extended = {}
    for kind, own in types.items():
        true, said = (np.asarray(side[..., own].any(axis=-1)) for side in (answers.true, answers.said))
        without = answers.answered & ~true
        beside = {
            label: rates.add(said, without & answers.true[..., i])
            for i, label in enumerate(board.task.labels)
            if (without & answers.true[..., i]).any()
        }
        over = {"over": rates.add(said, without), "of_said": rates.add(~true, answers.answered & said)}
        extended[kind] = {**over, "beside": beside}
    rates.draw(board)
    return extended


def _severity(board: Board, *, answers: TaskAnswers) -> Json:
    category, labels = board.task.category, board.task.labels
    crises = [i for i, label in enumerate(labels) if label != category.none]
    true, said = (np.asarray(side[..., crises].any(axis=-1)) for side in (answers.true, answers.said))
    rates = Rates(runs=len(answers.answered))
    severity: Json = {
        "missed": rates.add(~said, answers.answered & true),
        "alarms": rates.add(said, answers.answered & ~true),
        "milder": None,
        "recall": {},
    }
    levels = np.array([category.severities.get(label, 0) for label in labels])
    if levels.any():
        gravest, answer = ((side * levels).max(axis=-1) for side in (answers.true, answers.said))
        severity["milder"] = rates.add(answer < gravest, answers.answered & (gravest > 0))
    for level in sorted({int(level) for level in levels} - {0}, reverse=True):
        places = np.flatnonzero(levels == level)
        hits, whole = (
            np.concatenate([side[..., i] & answers.answered for i in places]) for side in (answers.said, answers.true)
        )
        severity["recall"][str(level)] = rates.add(hits, whole)
    rates.draw(board)
    return severity
