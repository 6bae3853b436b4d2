"""Predict with a fitted linear head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safetensors.numpy import load_file

from pipelines.collect.read import embedding
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import Example
from pipelines.metrics import recall_constraints
from pipelines.metrics.calibration import Calibration, shares
from pipelines.models.fitting.calibrated_predictor import CalibratedPredictor, Floats

HEAD = "head.safetensors"
# Ours: texts between two progress reports.
CHUNK = 64
DECIMALS = 9  # of a decision value: further digits depend on which other texts are in the same chunk


class LinearPredictor(CalibratedPredictor):
    """A fitted linear head that predicts labels of texts."""

    def __init__(self, out: Path, *, task: Task) -> None:
        alerts, stored = recall_constraints.load(out, task=task)
        super().__init__(task, alerts=alerts, chunk=CHUNK)
        self._calibration = Calibration.of_json(stored["calibration"])
        self._head, self._model = load_file(out / HEAD), embedding.MiniLM()

    def tokens(self, examples: Sequence[Example]) -> list[int]:
        return embedding.tokens([example.text for example in examples])

    def forget(self) -> None:
        """Do nothing: no example is kept."""

    def _scores(self, examples: Sequence[Example]) -> Floats:
        rows = self._model.rows([example.text for example in examples])
        values = embedding.decided(rows, **self._head).round(DECIMALS)
        return self._calibration(shares(values, kind=self._task.kind))
