"""Ask moderation systems about items through the sealed store of answers: the same item once per system, ever.

A system has one kind of request, or two: Azure takes a text and a picture apart. The key of a request is made of the
format, the model and settings, and the content that is sent; neither the snapshot, the record nor the way in which an
answer is judged is part of it, so a new snapshot, a copy of an item or another threshold asks nothing again.

The systems' requests are one JSON object each, so they need no SDK. Nothing here repeats a request; ``llm/sender.py``
does retries, limits and the budget. Error texts may quote an item: none is passed on.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.process import now
from pipelines.core.progress import reporter
from pipelines.core.taxonomy import Category, Scheme
from pipelines.core.taxonomy import load as scheme_of
from pipelines.datasets.example import Item, NoGold, groups_apart
from pipelines.datasets.items import opened
from pipelines.datasets.post import BOILERPLATE, Post
from pipelines.llm.addresses import ADDRESSES, NO_KEY, Target, admit
from pipelines.llm.asking import CUT, Asking, PlannedRequests, without_middle
from pipelines.llm.costs import Size
from pipelines.llm.outcome import UNREADABLE, Outcome, Passing, Raw, Throttled
from pipelines.llm.pictures import shown
from pipelines.llm.sender import LabelRequest
from pipelines.moderation.wires import Verdict, Wire, combined, malformed, wires_of
from pipelines.store import tables
from pipelines.store.answers import NANO, AnswerStore, StoredAnswer
from pipelines.store.vault.vault import Vault

STEP = "moderation"
PARTS = {"text": (True, False), "image": (False, True), "both": (True, True)}
ANSWERED, REJECTED = "stop", "rejected"
# What a provider answers to an item that it cannot read: too large, too small, of an unknown format, too long.
ABOUT_THE_ITEM = frozenset({400, 413, 415, 422})
AGAIN = frozenset({408, 409, 425})
WORD = re.compile(r"(?=[_.-]*[A-Za-z0-9])[A-Za-z0-9_.-]{1,40}")
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

    def __init__(self, name: str, *, wire: Wire, part: str, secret: bytes, **options: Any) -> None:
        super().__init__(name, **options)
        self._wire, self._secret = wire, secret
        self._words, self._pictures = PARTS[part]
        self.price, self.schema, self.provider = wire.price, {}, self._provider
        self._asked = Target(name, provider=self.receiver, api=self.provider.api)

    def reduced(self, item: AuditedItem) -> AuditedItem | None:
        """Return an item with the parts that this request sends, or ``None`` if it has none of them."""
        text, most = item.text if self._words else "", self._wire.characters
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
        return [self._wire.size(_parts(item)) for item in missing]

    def _key(self, post: Post) -> str:
        facts = {
            "moderation": self._wire.kind,
            "path": self._wire.path,
            "settings": self._wire.settings,
            "content": post.content_digest(secret=self._secret),
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def _request(self, key: str, post: Post) -> LabelRequest:
        # a picture is scaled after the key was made, so that another version of the library asks nothing again
        parts = _parts(replace(post, images=tuple(map(shown, post.images))))
        size = self._wire.size(parts)
        return LabelRequest(key, post.record_id, system="", parts=parts, size=size, cut=CUT in post.text)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Self]:
        """Yield itself as the client, open for one event loop."""
        from pipelines.llm import transport

        address = self._endpoint.url or ADDRESSES.get(self.receiver)
        if address is None:
            raise self._asked.refused("no address is set")
        if self._endpoint.url is None and not self._endpoint.key.get_secret_value():
            raise self._asked.refused("no key is set")
        admit(self._endpoint, consent=self._consent, provider=self.receiver)
        self._transport, self._address = transport, address.rstrip("/") + self._wire.path
        async with transport.opened(self._provider.timeout_seconds) as self._http:
            yield self

    async def send(self, system: str, parts: Sequence[str | bytes], *, schema: dict[str, Any], key: str) -> Raw:
        """Send one request about a text, a picture or both; ``key`` is its ``Idempotency-Key``.

        Raises:
            Throttled: the provider asks the client to wait.
            Passing: a timeout, no connection, a broken answer, or the provider's own fault.
            LabellerRefused: the key, the model, the account or the request is rejected.
        """
        import httpx2

        token = self._transport.EXCHANGE.set(self._transport.Exchange(key))
        headers = self._wire.headers(self._endpoint.key.get_secret_value() or NO_KEY)
        try:
            async with asyncio.timeout(self._provider.timeout_seconds):
                answer = await self._http.post(self._address, json=self._wire.body(parts), headers=headers)
        except (TimeoutError, httpx2.TimeoutException):
            raise Passing(reason="timeout") from None
        except httpx2.TransportError:
            raise Passing(reason="connection") from None
        finally:
            self._transport.EXCHANGE.reset(token)
        return self._read(answer.status_code, headers=answer.headers, content=answer.content, parts=parts)

    def _read(self, status: int, *, headers: Mapping[str, str], content: bytes, parts: Sequence[str | bytes]) -> Raw:
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        effective = {"path": self._wire.path, **self._wire.settings}
        if status == 200:
            if not isinstance(body, dict):
                return Raw(None, UNREADABLE, None, input_tokens=0, output_tokens=0, effective=effective)
            read, written = self._wire.used(body, expected=self._wire.size(parts))
            text = json.dumps(body, sort_keys=True, separators=(",", ":"))
            return Raw(text, ANSWERED, None, input_tokens=read, output_tokens=written, effective=effective)
        words = _words(body)
        if "insufficient_quota" in words:
            raise self._asked.refused("insufficient_quota")
        wait = retry_after(headers)
        if status == 429 or (status == 503 and wait is not None):
            raise Throttled(retry_after=wait)
        if status >= 500 or status in AGAIN:
            raise Passing(reason="server")
        pictures = any(isinstance(part, bytes) for part in parts)
        if status in ABOUT_THE_ITEM and (pictures or any("content" in word for word in words)):
            return Raw(None, REJECTED, (words or [REJECTED])[0], input_tokens=0, output_tokens=0, effective=effective)
        raise self._asked.refused(" ".join([f"HTTP {status}", *words[:1]]))

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


def _words(body: object) -> list[str]:
    """Return the machine words of an error, the most precise first; a word with other characters may be content."""
    words: list[str] = []
    error = body.get("error") if isinstance(body, dict) else None
    while isinstance(error, dict):
        words[:0] = [w for w in (error.get("code"), error.get("type")) if isinstance(w, str) and WORD.fullmatch(w)]
        error = error.get("innererror")
    return [word.lower() for word in words]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a provider asks to wait, from its headers (a number, or a date), or ``None``."""
    value = headers.get("retry-after", "")
    with suppress(ValueError):
        milliseconds = headers.get("retry-after-ms")
        return max(0.0, float(value) if milliseconds is None else float(milliseconds) / 1000)
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(value) - now()).total_seconds())
    return None


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

    def __init__(self, name: str, *, params: Params, settings: Settings, answers: AnswerStore, vault: Vault) -> None:
        self.name, self.spec = name, params.moderators[name]
        provider = self.spec.provider
        options: dict[str, Any] = {
            "provider": params.providers[provider],
            "endpoint": settings.endpoint(provider),
            "receiver": provider,
            "budget_usd": params.votes.budget_usd,
            "answers": answers,
            "vault": vault,
            "consent": params.consents.get(provider),
            "secret": settings.secret(),
        }
        self.channels = [Channel(name, wire=wire, part=part, **options) for wire, part in wires_of(self.spec)]

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

    def figurative(self, item: Item) -> bool | None:
        """Return whether an item has figurative language; ``None`` if the scheme does not say or it has no gold."""
        category = self.scheme.categories.get("figurative")
        labels = self.labels.get("figurative", {}).get(item)
        return None if category is None or labels is None else bool(labels - {category.none})


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
