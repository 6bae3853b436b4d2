"""Predict with a fitted text encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import TEST, Example
from pipelines.metrics import recall_constraints
from pipelines.metrics.calibration import Calibration
from pipelines.models.pretrained.backbones import EncoderWords, SavedEncoder, built, opened
from pipelines.train.predictors import inference
from pipelines.train.predictors.calibrated_predictor import CalibratedPredictor, Floats
from pipelines.train.predictors.prediction import Ids

# Ours: posts between two progress reports.
CHUNK = 512


class EncoderPredictor(CalibratedPredictor):
    """A fine-tuned text encoder that predicts labels of posts."""

    def __init__(self, out: Path, *, task: Task) -> None:
        alerts, stored = recall_constraints.load(out, task=task)
        super().__init__(task, alerts=alerts, chunk=CHUNK)
        self._calibration, self._batch = Calibration.of_json(stored["calibration"]), int(stored["recipe"]["batch"])
        with opened(str(out), seed=0, folder=out) as place:
            self._words = EncoderWords(place, base=out.name, limit=None)
            self._built = built(SavedEncoder(place, base=out.name), words=self._words)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [self._words.count(text) for text in texts]

    def forget(self) -> None:
        """Clear the cache of texts, for a process that goes on after the prediction."""
        self._words.forget()

    def _scores(self, texts: Sequence[str], *, record_ids: Ids) -> Floats:
        examples = [Example((str(n), 0), TEST, text, None, None, "") for n, text in enumerate(texts)]
        return self._calibration(inference.predict(self._built, examples=examples, task=self._task, batch=self._batch))
