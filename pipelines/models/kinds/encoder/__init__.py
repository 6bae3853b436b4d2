"""A text encoder with one output per label and calibrated probabilities, for machines without a large accelerator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from pipelines.core.config.base import Fraction, Positive
from pipelines.core.config.models import ExampleWeights
from pipelines.models.kind import Based, Job, Say, Serving, later
from pipelines.models.prediction import Predictor


class Encoder(Based):
    """A text encoder with one output per label, for machines without a large accelerator."""

    packable: ClassVar[str | None] = None
    batch: Positive
    max_tokens: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    warmup: Fraction
    weight_decay: Annotated[float, Field(ge=0)]
    epochs: Positive
    weights: ExampleWeights = "equal"

    @property
    def weighted(self) -> bool:
        return self.weights == "posterior"

    def fit(self, job: Job[Any], *, say: Say) -> dict[str, Any]:
        found: dict[str, Any] = later("kinds.encoder.training").fit(job, say=say)
        return found

    def open(self, folder: Path, serving: Serving) -> Predictor:
        from pipelines.models.kinds.encoder.predictor import EncoderPredictor

        return EncoderPredictor(folder, task=serving.task, batch=self.batch)
