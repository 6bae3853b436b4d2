"""Define a model's prediction for an item, what predictions cost, and the interface of models that predict here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias

from pydantic import Field

from pipelines.core.config.base import Section

if TYPE_CHECKING:
    from pipelines.datasets.example import Example, Item, LabelSet

VOTE = "vote"
MICROSECONDS = 6  # digits of a time

Progress = Callable[[int], None] | None
Votes: TypeAlias = "Mapping[Item, LabelSet]"


@dataclass(frozen=True)
class Prediction:
    """A model's prediction for one item, a row of the table ``predictions``.

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


Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Spent(Section):
    """What predictions cost: US dollars, tokens, and ``seconds`` of wall time (``None`` if not measured)."""

    records: Count
    seconds: Amount | None
    input_tokens: Count
    output_tokens: Count
    cost: Amount

    @classmethod
    def of(cls, predictions: Iterable[Prediction], *, cost: float = 0.0, seconds: float | None = None) -> Spent:
        """Return the cost of predictions and their tokens; those made on this machine cost no US dollars."""
        made = list(predictions)
        tokens = {name: sum(getattr(one, name) for one in made) for name in ("input_tokens", "output_tokens")}
        measured = None if seconds is None else round(seconds, MICROSECONDS)
        return cls(records=len(made), seconds=measured, cost=cost, **tokens)


class Predictor(Protocol):
    """A model that labels items in this process."""

    def predict(self, examples: Sequence[Example], *, progress: Progress = None) -> list[Prediction]:
        """Return one prediction per example, in their order.

        Args:
            progress: called with the number of examples that are done.
        """

    def forget(self) -> None:
        """Clear what the process keeps of the examples, if it goes on after the prediction."""
