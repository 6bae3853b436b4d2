"""A provider without limits and the settings of labelling, as few tests change them."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from pipelines.core.config.label import Consent, ProviderEntry, VotesParams
from pipelines.core.config.settings import Endpoint
from pipelines.llm.vendor import VENDORS, Client, Provider, Vendor


def vendor(**changed: Any) -> Vendor:
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
    return VENDORS.of(ProviderEntry.model_validate(usual | changed), {}, where="providers.it")


def provider(url: str | None, *, name: str = "my-vendor", key: str = "k", **limits: Any) -> Provider:
    """Return a provider at ``url``; ``limits`` are the parameters of its vendor."""
    return Provider(name, vendor(**limits), Endpoint(url=url, key=SecretStr(key)), Consent())


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


def client(url: str | None, *, model: str, votes_: Any = None, **options: Any) -> Client:
    """Return a client of labeller ``judge`` at ``url``; ``options`` are those of :func:`provider`."""
    asked, most = provider(url, **options), votes(**(votes_ or {})).max_output_tokens
    sampling = asked.vendor.capabilities(model).sampling(max_output_tokens=most)
    return asked.vendor.connect("judge", provider=asked, model=model, sampling=sampling)
