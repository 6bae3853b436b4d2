"""A provider without limits and the settings of labelling, as few tests change them."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from pipelines.core.config.label import Provider, RemoteLabeller, VotesParams
from pipelines.core.config.settings import Endpoint
from pipelines.llm.client import Client


def provider(**changed: Any) -> Provider:
    usual = {
        "api": "openai",
        "concurrency": 4,
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "timeout_seconds": 5,
        "max_retries": 2,
        "max_retry_after_seconds": 1,
        "batch_poll_seconds": 0.05,
    }
    return Provider.model_validate(usual | changed)


def votes(**changed: Any) -> VotesParams:
    usual = {
        "labellers": {"posts": ("judge",)},
        "mode": "improved",
        "max_output_tokens": 64,
        "context_tokens": 4096,
        "shard_size": 10,
        "budget_usd": 1,
        "batch": False,
        "max_failed": 0,
        "min_positives": 5,
        "seed": 1,
    }
    return VotesParams.model_validate(usual | changed)


def client(
    url: str | None, *, model: str, api: str = "openai", key: str = "k", votes_: Any = None, **limits: Any
) -> Client:
    """Return a client of labeller ``judge`` at ``url``; ``limits`` are those of its provider."""
    return Client(
        RemoteLabeller(kind="remote", provider="my-vendor", model=model, system="commercial"),
        name="judge",
        provider=provider(api=api, **limits),
        endpoint=Endpoint(url=url, key=SecretStr(key)),
        votes=votes(**(votes_ or {})),
    )
