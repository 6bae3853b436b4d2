"""Choose label sets from probabilities under recall floors and the scheme's hard rules.

Two rules, in order of precedence:

1. A label with a recall floor (``finetune.recall_floors``) is given wherever its probability reaches its threshold,
   the highest one at which dev's recall is at least the floor. Labels that contradict it are left out. If two such
   labels contradict each other (an ongoing and a past one of the same type), the more probable one is kept, and the
   report's ``answered_recall`` shows the recall that the other retains. A floor only adds: below its threshold a label
   is decided like the rest. The report also shows the cost (``exact`` beside ``exact_without_floors``).
2. The rest is the most probable set that the scheme's hard rules allow (``metrics.decoding``), because the
   probabilities are calibrated. Thresholds of the best F1 on dev, decoded likewise, were no better: on the sandbox's
   posts (100 of dev and of test, six fits of the encoder and twelve of kNN) exact match was .60 and .68 with them and
   .65 and .69 without, macro-F1 .58 and .69 against .59 and .66.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.datasets.example import VALIDATION, Example, only, targets
from pipelines.errors import BadParams, DataError
from pipelines.metrics import calibration
from pipelines.metrics.decoding import worth_of_sets
from pipelines.metrics.thresholds import BadScores
from pipelines.taxonomy import labels_of_all
from pipelines.taxonomy.task import Task

Floats = npt.NDArray[np.float64]
Truth = npt.NDArray[np.bool_]

# SPEC 2.3, 2.4: with fewer positives than this in dev no threshold is fitted.
MIN_POSITIVES = 5
# Above the worth of any set of labels (four labels of log-odds below 21 each): one forced label outweighs all of them.
FORCED = 1e3
DECIMALS = 9  # of a number of positives: smaller differences are rounding noise
FILE = "calibration.json"


class OtherLabels(DataError):
    """A classifier was fitted for other labels than those requested."""

    message = "The classifier was fitted for {found} labels, which are not the {wanted} labels of task '{task}'."
    remedy = "The label scheme has changed since the fit. Run `dvc repro finetune` again."


def fit(
    scores: Floats, *, examples: Sequence[Example], task: Task, floors: Mapping[str, float]
) -> tuple[Floats, dict[str, dict[str, Any]]]:
    """Fit, on the validation split, the threshold of each label that has a recall floor.

    Args:
        scores: calibrated probabilities, shape (examples, labels), rows in the order of ``examples``.
        examples: of validation.
        task: the task.
        floors: the required recall by label, ``finetune.recall_floors``; a floor of 0 has no effect.

    Returns:
        The thresholds, shape (labels,), infinite (the threshold then never gives the label) where no floor is
        supported; and for each label with a floor: ``floor``, ``positives`` (in validation), ``supported`` (at least
        :data:`MIN_POSITIVES` positives; otherwise the floor is not applied and the rest is ``None``), ``threshold``,
        ``recall`` and ``precision`` of giving the label from the threshold on, and ``answered_recall`` and
        ``answered_precision`` of the final label sets. All of it is measured on validation, where the threshold was
        chosen.

    Raises:
        BadParams: a floor names a label that the task does not have.
        LeakRefused: an example is not of validation.
        BadScores: the scores do not belong to the examples.
    """
    truth = targets(only(examples, splits={VALIDATION}), task=task) > 0
    if scores.shape != truth.shape:
        raise BadScores(task=task.key, detail=f"their shape is {scores.shape}, not {truth.shape}")
    wanted = floors_of(task, floors=floors)
    thresholds = np.full(len(task.labels), math.inf)
    for k, label in enumerate(task.labels):
        if label in wanted and truth[:, k].sum() >= MIN_POSITIVES:
            thresholds[k] = highest(scores[:, k], truth=truth[:, k], floor=wanted[label])
    answered = encoded(decide(scores, task=task, thresholds=thresholds), task=task)
    return thresholds, {
        label: {"floor": wanted[label]}
        | _described(scores[:, k], truth=truth[:, k], answered=answered[:, k], threshold=float(thresholds[k]))
        for k, label in enumerate(task.labels)
        if label in wanted
    }


def floors_of(task: Task, *, floors: Mapping[str, float]) -> dict[str, float]:
    """Return the required recall of the task's labels; entries for labels of other schemes are ignored.

    Raises:
        BadParams: a floor names a label that no scheme has.
    """
    wanted = {label: floor for label, floor in floors.items() if floor > 0}
    elsewhere = wanted.keys() - set(task.labels)
    if elsewhere and (unknown := sorted(elsewhere - labels_of_all())):
        detail = f"{', '.join(unknown)}: not a label of any scheme; a floor of 0 removes an entry of params.yaml"
        raise BadParams(where="finetune.recall_floors", detail=detail)
    return {label: floor for label, floor in wanted.items() if label not in elsewhere}


def highest(scores: Floats, *, truth: Truth, floor: float) -> float:
    """Return the highest threshold at which recall is at least ``floor``, for inputs of shape (n,).

    It is the midpoint between the lowest score that must pass and the next lower one: the decisions on dev are the
    same, and a new post has the same margin on both sides (ours; ``thresholds.tune`` does so too).
    """
    positives = np.sort(scores[truth])[::-1]
    needed = max(1, math.ceil(round(floor * len(positives), DECIMALS)))
    last = positives[needed - 1]
    return float((last + scores[scores < last].max(initial=0.0)) / 2)


def decide(scores: Floats, *, task: Task, thresholds: Floats) -> list[frozenset[str]]:
    """Decide each row's label set, which always obeys the scheme's hard rules (see the module docstring).

    Ties go to the smaller set, then alphabetically, never by row order.

    Args:
        scores: calibrated probabilities, shape (examples, labels).
        task: the task, with its labels and rules.
        thresholds: from which probability a label is always given, shape (labels,); infinite without a floor.
    """
    sets, worth = worth_of_sets(scores, category=task.category)
    member = encoded(sets, task=task).T.astype(np.float64)
    forced = (scores >= thresholds).astype(np.float64) @ member
    return [sets[best] for best in (worth + FORCED * forced).argmax(axis=1)]


def encoded(sets: Sequence[frozenset[str]], *, task: Task) -> Truth:
    """Return a matrix of shape (sets, labels) that is 1 where a set contains a label."""
    rows = [[label in labels for label in task.labels] for labels in sets]
    return np.array(rows, np.bool_).reshape(len(rows), len(task.labels))


def learned(
    found: Floats,
    *,
    raw: npt.NDArray[np.floating],
    examples: Sequence[Example],
    task: Task,
    floors: Mapping[str, float],
) -> tuple[Floats, dict[str, Any]]:
    """Choose the thresholds of a classifier on dev; return them with a report.

    Args:
        found: calibrated probabilities, shape (examples, labels).
        raw: the scores before calibration.
        examples: of validation.
        task: the task.
        floors: see :func:`fit`.

    Returns:
        The thresholds; ``floors`` (see :func:`fit`), ``exact`` (share of label sets that are right) and
    """
    truth = targets(only(examples, splits={VALIDATION}), task=task) > 0
    thresholds, kept = fit(found, examples=examples, task=task, floors=floors)
    free = np.full(len(task.labels), math.inf)

    def exact(thresholds: Floats) -> float:
        answered = encoded(decide(found, task=task, thresholds=thresholds), task=task)
        return float((answered == truth).all(axis=1).mean())

    return thresholds, {
        "floors": kept,
        "exact": exact(thresholds),
        "exact_without_floors": exact(free),
        "log_loss": calibration.log_loss(found, truth=truth, task=task),
        "brier": calibration.brier(found, truth=truth),
        "raw_brier": calibration.brier(np.asarray(raw, np.float64), truth=truth),
    }


def save(out: Path, *, task: Task, thresholds: Floats, **more: Any) -> None:
    """Write the thresholds and the other values for decoding scores as JSON."""
    out.mkdir(parents=True, exist_ok=True)
    plain = [None if math.isinf(value) else value for value in thresholds.tolist()]
    stored = {"labels": task.labels, "thresholds": plain, **more}
    (out / FILE).unlink(missing_ok=True)  # may be a link into DVC's cache
    (out / FILE).write_text(json.dumps(stored, indent=1, sort_keys=True))


def load(out: Path, *, task: Task) -> tuple[Floats, dict[str, Any]]:
    """Read the file that :func:`save` wrote; return the thresholds and the whole JSON object.

    Raises:
        OtherLabels: the thresholds were fitted for other labels, or for the same labels in another order.
    """
    stored = json.loads((out / FILE).read_text())
    if tuple(stored["labels"]) != task.labels:
        raise OtherLabels(found=len(stored["labels"]), wanted=len(task.labels), task=task.key)
    values = [math.inf if value is None else value for value in stored["thresholds"]]
    return np.array(values, np.float64), stored


def _described(scores: Floats, *, truth: Truth, answered: Truth, threshold: float) -> dict[str, Any]:
    positives = int(truth.sum())
    found: dict[str, Any] = {"positives": positives, "supported": positives >= MIN_POSITIVES}
    names = ("threshold", "recall", "precision", "answered_recall", "answered_precision")
    if not found["supported"]:
        return found | dict.fromkeys(names)
    values = (threshold, *_hit(scores >= threshold, truth=truth), *_hit(answered, truth=truth))
    return found | dict(zip(names, values, strict=True))


def _hit(given: Truth, *, truth: Truth) -> tuple[float, float | None]:
    """Return recall and precision; precision is ``None`` if nothing is given."""
    hits, n = int((given & truth).sum()), int(given.sum())
    return hits / int(truth.sum()), hits / n if n else None
