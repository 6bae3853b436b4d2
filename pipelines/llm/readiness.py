"""Wait, for a bounded time, until a server of your own is healthy and serves the model that a step asks.

A server of OpenAI's protocol loads one model for minutes, and a team often serves its models one after another at one
address. All such servers have ``GET /v1/models``; vLLM also has ``/health``, which fails while its engine is down.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pipelines.errors import LabellingError

if TYPE_CHECKING:
    import httpx2

POLL_SECONDS = 2.0  # ours
REQUEST_SECONDS = 10.0  # ours: a server that answers its list of models more slowly is not ready


class ServerNotReady(LabellingError):
    """A server of your own did not become healthy in time, or serves another model."""

    message = "{url} does not serve model {model} of labeller '{name}' after {seconds:g} s: {detail}."
    remedy = (
        "Nothing was sent. Start the server (`vllm serve {model}`; docs/howto/served.md has each command), then repeat "
        "the command. providers.{provider}.ready_seconds is how long a step waits."
    )
    exit_code = 75


async def ready(
    http: httpx2.AsyncClient, *, url: str, key: str, model: str, name: str, provider: str, seconds: float
) -> None:
    """Return when the server at ``url`` is healthy and lists ``model``.

    Args:
        http: the client that will send the requests.
        url: the address of the protocol, such as ``http://127.0.0.1:8000/v1``.
        key: sent as the bearer's token.
        model: the model's name on the server.
        name: the labeller's name in ``params.yaml``, for the error.
        provider: its provider there, for the error.
        seconds: how long to wait at most.

    Raises:
        ServerNotReady: the time is over; the error says what the server answered last.
    """
    end = time.monotonic() + seconds
    while detail := await _fault(http, url=url.rstrip("/"), key=key, model=model):
        if (left := end - time.monotonic()) <= 0:
            raise ServerNotReady(url=url, model=model, name=name, provider=provider, seconds=seconds, detail=detail)
        await asyncio.sleep(min(POLL_SECONDS, left))


async def _fault(http: httpx2.AsyncClient, *, url: str, key: str, model: str) -> str:
    """Return why the server cannot be asked for the model now, or an empty string."""
    import httpx2

    headers = {"Authorization": f"Bearer {key}"}
    try:
        health = await http.get(f"{url.removesuffix('/v1')}/health", headers=headers, timeout=REQUEST_SECONDS)
        if health.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return f"its health check answers HTTP {health.status_code}"
        listed = await http.get(f"{url}/models", headers=headers, timeout=REQUEST_SECONDS)
        if listed.status_code != HTTPStatus.OK:
            return f"its list of models answers HTTP {listed.status_code}"
        served = _names(listed.json())
    except httpx2.HTTPError as error:
        return f"no answer ({type(error).__name__})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "its list of models has another form than OpenAI's"
    return "" if model in served else f"it serves {', '.join(sorted(served)) or 'no model'}"


def _names(body: Any) -> set[str]:
    return {str(one["id"]) for one in body["data"]}
