"""How questions leave and answers come home: one by one through the gate, or as batches that outlive the process.

An answer is on disk, with its cost in the place of what was held for it, before anything else happens to it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pipelines.config.label import Price, Provider
from pipelines.errors import LabellerRefused
from pipelines.llm import batch
from pipelines.llm.budget import Budget, nano
from pipelines.llm.costs import BATCH_SHARE, Size, usd
from pipelines.llm.limits import Gate
from pipelines.llm.outcome import Raw
from pipelines.llm.provider_errors import Passing, Throttled
from pipelines.storage.answers import Answers, Change, Job, sealed

if TYPE_CHECKING:
    from pipelines.llm.client import Client

# Ours: twice as many workers as slots, so that one renders or commits while another's request is out.
WORKERS_PER_SLOT = 2
# Ours: who failed waits half a second at first, then twice as long each time.
FIRST_WAIT = 0.5
# Ours: below the least that the three providers' batches hold.
JOB_RECORDS = 1_000
# An error of the server and a connection that failed are not billed; a request that timed out may be.
UNBILLED = {"server", "connection"}
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Request:
    """One question, ready to be sent: ``key`` names it for ever, ``cut`` says that the post lost its middle."""

    key: str
    record_id: str
    system: str
    parts: Sequence[str | bytes]
    size: Size
    cut: bool


@dataclass(frozen=True, slots=True)
class Terms:
    """What a sender goes by: whose questions they are, the provider's limits, the answer's schema and the price."""

    name: str
    provider: Provider
    schema: dict[str, Any]
    price: Price


class Sender:
    """One run's way out; ``failed`` says of each key that has no answer why."""

    def __init__(
        self,
        client: Client,
        *,
        terms: Terms,
        answers: Answers,
        budget: Budget,
        under: Mapping[str, bytes],
        arrived: Callable[[str], None],
    ) -> None:
        """``under``: the records' keys; ``arrived``: told of every key that is answered and stored, or failed."""
        self.failed: dict[str, str] = {}
        self._client, self._terms, self._answers, self._budget = client, terms, answers, budget
        self._under, self._arrived = under, arrived
        self._gate = Gate(terms.provider)
        self._stop: Exception | None = None

    async def send(self, requests: Iterator[Request]) -> None:
        """Ask one question each, many at once; stop at the first error that is not one question's own.

        Raises:
            BudgetSpent: the next request could cost too much; what was out has come home and is stored.
            LabellerRefused: the provider wants no more; likewise.
        """
        workers = self._terms.provider.concurrency * WORKERS_PER_SLOT
        await asyncio.gather(*(self._work(requests) for _ in range(workers)))
        if self._stop:
            raise self._stop

    async def batch(self, requests: Sequence[Request]) -> None:
        """Hand the questions over as batches and wait for them; a batch of an earlier process is collected, not asked.

        Raises:
            BudgetSpent: not every question could be handed over; what was handed over is collected and stored.
            LabellerRefused: the provider wants no more; batches that it has already stay noted.
        """
        jobs, rest = await self._handed_over(requests)
        while jobs or rest:
            if not jobs:
                self._budget.refuse()
            jobs = [job for job in jobs if not await self._collected(job)]
            more, rest = await self._submitted(rest)
            jobs += more
            if jobs:
                await asyncio.sleep(self._terms.provider.batch_poll_seconds)

    async def hand_over(self, requests: Sequence[Request]) -> list[Job]:
        """Hand the questions over as batches, as many as there is room for, and return the jobs without waiting."""
        return (await self._handed_over(requests))[0]

    async def _handed_over(self, requests: Sequence[Request]) -> tuple[list[Job], Sequence[Request]]:
        """Return the jobs, those that an earlier process left among them, and the requests there was no room for."""
        asked = {request.key for request in requests}
        jobs = [job for job in self._answers.jobs(labeller=self._terms.name) if asked & job.records.keys()]
        known = {key for job in jobs for key in job.records}
        more, rest = await self._submitted([request for request in requests if request.key not in known])
        return jobs + more, rest

    async def _submitted(self, rest: Sequence[Request]) -> tuple[list[Job], Sequence[Request]]:
        """Submit batches as long as there is room; every job is noted before the next one is handed over."""
        jobs = []
        while rest and (some := self._hold(rest[:JOB_RECORDS])):
            rest = rest[len(some) :]
            jobs.append(await self._submit(some))
        return jobs, rest

    def _hold(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Hold back what these can cost and return as many of the first ones as there is room for."""
        made = self._budget.hold([self._bound(request) for request in requests])
        return requests[:made]

    async def _submit(self, requests: Sequence[Request]) -> Job:
        held = sum(map(self._bound, requests))
        questions = [(request.key, request.system, request.parts) for request in requests]
        try:
            name = await self._patiently(lambda: batch.submit(self._client, questions, schema=self._terms.schema))
        except BaseException:
            self._answers.write([Change(hold=-held)])
            raise
        job = Job(name, {request.key: request.record_id for request in requests}, held)
        self._answers.begin(job, labeller=self._terms.name)
        return job

    async def _collected(self, job: Job) -> bool:
        """Store what a batch answered, if it is done; what it did not answer has failed."""
        found = await self._patiently(lambda: batch.collect(self._client, job.job))
        if found is None:
            return False
        changes = [
            Change(pay=self._cost(raw, share=BATCH_SHARE), answer=self._sealed(key, job.records[key], raw))
            for key, raw in found.items()
            if job.records.get(key) in self._under
        ]
        self._answers.finish(job, changes=changes)
        for key in job.records:
            if key not in found:
                self.failed[key] = "batch"
            self._arrived(key)
        return True

    async def _patiently(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Make one call of a batch endpoint, again and again where it may help."""
        for attempt in range(self._terms.provider.max_retries):
            try:
                return await call()
            except Throttled as error:
                await asyncio.sleep(self._wait(self._terms.name, attempt=attempt, asked=error.fields["retry_after"]))
            except Passing:
                await asyncio.sleep(self._wait(self._terms.name, attempt=attempt, asked=None))
        return await call()

    async def _work(self, requests: Iterator[Request]) -> None:
        for request in requests:
            try:
                reason = await self._ask(request)
            except Exception as error:
                self._stop = self._stop or error
            if self._stop:
                return
            if reason:
                self.failed[request.key] = reason
            self._arrived(request.key)

    async def _ask(self, request: Request) -> str:
        """Return an empty string when the answer is stored, else why there is none."""
        bound, reason = self._bound(request), ""
        for attempt in range(self._terms.provider.max_retries + 1):
            if reason and not self._stop:
                await asyncio.sleep(self._wait(request.key, attempt=attempt - 1, asked=None))
            if self._stop:
                return reason
            await self._budget.reserve(bound)
            try:
                async with self._gate.turn(tokens=request.size.at_most):
                    raw = await self._client.send(
                        request.system, request.parts, schema=self._terms.schema, key=request.key
                    )
            except Throttled as error:
                await self._budget.release(bound)
                self._gate.pause(self._wait(request.key, attempt=attempt, asked=error.fields["retry_after"]))
                reason = "throttled"
            except Passing as error:
                reason = error.fields["reason"]
                if reason in UNBILLED:
                    await self._budget.release(bound)
                else:
                    self._budget.forfeit()
            except LabellerRefused:
                await self._budget.release(bound)
                raise
            except BaseException:
                self._budget.forfeit()
                raise
            else:
                raw = replace(raw, effective={**raw.effective, "cut": True}) if request.cut else raw
                answer = self._sealed(request.key, request.record_id, raw)
                await self._budget.settle(bound, cost=self._cost(raw, share=1), answer=answer)
                return ""
        return reason

    def _bound(self, request: Request) -> int:
        size = request.size
        return nano(usd(self._terms.price, read=size.read_at_most, written=size.written_at_most))

    def _cost(self, raw: Raw, *, share: float) -> int:
        return nano(usd(self._terms.price, read=raw.input_tokens, written=raw.output_tokens) * share)

    def _sealed(self, key: str, record_id: str, raw: Raw) -> tuple[str, str, bytes]:
        return sealed(key, record_id=record_id, under=self._under[record_id], data=raw.to_json())

    def _wait(self, name: str, *, attempt: int, asked: float | None) -> float:
        """Return how many seconds to wait: as asked, else longer each time and not all at the same moment."""
        longest = self._terms.provider.max_retry_after_seconds
        if asked is not None:
            return min(asked, longest)
        spread: float = zlib.crc32(name.encode()) / 2**32
        return min(FIRST_WAIT * 2.0**attempt, longest) * (1 + spread) / 2
