"""Predict with a fitted text encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import Example
from pipelines.metrics import recall_constraints
from pipelines.metrics.calibration import Calibration
from pipelines.models.backbones import EncoderWords, SavedEncoder, built, opened
from pipelines.models.fitting import inference
from pipelines.models.fitting.calibrated_predictor import CalibratedPredictor, Floats

# Ours: items between two progress reports.
CHUNK = 512


class EncoderPredictor(CalibratedPredictor):
    """A fine-tuned text encoder that predicts labels of items; ``batch`` is that of the fit."""

    def __init__(self, out: Path, *, task: Task, batch: int) -> None:
        alerts, stored = recall_constraints.load(out, task=task)
        super().__init__(task, alerts=alerts, chunk=CHUNK)
        self._calibration, self._batch = Calibration.of_json(stored["calibration"]), batch
        with opened(str(out), seed=0, folder=out) as place:
            self._words = EncoderWords(place, base=out.name, limit=None)
            self._built = built(SavedEncoder(place, base=out.name), words=self._words)

    def tokens(self, examples: Sequence[Example]) -> list[int]:
        return [self._words.count(example.text) for example in examples]

    def forget(self) -> None:
        self._words.forget()

    def _scores(self, examples: Sequence[Example]) -> Floats:
        return self._calibration(inference.predict(self._built, examples=examples, task=self._task, batch=self._batch))
