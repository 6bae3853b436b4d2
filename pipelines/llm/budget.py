"""The most a run may cost: held back before a request leaves, paid when its answer is stored, in one commit.

What cannot be held is not sent, so the limit holds whatever the answers cost, across processes. A request whose end
nobody saw (its sender was killed, or it timed out) stays held for good, as a provider may have billed it.
Changes that come together share a transaction (group commit), so that 32 workers do not wait for 64 disk flushes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, Self

from pipelines.errors import BudgetSpent
from pipelines.storage.answers import NANO, Answers, Change


def nano(usd: float) -> int:
    """Return US dollars as whole nanodollars, rounded up."""
    return math.ceil(usd * NANO)


class Budget:
    """One run's hand on the ledger that all processes share; use it as a context manager inside an event loop."""

    def __init__(self, answers: Answers, *, limit: float) -> None:
        """``limit``: US dollars, for everything that was ever asked from this database of answers."""
        self._answers = answers
        self._limit = nano(limit)
        self._usd = limit
        self._flying = 0
        self._settled = 0
        self._wake = asyncio.Event()
        self._waiting: list[tuple[Change, asyncio.Future[bool]]] = []
        self._flush: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")

    def __enter__(self) -> Self:
        """Give the budget itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the last commit."""
        self._thread.shutdown()

    async def reserve(self, bound: int) -> None:
        """Hold back the most that a request can cost (nanodollars), before it is sent.

        Where others of this run are still out it waits for them: they usually cost less than was held.

        Raises:
            BudgetSpent: nothing of this run is out, and still there is no room.
        """
        while True:
            seen = self._settled
            if await self._commit(Change(hold=bound, limit=self._limit)):
                return
            if seen != self._settled:
                continue
            if not self._flying:
                self.refuse()
            await self._wake.wait()

    def hold(self, bounds: Sequence[int]) -> int:
        """Hold back for as many of the first requests of a batch as there is room for, and return how many.

        What is held so is the batch's, which may outlive the process: whoever collects the batch lets go of it.
        """
        made = [*self._answers.write([Change(hold=bound, limit=self._limit) for bound in bounds]), False]
        first = made.index(False)
        # a smaller one behind the first that found no room
        self._answers.write([Change(hold=-sum(b for b, m in zip(bounds[first:], made[first:], strict=False) if m))])
        return first

    def refuse(self) -> NoReturn:
        """Say that there is no room left.

        Raises:
            BudgetSpent: always.
        """
        paid, held = self._answers.spent()
        raise BudgetSpent(budget=self._usd, spent=(paid + held) / NANO, left=0)

    async def settle(self, bound: int, *, cost: int, answer: tuple[str, str, bytes]) -> None:
        """Store a sealed answer and put its cost in the place of what was held, in one commit; then it is on disk."""
        await self._end(Change(hold=-bound, pay=cost, answer=answer))

    async def release(self, bound: int) -> None:
        """Let go of what was held for a request that a provider turned away, which costs nothing."""
        await self._end(Change(hold=-bound))

    def forfeit(self) -> None:
        """Leave held what was held for a request of unknown end."""
        self._landed()

    async def _end(self, change: Change) -> None:
        try:
            await self._commit(change)
        finally:
            self._landed()

    def _landed(self) -> None:
        self._flying -= 1
        self._settled += 1
        self._wake.set()
        self._wake = asyncio.Event()

    async def _commit(self, change: Change) -> bool:
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
                # counted before anybody wakes: who was denied must see who of the same commit was not
                self._flying += sum(
                    done for (change, _), done in zip(group, made, strict=True) if change.limit is not None
                )
                for (_, future), done in zip(group, made, strict=True):
                    if not future.done():
                        future.set_result(done)
