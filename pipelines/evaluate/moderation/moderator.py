"""Describe moderation systems: their parameters, requests and verdicts.

A moderation system is one class in a module of ``evaluate.moderation.moderators`` or of another distribution, whose
fields are the parameters of an entry of section ``moderators``; the entry names it by ``kind``. An answer that lacks
what its format promises is malformed, never "not flagged".
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipelines.core.config.base import Section
from pipelines.core.config.label import Price
from pipelines.core.config.params import Params
from pipelines.core.parts import Parts
from pipelines.datasets.post import media_type
from pipelines.llm import budget
from pipelines.llm.budget import Size
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
    votes = [verdict for verdict in verdicts if verdict.outcome is Outcome.VOTE]
    if len(votes) < len(verdicts):
        fault = next(verdict for kind in FAULTS for verdict in verdicts if verdict.outcome is kind)
        return Verdict(fault.outcome, fault.reason, partial=bool(votes))
    scores = [verdict.score for verdict in votes if verdict.score is not None]
    return Verdict(
        Outcome.VOTE,
        self_harm=any(verdict.self_harm for verdict in votes),
        overall=any(verdict.overall for verdict in votes),
        score=max(scores, default=None),
        categories=tuple(sorted({name for verdict in votes for name in verdict.categories})),
    )


Json = dict[str, Any]
Contents = Sequence[str | bytes]
"""A text, a picture or both, the text first."""
FREE = Price(input=0, output=0)
TOKENS = ("prompt_tokens", "completion_tokens")
# What a request with these contents sends: texts, pictures.
SENDS = {"text": (True, False), "image": (False, True), "both": (True, True)}
Input = Literal["text", "image", "both"]


@dataclass(frozen=True)
class Request:
    """One kind of request of a moderation system.

    Args:
        sends: what it sends of an item.
        path: below the provider's address.
        settings: the request's body without content.
        price: of a million of the units that :meth:`Moderator.size` counts.
    """

    sends: Input
    path: str
    settings: Json
    price: Price


class Moderator(Section, ABC):
    """A moderation system: what it is asked, and how its answers read.

    Class variables: ``api`` is the vendor whose protocol its provider speaks, ``scale`` the range of its scores, such
    as ``0 to 7`` (``None`` without scores), ``characters`` the most of a text that is sent.
    """

    kind: str
    provider: str
    input: Input

    api: ClassVar[str]
    scale: ClassVar[str | None] = None
    # Ours: the first and last half of so many characters are sent; guards have a context of 8,000 tokens.
    characters: ClassVar[int] = 14_000

    @property
    @abstractmethod
    def requests(self) -> Sequence[Request]:
        """Its kinds of requests. ``kind``, path and settings are part of the keys of stored answers."""

    @abstractmethod
    def body(self, contents: Contents) -> Json:
        """Return the contents as the request's body has them."""

    @abstractmethod
    def verdict(self, answer: Mapping[str, Any]) -> Verdict:
        """Return what an answer with status 200 says."""

    def described(self) -> Json:
        """Return the parameters that the metrics show."""
        model = getattr(self, "model", self.kind)
        return {"kind": self.kind, "model": model, "input": self.input, "scale": self.scale}

    def size(self, contents: Contents) -> Size:
        """Return the units that a request is charged for, expected and at most: tokens if not stated otherwise."""
        return budget.size("", contents, schema={}, cap=0)

    def used(self, answer: Mapping[str, Any], *, expected: Size) -> tuple[int, int]:
        """Return the input and output units of an answer, as the provider counts them, else as expected."""
        usage = answer.get("usage")
        counts = [usage.get(name) for name in TOKENS] if isinstance(usage, Mapping) else [expected.read, 0]
        read, written = (n if isinstance(n, int) else 0 for n in counts)
        return read, written

    def usd(self, picture: bytes) -> float:
        """Return what a picture is expected to cost, in US dollars."""
        size = self.size([picture])
        prices = [request.price for request in self.requests if SENDS[request.sends][1]]
        return sum(budget.usd(price, read=size.read, written=size.written) for price in prices)


MODERATORS: Parts[Moderator] = Parts("pipelines.evaluate.moderation.moderators", Moderator)


def moderator_of(name: str, *, params: Params) -> Moderator:
    """Return a moderation system of section ``moderators``."""
    return MODERATORS.of(params.moderators[name], params.distributions, where=f"moderators.{name}")


def multimodal(part: str | bytes) -> Json:
    """Return a text or a picture as a part of OpenAI's multi-modal input."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    # pictures of a corpus are stored as JPEG
    kind = media_type(part) or "image/jpeg"
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(part).decode()}"}}
