"""Enforce a limit on labelling costs: reserve a request's maximum cost before sending; on answer, book the real cost.

A request that cannot be reserved is not sent, so the limit holds whatever the answers cost, across processes. A request
whose end is unknown (its sender was killed, or it timed out) stays reserved, because a provider may have billed it.
Concurrent changes share a transaction (group commit), so that 32 workers do not wait for 64 disk flushes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, Self

from pipelines.core.errors import BudgetSpent
from pipelines.store.answers import NANO, AnswerStore, LedgerChange


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
