"""A linear head on a sentence embedding that is not trained: learns from a few hundred texts in seconds, on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pipelines.models.kind import Job, Kind, Say, Serving, later
from pipelines.models.prediction import Predictor


class Linear(Kind):
    """A logistic regression of each label on the sentence embedding of a text, with calibrated probabilities.

    A package has the weights of the head; those of the embedding are an installed library.
    """

    packable: ClassVar[str | None] = None

    @property
    def named(self) -> str:
        from pipelines.collect.read import embedding

        return embedding.PACKAGE

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("tokenizers", "torch", "transformers", self.named)

    def fit(self, job: Job[Any], *, say: Say) -> dict[str, Any]:
        found: dict[str, Any] = later("kinds.linear.training").fit(job)
        return found

    def open(self, folder: Path, serving: Serving) -> Predictor:
        from pipelines.models.kinds.linear.predictor import LinearPredictor

        return LinearPredictor(folder, task=serving.task)
