"""The table says what may be sent; prices come from the bundled list or from params."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pipelines.core.config.label import Price, RemoteLabeller
from pipelines.llm.model_facts import Capabilities, PriceUnknown
from tests.label import small_settings

APIS = ("openai", "anthropic", "google")


def capabilities(model: str, *, api: str) -> Capabilities:
    return small_settings.vendor(api=api).capabilities(model)


def price(model: str, *, api: str, given: Price | None, name: str = "it") -> Price:
    labeller = RemoteLabeller(kind="remote", provider=api, model=model, system="commercial", price=given)
    return small_settings.vendor(api=api).price(labeller, name=name)


@pytest.mark.parametrize(
    ("model", "api", "sampling"),
    [
        ("gpt-5", "openai", {"max_tokens": 8192}),
        ("gpt-5-mini", "openai", {"max_tokens": 8192}),
        ("gpt-5-chat-latest", "openai", {"temperature": 0, "top_p": 1, "max_tokens": 1024}),
        ("o3-mini", "openai", {"max_tokens": 8192}),
        ("gpt-4o", "openai", {"temperature": 0, "top_p": 1, "max_tokens": 1024}),
        ("Qwen/Qwen3-VL-8B-Instruct", "openai", {"temperature": 0, "top_p": 1, "max_tokens": 1024}),
        ("claude-sonnet-4-20250514", "anthropic", {"temperature": 0, "top_p": 1, "max_tokens": 1024}),
        ("claude-sonnet-4-5-20250929", "anthropic", {"temperature": 0, "max_tokens": 1024}),
        ("claude-opus-4-7", "anthropic", {"max_tokens": 1024}),
        ("claude-opus-5", "anthropic", {"max_tokens": 8192}),
        ("claude-of-tomorrow", "anthropic", {"temperature": 0, "max_tokens": 1024}),
        ("gemini-2.5-pro", "google", {"temperature": 0, "top_p": 1, "max_tokens": 8192}),
    ],
)
def test_what_is_sent(model: str, api: Any, sampling: dict[str, float]) -> None:
    assert capabilities(model, api=api).sampling(max_output_tokens=1024) == sampling


def test_the_longest_prefix_wins_in_any_folder() -> None:
    assert capabilities("some/folder/Qwen3-VL-8B/", api="openai").images
    assert not capabilities("some/qwen3-vl-folder/model", api="openai").images
    assert capabilities("gpt-4o-2024-08-06", api="openai").schema == "json_schema"
    assert capabilities("gpt-4-turbo", api="openai").schema == "none"


def test_every_row_is_whole_and_names_its_source() -> None:
    for api in APIS:
        for prefix, row in small_settings.vendor(api=api).facts.capabilities.items():
            assert row.get("source"), (api, prefix)
            assert capabilities(prefix or "unheard-of", api=api).source == row["source"]


def test_our_structured_models_are_those_of_the_client_library() -> None:
    from pydantic_ai.profiles.anthropic import anthropic_model_profile

    for prefix, row in small_settings.vendor(api="anthropic").facts.capabilities.items():
        if not prefix:
            continue
        profile: Any = anthropic_model_profile(prefix + "-20250101")
        ours = capabilities(prefix, api="anthropic")
        assert (row.get("schema") == "json_schema") == bool(profile.get("supports_json_schema_output")), prefix
        assert (ours.temperature is None) == bool(profile.get("anthropic_disallows_sampling_settings")), prefix


def test_prices_are_known_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(socket.socket, "connect", no_network)
    assert price("gpt-5", api="openai", given=None) == Price(input=1.25, output=10)
    assert price("claude-sonnet-4-20250514", api="anthropic", given=None) == Price(input=3, output=15)
    assert price("gemini-2.5-pro", api="google", given=None) == Price(input=1.25, output=10)


def test_a_stated_price_wins_and_an_unknown_one_is_asked_for() -> None:
    own = Price(input=0, output=0)
    assert price("gpt-5", api="openai", given=own) == own
    with pytest.raises(PriceUnknown, match=r"labellers\.mine\.price"):
        price("a-model-of-ours", api="openai", given=None, name="mine")
