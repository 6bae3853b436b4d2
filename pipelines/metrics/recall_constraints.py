"""Fit the alerts of a classifier on dev's gold, raise them beside its labels, and store them with its calibration.

An alert is a flag for a label that must not be missed, raised at a threshold that keeps a required recall (a floor).
Labels are the most probable set that the scheme's hard rules allow (``metrics.decoding``): a recall floor
(``recall_floors`` of the scheme) never changes them, but adds an alert (``metrics.alerts``). An item may raise the
alert of a label that it does not get, and the reverse.

In an order of grades, an alert of a grade is of its probability and that of all graver ones: a post must not lose the
alert of ``Behavior`` by becoming more probably an ``Attempt``. Its recall is of the posts with that very grade.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.core.errors import DataError
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import VALIDATION, Example, only, targets
from pipelines.metrics import calibration
from pipelines.metrics.alerts import Alert, alert
from pipelines.metrics.decoding import checked, decode
from pipelines.metrics.label_sets import matrix

Floats = npt.NDArray[np.float64]
Alerts = Mapping[str, Alert]

FILE = "calibration.json"


def fit(scores: Floats, *, examples: Sequence[Example], task: Task) -> dict[str, Alert]:
    """Fit, on the validation split, the alert of each label that has a recall floor (a required recall)."""
    truth = targets(only(examples, splits={VALIDATION}), task=task) > 0
    values, wanted = evidence(scores, task=task, rows=len(truth)), floors_of(task)
    groups = [example.group for example in examples]
    return {
        label: alert(values[:, k], truth=truth[:, k], floor=wanted[label], groups=groups)
        for k, label in enumerate(task.labels)
        if label in wanted
    }


def floors_of(task: Task) -> dict[str, float]:
    """Return the required recall of the task's labels that have one, from the label scheme."""
    floors = task.category.recall_floors
    return {label: floors[label] for label in task.labels if floors.get(label, 0) > 0}


def evidence(scores: npt.NDArray[np.floating], *, task: Task, rows: int) -> Floats:
    """Return the scores, shape (rows, labels); for ordered labels, the sum of a grade's and all graver ones'."""
    values = checked(scores, task=task, rows=rows)
    if task.kind == "multi" or not task.ordinal:
        return values
    return np.minimum(np.cumsum(values[:, ::-1], axis=1)[:, ::-1], 1.0)


def raised(scores: npt.NDArray[np.floating], *, task: Task, alerts: Alerts) -> list[frozenset[str]]:
    """Return the labels whose alert each row raises."""
    values = evidence(scores, task=task, rows=len(scores)).astype(np.float32)
    limits = {label: fitted.threshold for label, fitted in alerts.items() if fitted.threshold is not None}
    above = values >= np.array([limits.get(label, np.inf) for label in task.labels], np.float32)
    return [frozenset(np.array(task.labels, object)[row]) for row in above]


def learned(
    chances: Floats,
    *,
    raw: npt.NDArray[np.floating],
    examples: Sequence[Example],
    task: Task,
    sets: Sequence[frozenset[str]] | None = None,
) -> tuple[dict[str, Alert], dict[str, Any]]:
    """Fit the alerts of a classifier on dev; return them by label, and measures of the classifier on dev.

    ``chances`` are calibrated probabilities, ``raw`` the scores before, ``sets`` by default the most probable label
    sets.
    """
    truth = targets(only(examples, splits={VALIDATION}), task=task) > 0
    alerts = fit(chances, examples=examples, task=task)
    answered = matrix(sets or decode(chances, category=task.category), labels=task.labels)
    return alerts, {
        "alerts": {label: asdict(fitted) for label, fitted in alerts.items()},
        "exact": float((answered == truth).all(axis=1).mean()),
        "log_loss": calibration.log_loss(chances, truth=truth, task=task),
        "brier": calibration.brier(chances, truth=truth),
        "raw_brier": calibration.brier(np.asarray(raw, np.float64), truth=truth),
    }


def save(out: Path, *, task: Task, alerts: Alerts, **more: Any) -> None:
    """Write a classifier's alerts to a JSON file in ``out``, with the task's labels and the further values ``more``."""
    out.mkdir(parents=True, exist_ok=True)
    stored = {"labels": task.labels, "alerts": {label: asdict(fitted) for label, fitted in alerts.items()}, **more}
    (out / FILE).unlink(missing_ok=True)  # may be a link into DVC's cache
    (out / FILE).write_text(json.dumps(stored, indent=1, sort_keys=True))


def load(out: Path, *, task: Task) -> tuple[dict[str, Alert], dict[str, Any]]:
    """Read a classifier's alerts from its folder, as :func:`save` wrote them; return them and the whole JSON object."""
    stored = json.loads((out / FILE).read_text())
    if tuple(stored["labels"]) != task.labels:
        raise DataError("OtherLabels", found=len(stored["labels"]), wanted=len(task.labels), task=task.key)
    return {label: Alert(**fitted) for label, fitted in stored["alerts"].items()}, stored
