"""A linear head on shapes and colours of pictures: learns from a few hundred in seconds, on a CPU, without weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pipelines.models.kind import Job, Kind, Say, Serving, later
from pipelines.models.prediction import Predictor


class Shapes(Kind):
    """A logistic regression of each label on :mod:`pipelines.collect.read.shapes`, with calibrated probabilities."""

    packable: ClassVar[str | None] = None
    inputs: ClassVar[tuple[str, ...]] = ("image",)
    features: ClassVar[str] = "shapes"

    def fit(self, job: Job[Any], *, say: Say) -> dict[str, Any]:
        found: dict[str, Any] = later("kinds.linear.training").fit(job)
        return found

    def open(self, folder: Path, serving: Serving) -> Predictor:
        from pipelines.models.kinds.linear.predictor import LinearPredictor

        return LinearPredictor(folder, task=serving.task, features=self.features)
