"""Decide label sets and alerts from a model's calibrated probabilities, for every kind of model that computes them.

An alert is a flag for a label that must not be missed, raised at a threshold that keeps a required recall."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import Example, LabelSet
from pipelines.metrics import calibration
from pipelines.metrics.decoding import decode
from pipelines.metrics.recall_constraints import Alerts, learned, raised, save
from pipelines.models.kind import Job
from pipelines.models.prediction import VOTE, Prediction, Progress

Floats = npt.NDArray[np.float64]


def calibrate(
    raw: npt.NDArray[np.floating],
    *,
    job: Job[Any],
    sets: Sequence[LabelSet] | None = None,
    write: bool = True,
    **stored: Any,
) -> dict[str, Any]:
    """Fit calibration and alerts on validation, and write them to the model's folder, with ``stored``.

    Args:
        raw: the scores of validation, shape (examples, labels).
        sets: the label set of each example, by default the most probable one after calibration.
        write: false in all processes but one.

    Returns:
        The report of :func:`pipelines.metrics.recall_constraints.learned`: alerts, exact match, losses on validation.
    """
    task, examples = job.task, job.validation
    fitted = calibration.fit(raw, examples=examples, task=task)
    alerts, metrics = learned(fitted(raw), raw=raw, examples=examples, task=task, sets=sets)
    if write:
        save(job.out, task=task, alerts=alerts, calibration=fitted.as_json(), **stored)
    return metrics


class CalibratedPredictor(ABC):
    """A predictor that computes calibrated probabilities of labels, and derives label sets and alerts from them.

    Args:
        alerts: label -> its alert: the threshold, fitted on validation, at which the label is flagged besides the label
            set.
    """

    def __init__(self, task: Task, *, alerts: Alerts, chunk: int) -> None:
        self._task, self._alerts, self._chunk = task, alerts, chunk

    def probabilities(self, examples: Sequence[Example], *, progress: Progress = None) -> Floats:
        """Return the examples' calibrated label probabilities, shape (examples, labels)."""
        rows: list[Floats] = [np.zeros((0, len(self._task.labels)))]
        for start in range(0, len(examples), self._chunk):
            rows.append(self._scores(examples[start : start + self._chunk]))
            if progress is not None:
                progress(start + len(rows[-1]))
        return np.concatenate(rows)

    def predict(self, examples: Sequence[Example], *, progress: Progress = None) -> list[Prediction]:
        """Return one prediction per example: labels, probabilities, alerts."""
        scores = self.probabilities(examples, progress=progress)
        alerts = raised(scores, task=self._task, alerts=self._alerts)
        columns = zip(self.labels(scores), map(tuple, scores.tolist()), self.tokens(examples), alerts, strict=True)
        return [Prediction(VOTE, labels, row, read, alerts=alert) for labels, row, read, alert in columns]

    def labels(self, scores: Floats) -> list[LabelSet]:
        """Return the most probable label set of each row of :meth:`probabilities`."""
        return decode(scores, category=self._task.category)

    @abstractmethod
    def forget(self) -> None:
        """Clear what the process keeps of the examples."""

    @abstractmethod
    def _scores(self, examples: Sequence[Example]) -> Floats: ...

    @abstractmethod
    def tokens(self, examples: Sequence[Example]) -> list[int]:
        """Return how many tokens of each example the model reads, including special tokens."""
