"""Batches at the sandbox's vendors: handed in by one process, collected by another."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import pytest

from pipelines.core.errors import LabellerRefused
from pipelines.core.taxonomy import load
from pipelines.datasets.post import Post
from pipelines.llm.outcome import Outcome, Raw
from pipelines.llm.prompts import build
from pipelines.llm.response_parser import interpret
from pipelines.llm.vendor import Client
from tests.label import small_settings

APIS: tuple[Literal["openai", "anthropic", "google"], ...] = ("openai", "anthropic", "google")
MODELS = {"openai": "gpt-5", "anthropic": "claude-sonnet-4-20250514", "google": "gemini-2.5-pro"}
SCHEME = load("cradle")
PROMPT = build(SCHEME, keys=["labels"], system="commercial")
WORDS = "The lake was still and nobody else was there."
KEYS = ["a" * 64, "b" * 64, "c-3"]


def client(vendors: Any, api: Any, *, key: str = "sandbox") -> Client:
    return small_settings.client(vendors.url(api), model=MODELS[api], api=api, key=key, timeout_seconds=20)


def jobs() -> list[tuple[str, str, list[str | bytes]]]:
    asked = []
    for number, key in enumerate(KEYS):
        post = Post(f"r{number}", title=f"A walk, number {number}", body=WORDS)
        asked.append((key, *PROMPT.render(post, delimiter="0123456789abcdef")))
    return asked


async def wait(asked: Client, job: str) -> dict[str, Raw]:
    for _ in range(200):
        if (found := await asked.collect(job)) is not None:
            return dict(found)
        await asyncio.sleep(0.05)
    raise TimeoutError


@pytest.mark.parametrize("api", APIS)
def test_what_one_client_hands_in_another_collects(vendors: Any, api: Any) -> None:
    vendors.calm()

    async def hand_in() -> str:
        async with client(vendors, api) as asked:
            return await asked.submit(jobs(), schema=PROMPT.schema)

    async def collect(job: str) -> dict[str, Raw]:
        async with client(vendors, api) as asked:
            return await wait(asked, job)

    job = asyncio.run(hand_in())
    assert isinstance(json.loads(job), dict)
    assert WORDS not in job
    assert "sandbox" not in json.loads(job)["effective"]
    found = asyncio.run(collect(job))
    assert sorted(found) == sorted(KEYS)
    for raw in found.values():
        assert raw.effective["batch"] is True
        assert WORDS not in json.dumps(raw.effective)
        (answer,) = interpret(
            raw, record_id="r", labeller="judge", prompt=PROMPT, scheme=SCHEME, mode="paper", cost=0.0
        )
        assert answer.outcome is Outcome.VOTE
        assert raw.input_tokens > 0


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("key", ["wrong", "empty"])
def test_a_rejected_key_ends_the_run(vendors: Any, api: Any, key: str) -> None:
    async def hand_in() -> str:
        async with client(vendors, api, key=key) as asked:
            return await asked.submit(jobs(), schema=PROMPT.schema)

    with pytest.raises(LabellerRefused) as caught:
        asyncio.run(hand_in())
    assert WORDS not in str(caught.value)
