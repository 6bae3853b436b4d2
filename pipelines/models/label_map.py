"""Translate the labels of a model of another corpus or scheme to those of a task: each to one of ours, or to none.

Several labels may become one. A label that is mapped to ``None`` is left out; an answer of left-out labels alone is an
abstention, so that it is never a vote for none of our labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.core.errors import BadParams
from pipelines.core.taxonomy import tiers_of
from pipelines.core.taxonomy.task import Task
from pipelines.llm.outcome import Outcome
from pipelines.models.prediction import VOTE, Prediction

ADDS_UP = 1e-4  # ours: probabilities whose sum is 1 up to the rounding of float32 are of labels that exclude each other


@dataclass(frozen=True)
class LabelMap:
    """A model's own labels, in the order of its probabilities, with ours."""

    labels: Mapping[str, str | None]
    task: Task
    model: str

    def __post_init__(self) -> None:
        if unknown := {ours for ours in self.labels.values() if ours is not None} - {*self.task.labels}:
            raise self.unfit(f"{', '.join(sorted(unknown))} is not a label of task {self.task.key}")

    def unfit(self, detail: str) -> BadParams:
        return BadParams(where=f"models.{self.model}.labels", detail=detail)

    def ordered(self, theirs: Sequence[str]) -> LabelMap:
        """Return the map in the order of the model's labels; refuse one that does not name each of them once."""
        if sorted(theirs) != sorted(self.labels):
            raise self.unfit(f"it needs each label of the model once: {', '.join(theirs)}")
        return LabelMap({name: self.labels[name] for name in theirs}, self.task, self.model)

    def named(self, theirs: Collection[str]) -> tuple[str, frozenset[str]]:
        """Return the outcome and our labels of an answer, repaired by the scheme's rules."""
        ours = {label for name in theirs if (label := self.labels[name]) is not None}
        if theirs and not ours:
            return str(Outcome.ABSTAINED), frozenset()
        checked = self.task.category.check(ours, mode="repair", tiers=tiers_of("paper"))
        if checked.violations or (self.task.kind == "single" and len(checked.labels) != 1):
            return str(Outcome.MALFORMED), frozenset()
        return VOTE, checked.labels

    def translated(self, answers: Sequence[Prediction]) -> list[Prediction]:
        """Return the model's answers in our labels.

        Probabilities of labels that become one are added if all answers' add up to 1, and else the highest counts.
        """
        member = np.array([[ours == label for label in self.task.labels] for ours in self.labels.values()], float)
        exclusive = all(abs(sum(answer.scores) - 1) < ADDS_UP for answer in answers if answer.scores)
        found = []
        for answer in answers:
            nothing = answer.outcome, frozenset[str]()
            outcome, labels = self.named(answer.labels) if answer.outcome == VOTE else nothing
            scores: tuple[float, ...] = ()
            if answer.scores:
                each = np.array(answer.scores)[:, None] * member
                scores = tuple((each.sum(axis=0).clip(max=1) if exclusive else each.max(axis=0)).tolist())
            alerts = frozenset(label for name in answer.alerts if (label := self.labels[name]) is not None)
            found.append(Prediction(outcome, labels, scores, alerts=alerts))
        return found
