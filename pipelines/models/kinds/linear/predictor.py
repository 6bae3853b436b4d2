"""Predict with a fitted linear head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from pipelines.collect.read import embedding, ngrams, shapes
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import Example
from pipelines.metrics import recall_constraints
from pipelines.metrics.calibration import Calibration, shares
from pipelines.models.fitting.calibrated_predictor import CalibratedPredictor, Floats

HEAD = "head.safetensors"
# Ours: texts between two progress reports.
CHUNK = 64
DECIMALS = 9  # of a decision value: further digits depend on which other texts are in the same chunk


@dataclass(frozen=True)
class Features:
    """What a head reads of items: ``rows`` of features, ``decided`` values of the head's arrays, ``tokens`` read."""

    rows: Callable[[Sequence[Example]], Any]
    decided: Callable[..., Floats]
    tokens: Callable[[Sequence[Example]], list[int]]


def words() -> Features:
    return Features(
        lambda items: ngrams.rows(_texts(items)), ngrams.decided, lambda items: ngrams.tokens(_texts(items))
    )


def embedded() -> Features:
    model = embedding.MiniLM()
    return Features(
        lambda items: model.rows(_texts(items)), embedding.decided, lambda items: embedding.tokens(_texts(items))
    )


def shaped() -> Features:
    return Features(
        lambda items: shapes.rows([item.image for item in items]), embedding.decided, lambda items: [1] * len(items)
    )


def _texts(items: Sequence[Example]) -> list[str]:
    return [item.text for item in items]


FEATURES: dict[str, Callable[[], Features]] = {"words": words, "embedding": embedded, "shapes": shaped}


class LinearPredictor(CalibratedPredictor):
    """A fitted linear head that predicts labels of items."""

    def __init__(self, out: Path, *, task: Task, features: str) -> None:
        alerts, stored = recall_constraints.load(out, task=task)
        super().__init__(task, alerts=alerts, chunk=CHUNK)
        self._calibration = Calibration.of_json(stored["calibration"])
        self._features = FEATURES[features]()
        self._decide = partial(self._features.decided, **load_file(out / HEAD))

    def tokens(self, examples: Sequence[Example]) -> list[int]:
        return self._features.tokens(examples)

    def forget(self) -> None:
        """Do nothing: no example is kept."""

    def _scores(self, examples: Sequence[Example]) -> Floats:
        values = self._decide(self._features.rows(examples)).round(DECIMALS)
        return self._calibration(shares(values, kind=self._task.kind))
