"""Define a model's prediction for a post, and the interface of models that predict in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipelines.datasets.example import Item, LabelSet

VOTE = "vote"

Ids = Sequence[str] | None
Progress = Callable[[int], None] | None


@dataclass(frozen=True)
class Prediction:
    """A model's prediction for one post, a row of the table ``predictions``.

    ``scores`` are probabilities in the task's order of labels, empty if the model gives none. ``labels`` are set only
    if the outcome is a vote. ``input_tokens`` counts what is read, ``output_tokens`` the answer without its end token.
    ``alerts`` are labels flagged at a threshold that keeps a required recall (:mod:`pipelines.metrics.alerts`).
    """

    outcome: str
    labels: LabelSet
    scores: tuple[float, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    alerts: LabelSet = frozenset()

    def row(self, item: Item, **about: Any) -> dict[str, Any]:
        """Return a row of the table ``predictions``; ``about``: its ``task``, ``model``, ``seed`` and ``split``."""
        answer = {"outcome": self.outcome, "scores": list(self.scores), "labels": sorted(self.labels)}
        return {"record_id": item[0], "image": item[1], **answer, "alerts": sorted(self.alerts), **about}


class Predictor(Protocol):
    """The interface of a model that labels posts in this process."""

    def predict(self, texts: Sequence[str], *, record_ids: Ids = None, progress: Progress = None) -> list[Prediction]:
        """Return one prediction per text, in the order of the texts.

        Args:
            record_ids: the texts' records, for models that use other data of a record (a labeller's vote).
            progress: called with the number of texts that are done.
        """
