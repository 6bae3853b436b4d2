"""Represent what a moderation system says about an item, and combine the answers about its text and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.llm.outcome import Outcome

# Of several requests about one item, the gravest fault decides; the first can be repaired by another run.
FAULTS = (Outcome.FAILED, Outcome.REFUSED, Outcome.MALFORMED, Outcome.ABSTAINED)
NOTHING = "nothing_to_send"


@dataclass(frozen=True)
class Verdict:
    """What a system says about an item; only the outcome ``VOTE`` has flags.

    Args:
        outcome: ``VOTE`` if the system judged the item.
        reason: one machine word if it did not.
        self_harm: whether the system flags the item for suicide or self-harm.
        overall: whether it flags the item for any category.
        score: its score of suicide and self-harm on its own scale (OpenAI 0 to 1, Azure 0 to 7); ``None`` without one.
        categories: the flagged categories by the system's own names, sorted.
        partial: whether another request about the item was answered.
    """

    outcome: Outcome
    reason: str = ""
    self_harm: bool | None = None
    overall: bool | None = None
    score: float | None = None
    categories: tuple[str, ...] = ()
    partial: bool = False


def malformed(reason: str) -> Verdict:
    """Return the verdict of an answer that lacks what its format promises, such as a category."""
    return Verdict(Outcome.MALFORMED, reason)


def combined(verdicts: Sequence[Verdict]) -> Verdict:
    """Return one verdict from those about the parts of an item: flags of any part, the greatest score.

    If a part has no verdict, the item has none: flags of its other part alone would understate what the system sees.
    """
    if not verdicts:
        return Verdict(Outcome.ABSTAINED, NOTHING)
    votes = [one for one in verdicts if one.outcome is Outcome.VOTE]
    if len(votes) < len(verdicts):
        fault = next(one for kind in FAULTS for one in verdicts if one.outcome is kind)
        return Verdict(fault.outcome, fault.reason, partial=bool(votes))
    scores = [one.score for one in votes if one.score is not None]
    return Verdict(
        Outcome.VOTE,
        self_harm=any(one.self_harm for one in votes),
        overall=any(one.overall for one in votes),
        score=max(scores, default=None),
        categories=tuple(sorted({name for one in votes for name in one.categories})),
    )
