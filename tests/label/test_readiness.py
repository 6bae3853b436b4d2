"""A step waits for a server of one's own until it is healthy and serves the model, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.core.config.params import load
from pipelines.llm.vendor import vendor_of
from pipelines.llm.vendors import openai
from tests.json_server import Request, json_server
from tests.label import small_settings
from tests.refusals import refused
from tests.small_corpus import ROOT

MODEL = "Qwen/Qwen3-8B"


class ServedModel:
    """What the server of a test serves; its first ``loading`` health checks fail."""

    def __init__(self) -> None:
        self.models, self.health, self.status, self.loading = [MODEL], 200, 200, 0
        self.asked: list[tuple[str, str]] = []
        self.url = ""

    def answer(self, request: Request) -> tuple[int, Any]:
        self.asked.append((request.path, request.headers.get("Authorization", "")))
        if request.path == "/health":
            self.loading -= 1
            return 503 if self.loading >= 0 else self.health, b""
        if request.path == "/v1/models":
            return self.status, {"data": [{"id": model} for model in self.models]}
        return 404, b""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedModel]:
    monkeypatch.setattr(openai, "POLL_SECONDS", 0.05)
    made = ServedModel()
    with json_server(made.answer) as address:
        made.url = f"{address}/v1"
        yield made


def wait(url: str, *, seconds: float = 0.3) -> None:
    async def run() -> None:
        async with small_settings.client(url, model=MODEL, key="secret", ready_seconds=seconds):
            pass

    asyncio.run(run())


def test_a_server_that_is_ready_is_asked_once(served: ServedModel) -> None:
    wait(served.url)
    assert served.asked == [("/health", "Bearer secret"), ("/v1/models", "Bearer secret")]


def test_a_server_that_loads_is_waited_for(served: ServedModel) -> None:
    served.loading = 3
    wait(served.url, seconds=20)
    assert [path for path, _ in served.asked] == ["/health"] * 4 + ["/v1/models"]


def test_a_server_without_a_health_check_is_judged_by_its_list(served: ServedModel) -> None:
    served.health = 404  # Ollama
    wait(served.url)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"models": ["openai/gpt-oss-20b"]}, "it serves openai/gpt-oss-20b"),
        ({"models": []}, "it serves no model"),
        ({"health": 500}, "its health check answers HTTP 500"),
        ({"status": 401}, "its list of models answers HTTP 401"),
    ],
)
def test_the_wait_ends_and_says_what_was_seen(served: ServedModel, change: dict[str, object], told: str) -> None:
    for name, value in change.items():
        setattr(served, name, value)
    with refused("ServerNotReady") as caught:
        wait(served.url)
    for part in (told, MODEL, "0.3 s", "vllm serve Qwen/Qwen3-8B", "providers.my-vendor.ready_seconds"):
        assert part in str(caught.value)
    assert caught.value.exit_code == 75


def test_no_server_at_all_is_an_error_with_its_address() -> None:
    with refused("ServerNotReady", match=r"http://127\.0\.0\.1:9/v1 does not serve .*no answer \(ConnectError\)"):
        wait("http://127.0.0.1:9/v1")


def test_only_servers_of_ones_own_are_waited_for() -> None:
    params = load(ROOT)
    waits = {name: getattr(vendor_of(name, params=params), "ready_seconds", 0) for name in params.providers}
    assert {name: seconds for name, seconds in waits.items() if seconds} == {"local": 900}
