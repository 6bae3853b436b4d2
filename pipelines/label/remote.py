"""Label items with a language model over HTTP; every answer is paid for once and stored (``pipelines.llm.asking``).

The key of a request is made of the prompt, the model and the content.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from pipelines.core.config.collect import Sources
from pipelines.core.config.label import RemoteLabeller, VotesParams
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.core.process import now
from pipelines.core.taxonomy import Scheme
from pipelines.datasets.post import Post
from pipelines.llm.asking import CUT, Asking, without_middle
from pipelines.llm.budget import CHARACTERS_PER_TOKEN, Size, size, tokens
from pipelines.llm.outcome import Answer, Outcome, Raw
from pipelines.llm.pictures import Picture
from pipelines.llm.prompts import LEAST_SHARE, Prompt, delimiter
from pipelines.llm.response_parser import interpret
from pipelines.llm.sender import LabelRequest
from pipelines.llm.traces import Trace
from pipelines.llm.vendor import Client, Provider, vendor_of
from pipelines.store.answers import NANO, BatchJob, StoredAnswer, cache_key

NO_PICTURE, TAKEN_DOWN = "no_picture", "taken_down"


def described(name: str, *, params: Params, pictures: bool) -> RemoteLabeller:
    """Return the parameters of a remote labeller; check that its model accepts ``pictures``, if these are sent."""
    labeller = params.labellers.get(name)
    if not isinstance(labeller, RemoteLabeller):
        detail = "it is offline" if labeller else "section labellers of catalogue.yaml has no such entry"
        raise ConfigError("NotAsked", labeller=name, detail=detail)
    if pictures and not vendor_of(labeller.provider, params=params).capabilities(labeller.model).images:
        raise ConfigError("CannotSee", model=labeller.model, detail="the model accepts no images")
    return labeller


@dataclass(frozen=True)
class Decoding:
    """How an answer is written, where that differs from section ``votes``, and whether it is one of several.

    Args:
        max_output_tokens: the limit on visible tokens; ``None`` is ``votes.max_output_tokens``.
        stop: the string at which an answer ends, where the model takes one; the parser restores a closing brace.
        run: the number of a repetition, from 1. Each has its own stored answers, because repeating a request is a new
            measurement, not a lookup; ``None`` shares the answers of the stage ``votes``.
        batch: whether requests may be sent as batches (``votes.batch``).
    """

    max_output_tokens: int | None = None
    stop: str | None = None
    run: int | None = None
    batch: bool = True

    def of(self, votes: VotesParams) -> VotesParams:
        """Return section ``votes`` with these settings."""
        most = votes.max_output_tokens if self.max_output_tokens is None else self.max_output_tokens
        return votes.model_copy(update={"max_output_tokens": most, "batch": votes.batch and self.batch})


def _seen(post: Post) -> bool:
    return bool(post.images) or not isinstance(post, Picture)


class Remote(Asking):
    """A labeller: one model of one provider with one prompt over HTTP; later runs reuse its stored answers.

    ``options`` are those of :class:`Asking`.
    """

    def __init__(
        self,
        name: str,
        *,
        labeller: RemoteLabeller,
        votes: VotesParams,
        prompt: Prompt,
        scheme: Scheme,
        secret: bytes,
        decoding: Decoding | None = None,
        **options: Any,
    ) -> None:
        """``secret`` keys the digests of content and the delimiters around posts."""
        super().__init__(name, budget_usd=votes.budget_usd, **options)
        decoding = decoding or Decoding()
        self._labeller, self._votes, self._scheme, self._secret = labeller, decoding.of(votes), scheme, secret
        self.prompt = prompt
        self.schema = prompt.schema if self._votes.constrained else {}
        self._can = self.provider.vendor.capabilities(labeller.model)
        self.price = self.provider.vendor.price(labeller, name=name)
        self._sampling: dict[str, Any] = self._can.sampling(max_output_tokens=self._votes.max_output_tokens)
        self._cap = int(self._sampling["max_tokens"])
        self.batches = self._votes.batch and self._can.batch
        stops = decoding.stop is not None and self._can.stop and (self.provider.vendor.batch_stops or not self.batches)
        self._decoding = {"stop_sequences": [decoding.stop]} if stops else {}
        self._run = decoding.run

    @classmethod
    def of(
        cls, name: str, *, params: Params, settings: Settings, sources: Sources, pictures: bool = False, **given: Any
    ) -> Self:
        """Create a remote labeller of ``params.labellers`` from parameters and settings.

        ``sources``: of the posts. ``pictures``: as for :func:`described`. ``given`` are the other arguments of the
        class: ``prompt``, ``scheme``, ``answers``, ``vault`` and ``decoding``.

        Raises:
            PriceUnknown: the price of the model is unknown.
        """
        labeller = described(name, params=params, pictures=pictures)
        made = cls(
            name,
            labeller=labeller,
            provider=Provider.of(labeller.provider, params=params, settings=settings, sources=sources),
            votes=params.votes,
            secret=settings.secret(),
            **given,
        )
        if settings.traces and settings.mlflow_tracking_uri:
            prompt = given["prompt"].digest[:12]
            about = {"labeller": name, "model": labeller.model, "provider": labeller.provider, "prompt": prompt}
            made.trace = Trace(settings.mlflow_tracking_uri, about)
        return made

    def label(self, posts: Sequence[Post], *, progress: Callable[[int], None] | None = None) -> list[Answer]:
        """Return one answer for each post and category of the prompt, in the order of ``posts``.

        A post whose record was taken down is not sent: its outcome is ``abstained``, with the reason ``taken_down``;
        nor is an item of a corpus of images without a picture (``no_picture``). An answer that fails after all retries
        is not kept, so that the next run requests it again; refused and
        malformed answers are kept.

        Args:
            posts: the posts to label; equal content is sent once.
            progress: called after each post with the number of posts answered so far.

        Raises:
            BudgetSpent: every answer so far is kept.
            LabellerRefused: the provider rejects the key, the model or the account; every answer so far is kept.
            ProviderNotConsented: no consent for the provider is on record, and a post would have to be sent.
        """
        found = self.gather([post for post in posts if _seen(post)], progress=progress)
        gathered = iter(zip(found.answers, found.failed, strict=True))
        pairs = [(post, *(next(gathered) if _seen(post) else (None, None))) for post in posts]
        return [answer for pair in pairs for answer in self._answered(*pair)]

    def stored(self, posts: Sequence[Post]) -> Iterator[tuple[Post, str, list[Answer]]]:
        """Yield each post that can be asked about, the key of its request, and its answers if these are stored."""
        keyed = [(post, self._key(post)) for post in posts if _seen(post)]
        stored = self._answers.get({key for _, key in keyed}, vault=self._vault)
        for post, key in keyed:
            yield post, key, self._answered(post, stored[key], None) if key in stored else []

    def request_facts(self, *, secret: bytes) -> dict[str, Any]:
        """Return what an answer depends on beside the item; ``secret`` keys the digests of the prompt's examples.

        Another team's project has the same value for the same request, unlike a key of the store of answers.
        """
        prompt = self.prompt
        return {
            "api": self.provider.vendor.api,
            "model": self._labeller.model,
            "prompt": [prompt.system, prompt.template, prompt.schema],
            "examples": [[dict(e.labels), e.post.content_digest(secret=secret)] for e in prompt.examples],
            "sampling": {**self._sampling, **self._decoding, "context_tokens": self._votes.context_tokens},
            "mode": self._votes.mode,
            "run": self._run,
        }

    def _missing(self, posts: Sequence[Post]) -> list[Post]:
        return super()._missing([post for post in posts if _seen(post)])

    def _sizes(self, missing: Sequence[Post]) -> list[Size]:
        if missing:
            self.provider.require_served(self._labeller.model, labeller=self.name, today=now().date())
        return [self._request("", post).size for post in missing]

    def hand_over(self, posts: Sequence[Post]) -> list[str]:
        """Submit posts without a stored answer to the batch endpoint; return the digests of the batch jobs' ids.

        The call does not wait for answers: :meth:`label` collects them, in this process or in any later one.
        """
        missing = {self._key(post): post for post in self._missing(posts)}
        under = self._vault.keys({post.record_id for post in missing.values()})

        async def submit() -> list[BatchJob]:
            async with self._sender(under=under, arrived=lambda _: None) as sender:
                return (await sender.hand_over([self._request(key, post) for key, post in missing.items()]))[0]

        return [job.id for job in asyncio.run(submit())] if missing else []

    async def _ask(
        self, missing: Mapping[str, Post], *, under: Mapping[str, bytes], arrived: Callable[[str], None]
    ) -> dict[str, str]:
        if not self.batches:
            return await super()._ask(missing, under=under, arrived=arrived)
        # a batch of an earlier process may include other records, whose answers must be kept
        jobs = self._answers.jobs(labeller=self.name)
        under = {**self._vault.keys({r for job in jobs for r in job.records.values()}), **under}
        async with self._sender(under=under, arrived=arrived) as sender:
            await sender.batch([self._request(key, post) for key, post in missing.items()])
        return sender.failed

    def _client(self) -> Client:
        sampling = self._sampling | self._decoding
        model, vendor = self._labeller.model, self.provider.vendor
        return vendor.connect(self.name, provider=self.provider, model=model, sampling=sampling)

    def _sent(self, post: Post) -> Sequence[str | bytes]:
        return (self._shortened(post).text, *post.images)

    def _key(self, post: Post) -> str:
        key = cache_key(
            api=self.provider.vendor.api,
            model=self._labeller.model,
            prompt=self.prompt.digest,
            schema=self.schema,
            content=post.content_digest(secret=self._secret),
            sampling={**self._sampling, "context_tokens": self._votes.context_tokens},
        )
        if self._run is None:
            return key
        return hashlib.sha256(json.dumps([key, self._decoding, self._run], sort_keys=True).encode()).hexdigest()

    def _request(self, key: str, post: Post) -> LabelRequest:
        short = self._shortened(post)
        system, parts = self.prompt.render(short, delimiter=delimiter(post, secret=self._secret))
        factor = self._can.max_tokens_factor
        measured = size(system, parts, schema=self.schema, cap=self._cap, factor=factor)
        return LabelRequest(
            key=key, record_id=post.record_id, system=system, parts=parts, size=measured, cut=short is not post
        )

    @cached_property
    def _room(self) -> int:
        """How many characters of a post fit in the context, beside the prompt and the answer."""
        system, parts = self.prompt.render(Post(record_id="", title="", body=""), delimiter="0" * 16)
        prompt = tokens(len(system) + sum(len(part) for part in parts if isinstance(part, str)))
        context = self._votes.context_tokens
        room = max(context - self._votes.max_output_tokens - prompt, int(context * LEAST_SHARE))
        return int(room * CHARACTERS_PER_TOKEN)

    def _shortened(self, post: Post) -> Post:
        """Return a post that is too long without its middle (CRADLE 4.1): its start and end say most."""
        surplus = len(post.text) - self._room
        if surplus <= 0:
            return post
        return replace(post, body=without_middle(post.body, kept=max(len(post.body) - surplus - len(CUT), 0)))

    def _answered(self, post: Post, stored: StoredAnswer | None, failed: str | None) -> list[Answer]:
        if stored is not None:
            # equal content of two records was paid for once; count the cost on one of them
            cost = stored.cost / NANO if stored.record_id == post.record_id else 0.0
            return interpret(
                Raw.from_json(stored.data),
                record_id=post.record_id,
                labeller=self.name,
                prompt=self.prompt,
                scheme=self._scheme,
                mode=self._votes.mode,
                cost=cost,
            )
        return [
            Answer(
                record_id=post.record_id,
                labeller=self.name,
                category=category,
                prompt=self.prompt.digest,
                outcome=Outcome.FAILED if failed else Outcome.ABSTAINED,
                reason=failed or (TAKEN_DOWN if _seen(post) else NO_PICTURE),
            )
            for category in self.prompt.schema["properties"]
        ]
