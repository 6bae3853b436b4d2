"""A linear head on features that are not trained: learns from a few hundred texts in seconds, on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pipelines.models.kind import Job, Kind, Say, Serving, later
from pipelines.models.prediction import Predictor


class Linear(Kind):
    """A logistic regression of each label, with calibrated probabilities.

    It reads words and pairs of words, or the sentence embedding of a text. A package has the weights of the head, of
    words by their hashes; those of the embedding are an installed library.
    """

    packable: ClassVar[str | None] = None
    features: Literal["words", "embedding"] = "words"

    @property
    def named(self) -> str:
        from pipelines.collect.read import embedding

        return embedding.PACKAGE if self.features == "embedding" else ""

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("tokenizers", "torch", "transformers", self.named) if self.named else ("sklearn",)

    def fit(self, job: Job[Any], *, say: Say) -> dict[str, Any]:
        found: dict[str, Any] = later("kinds.linear.training").fit(job)
        return found

    def open(self, folder: Path, serving: Serving) -> Predictor:
        from pipelines.models.kinds.linear.predictor import LinearPredictor

        return LinearPredictor(folder, task=serving.task, features=self.features)
