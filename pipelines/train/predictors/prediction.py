"""Define a model's prediction for a post, and the interface of models that predict in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipelines.datasets.example import LabelSet

VOTE, MALFORMED = "vote", "malformed"


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


class Predictor(Protocol):
    """The interface of a model that labels posts in this process."""

    def predict(
        self,
        texts: Sequence[str],
        *,
        record_ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Prediction]:
        """Return one prediction per text, in the order of the texts.

        Args:
            record_ids: the texts' records, for models that use other data of a record (a labeller's vote).
            progress: called with the number of texts that are done.
        """
