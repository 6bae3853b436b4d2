"""Send labelling requests singly within the provider's limits, or as batches that outlive the process; store answers.

An answer is written to disk, and its cost replaces the reservation, before anything else happens to it.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pipelines.core import telemetry
from pipelines.core.config.label import Price
from pipelines.core.errors import LabellerRefused
from pipelines.core.process import now
from pipelines.llm.budget import LabellingBudget, Size, nano, usd
from pipelines.llm.outcome import Passing, Raw, Throttled
from pipelines.llm.traces import ANSWERED, REFUSED, TracedRequest
from pipelines.llm.vendor import Client, Vendor
from pipelines.store.answers import NANO, AnswerStore, BatchJob, LedgerChange, sealed

# Ours: providers also count a minute's allowance over shorter spans, so at most this many seconds of it go at once.
BURST_SECONDS = 1.0


class Pace:
    """A rate limit per minute that refills continuously, stored as the time at which it will be full (GCRA)."""

    def __init__(self, per_minute: int | None) -> None:
        self._seconds = 60 / per_minute if per_minute else 0.0
        self._full = 0.0

    def wait(self, now: float) -> float:
        """Return the seconds until the limit lets a request start; 0 or less means now.

        A request above the burst size may start alone.
        """
        if not self._seconds:
            return 0.0
        return self._full - max(BURST_SECONDS - self._seconds, 0.0) - now

    def take(self, amount: int, *, now: float) -> None:
        """Count ``amount`` requests or tokens against the limit, at the time ``now`` (monotonic seconds)."""
        self._full = max(self._full, now) + amount * self._seconds


class Gate:
    """Limits the requests of this process to one model provider; requests start in the order of their arrival."""

    def __init__(self, vendor: Vendor) -> None:
        """Set the account's limits; mapped tasks share an account through an Airflow pool, not through this object."""
        self._slots = asyncio.Semaphore(vendor.concurrency)
        self._door = asyncio.Lock()
        self._requests = Pace(vendor.requests_per_minute)
        self._tokens = Pace(vendor.tokens_per_minute)
        self._opens = 0.0

    def pause(self, seconds: float) -> None:
        """Block all requests to the provider for ``seconds``: a Retry-After applies to the account, not one request."""
        self._opens = max(self._opens, time.monotonic() + seconds)

    @asynccontextmanager
    async def turn(self, *, tokens: int) -> AsyncIterator[None]:
        """Wait until the limits let a request of at most ``tokens`` tokens start; hold its slot inside the context."""
        async with self._slots:
            async with self._door:
                while (wait := self._wait(now := time.monotonic())) > 0:
                    await asyncio.sleep(wait)
                self._requests.take(1, now=now)
                self._tokens.take(tokens, now=now)
            yield

    def _wait(self, now: float) -> float:
        return max(self._opens - now, self._requests.wait(now), self._tokens.wait(now))


# Ours: twice as many workers as slots, so that one renders or commits while another's request is in flight.
WORKERS_PER_SLOT = 2
# Ours: the first retry waits half a second, each later one twice as long.
FIRST_WAIT = 0.5
# Ours: below the smallest batch limit of the three providers.
JOB_RECORDS = 1_000
# Server errors and failed connections are not billed; a request that timed out may be.
UNBILLED = {"server", "connection"}
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LabelRequest:
    """A prompt to send; ``key`` identifies the request permanently, and ``cut`` is true if the post was shortened."""

    key: str
    record_id: str
    system: str
    parts: Sequence[str | bytes]
    size: Size
    cut: bool


@dataclass
class RequestSender:
    """Sends one run's requests to one labeller; ``failed`` maps the key of each unanswered request to the reason."""

    client: Client
    schema: dict[str, Any]
    price: Price
    answers: AnswerStore
    budget: LabellingBudget
    under: Mapping[str, bytes]
    arrived: Callable[[str], None]
    told: Callable[[TracedRequest], None] | None = None
    failed: dict[str, str] = field(default_factory=dict)
    _stop: Exception | None = None

    def __post_init__(self) -> None:
        self._vendor = self.client.vendor
        self._gate = Gate(self._vendor)

    async def send(self, requests: Iterator[LabelRequest]) -> None:
        """Send each request singly, concurrently, and store the answers; stop at an error that affects all requests.

        Raises:
            BudgetSpent: the next request could exceed the budget; answers to requests in flight are stored.
            LabellerRefused: the provider rejects further requests; answers to requests in flight are stored.
        """
        workers = self._vendor.concurrency * WORKERS_PER_SLOT
        await asyncio.gather(*(self._work(requests) for _ in range(workers)))
        if self._stop:
            raise self._stop

    async def batch(self, requests: Sequence[LabelRequest]) -> None:
        """Submit requests as batches, wait, and store the answers; an earlier process's batch is collected, not resent.

        Raises:
            BudgetSpent: not every request could be submitted; answers to those submitted are stored.
            LabellerRefused: the provider rejects further requests; batches submitted before can still be collected.
        """
        jobs, rest = await self.hand_over(requests)
        while jobs or rest:
            if not jobs:
                self.budget.refuse()
            jobs = [job for job in jobs if not await self._collected(job)]
            more, rest = await self._submitted(rest)
            jobs += more
            if jobs:
                await asyncio.sleep(self._vendor.batch_poll_seconds)

    async def hand_over(self, requests: Sequence[LabelRequest]) -> tuple[list[BatchJob], Sequence[LabelRequest]]:
        """Submit requests as batches, as far as the budget allows, and do not wait for answers.

        Returns the batch jobs, including those of an earlier process, and the requests that the budget does not cover.
        """
        asked = {request.key for request in requests}
        jobs = [job for job in self.answers.jobs(labeller=self.client.name) if asked & job.records.keys()]
        known = {key for job in jobs for key in job.records}
        more, rest = await self._submitted([request for request in requests if request.key not in known])
        return jobs + more, rest

    async def _submitted(self, rest: Sequence[LabelRequest]) -> tuple[list[BatchJob], Sequence[LabelRequest]]:
        """Submit batches while the budget allows; every job is recorded before the next one is submitted."""
        jobs = []
        while rest and (fit := self.budget.hold([self._bound(request) for request in rest[:JOB_RECORDS]])):
            jobs.append(await self._submit(rest[:fit]))
            rest = rest[fit:]
        return jobs, rest

    async def _submit(self, requests: Sequence[LabelRequest]) -> BatchJob:
        held = sum(map(self._bound, requests))
        questions = [(request.key, request.system, request.parts) for request in requests]
        try:
            name = await self._patiently(lambda: self.client.submit(questions, schema=self.schema))
        except BaseException:
            self.answers.write([LedgerChange(hold=-held)])
            raise
        job = BatchJob(name, {request.key: request.record_id for request in requests}, held)
        self.answers.begin(job, labeller=self.client.name)
        return job

    async def _collected(self, job: BatchJob) -> bool:
        """Store the answers of a batch if it has ended; a request without an answer has failed."""
        found = await self._patiently(lambda: self.client.collect(job.job))
        if found is None:
            return False
        changes = [
            LedgerChange(
                pay=self._cost(raw, share=self._vendor.batch_share), answer=self._sealed(key, job.records[key], raw)
            )
            for key, raw in found.items()
            if job.records.get(key) in self.under
        ]
        self.answers.finish(job, changes=changes)
        for key in job.records:
            if key not in found:
                self.failed[key] = "batch"
            self.arrived(key)
        return True

    async def _patiently(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Call a batch endpoint, with retries after temporary failures."""
        for attempt in range(self._vendor.max_retries):
            try:
                return await call()
            except (Throttled, Passing) as error:
                asked = error.fields.get("retry_after")
                await asyncio.sleep(self._wait(self.client.name, attempt=attempt, asked=asked))
        return await call()

    async def _work(self, requests: Iterator[LabelRequest]) -> None:
        for request in requests:
            try:
                reason = await self._ask(request)
            except Exception as error:
                self._stop = self._stop or error
            if self._stop:
                return
            if reason:
                self.failed[request.key] = reason
            self.arrived(request.key)

    async def _ask(self, request: LabelRequest) -> str:
        """Return an empty string if the answer is stored, else the reason why there is none."""
        began = now()
        raw, reason, tries = await self._answered(request)
        outcome = reason if raw is None else REFUSED if raw.refused else ANSWERED
        if outcome:
            telemetry.count("corpus.requests", outcome=outcome)
        if self.told and outcome:
            used: tuple[Any, ...] = (
                (raw.input_tokens, raw.output_tokens, self._cost(raw, share=1) / NANO) if raw else ()
            )
            self.told(TracedRequest(began, now(), outcome, tries, *used))
        return reason

    async def _answered(self, request: LabelRequest) -> tuple[Raw | None, str, int]:
        """Return the answer, which is stored, or the reason why there is none, and the number of tries."""
        bound, reason, attempt = self._bound(request), "", 0
        for attempt in range(self._vendor.max_retries + 1):
            if reason and not self._stop:
                await asyncio.sleep(self._wait(request.key, attempt=attempt - 1, asked=None))
            if self._stop:
                return None, reason, attempt
            await self.budget.reserve(bound)
            try:
                async with self._gate.turn(tokens=request.size.at_most):
                    raw = await self.client.send(request.system, request.parts, schema=self.schema, key=request.key)
            except Throttled as error:
                await self.budget.release(bound)
                self._gate.pause(self._wait(request.key, attempt=attempt, asked=error.fields["retry_after"]))
                reason = "throttled"
            except Passing as error:
                reason = error.fields["reason"]
                if reason in UNBILLED:
                    await self.budget.release(bound)
                else:
                    self.budget.forfeit()
            except LabellerRefused:
                await self.budget.release(bound)
                raise
            except BaseException:
                self.budget.forfeit()
                raise
            else:
                raw = replace(raw, effective={**raw.effective, "cut": True}) if request.cut else raw
                answer = self._sealed(request.key, request.record_id, raw)
                await self.budget.settle(bound, cost=self._cost(raw, share=1), answer=answer)
                return raw, "", attempt + 1
        return None, reason, attempt + 1

    def _bound(self, request: LabelRequest) -> int:
        size = request.size
        return nano(usd(self.price, read=size.read_at_most, written=size.written_at_most))

    def _cost(self, raw: Raw, *, share: float) -> int:
        return nano(usd(self.price, read=raw.input_tokens, written=raw.output_tokens) * share)

    def _sealed(self, key: str, record_id: str, raw: Raw) -> tuple[str, str, bytes]:
        return sealed(key, record_id=record_id, under=self.under[record_id], data=raw.to_json())

    def _wait(self, name: str, *, attempt: int, asked: float | None) -> float:
        """Return the seconds to wait: as the provider asks, else exponentially longer and spread by ``name``."""
        longest = self._vendor.max_retry_after_seconds
        if asked is not None:
            return min(asked, longest)
        spread: float = zlib.crc32(name.encode()) / 2**32
        return min(FIRST_WAIT * 2.0**attempt, longest) * (1 + spread) / 2
