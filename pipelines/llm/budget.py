"""Enforce a limit on labelling costs: reserve a request's maximum cost before sending; on answer, book the real cost.

A request that cannot be reserved is not sent, so the limit holds whatever the answers cost, across processes. A request
whose end is unknown (its sender was killed, or it timed out) stays reserved, because a provider may have billed it.
Concurrent changes share a transaction (group commit), so that 32 workers do not wait for 64 disk flushes.

Expected costs, for people, are estimated by rules of thumb: tokenizers differ by provider, some are not public, and
tiktoken downloads its tables on first use. The maximum needs no tokenizer: a token is at least one byte.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from pipelines.core.config.label import Price
from pipelines.core.errors import BudgetSpent
from pipelines.store.answers import NANO, AnswerStore, LedgerChange

# Ours: English prose has about four characters per token in every provider's tokenizer, JSON and names have fewer.
CHARACTERS_PER_TOKEN = 3.5
# Ours: roles, separators and the schema's own framing, which providers count as input.
FRAME_TOKENS = 200
# Ours: above what each of the three providers counts for its largest picture.
IMAGE_TOKENS = 5_000
# Ours: one to four labels as JSON.
ANSWER_TOKENS = 40
PRICED_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Size:
    """The estimated tokens of one model request: expected and maximum input, expected and maximum output."""

    read: int
    read_at_most: int
    written: int
    written_at_most: int

    @property
    def at_most(self) -> int:
        """The most tokens of the request that count against a limit per minute: expected input, maximum output."""
        return self.read + self.written_at_most


def tokens(characters: int) -> int:
    """Estimate the number of tokens in a text of ``characters`` characters."""
    return math.ceil(characters / CHARACTERS_PER_TOKEN)


def size(
    system: str, parts: Sequence[str | bytes], *, schema: Mapping[str, Any], cap: int, factor: float = 1.0
) -> Size:
    """Estimate the tokens of one rendered request.

    Args:
        parts: the user message, pictures as bytes.
        schema: JSON schema of the answer, which counts as input.
        cap: maximum tokens of the answer, including reasoning.
        factor: multiple of the visible answer that a reasoning model is expected to write.
    """
    texts = [system, json.dumps(schema), *(part for part in parts if isinstance(part, str))]
    images = (len(parts) + 2 - len(texts)) * IMAGE_TOKENS
    return Size(
        read=tokens(sum(map(len, texts))) + images,
        read_at_most=sum(len(text.encode(errors="replace")) for text in texts) + FRAME_TOKENS + images,
        written=min(cap, math.ceil(ANSWER_TOKENS * factor)),
        written_at_most=cap,
    )


def usd(price: Price, *, read: int, written: int) -> float:
    """Return the cost in US dollars of a request with ``read`` input and ``written`` output tokens."""
    return (read * price.input + written * price.output) / PRICED_TOKENS


def nano(usd: float) -> int:
    """Convert US dollars to whole nanodollars, rounded up."""
    return math.ceil(usd * NANO)


class LabellingBudget:
    """One run's access to the ledger of labelling costs, which all processes share; a context manager."""

    def __init__(self, answers: AnswerStore, *, limit: float) -> None:
        """``limit``: US dollars, for all requests ever made from this database of answers."""
        self._answers = answers
        self._limit = nano(limit)
        self._usd = limit
        self._flying = 0
        self._settled = 0
        self._wake = asyncio.Event()
        self._waiting: list[tuple[LedgerChange, asyncio.Future[bool]]] = []
        self._flush: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    async def reserve(self, bound: int) -> None:
        """Reserve the maximum cost of a request (nanodollars) before it is sent.

        If the budget is exhausted, wait for this run's other requests, which usually cost less than was reserved.

        Raises:
            BudgetSpent: the budget is exhausted, and no request of this run is in flight.
        """
        while True:
            seen = self._settled
            if await self._commit(LedgerChange(hold=bound, limit=self._limit)):
                return
            if seen != self._settled:
                continue
            if not self._flying:
                self.refuse()
            await self._wake.wait()

    def hold(self, bounds: Sequence[int]) -> int:
        """Reserve the maximum costs of as many of a batch's first requests as the budget allows; return their number.

        The reservation belongs to the batch, which may outlive the process: collecting the batch releases it.
        """
        made = [*self._answers.write([LedgerChange(hold=bound, limit=self._limit) for bound in bounds]), False]
        first = made.index(False)
        # release smaller requests reserved after the first one that did not fit
        self._answers.write(
            [LedgerChange(hold=-sum(b for b, m in zip(bounds[first:], made[first:], strict=False) if m))]
        )
        return first

    def refuse(self) -> NoReturn:
        """Raise the error that the labelling budget is exhausted.

        Raises:
            BudgetSpent: always.
        """
        paid, held = self._answers.spent()
        raise BudgetSpent(budget=self._usd, spent=(paid + held) / NANO, left=0)

    async def settle(self, bound: int, *, cost: int, answer: tuple[str, str, bytes]) -> None:
        """Store a request's encrypted answer, and replace its reservation by its actual cost, in one transaction."""
        await self._end(LedgerChange(hold=-bound, pay=cost, answer=answer))

    async def release(self, bound: int) -> None:
        """Cancel the reservation of a request that a provider rejected, which has no cost."""
        await self._end(LedgerChange(hold=-bound))

    def forfeit(self) -> None:
        """Keep the reservation of a request that may have been charged, because its result is unknown."""
        self._landed()

    async def _end(self, change: LedgerChange) -> None:
        try:
            await self._commit(change)
        finally:
            self._landed()

    def _landed(self) -> None:
        self._flying -= 1
        self._settled += 1
        self._wake.set()
        self._wake = asyncio.Event()

    async def _commit(self, change: LedgerChange) -> bool:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, future))
        if self._flush is None or self._flush.done():
            self._flush = asyncio.create_task(self._write())
        return await future

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                made = await loop.run_in_executor(self._thread, self._answers.write, [change for change, _ in group])
            except Exception as error:
                for _, future in group:
                    if not future.done():
                        future.set_exception(error)
            else:
                # counted before any waiter wakes: a denied request must see those granted in the same commit
                self._flying += sum(
                    done for (change, _), done in zip(group, made, strict=True) if change.limit is not None
                )
                for (_, future), done in zip(group, made, strict=True):
                    if not future.done():
                        future.set_result(done)
