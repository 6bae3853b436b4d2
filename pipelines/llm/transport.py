"""Open the HTTP client of requests to providers, and record what was actually sent.

Proxies from the environment are ignored: posts go only where ``CORPUS_<PROVIDER>_URL`` says; redirects are not followed
for the same reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2

# the fields of a request that hold the post; never kept as parameters
CONTENT = frozenset({"messages", "input", "contents", "system", "instructions", "systemInstruction"})


@dataclass
class Exchange:
    """One HTTP request in progress: its idempotency key, the request that was sent and the response."""

    key: str
    request: httpx2.Request | None = None
    response: httpx2.Response | None = None

    def body(self) -> dict[str, Any]:
        """Return the JSON object of the response, or an empty object if there is none."""
        try:
            value = json.loads(self.response.content) if self.response is not None else {}
        except (ValueError, RecursionError, httpx2.ResponseNotRead):
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def effective(self) -> dict[str, Any]:
        """The parameters that were sent: the path, and the body without content and with schemas' digests."""
        if self.request is None:
            return {}
        return {"path": self.request.url.path} | parameters(json.loads(self.request.content))


EXCHANGE: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


@contextmanager
def exchanging(key: str) -> Iterator[Exchange]:
    """Yield what the HTTP request inside the context sends and receives; ``key`` is its ``Idempotency-Key``."""
    token = EXCHANGE.set(exchange := Exchange(key))
    try:
        yield exchange
    finally:
        EXCHANGE.reset(token)


def parameters(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request's body without content, with each schema replaced by its SHA-256."""
    return {name: _short(name, value) for name, value in body.items() if name not in CONTENT}


def _short(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if name.lower().endswith("schema") and value.get("type") == "object":
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
        return {"sha256": hashlib.sha256(text.encode()).hexdigest()}
    return {key: _short(key, below) for key, below in value.items()}


async def _sent(request: httpx2.Request) -> None:
    if (exchange := EXCHANGE.get()) is not None:
        exchange.request = request
        request.headers["Idempotency-Key"] = exchange.key


async def _arrived(response: httpx2.Response) -> None:
    if (exchange := EXCHANGE.get()) is not None:
        exchange.response = response


def opened(seconds: float) -> httpx2.AsyncClient:
    """Return an HTTP client whose requests wait ``seconds`` at most, and never for a connection."""
    return httpx2.AsyncClient(
        # pool: Google's provider warns about plain seconds of five
        timeout=httpx2.Timeout(seconds, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
        verify=httpx2.create_ssl_context(),
        trust_env=False,
        event_hooks={"request": [_sent], "response": [_arrived]},
    )
