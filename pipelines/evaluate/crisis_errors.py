"""Count a model's errors on crisis labels by the types that the paper CRADLE discusses.

The types are: refused posts, labels with the wrong time or level, crisis types predicted too often (over-extension),
predictions less severe than gold, and answers that break a rule of the scheme.

The module works for every scheme whose labels have the attributes ``type`` and ``time``. Counts are over the test split
and summed over a model's runs. Refusals are counted over all items, the other errors over answered items.

The result, as stored in ``evaluate.json`` (``of`` is the denominator of a rate)::

    Crises = {
      "refusals": {label: {**Rate, "outcomes": {outcome: int}}},   # unanswered items, of: items with the label in gold;
                                                      # outcomes: refused, malformed, failed, abstained, missing
      "confusions": {attribute: Confusion},           # "level" (active, passive) and "time" (ongoing, past)
      "over_extension": {type: Over},                 # "child_abuse", "rape", ...: attribute type, without no_crisis
      "severity": {
        "missed": Rate,                               # the answer has no crisis, of: items with one in gold
        "alarms": Rate,                               # the answer has a crisis, of: items without one in gold
        "milder": Rate,                               # the answer's most severe label is less severe than gold's
        "recall": {str(severity): Rate}               # recall of the labels of that severity, highest first
      },                                              # their weighted mean is severity_recall of Scores
      "violations": {rule: int}                       # answers that break a rule of the scheme (SPEC 23), soft ones too
    }
    Rate = {"count": int, "of": int, "rate", "low", "high"}
    Confusion = {
      "values": [value],                              # ["active", "passive"]; ["ongoing", "past"]
      "swaps": [{"gold": value, "said": value, **Rate}],       # the answer has only the other value,
                                                      # of: items with only the value ``gold`` in gold
      "hedges": [{"gold": value, **Rate}],            # the answer has both values, of: the same items
      "groups": {group: Matrix},                      # one for each group of labels that differ only in this
                                                      # attribute: level within "suicide_ideation/ongoing", ...;
                                                      # time within "suicide_ideation/active", "self_harm", ...
      "total": Matrix                                 # sum over the groups
    }
    Matrix = {state of gold: {state of the answer: int}}       # states: the values, "both", "none";
                                                      # each group counts an item once
    Over = {
      "over": Rate,                                   # the answer has the type, of: items without it in gold
      "of_said": Rate,                                # the same items, of: answers with the type
      "beside": {label: Rate}                         # the same items by the label that gold has instead,
                                                      # of: items with that label and without the type
    }
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from pipelines.core.taxonomy import Category
from pipelines.evaluate.label_errors import Rates, TaskAnswers, gather
from pipelines.evaluate.model_scores import MISSING, VOTE, Board, Json, Run
from pipelines.metrics import label_sets

Bools = npt.NDArray[np.bool_]
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


def analyse(board: Board, *, runs: Sequence[Run]) -> Json | None:
    """Return a model's errors on crisis labels (``Crises``), or ``None`` if the labels have no ``type`` or ``time``."""
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
