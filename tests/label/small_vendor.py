"""A vendor of one file in a process of its own, which logs what it answered; and child processes that ask it.

The model's name says how the vendor behaves: ``throttle`` and ``fail`` turn every question away once, ``late`` lets it
time out once, ``down`` fails always, ``refuse`` refuses everything, ``prose`` answers no JSON, ``reject`` rejects the
key. Processes are forked, so that a child that is killed at a random moment has not just been importing.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pydantic_ai.direct
import pydantic_ai.models.openai
import pydantic_ai.providers.openai  # noqa: F401 - before the fork

from pipelines.core.config.label import Price, RemoteLabeller
from pipelines.core.taxonomy import load
from pipelines.datasets.post import Post
from pipelines.label.remote import Remote
from pipelines.llm.prompts import build
from pipelines.store import tables
from pipelines.store.answers import AnswerStore
from pipelines.store.vault.vault import Vault
from tests.json_server import Request, completion, json_server
from tests.label import small_settings

FORK = multiprocessing.get_context("fork")
SECRET = bytes(range(32))
NOW = datetime(2022, 12, 1, tzinfo=UTC)
# what the vendor below counts for every question, and its price: 2,000 input and 20 output tokens, .01 dollars
TOKENS = (2_000, 20)
PRICE = Price(input=4.0, output=100.0)
COST = 0.01
LABELS = ["no_crisis"]


def answer(model: str, *, asked: int) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Return status, headers and body of the ``asked``-th answer to a question."""
    first = asked == 1
    if "reject" in model:
        return 401, {}, {"error": {"message": "no", "code": "invalid_api_key"}}
    if "throttle" in model and first:
        return 429, {"Retry-After": "0.05"}, {"error": {"message": "wait", "code": "rate_limit_exceeded"}}
    if "down" in model or ("fail" in model and first):
        return 500, {}, {"error": {"message": "down"}}
    message = {"content": json.dumps({"labels": LABELS})}
    if "refuse" in model:
        message = {"content": None, "refusal": "no"}
    if "prose" in model:
        message = {"content": "It depends."}
    return 200, {}, completion(message, model=model, tokens=TOKENS)


def serve(log: Path, latency: float, address: Connection) -> None:
    """Answer until the process ends; a line of the log is written before an answer's first byte leaves."""
    seen: Counter[str] = Counter()
    now = most = 0
    lock = threading.Lock()
    lines = log.open("a")

    def reply(request: Request) -> tuple[int, Any, dict[str, str]]:
        nonlocal now, most
        key, model = request.headers["Idempotency-Key"], request.body["model"]
        with lock:
            seen[key] += 1
            asked, now = seen[key], now + 1
            most = max(most, now)
        time.sleep(2 if "late" in model and asked == 1 else latency)
        status, headers, body = answer(model, asked=asked)
        with lock:
            now -= 1
            lines.write(json.dumps({"key": key, "status": status, "most": most}) + "\n")
            lines.flush()
        return status, body, headers

    with json_server(reply) as url:
        address.send(url)
        threading.Event().wait()


@contextmanager
def started(target: Callable[..., None], *args: object) -> Iterator[BaseProcess]:
    """Run ``target`` in a process of its own, and end that process in any case."""
    process = FORK.Process(target=target, args=args, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


@contextmanager
def vendor(log: Path, *, latency: float = 0.0) -> Iterator[str]:
    """Start the vendor and give its address."""
    here, there = FORK.Pipe()
    with started(serve, log, latency, there):
        yield f"{here.recv()}/v1"


def answered(log: Path) -> list[str]:
    """Return the keys of all answers with status 200, in order."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["key"] for line in lines if line["status"] == 200]


def posts(count: int, *, vault: Vault, words: int = 12) -> list[Post]:
    """Return posts of admitted records with mild words."""
    ids = {n: vault.record_id(f"t3_{n}") for n in range(count)}
    vault.admit([(i, f"t3_{n}") for n, i in ids.items()], corpus="posts", month="2022-12", now=NOW)
    return [Post(i, title=f"A long week, number {n}", body=" ".join(["quiet"] * words)) for n, i in ids.items()]


def remote(
    url: str,
    *,
    answers: AnswerStore,
    vault: Vault,
    model: str = "small",
    budget: float = 100.0,
    concurrency: int = 4,
    batch: bool = False,
    context: int = 4096,
    timeout: float = 5.0,
    retries: int = 2,
    poll: float = 0.05,
) -> Remote:
    """Return a labeller that asks the vendor at ``url``."""
    scheme = load("cradle")
    return Remote(
        "small",
        labeller=RemoteLabeller(kind="remote", provider="local", model=model, system="commercial", price=PRICE),
        provider=small_settings.provider(
            url, concurrency=concurrency, timeout_seconds=timeout, max_retries=retries, batch_poll_seconds=poll
        ),
        votes=small_settings.votes(
            labellers={"posts": ("small",)},
            context_tokens=context,
            shard_size=500,
            budget_usd=budget,
            batch=batch,
            max_failed=0.01,
        ),
        prompt=build(scheme, keys=["labels"], system="commercial"),
        scheme=scheme,
        answers=answers,
        vault=vault,
        secret=SECRET,
    )


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Vault, AnswerStore]]:
    with (
        Vault.open(f"sqlite:///{folder}/vault.sqlite", secret=SECRET) as vault,
        AnswerStore.open(f"sqlite:///{folder}/answers.sqlite") as answers,
    ):
        yield vault, answers


def label(folder: Path, url: str, count: int) -> None:
    """Label posts and write their votes: the child that may be killed."""
    with opened(folder) as (vault, answers):
        found = remote(url, answers=answers, vault=vault).label(posts(count, vault=vault))
    table = pa.Table.from_pylist([answer.row() for answer in found], schema=tables.SCHEMAS["votes"])
    pq.write_table(table, folder / "votes.parquet")


def hand_over(folder: Path, url: str, count: int) -> None:
    """Hand posts over as a batch and wait for it longer than any test: the child that is killed meanwhile."""
    with opened(folder) as (vault, answers):
        asked = remote(url, answers=answers, vault=vault, model="gpt-5", batch=True, poll=3600.0)
        asked.label(posts(count, vault=vault))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
