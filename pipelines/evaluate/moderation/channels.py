"""Ask moderation systems about items through the sealed store of answers: the same item once per system, ever.

A system has one kind of request, or two: Azure takes a text and a picture apart. The key of a request is made of the
format, the model and settings, and the content that is sent; neither the snapshot, the record nor the way in which an
answer is judged is part of it, so a new snapshot, a copy of an item or another threshold asks nothing again.

The systems' requests are one JSON object each, so they need no SDK. Nothing here repeats a request; ``llm/sender.py``
does retries, limits and the budget.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pipelines.core.config.collect import Sources
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.process import reporter
from pipelines.core.taxonomy import Category, Scheme
from pipelines.core.taxonomy import load as scheme_of
from pipelines.datasets.example import Item, NoGold, groups_apart
from pipelines.datasets.items import opened
from pipelines.datasets.post import BOILERPLATE, Post
from pipelines.evaluate.moderation.moderator import (
    SENDS,
    Moderator,
    Request,
    Verdict,
    combined,
    malformed,
    moderator_of,
)
from pipelines.llm.asking import CUT, Asking, PlannedRequests, without_middle
from pipelines.llm.budget import Size
from pipelines.llm.outcome import UNREADABLE, Outcome, Raw
from pipelines.llm.pictures import shown
from pipelines.llm.sender import LabelRequest
from pipelines.llm.vendor import NO_QUOTA, Client, Provider
from pipelines.store import tables
from pipelines.store.answers import NANO, AnswerStore, StoredAnswer
from pipelines.store.vault.vault import Vault

STEP = "moderation"
ANSWERED, REJECTED = "stop", "rejected"
# What a provider answers to an item that it cannot read: too large, too small, of an unknown format, too long.
ABOUT_THE_ITEM = frozenset({400, 413, 415, 422})
FORMS = (KeyError, TypeError, ValueError, IndexError, AttributeError)


class AuditedItem(Post):
    """A post or meme as a moderation system receives it: the text alone, without the words of a prompt."""

    @cached_property
    def text(self) -> str:
        """Title and body, or the text read from a meme, without the text that an annotation form added."""
        parts = (BOILERPLATE.sub("", part).strip() for part in (self.title, self.body))
        return "\n\n".join(part for part in parts if part)


class ModerationClient(Client):
    """A connection to a moderation system's provider, for one kind of request."""

    def __init__(self, name: str, *, provider: Provider, moderator: Moderator, request: Request) -> None:
        super().__init__(name, provider=provider, sampling={})
        self.moderator, self.request = moderator, request

    async def send(self, system: str, parts: Sequence[str | bytes], *, schema: dict[str, Any], key: str) -> Raw:
        """Send one request about a text, a picture or both; see :meth:`Client.send`."""
        settings = self.request.settings
        reply = await self.post(self.request.path, settings | self.moderator.body(parts), key=key)
        stored: dict[str, Any] = {"effective": {"path": self.request.path, **settings}}
        if reply.status == 200 and reply.body is not None:
            read, written = self.moderator.used(reply.body, expected=self.moderator.size(parts))
            text = json.dumps(reply.body, sort_keys=True, separators=(",", ":"))
            return Raw(text, ANSWERED, None, input_tokens=read, output_tokens=written, **stored)
        stored |= {"input_tokens": 0, "output_tokens": 0}
        if reply.status == 200:
            return Raw(None, UNREADABLE, None, **stored)
        # a text may be rejected for other reasons than its content
        pictures = any(isinstance(part, bytes) for part in parts)
        about_item = reply.status in ABOUT_THE_ITEM and (pictures or any("content" in word for word in reply.words))
        if about_item and NO_QUOTA not in reply.words:
            return Raw(None, REJECTED, (reply.words or [REJECTED])[0], **stored)
        raise self.fault(reply)


class Channel(Asking):
    """One kind of request of a moderation system: a text, a picture, or both at once."""

    def __init__(self, name: str, *, moderator: Moderator, request: Request, secret: bytes, **options: Any) -> None:
        super().__init__(name, **options)
        self.moderator, self.request, self._secret = moderator, request, secret
        self._words, self._pictures = SENDS[request.sends]
        self.price, self.schema = request.price, {}

    def reduced(self, item: AuditedItem) -> AuditedItem | None:
        """Return an item with the parts that this request sends, or ``None`` if it has none of them."""
        text, most = item.text if self._words else "", self.moderator.characters
        if len(text) > most:
            text = without_middle(text, kept=most - len(CUT))
        images = item.images[:1] if self._pictures else ()
        return AuditedItem(item.record_id, title="", body=text, images=images) if text or images else None

    def fitting(self, items: Sequence[AuditedItem]) -> list[tuple[int, AuditedItem]]:
        """Return the places of the items about which this request can ask, and their reduced forms."""
        reduced = ((place, self.reduced(item)) for place, item in enumerate(items))
        return [(place, item) for place, item in reduced if item is not None]

    def verdicts(self, items: Sequence[AuditedItem], *, progress: Callable[[int], None]) -> tuple[list[Verdict], float]:
        """Return the verdict about each reduced item, and what the answers have cost in US dollars."""
        gathered = self.gather(items, progress=progress)
        verdicts, nanos = [], 0
        for item, stored, failed in zip(items, gathered.answers, gathered.failed, strict=True):
            if stored is None:
                unanswered = (Outcome.FAILED, failed) if failed else (Outcome.ABSTAINED, "taken_down")
                verdicts.append(Verdict(*unanswered))
                continue
            verdicts.append(self._judged(stored))
            # equal content of two records was paid for once; count the cost on one of them
            nanos += stored.cost if stored.record_id == item.record_id else 0
        return verdicts, nanos / NANO

    def _sizes(self, missing: Sequence[Post]) -> list[Size]:
        return [self.moderator.size(_parts(item)) for item in missing]

    def _key(self, post: Post) -> str:
        facts = {
            "moderation": self.moderator.kind,
            "path": self.request.path,
            "settings": self.request.settings,
            "content": post.content_digest(secret=self._secret),
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def _request(self, key: str, post: Post) -> LabelRequest:
        # a picture is scaled after the key was made, so that another version of the library asks nothing again
        parts = _parts(replace(post, images=tuple(map(shown, post.images))))
        size = self.moderator.size(parts)
        return LabelRequest(key, post.record_id, system="", parts=parts, size=size, cut=CUT in post.text)

    def _client(self) -> Client:
        return ModerationClient(self.name, provider=self.provider, moderator=self.moderator, request=self.request)

    def _judged(self, stored: StoredAnswer) -> Verdict:
        raw = Raw.from_json(stored.data)
        if raw.refused is not None:
            return Verdict(Outcome.REFUSED, raw.refused)
        if raw.text is None:
            return malformed(raw.finish)
        try:
            return self.moderator.verdict(json.loads(raw.text))
        except FORMS:
            return malformed(UNREADABLE)


def _parts(post: Post) -> list[str | bytes]:
    return [*filter(None, [post.text]), *post.images]


@dataclass(frozen=True)
class Judged:
    """A system's verdicts in the order of the items, the number of requests, and their cost in US dollars."""

    verdicts: Sequence[Verdict]
    requests: int
    cost: float


class System:
    """A moderation system of the section ``moderators`` of ``params.yaml``, with its requests."""

    def __init__(
        self, name: str, *, params: Params, settings: Settings, answers: AnswerStore, vault: Vault, sources: Sources
    ) -> None:
        self.name, self.moderator = name, moderator_of(name, params=params)
        options: dict[str, Any] = {
            "moderator": self.moderator,
            "provider": Provider.of(self.moderator.provider, params=params, settings=settings, sources=sources),
            "budget_usd": params.votes.budget_usd,
            "answers": answers,
            "vault": vault,
            "secret": settings.secret(),
        }
        self.channels = [Channel(name, request=request, **options) for request in self.moderator.requests]

    def judge(self, items: Sequence[AuditedItem]) -> Judged:
        """Return the system's verdict about each item; stored answers are used, and the others requested."""
        verdicts: list[list[Verdict]] = [[] for _ in items]
        asked = [(channel, channel.fitting(items)) for channel in self.channels]
        progress = reporter(self.name, total=sum(len(fitting) for _, fitting in asked))
        requests, cost = 0, 0.0
        for channel, fitting in asked:
            tell = partial(lambda before, done: progress(before + done), requests)
            answered, paid = channel.verdicts([item for _, item in fitting], progress=tell)
            for (place, _), verdict in zip(fitting, answered, strict=True):
                verdicts[place].append(verdict)
            requests, cost = requests + len(fitting), cost + paid
        return Judged([combined(each) for each in verdicts], requests, round(cost, 6))

    def plan(self, items: Sequence[AuditedItem]) -> Iterator[PlannedRequests]:
        """Yield what would be sent and cost, by kind of request."""
        for channel in self.channels:
            yield channel.planned(STEP, [item for _, item in channel.fitting(items)])


@dataclass(frozen=True)
class AuditedItems:
    """The items of an audit, sorted, with the gold labels by category and the group of near-duplicates of each.

    ``taken_down`` counts the items whose record was taken down; they are not among the items.
    """

    scheme: Scheme
    items: Mapping[Item, AuditedItem]
    labels: Mapping[str, Mapping[Item, frozenset[str]]]
    groups: Mapping[Item, str]
    taken_down: int

    @property
    def by(self) -> Category:
        """The category by whose labels figures are given: the ordinal one (severity), or the scheme's first."""
        categories = list(self.scheme.categories.values())
        return next((category for category in categories if category.ordinal), categories[0])

    def levels(self, item: Item) -> frozenset[str]:
        """Return the labels of an item in the category :attr:`by`; an empty set is the label for none."""
        labels = self.labels.get(self.by.key, {}).get(item, frozenset())
        return labels or frozenset({self.by.none} if self.by.none else ())

    @property
    def beside(self) -> Category | None:
        """The category by the presence of whose labels scores are broken down: the scheme's first ``errors_by``."""
        keys = (key for key in self.scheme.errors_by if key != self.by.key)
        return next((self.scheme.categories[key] for key in keys), None)

    def present(self, item: Item) -> bool | None:
        """Return whether an item has a label of :attr:`beside`; ``None`` without such a category or without gold."""
        labels = None if self.beside is None else self.labels.get(self.beside.key, {}).get(item)
        return None if self.beside is None or labels is None else bool(labels - {self.beside.none})


def read(corpus: str, *, params: Params, vault: Vault, root: Path = Path()) -> AuditedItems:
    """Read at most ``moderation.items`` items of a corpus with gold in the category of the figures.

    A smaller number is drawn by a digest of seed and item: a new snapshot draws the items again that it still has.
    """
    folder = root / "snapshot" / corpus
    splits, gold = folder / "split" / "splits.parquet", folder / "gold" / "gold.parquet"
    if not (splits.is_file() and gold.is_file()):
        raise NoGold(corpus=corpus)
    placed = groups_apart(tables.read(splits, name="splits").to_pylist(), corpus=corpus)
    scheme = scheme_of(params.corpora[corpus].scheme, root=root)
    labels = tables.gold(folder)
    audited = AuditedItems(scheme, {}, labels, {}, 0)
    labelled = placed.keys() & labels.get(audited.by.key, {}).keys()
    chosen = drawn(labelled, most=params.moderation.items, seed=params.moderation.seed)
    given: dict[str, Any] = {"vault": vault, "root": root}
    posts, _ = opened(corpus, content=params.corpora[corpus].content, items=chosen, **given)
    items = {item: AuditedItem(p.record_id, p.title, p.body, p.images) for item, p in posts.items()}
    groups = {item: placed[item][1] for item in items}
    return AuditedItems(scheme, items, labels, groups, len(chosen) - len(items))


def drawn(items: Collection[Item], *, most: int | None, seed: int) -> list[Item]:
    """Return at most ``most`` items, those with the least digests of seed and item; all of them without a number."""
    if most is None or len(items) <= most:
        return sorted(items)

    def digest(item: Item) -> str:
        return hashlib.sha256(f"{seed} {item[0]} {item[1]}".encode()).hexdigest()

    return sorted(sorted(items, key=digest)[:most])
