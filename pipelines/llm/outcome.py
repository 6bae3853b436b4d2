"""Define the outcomes of a request for labels; only the outcome ``vote`` has labels, and a refusal is no vote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pipelines.core.errors import LabellingError

# the client's words for an answer of unknown shape, and for a post that exceeds the model's context
UNREADABLE, TOO_LONG = "unreadable", "too_long"


class Outcome(StrEnum):
    """The outcome of a request for labels: one of five, of which only ``VOTE`` counts in an aggregation."""

    VOTE = "vote"
    ABSTAINED = "abstained"
    REFUSED = "refused"
    MALFORMED = "malformed"
    FAILED = "failed"


class Throttled(LabellingError):
    """A model provider's rate limit: the sender waits ``retry_after`` seconds (``None``: none stated), then repeats."""


class Passing(LabellingError):
    """A request to a model got no answer for a temporary ``reason``, such as ``timeout``; the sender repeats it."""


@dataclass(frozen=True)
class Answer:
    """A labeller's answer about an item, a row of the table ``votes``; it has no text, so it is not encrypted.

    ``reason`` is one machine word, or the names of the repairs joined by ``+`` if the outcome is a repaired vote.
    ``labels`` are sorted, and empty unless the outcome is a vote; ``scores`` follow the order of the category's names.
    """

    record_id: str
    labeller: str
    category: str
    prompt: str
    outcome: Outcome
    reason: str = ""
    repaired: bool = False
    labels: tuple[str, ...] = ()
    scores: tuple[float, ...] | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    image: int = 0

    def row(self) -> dict[str, Any]:
        scores = None if self.scores is None else list(self.scores)
        return vars(self) | {"outcome": str(self.outcome), "labels": list(self.labels), "scores": scores}


def counted(words: Iterable[str]) -> dict[str, int]:
    """Return how often each outcome or reason occurs in ``words``, sorted by name."""
    return dict(sorted(Counter(map(str, words)).items()))


def spent(answers: Collection[Answer]) -> dict[str, Any]:
    """Return the sums of costs, tokens and repairs of a labeller's answers, for the metrics of a stage.

    Returns:
        Counts of ``reasons`` (of outcomes other than a vote, and of repairs), ``repaired``, tokens, and ``cost`` in US
        dollars.
    """
    return {
        "reasons": counted(answer.reason for answer in answers if answer.reason),
        **{name: sum(getattr(a, name) for a in answers) for name in ("repaired", "input_tokens", "output_tokens")},
        "cost": round(sum(answer.cost for answer in answers), 6),
    }


def check_failures(outcomes: Collection[Outcome], *, labeller: str, most: float) -> None:
    """Raise an error if more than the share ``most`` of a labeller's requests failed (``votes.max_failed``)."""
    failed = sum(outcome is Outcome.FAILED for outcome in outcomes)
    if failed > most * len(outcomes):
        raise LabellingError("TooManyFailed", labeller=labeller, failed=failed, records=len(outcomes))


@dataclass(frozen=True)
class Raw:
    """A provider's answer in the stored form, which is encrypted, because ``text`` may quote the post.

    ``finish`` is the finish reason (``stop``, ``length``, ``content_filter``, ``unreadable`` ...); ``refused`` the
    reason word of a refusal; ``effective`` the parameters actually sent; ``truncated`` whether the output reached its
    token limit. ``recorded`` has outcome, reason, ``repaired`` and labels by category, if these were imported: then the
    words of the answer are not known here.
    """

    text: str | None
    finish: str
    refused: str | None
    input_tokens: int
    output_tokens: int
    effective: dict[str, Any]
    truncated: bool = False
    recorded: Mapping[str, tuple[Outcome, str, bool, Sequence[str]]] | None = None

    def to_json(self) -> bytes:
        """Serialise the answer; equal answers give equal ASCII bytes, which preserve even a lone surrogate."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Raw:
        return cls(**json.loads(data))
