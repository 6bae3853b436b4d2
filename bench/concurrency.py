"""Measure labelling over HTTP: 32 concurrent questions against sequential ones.

Both sides use the real labeller with all its work per question: prompt, budget, limits, client, and the sealed answer
on disk. The endpoint is a loopback server in a separate process that answers after LATENCY seconds.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

from pydantic import SecretStr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.core.config.label import Consent, Price, RemoteLabeller
from pipelines.core.config.params import load
from pipelines.core.config.settings import Endpoint
from pipelines.core.taxonomy import load as load_scheme
from pipelines.datasets.post import Post
from pipelines.label.remote import Remote
from pipelines.llm.outcome import Outcome
from pipelines.llm.prompts import build
from pipelines.llm.vendor import Provider, vendor_of
from pipelines.store.answers import AnswerStore
from pipelines.store.vault.vault import Vault

AT_ONCE = 32
LATENCY = 0.05
SEQUENTIAL, CONCURRENT = 40, 1_200
ROUNDS = 5
SECRET = bytes(32)
NOW = datetime(2022, 12, 1, tzinfo=UTC)
MESSAGE = {"role": "assistant", "content": '{"labels": ["no_crisis"]}'}
ANSWER = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "bench",
    "choices": [{"index": 0, "finish_reason": "stop", "message": MESSAGE}],
    "usage": {"prompt_tokens": 2000, "completion_tokens": 10, "total_tokens": 2010},
}


class Endless(asyncio.Protocol):
    """A handler that gives the same answer to every question of a connection, after LATENCY."""

    body = json.dumps(ANSWER).encode()
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.seen = transport, b""

    def data_received(self, data: bytes) -> None:
        self.seen += data
        head, end, body = self.seen.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            self.seen = b""
            asyncio.get_running_loop().call_later(LATENCY, self.transport.write, self.answer)


async def endpoint(pipe: Connection) -> None:
    server = await asyncio.get_running_loop().create_server(Endless, "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def serve(pipe: Connection) -> None:
    asyncio.run(endpoint(pipe))


def rate(url: str, *, at_once: int, count: int, vault: Vault, folder: Path) -> float:
    """Label ``count`` new posts and return the number of posts per second."""
    params = load(Path(__file__).resolve().parents[1])
    vendor = vendor_of("local", params=params).model_copy(update={"concurrency": at_once, "ready_seconds": 0})
    scheme = load_scheme("cradle")
    ids = [vault.record_id(f"t3_{n}") for n in range(count)]
    posts = [Post(i, title=f"A long week, number {n}", body="quiet words " * 60) for n, i in enumerate(ids)]
    with AnswerStore.open(f"sqlite:///{folder}/{time.monotonic_ns()}.sqlite") as answers:
        labeller = Remote(
            "bench",
            labeller=RemoteLabeller(
                kind="remote", provider="local", model="bench", system="commercial", price=Price(input=1, output=1)
            ),
            provider=Provider("local", vendor, Endpoint(url=url, key=SecretStr("bench")), Consent()),
            votes=params.votes.model_copy(update={"budget_usd": 1_000.0}),
            prompt=build(scheme, keys=["labels"], system="commercial"),
            scheme=scheme,
            answers=answers,
            vault=vault,
            secret=SECRET,
        )
        began = time.perf_counter()
        found = labeller.label(posts)
        seconds = time.perf_counter() - began
    if any(answer.outcome is not Outcome.VOTE for answer in found):
        raise SystemExit("not every post was labelled")
    return count / seconds


def main() -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}/v1"
    with (
        tempfile.TemporaryDirectory() as name,
        Vault.open(f"sqlite:///{name}/vault.sqlite", secret=SECRET) as vault,
    ):
        folder = Path(name)
        fullnames = [f"t3_{n}" for n in range(CONCURRENT)]
        vault.admit([(vault.record_id(f), f) for f in fullnames], corpus="posts", month="2022-12", now=NOW)
        # the first run imports the provider's library
        rate(url, at_once=1, count=1, vault=vault, folder=folder)
        rates: dict[int, list[float]] = {1: [], AT_ONCE: []}
        for _ in range(ROUNDS):
            for at_once, count in ((1, SEQUENTIAL), (AT_ONCE, CONCURRENT)):
                rates[at_once].append(rate(url, at_once=at_once, count=count, vault=vault, folder=folder))
    server.terminate()
    ours, baseline = max(rates[AT_ONCE]), max(rates[1])
    result = {
        "name": "concurrency",
        "ours": round(ours, 1),
        "baseline": round(baseline, 1),
        "baseline_name": "one question after another",
        "ratio": round(ours / baseline, 2),
        "unit": "posts/s",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
