"""Send one request to a moderation system and return the raw answer, or the reason why there is none.

The systems' requests are one JSON object each, so they need no SDK. Nothing here repeats a request; ``llm/sender.py``
does retries, limits and the budget. Error texts may quote an item: none is passed on.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Self

from pipelines.core.config.label import Consent, Provider
from pipelines.core.config.settings import Endpoint
from pipelines.core.errors import LabellerRefused
from pipelines.core.process import now
from pipelines.llm.addresses import ADDRESSES, admit
from pipelines.llm.outcome import UNREADABLE, Passing, Raw, Throttled
from pipelines.moderation.wires import Wire

ANSWERED, REJECTED = "stop", "rejected"
# What a provider answers to an item that it cannot read: too large, too small, of an unknown format, too long.
ABOUT_THE_ITEM = frozenset({400, 413, 415, 422})
AGAIN = frozenset({408, 409, 425})
WORD = re.compile(r"(?=[_.-]*[A-Za-z0-9])[A-Za-z0-9_.-]{1,40}")


@dataclass
class ModerationClient:
    """A client for one kind of request to one moderation system.

    Args:
        consent: the consent on record; without one, only an endpoint on this machine is used.
    """

    name: str
    wire: Wire
    provider: Provider
    receiver: str
    endpoint: Endpoint
    consent: Consent

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Self]:
        """Open the client for one event loop."""
        from pipelines.llm import transport

        address = self.endpoint.url or ADDRESSES.get(self.receiver)
        if address is None:
            raise self._refused("no address is set")
        if self.endpoint.url is None and not self.endpoint.key.get_secret_value():
            raise self._refused("no key is set")
        admit(self.endpoint, consent=self.consent, provider=self.receiver)
        self._transport, self._address = transport, address.rstrip("/") + self.wire.path
        async with transport.opened(self.provider.timeout_seconds) as self._http:
            yield self

    async def send(self, system: str, parts: Sequence[str | bytes], *, schema: dict[str, Any], key: str) -> Raw:
        """Send one request about a text, a picture or both; ``key`` is its ``Idempotency-Key``.

        Raises:
            Throttled: the provider asks the client to wait.
            Passing: a timeout, no connection, a broken answer, or the provider's own fault.
            LabellerRefused: the key, the model, the account or the request is rejected.
        """
        import httpx2

        token = self._transport.EXCHANGE.set(self._transport.Exchange(key))
        headers = self.wire.headers(self.endpoint.key.get_secret_value() or "none")
        try:
            async with asyncio.timeout(self.provider.timeout_seconds):
                answer = await self._http.post(self._address, json=self.wire.body(parts), headers=headers)
        except (TimeoutError, httpx2.TimeoutException):
            raise Passing(reason="timeout") from None
        except httpx2.TransportError:
            raise Passing(reason="connection") from None
        finally:
            self._transport.EXCHANGE.reset(token)
        return self._read(answer.status_code, headers=answer.headers, content=answer.content, parts=parts)

    def _read(self, status: int, *, headers: Mapping[str, str], content: bytes, parts: Sequence[str | bytes]) -> Raw:
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        effective = {"path": self.wire.path, **self.wire.settings}
        if status == 200:
            if not isinstance(body, dict):
                return Raw(None, UNREADABLE, None, input_tokens=0, output_tokens=0, effective=effective)
            read, written = self.wire.used(body, expected=self.wire.size(parts))
            text = json.dumps(body, sort_keys=True, separators=(",", ":"))
            return Raw(text, ANSWERED, None, input_tokens=read, output_tokens=written, effective=effective)
        words = _words(body)
        if "insufficient_quota" in words:
            raise self._refused("insufficient_quota")
        wait = retry_after(headers)
        if status == 429 or (status == 503 and wait is not None):
            raise Throttled(retry_after=wait)
        if status >= 500 or status in AGAIN:
            raise Passing(reason="server")
        pictures = any(isinstance(part, bytes) for part in parts)
        if status in ABOUT_THE_ITEM and (pictures or any("content" in word for word in words)):
            return Raw(None, REJECTED, (words or [REJECTED])[0], input_tokens=0, output_tokens=0, effective=effective)
        raise self._refused(" ".join([f"HTTP {status}", *words[:1]]))

    def _refused(self, detail: str) -> LabellerRefused:
        variable = self.receiver.upper().replace("-", "_")
        return LabellerRefused(labeller=self.name, detail=detail, provider=variable)


def _words(body: object) -> list[str]:
    """Return the machine words of an error, the most precise first; a word with other characters may be content."""
    words: list[str] = []
    error = body.get("error") if isinstance(body, dict) else None
    while isinstance(error, dict):
        words[:0] = [w for w in (error.get("code"), error.get("type")) if isinstance(w, str) and WORD.fullmatch(w)]
        error = error.get("innererror")
    return [word.lower() for word in words]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a provider asks to wait, from its headers (a number, or a date), or ``None``."""
    value = headers.get("retry-after", "")
    with suppress(ValueError):
        milliseconds = headers.get("retry-after-ms")
        return max(0.0, float(value) if milliseconds is None else float(milliseconds) / 1000)
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(value) - now()).total_seconds())
    return None
