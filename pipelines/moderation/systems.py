"""Ask moderation systems about items through the sealed store of answers: the same item once per system, ever.

A system has one kind of request, or two: Azure takes a text and a picture apart. The key of a request is made of the
format, the model and settings, and the content that is sent; neither the snapshot, the record nor the way in which an
answer is judged is part of it, so a new snapshot, a copy of an item or another threshold asks nothing again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from pipelines.config.label import AzureModerator, GuardModerator, Moderator, OpenAIModerator
from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.datasets.post import BOILERPLATE, Post
from pipelines.llm.asking import Asking, PlannedRequests
from pipelines.llm.costs import Size, usd
from pipelines.llm.outcome import UNREADABLE, Outcome, Raw
from pipelines.llm.pictures import shown
from pipelines.llm.sender import LabelRequest
from pipelines.moderation.moderation_client import ModerationClient
from pipelines.moderation.verdict import Verdict, combined, malformed
from pipelines.moderation.wires import AZURE_CHARACTERS, AzureWire, GuardWire, OpenAIWire, Wire
from pipelines.storage.answers import NANO, AnswerStore, StoredAnswer
from pipelines.vault.vault import Vault

STEP = "moderation"
PARTS = {"text": (True, False), "image": (False, True), "both": (True, True)}
# Ours: the first and last half of so many characters are sent; guards have a context of 8,000 tokens.
MOST_CHARACTERS = 14_000
CUT = " [...] "
FORMS = (KeyError, TypeError, ValueError, IndexError, AttributeError)


class AuditedItem(Post):
    """A post or meme as a moderation system receives it: the text alone, without the words of a prompt."""

    @cached_property
    def text(self) -> str:
        """Title and body, or the text read from a meme, without the text that an annotation form added."""
        parts = (BOILERPLATE.sub("", part).strip() for part in (self.title, self.body))
        return "\n\n".join(part for part in parts if part)


class Channel(Asking):
    """One kind of request of a moderation system: a text, a picture, or both at once."""

    def __init__(self, name: str, *, wire: Wire, part: str, secret: bytes, **given: Any) -> None:
        """``part`` is what is sent (a key of ``PARTS``); ``given`` are the arguments of :class:`Asking`."""
        super().__init__(name, **given)
        self._wire, self._secret = wire, secret
        self._words, self._pictures = PARTS[part]
        self.price, self.schema = wire.price, {}

    def reduced(self, item: AuditedItem) -> AuditedItem | None:
        """Return an item with the parts that this request sends, or ``None`` if it has none of them."""
        most = AZURE_CHARACTERS if isinstance(self._wire, AzureWire) else MOST_CHARACTERS
        text = _shortened(item.text, most=most) if self._words else ""
        images = item.images[:1] if self._pictures else ()
        return AuditedItem(item.record_id, title="", body=text, images=images) if text or images else None

    def verdicts(
        self, items: Sequence[AuditedItem], *, progress: Callable[[int], None] | None = None
    ) -> tuple[list[Verdict], float]:
        """Return the verdict about each reduced item, and what the answers have cost in US dollars."""
        found = self.gather(items, progress=progress)
        told = [
            self._judged(stored) if stored else _unanswered(failed)
            for stored, failed in zip(found.answers, found.failed, strict=True)
        ]
        pairs = zip(items, found.answers, strict=True)
        # equal content of two records was paid for once; count the cost on one of them
        return told, sum(one.cost for item, one in pairs if one and one.record_id == item.record_id) / NANO

    def plan(self, items: Sequence[AuditedItem]) -> dict[str, Any]:
        """Return the estimated units and US dollars of the items without a stored answer; nothing is sent."""
        sizes = [self._wire.size(self._parts(item)) for item in self._missing(items)]
        return {
            "records": len(items),
            "cached": len(items) - len(sizes),
            "to_ask": len(sizes),
            "input_tokens": sum(one.read for one in sizes),
            "output_tokens": sum(one.written_at_most for one in sizes),
            "usd_expected": round(sum(self._usd(one.read, one.written) for one in sizes), 6),
            "usd_at_most": round(sum(self._usd(one.read_at_most, one.written_at_most) for one in sizes), 6),
        }

    def _usd(self, read: int, written: int) -> float:
        return usd(self.price, read=read, written=written)

    def _key(self, post: Post) -> str:
        told = {
            "moderation": self._wire.kind,
            "path": self._wire.path,
            "settings": self._wire.settings,
            "content": post.content_digest(secret=self._secret),
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def _request(self, key: str, post: Post) -> LabelRequest:
        # a picture is scaled after the key was made, so that another version of the library asks nothing again
        parts = self._parts(replace(post, images=tuple(map(shown, post.images))))
        measured: Size = self._wire.size(parts)
        return LabelRequest(key, post.record_id, system="", parts=parts, size=measured, cut=CUT in post.text)

    def _parts(self, post: Post) -> list[str | bytes]:
        return [*([post.text] if post.text else []), *post.images]

    def _client(self) -> ModerationClient:
        return ModerationClient(
            self.name,
            wire=self._wire,
            provider=self._provider,
            receiver=self.receiver,
            endpoint=self._endpoint,
            consent=self._consent,
        )

    def _judged(self, stored: StoredAnswer) -> Verdict:
        raw = Raw.from_json(stored.data)
        if raw.refused is not None:
            return Verdict(Outcome.REFUSED, raw.refused)
        if raw.text is None:
            return malformed(raw.finish)
        try:
            return self._wire.verdict(json.loads(raw.text))
        except FORMS:
            return malformed(UNREADABLE)


@dataclass(frozen=True)
class Judged:
    """A system's verdicts in the order of the items, the number of requests, and their cost in US dollars."""

    verdicts: Sequence[Verdict]
    requests: int
    cost: float


@dataclass(frozen=True)
class System:
    """A moderation system of ``params.yaml`` with its requests."""

    name: str
    spec: Moderator
    channels: tuple[Channel, ...]

    @classmethod
    def of(cls, name: str, *, params: Params, settings: Settings, answers: AnswerStore, vault: Vault) -> Self:
        """Return the system ``name`` of the section ``moderators``."""
        spec = params.moderators[name]
        given: dict[str, Any] = {
            "provider": params.providers[spec.provider],
            "endpoint": settings.endpoint(spec.provider),
            "receiver": spec.provider,
            "budget_usd": params.votes.budget_usd,
            "answers": answers,
            "vault": vault,
            "consent": params.consents.get(spec.provider),
            "secret": settings.secret(),
        }
        return cls(name, spec, tuple(Channel(name, wire=w, part=part, **given) for w, part in _wires(spec)))

    def judge(self, items: Sequence[AuditedItem], *, progress: Callable[[int], None] | None = None) -> Judged:
        """Return the system's verdict about each item; stored answers are used, and the others requested.

        Raises:
            BudgetSpent, LabellerRefused, ProviderNotConsented: every answer so far is kept.
        """
        told: list[list[Verdict]] = [[] for _ in items]
        requests, cost, before = 0, 0.0, 0
        for channel in self.channels:
            fitting = _fitting(channel, items)
            count = _added(progress, before)
            found, paid = channel.verdicts([item for _, item in fitting], progress=count)
            for (place, _), verdict in zip(fitting, found, strict=True):
                told[place].append(verdict)
            requests, cost, before = requests + len(fitting), cost + paid, before + len(fitting)
        return Judged([combined(each) for each in told], requests, round(cost, 6))

    def wanted(self, items: Sequence[AuditedItem]) -> int:
        """Return the number of requests about the items, with or without a stored answer."""
        return sum(len(_fitting(channel, items)) for channel in self.channels)

    def plan(self, items: Sequence[AuditedItem]) -> Iterator[PlannedRequests]:
        """Yield what would be sent and cost, by kind of request."""
        for channel in self.channels:
            fitting = [item for _, item in _fitting(channel, items)]
            cost, leaves = channel.plan(fitting), channel.leaving(fitting)
            yield PlannedRequests(STEP, self.name, self.spec.provider, cost=cost, leaves=leaves)


def _wires(spec: Moderator) -> Iterator[tuple[Wire, str]]:
    if isinstance(spec, OpenAIModerator):
        yield OpenAIWire(spec), spec.input
    elif isinstance(spec, GuardModerator):
        yield GuardWire(spec), spec.input
    elif isinstance(spec, AzureModerator):
        if spec.input != "image":
            yield AzureWire(spec, "text"), "text"
        if spec.input != "text":
            yield AzureWire(spec, "image"), "image"


def _fitting(channel: Channel, items: Sequence[AuditedItem]) -> list[tuple[int, AuditedItem]]:
    """Return the position of every item that the request can be made about, with the parts that it sends."""
    reduced = ((place, channel.reduced(item)) for place, item in enumerate(items))
    return [(place, item) for place, item in reduced if item is not None]


def _unanswered(failed: str | None) -> Verdict:
    return Verdict(Outcome.FAILED, failed) if failed else Verdict(Outcome.ABSTAINED, "taken_down")


def _added(progress: Callable[[int], None] | None, before: int) -> Callable[[int], None] | None:
    return None if progress is None else lambda done: progress(before + done)


def _shortened(text: str, *, most: int) -> str:
    """Return a text that is too long without its middle, as labellers get it (CRADLE 4.1)."""
    if len(text) <= most:
        return text
    kept = most - len(CUT)
    head = (kept + 1) // 2
    return text[:head] + CUT + text[len(text) - (kept - head) :]
