"""Ask a provider about items over HTTP; every answer is paid for once and stored, even if the run is killed.

Every request has a key. A stored answer under that key is used instead of a new request. A new answer is stored under
its key, sealed, together with its cost, before anything else happens to it. The key is also sent as Idempotency-Key,
for requests whose answers a killed run did not receive.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pipelines.core.config.label import Price
from pipelines.core.errors import BudgetSpent
from pipelines.core.process import now
from pipelines.datasets.post import Post
from pipelines.llm.budget import LabellingBudget, Size, usd
from pipelines.llm.sender import LabelRequest, RequestSender
from pipelines.llm.traces import Trace
from pipelines.llm.vendor import Client, Provider
from pipelines.store.answers import AnswerStore, StoredAnswer
from pipelines.store.vault.vault import Vault

HERE = "this machine"
CUT = " [...] "


def without_middle(text: str, *, kept: int) -> str:
    """Return a text that is too long without its middle (CRADLE 4.1): its start and end say most."""
    head = (kept + 1) // 2
    return text[:head] + CUT + text[len(text) - (kept - head) :]


@dataclass(frozen=True)
class PlannedRequests:
    """What one labeller, model or system of a step would send and cost, before anything is sent.

    Args:
        cost: see :meth:`Asking.estimate`.
        leaves: see :meth:`Asking.leaving`.
    """

    step: str
    name: str
    provider: str
    cost: Mapping[str, Any]
    leaves: Mapping[str, Any]


@dataclass(frozen=True)
class GatheredAnswers:
    """The stored answers to items, in the order of the items, and why there is none.

    Args:
        answers: the stored answer; ``None`` if the request failed or the record was taken down.
        failed: the reason why a request has no answer after all retries; ``None`` for all other items.
    """

    answers: Sequence[StoredAnswer | None]
    failed: Sequence[str | None]


class Asking(ABC):
    """Asks one provider about items with one kind of request; later runs reuse the stored answers.

    Args:
        budget_usd: the limit of all requests ever made from this store of answers.
    """

    price: Price
    schema: dict[str, Any]
    batches = False
    """Whether requests are sent as batches."""
    trace: Trace | None = None
    """Where each request is noted; ``None``: nowhere."""

    def __init__(self, name: str, *, provider: Provider, budget_usd: float, answers: AnswerStore, vault: Vault) -> None:
        self.name, self.provider, self.receiver = name, provider, provider.name
        self._budget_usd, self._answers, self._vault = budget_usd, answers, vault

    @abstractmethod
    def _key(self, post: Post) -> str:
        """Return the cache key of the request about an item."""

    @abstractmethod
    def _request(self, key: str, post: Post) -> LabelRequest:
        """Return the request about an item."""

    @abstractmethod
    def _sizes(self, missing: Sequence[Post]) -> list[Size]:
        """Return the size of the request about each of the items, which have no stored answer."""

    @abstractmethod
    def _client(self) -> Client:
        """Return the client that sends the requests, not yet open."""

    def gather(self, posts: Sequence[Post], *, progress: Callable[[int], None] | None = None) -> GatheredAnswers:
        """Return the stored answer to each item after sending the requests without one; equal content is sent once.

        Raises:
            BudgetSpent, LabellerRefused, ProviderNotConsented: every answer so far is kept.
        """
        under = self._vault.keys({post.record_id for post in posts})
        keys = [self._key(post) for post in posts]
        stored = self._answers.get(set(keys), vault=self._vault)
        tell, asked_of, done = progress or (lambda _: None), Counter(keys), 0

        def arrived(key: str) -> None:
            nonlocal done
            for _ in range(asked_of.pop(key, 0)):
                done += 1
                tell(done)

        missing: dict[str, Post] = {}
        for key, post in zip(keys, posts, strict=True):
            if key not in stored and post.record_id in under:
                missing.setdefault(key, post)
        for key in keys:
            if key not in missing:
                arrived(key)
        self._answers.count(self.name, wanted=len(posts), hits=done)
        failed: dict[str, str] = {}
        if missing:
            try:
                failed = asyncio.run(self._ask(missing, under=under, arrived=arrived))
            except BudgetSpent as error:
                raise BudgetSpent(**{**error.fields, "left": len(posts) - done}) from None
            finally:
                if self.trace:
                    self.trace.send(self.name)
            stored |= self._answers.get(missing.keys() - failed.keys(), vault=self._vault)
        return GatheredAnswers(
            [stored.get(key) if p.record_id in under else None for key, p in zip(keys, posts, strict=True)],
            [failed.get(key) for key in keys],
        )

    def estimate(self, posts: Sequence[Post]) -> dict[str, int | float]:
        """Return the estimated tokens and US dollars of labelling posts; nothing is sent.

        Returns:
            ``records`` (all), ``cached``, ``to_ask`` (the others), ``input_tokens`` (expected), ``output_tokens``
            (maximum), ``usd_expected`` and ``usd_at_most``; the budget reserves the latter.
        """
        sizes = self._sizes(self._missing(posts))
        expected = sum((usd(self.price, read=each.read, written=each.written) for each in sizes), start=0.0)
        most = sum((usd(self.price, read=each.read_at_most, written=each.written_at_most) for each in sizes), start=0.0)
        return {
            "records": len(posts),
            "cached": len(posts) - len(sizes),
            "to_ask": len(sizes),
            "input_tokens": sum(each.read for each in sizes),
            "output_tokens": sum(each.written_at_most for each in sizes),
            "usd_expected": round(expected * (self.provider.vendor.batch_share if self.batches else 1), 6),
            "usd_at_most": round(most, 6),
        }

    def planned(self, step: str, posts: Sequence[Post], *, name: str | None = None) -> PlannedRequests:
        """Return what a step would send about posts, under the labeller's or another name; nothing is sent."""
        cost, leaves = self.estimate(posts), self.leaving(posts)
        return PlannedRequests(step, name or self.name, self.receiver, cost=cost, leaves=leaves)

    def unanswered(self, posts: Sequence[Post]) -> int:
        """Return how many of the posts have no stored answer and would be sent."""
        return len(self._missing(posts))

    def leaving(self, posts: Sequence[Post]) -> dict[str, Any]:
        """Return what would be sent for the posts without a stored answer, and the host that would receive it.

        Returns:
            ``to`` (the host, or "this machine"), ``texts`` and ``pictures`` (numbers), and ``consent``: "not needed",
            "until DATE", or what is missing, as the error of the request would say it.
        """
        missing, here = self._missing(posts), self.provider.here
        return {
            "to": HERE if here else urlsplit(self.provider.address or "").hostname or f"no address: {self.receiver}",
            "texts": sum(any(isinstance(part, str) and part for part in self._sent(post)) for post in missing),
            "pictures": sum(isinstance(part, bytes) for post in missing for part in self._sent(post)),
            "consent": "not needed" if here else self.provider.consent.told(self.receiver, today=now().date()),
        }

    def _sent(self, post: Post) -> Sequence[str | bytes]:
        return (post.text, *post.images)

    async def _ask(
        self, missing: Mapping[str, Post], *, under: Mapping[str, bytes], arrived: Callable[[str], None]
    ) -> dict[str, str]:
        async with self._sender(under=under, arrived=arrived) as sender:
            await sender.send(self._request(key, post) for key, post in missing.items())
        return sender.failed

    @asynccontextmanager
    async def _sender(
        self, *, under: Mapping[str, bytes], arrived: Callable[[str], None]
    ) -> AsyncIterator[RequestSender]:
        shared: dict[str, Any] = {"schema": self.schema, "price": self.price, "answers": self._answers}
        shared["told"] = self.trace.calls.append if self.trace else None
        with LabellingBudget(self._answers, limit=self._budget_usd) as budget:
            async with self._client() as client:
                yield RequestSender(client, **shared, budget=budget, under=under, arrived=arrived)

    def _missing(self, posts: Sequence[Post]) -> list[Post]:
        live = self._vault.keys({post.record_id for post in posts})
        keyed = {self._key(post): post for post in posts if post.record_id in live}
        stored = self._answers.get(keyed.keys(), vault=self._vault)
        return [post for key, post in keyed.items() if key not in stored]
