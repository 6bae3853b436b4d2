"""A step waits for a server of one's own until it is healthy and serves the model, and not for ever."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import httpx2
import pytest

from pipelines.core.config.params import load
from pipelines.llm import client
from pipelines.llm.client import ready
from tests.refusals import refused
from tests.small_corpus import ROOT

MODEL = "Qwen/Qwen3-8B"


class Handler(BaseHTTPRequestHandler):
    """Answer the health check and the list of models as :class:`ServedModel` says, and count the requests."""

    told: ClassVar[ServedModel]

    def do_GET(self) -> None:
        served = type(self).told
        served.asked.append((self.path, self.headers.get("Authorization", "")))
        if self.path == "/health":
            served.loading -= 1
            self.reply(503 if served.loading >= 0 else served.health, b"")
        elif self.path == "/v1/models":
            self.reply(served.status, json.dumps({"data": [{"id": m} for m in served.models]}).encode())
        else:
            self.reply(404, b"")

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


class ServedModel:
    """What the server of a test serves; its first ``loading`` health checks fail."""

    def __init__(self) -> None:
        self.models, self.health, self.status, self.loading = [MODEL], 200, 200, 0
        self.asked: list[tuple[str, str]] = []
        self.url = ""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedModel]:
    monkeypatch.setattr(client, "POLL_SECONDS", 0.05)
    Handler.told = ServedModel()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Handler.told.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield Handler.told
        server.shutdown()
        thread.join()


def wait(url: str, *, seconds: float = 0.3, model: str = MODEL) -> None:
    async def run() -> None:
        async with httpx2.AsyncClient() as http:
            await ready(http, url=url, key="secret", model=model, name="qwen3-8b", provider="local", seconds=seconds)

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
    for part in (told, MODEL, "0.3 s", "vllm serve Qwen/Qwen3-8B", "providers.local.ready_seconds"):
        assert part in str(caught.value)
    assert caught.value.exit_code == 75


def test_no_server_at_all_is_an_error_with_its_address() -> None:
    with refused("ServerNotReady", match=r"http://127\.0\.0\.1:9/v1 does not serve .*no answer \(ConnectError\)"):
        wait("http://127.0.0.1:9/v1")


def test_only_servers_of_ones_own_are_waited_for() -> None:
    waits = {name: one.ready_seconds for name, one in load(ROOT).providers.items() if one.ready_seconds}
    assert waits == {"local": 900}
