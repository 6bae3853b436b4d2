"""Write requests to moderation systems and read their answers, each in its vendor's published format.

Sources: OpenAI's SDK (``openai.types.moderation*``); the REST reference and the SDK of Azure AI Content Safety
(``azure.ai.contentsafety.models``, version 2024-09-01); the model cards of Llama Guard 3 and 4, whose chat template
adds the policy to the user's message. An answer that lacks what its format promises is malformed, never "not flagged".
"""

from __future__ import annotations

import base64
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipelines.core.config.label import AzureModerator, GuardModerator, Moderator, OpenAIModerator, Price
from pipelines.datasets.post import media_type
from pipelines.llm.costs import Size, size
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
Parts = Sequence[str | bytes]
SELF_HARM = ("self-harm", "self-harm/intent", "self-harm/instructions")
# Ours: the first and last half of so many characters are sent; guards have a context of 8,000 tokens.
MOST_CHARACTERS = 14_000
# Azure counts text in records of so many characters (its price list), and takes so many in one request.
RECORD_CHARACTERS, AZURE_CHARACTERS = 1_000, 10_000
AZURE = ("Hate", "SelfHarm", "Sexual", "Violence")
MILLION = 1_000_000
TOKENS = ("prompt_tokens", "completion_tokens")


class Wire(ABC):
    """One kind of request to a moderation system.

    ``kind`` is part of the keys of stored answers; ``scale`` is the range of the scores, ``None`` without scores;
    ``path`` is below the provider's address; ``settings`` is the request's body without content; ``price`` is that of a
    million of the units that :meth:`size` counts; a text has at most ``characters``.
    """

    kind: ClassVar[str]
    scale: ClassVar[str | None] = None
    characters: ClassVar[int] = MOST_CHARACTERS
    path: str
    settings: Json
    price: Price

    @abstractmethod
    def body(self, parts: Parts) -> Json:
        """Return the request's body for a text, a picture or both, the text first."""

    @abstractmethod
    def verdict(self, answer: Mapping[str, Any]) -> Verdict:
        """Return what an answer with status 200 says."""

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    def size(self, parts: Parts) -> Size:
        """Return the units that a request is charged for, expected and at most: tokens if not stated otherwise."""
        return size("", parts, schema={}, cap=self.settings.get("max_tokens", 0))

    def used(self, answer: Mapping[str, Any], *, expected: Size) -> tuple[int, int]:
        """Return the input and output units of an answer, as the provider counts them, else as expected."""
        usage = answer.get("usage")
        counts = [usage.get(name) for name in TOKENS] if isinstance(usage, Mapping) else [expected.read, 0]
        read, written = (n if isinstance(n, int) else 0 for n in counts)
        return read, written


class OpenAIWire(Wire):
    """OpenAI's endpoint ``moderations``."""

    kind, scale = "openai", "0 to 1"

    def __init__(self, spec: OpenAIModerator) -> None:
        self.path, self.settings, self.price = "/moderations", {"model": spec.model}, spec.price

    def body(self, parts: Parts) -> Json:
        """Return text and picture as one multi-modal input; one picture is what a request may have."""
        return self.settings | {"input": [_part(part) for part in parts]}

    def verdict(self, answer: Mapping[str, Any]) -> Verdict:
        """Return the flags of the only result; the score is the greatest of the three categories of self-harm."""
        [result] = answer["results"]
        categories, scores = result["categories"], result["category_scores"]
        if any(not isinstance(categories[name], bool) for name in SELF_HARM):
            return malformed("no_self_harm")
        if not isinstance(flagged := result["flagged"], bool):
            raise TypeError
        return Verdict(
            Outcome.VOTE,
            self_harm=any(categories[name] for name in SELF_HARM),
            overall=flagged,
            score=max(float(scores[name]) for name in SELF_HARM),
            categories=tuple(sorted(name for name, on in categories.items() if on is True)),
        )


class AzureWire(Wire):
    """Azure AI Content Safety: ``text:analyze`` with eight severities, or ``image:analyze``, which has four of them."""

    kind, scale, characters = "azure", "0 to 7", AZURE_CHARACTERS

    def __init__(self, spec: AzureModerator, part: Literal["text", "image"]) -> None:
        levels, each = {
            "text": ("EightSeverityLevels", spec.usd_per_1000_texts),
            "image": ("FourSeverityLevels", spec.usd_per_1000_images),
        }[part]
        self.path = f"/contentsafety/{part}:analyze?api-version={spec.api_version}"
        # all four categories are analysed by default
        self.settings, self.price = {"outputType": levels}, Price(input=each * MILLION / 1000, output=0)
        self._flag_from = spec.flag_from

    def body(self, parts: Parts) -> Json:
        """Return the text, or the picture in base64."""
        [part] = parts
        content = {"text": part} if isinstance(part, str) else {"image": {"content": base64.b64encode(part).decode()}}
        return self.settings | content

    def headers(self, key: str) -> dict[str, str]:
        return {"Ocp-Apim-Subscription-Key": key}

    def size(self, parts: Parts) -> Size:
        """Return the number of text records, or 1 for a picture."""
        [part] = parts
        units = 1 if isinstance(part, bytes) else max(1, math.ceil(len(part) / RECORD_CHARACTERS))
        return Size(read=units, read_at_most=units, written=0, written_at_most=0)

    def verdict(self, answer: Mapping[str, Any]) -> Verdict:
        """Return the flags from ``flag_from`` on; an answer without one of the four categories is partial."""
        severities = {str(entry["category"]): entry["severity"] for entry in answer["categoriesAnalysis"]}
        if any(not isinstance(severities.get(name), int) for name in AZURE):
            return malformed("category_missing")
        flagged = tuple(name for name in AZURE if severities[name] >= self._flag_from)
        score = float(severities["SelfHarm"])
        return Verdict(
            Outcome.VOTE, self_harm="SelfHarm" in flagged, overall=bool(flagged), score=score, categories=flagged
        )


class GuardWire(Wire):
    """A guard model behind ``chat/completions`` of OpenAI's protocol: its server adds the policy to the message."""

    kind = "guard"

    def __init__(self, spec: GuardModerator) -> None:
        self._spec, self.path, self.price = spec, "/chat/completions", spec.price
        self.settings = {"model": spec.model, "temperature": 0, "max_tokens": spec.max_output_tokens}

    def body(self, parts: Parts) -> Json:
        """Return one message of the user; a text alone is a plain string, which every chat template accepts."""
        content: Any = [_part(part) for part in parts]
        if len(parts) == 1 and isinstance(parts[0], str):
            content = parts[0]
        return self.settings | {"messages": [{"role": "user", "content": content}]}

    def verdict(self, answer: Mapping[str, Any]) -> Verdict:
        """Return the verdict of an answer such as "safe", or "unsafe" and a line of codes."""
        [choice] = answer["choices"]
        message, ended = choice["message"], choice.get("finish_reason")
        if message.get("refusal") or ended == "content_filter":
            return Verdict(Outcome.REFUSED, "model_refusal")
        text = str(message["content"] or "")
        unsafe = bool(re.search(self._spec.unsafe, text))
        if unsafe == bool(re.search(self._spec.safe, text)):
            return malformed("no_verdict")
        codes = {match[0] for match in re.finditer(self._spec.category, text)} if unsafe else set()
        if unsafe and not codes:
            return malformed("no_category")
        self_harm = not codes.isdisjoint(self._spec.self_harm)
        if unsafe and ended == "length" and not self_harm:
            return malformed("cut")  # the code of self-harm may be among those that are missing
        return Verdict(Outcome.VOTE, self_harm=self_harm, overall=unsafe, categories=tuple(sorted(codes)))


def wires_of(spec: Moderator) -> Iterator[tuple[Wire, str]]:
    """Yield the kinds of requests of a system, each with what it sends: ``text``, ``image`` or ``both``."""
    if isinstance(spec, OpenAIModerator):
        yield OpenAIWire(spec), spec.input
    elif isinstance(spec, GuardModerator):
        yield GuardWire(spec), spec.input
    else:
        parts: tuple[Literal["text", "image"], ...] = ("text", "image")
        yield from ((AzureWire(spec, part), part) for part in parts if spec.input in (part, "both"))


def _part(part: str | bytes) -> Json:
    """Return a text or a picture as a part of OpenAI's multi-modal input."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    # pictures of a corpus are stored as JPEG
    kind = media_type(part) or "image/jpeg"
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(part).decode()}"}}
