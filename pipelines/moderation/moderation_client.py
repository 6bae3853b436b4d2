"""Send one request to a moderation system and return the raw answer, or the reason why there is none.

The systems' requests are one JSON object each, so they need no SDK. Nothing here repeats a request; ``llm/sender.py``
does retries, limits and the budget. Error texts may quote an item: none is passed on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pipelines.core.config.label import Consent, Provider
from pipelines.core.config.settings import Endpoint
from pipelines.core.errors import LabellerRefused
from pipelines.core.process import now
from pipelines.llm.addresses import ADDRESSES, admit
from pipelines.llm.outcome import UNREADABLE, Passing, Raw, Throttled
from pipelines.moderation.wires import Wire

if TYPE_CHECKING:
    import httpx2

ANSWERED, REJECTED = "stop", "rejected"
# What a provider answers to an item that it cannot read: too large, too small, of an unknown format, too long.
ABOUT_THE_ITEM = frozenset({400, 413, 415, 422})
AGAIN = frozenset({408, 409, 425})


class ModerationClient:
    """A client for one kind of request to one moderation system; an async context manager for one event loop.

    Args:
        consent: the consent on record; without one, only an endpoint on this machine is used.
    """

    def __init__(
        self, name: str, *, wire: Wire, provider: Provider, receiver: str, endpoint: Endpoint, consent: Consent
    ) -> None:
        self.name, self.provider = name, provider
        self._wire, self._receiver, self._endpoint, self._consent = wire, receiver, endpoint, consent
        self._http: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        from pipelines.llm import transport

        address = self._endpoint.url or ADDRESSES.get(self._receiver)
        if address is None:
            raise self._refused("no address is set")
        if self._endpoint.url is None and not self._endpoint.key.get_secret_value():
            raise self._refused("no key is set")
        admit(self._endpoint, consent=self._consent, provider=self._receiver)
        self._transport, self._address = transport, address.rstrip("/") + self._wire.path
        self._http = transport.opened(self.provider.timeout_seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def send(self, system: str, parts: Sequence[str | bytes], *, schema: dict[str, Any], key: str) -> Raw:
        """Send one request about a text, a picture or both; ``key`` is its ``Idempotency-Key``.

        Raises:
            Throttled: the provider asks the client to wait.
            Passing: a timeout, no connection, a broken answer, or the provider's own fault.
            LabellerRefused: the key, the model, the account or the request is rejected.
        """
        import httpx2

        if self._http is None:
            raise RuntimeError("the client is not open")
        token = self._transport.EXCHANGE.set(self._transport.Exchange(key))
        headers = self._wire.headers(self._endpoint.key.get_secret_value() or "none")
        try:
            async with asyncio.timeout(self.provider.timeout_seconds):
                answer = await self._http.post(self._address, json=self._wire.body(parts), headers=headers)
        except (TimeoutError, httpx2.TimeoutException):
            raise Passing(reason="timeout") from None
        except httpx2.TransportError:
            raise Passing(reason="connection") from None
        finally:
            self._transport.EXCHANGE.reset(token)
        return self._read(answer.status_code, headers=answer.headers, content=answer.content, parts=parts)

    def _read(self, status: int, *, headers: Mapping[str, str], content: bytes, parts: Sequence[str | bytes]) -> Raw:
        body = _object(content)
        if status == 200:
            return self._answered(body, parts=parts)
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
            return self._raw(None, finish=REJECTED, refused=next(iter(words), REJECTED), parts=parts)
        raise self._refused(f"HTTP {status} {next(iter(words), '')}".strip())

    def _answered(self, body: dict[str, Any] | None, *, parts: Sequence[str | bytes]) -> Raw:
        if body is None:
            return self._raw(None, finish=UNREADABLE, refused=None, parts=parts)
        read, written = self._wire.used(body, expected=self._wire.size(parts))
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        return self._raw(text, finish=ANSWERED, refused=None, parts=parts, used=(read, written))

    def _raw(
        self,
        text: str | None,
        *,
        finish: str,
        refused: str | None,
        parts: Sequence[str | bytes],
        used: tuple[int, int] | None = None,
    ) -> Raw:
        read, written = used or (0, 0)
        effective = {"path": self._wire.path, **self._wire.settings}
        return Raw(text, finish, refused, input_tokens=read, output_tokens=written, effective=effective)

    def _refused(self, detail: str) -> LabellerRefused:
        variable = self._receiver.upper().replace("-", "_")
        return LabellerRefused(labeller=self.name, detail=detail, provider=variable)


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _words(body: Mapping[str, Any] | None) -> list[str]:
    """Return the machine words of an error, the most precise first; a word with other characters may be content."""
    words: list[str] = []
    error: Any = (body or {}).get("error")
    while isinstance(error, Mapping):
        words[:0] = [w for w in (error.get("code"), error.get("type")) if isinstance(w, str) and _is_word(w)]
        error = error.get("innererror")
    return [word.lower() for word in words]


def _is_word(word: str) -> bool:
    return 0 < len(word) <= 40 and word.isascii() and word.replace("_", "").replace(".", "").replace("-", "").isalnum()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a provider asks to wait, from its headers (a number, or a date), or ``None``."""
    try:
        if (value := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(value) / 1000)
        if (value := headers.get("retry-after")) is None:
            return None
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(str(value)) - now()).total_seconds())
    except (ValueError, TypeError):
        return None
