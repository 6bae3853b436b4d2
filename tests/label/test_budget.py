"""A budget holds whatever the answers cost, waits for what is out, and forgives nothing of unknown end."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.errors import BudgetSpent
from pipelines.llm.budget import LabellingBudget
from pipelines.store.answers import NANO, AnswerStore


def work(answers: AnswerStore, *, limit: float, bound: int, costs: list[int], workers: int) -> int:
    """Ask for each cost, many at once; return how many were sent before the budget ended."""
    sent = 0

    async def worker(budget: LabellingBudget, left: Iterator[int]) -> None:
        nonlocal sent
        for cost in left:
            try:
                await budget.reserve(bound)
            except BudgetSpent:
                return
            sent += 1
            await asyncio.sleep(random.Random(cost).random() / 500)
            await budget.settle(bound, cost=cost, answer=(f"{sent:064x}", "0" * 32, b"sealed"))

    async def run() -> None:
        left = iter(costs)
        with LabellingBudget(answers, limit=limit) as budget:
            await asyncio.gather(*(worker(budget, left) for _ in range(workers)))

    asyncio.run(run())
    return sent


@given(st.integers(0, 400), st.lists(st.integers(0, 50), max_size=40), st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_nothing_is_spent_beyond_the_limit(limit: int, costs: list[int], workers: int) -> None:
    with tempfile.TemporaryDirectory() as folder, AnswerStore.open(f"sqlite:///{folder}/a.sqlite") as answers:
        sent = work(answers, limit=limit / NANO, bound=50, costs=costs, workers=workers)
        paid, held = answers.spent()
        assert held == 0
        assert paid <= limit
        # it stops for want of room only, not because requests were out
        assert sent == len(costs) or paid > limit - 50


def test_failing_database_reaches_waiting_callers(tmp_path: Path) -> None:
    answers = AnswerStore.open(f"sqlite:///{tmp_path}/answers.sqlite")

    async def run() -> None:
        with LabellingBudget(answers, limit=1.0) as budget:
            await budget.reserve(10)
            answers.close()
            (tmp_path / "answers.sqlite-wal").unlink(missing_ok=True)
            (tmp_path / "answers.sqlite").write_bytes(b"x" * 5000)
            await asyncio.gather(budget.reserve(10), budget.reserve(10))

    with pytest.raises(Exception, match="answers cannot be used"):
        asyncio.run(run())
