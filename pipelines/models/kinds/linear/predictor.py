"""Predict with a fitted linear head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from safetensors.numpy import load_file

from pipelines.collect.read import embedding, ngrams
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

    def __init__(self, out: Path, *, task: Task, features: str) -> None:
        alerts, stored = recall_constraints.load(out, task=task)
        super().__init__(task, alerts=alerts, chunk=CHUNK)
        self._calibration = Calibration.of_json(stored["calibration"])
        embedded, head = features == "embedding", load_file(out / HEAD)
        self._features = embedding if embedded else ngrams
        self._read = embedding.MiniLM().rows if embedded else ngrams.rows
        decide: Callable[..., Floats] = self._features.decided
        self._decide = partial(decide, **head)

    def tokens(self, examples: Sequence[Example]) -> list[int]:
        counted: list[int] = self._features.tokens([example.text for example in examples])
        return counted

    def forget(self) -> None:
        """Do nothing: no example is kept."""

    def _scores(self, examples: Sequence[Example]) -> Floats:
        values = self._decide(self._read([example.text for example in examples])).round(DECIMALS)
        return self._calibration(shares(values, kind=self._task.kind))
