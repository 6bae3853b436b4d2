"""Provide what the live sources share: the user agent, bounded sessions, waits and the errors for HTTP statuses."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import requests

from pipelines.collect.connection import retry_after
from pipelines.core.config.label import on_this_machine
from pipelines.core.errors import BadParams, SourceError, SourceRefused, SourceThrottled, SourceUnavailable

# Ours: the wait after a 429 without a time, a tenth of Reddit's window of ten minutes.
DEFAULT_WAIT_SECONDS = 60.0
# Ours: the longest wait that is believed, six of Reddit's windows; a header with an error asked for 56 years.
MAX_WAIT_SECONDS = 3600.0
# A number of seconds above it is a time since the epoch (2001 and later), not a wait.
EPOCH = 1e9


class SubredditClosed(SourceRefused):
    """A source does not show this subreddit, so its posts can be neither collected nor checked.

    ``reason``: ``private``, ``banned``, ``quarantined``, ``gated``, ``gold_only``, ``legal``, ``forbidden`` (without a
    reason) or ``not_found``.
    """


def user_agent(contact: str) -> str:
    """Return the user agent of the live sources in the form that Reddit's API rules require."""
    if not contact:
        raise BadParams(where="CORPUS_CONTACT", detail="not set; a live source must send a contact address")
    return f"python:crisis-corpus:v1 (research; {contact})"


def check_address(address: str, *, setting: str) -> str:
    """Normalise a server's address, and reject an address to which credentials must not be sent."""
    scheme = urlsplit(address).scheme
    if scheme != "https" and not (scheme == "http" and on_this_machine(address)):
        raise BadParams(where=setting, detail="neither https nor a loopback address")
    return address.rstrip("/")


def refusal(source: str, *, status: int, headers: Mapping[str, str], what: str) -> SourceError:
    """Return the error for an HTTP status; its class determines whether a retry may help."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return SourceThrottled(source=source, retry_after=requested_wait(headers))
    # what answers with a redirect or with another kind of success is not the API, but a proxy or a login page
    if status >= 500 or status < 400 or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY):
        return SourceUnavailable(source=source, detail=f"HTTP {status} for {what}")
    return SourceRefused(source=source, detail=f"HTTP {status} for {what}")


def requested_wait(headers: Mapping[str, str]) -> float:
    """Return the seconds that a response asks to wait, from 1 to ``MAX_WAIT_SECONDS``."""
    asked = seconds(headers.get("retry-after"))
    if asked is None:
        asked = retry_after(headers, longest=MAX_WAIT_SECONDS)
    if asked is None:
        asked = seconds(headers.get("x-ratelimit-reset"))
    return DEFAULT_WAIT_SECONDS if asked is None else min(max(asked, 1.0), MAX_WAIT_SECONDS)


def seconds(text: str | None) -> float | None:
    """Return a header's seconds (of an epoch time: until then), 0 to ``MAX_WAIT_SECONDS``, or ``None`` if unusable."""
    number = finite(text)
    if number is None or number < 0:
        return None
    return min(max(number - time.time(), 0.0) if number > EPOCH else number, MAX_WAIT_SECONDS)


def finite(text: str | None) -> float | None:
    """Return the finite number in a header, or ``None``."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


# Ours: a page of a hundred of the longest posts, in all their forms, takes about 20 MiB.
MAX_BYTES = 2**26
CHUNK = 2**14


class AnswerTooSlow(requests.Timeout):
    """An answer was not complete at the end of its total time."""


class AnswerTooLarge(requests.RequestException):
    """An answer exceeds the size limit."""


class BoundedSession(requests.Session):
    """A session that follows no redirect and reads each answer within a total time and size."""

    def __init__(self, *, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request; the caller sees a redirect as an answer, because credentials belong to one server only."""
        # of each read: longer than the whole may take, so that it only ends a thread that was left behind
        kwargs.setdefault("timeout", 2 * self._seconds)
        return super().request(*args, **kwargs | {"allow_redirects": False})

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a prepared request and read the whole answer."""
        answers: queue.SimpleQueue[requests.Response | Exception] = queue.SimpleQueue()
        begun: list[requests.Response] = []

        def exchange() -> None:
            try:
                begun.append(super(BoundedSession, self).send(request, **kwargs | {"stream": True}))
                answers.put(_read(begun[0]))
            except Exception as error:
                answers.put(error)

        # No time-out of a socket limits names, handshakes and headers that arrive byte by byte.
        threading.Thread(target=exchange, name="exchange", daemon=True).start()
        try:
            answer = answers.get(timeout=self._seconds)
        except queue.Empty:
            for response in begun:
                # ends the thread; one that still reads headers ends with its connection
                with suppress(ValueError, RuntimeError, OSError):
                    response.raw.shutdown()
            raise AnswerTooSlow(f"no complete answer within {self._seconds:g} s") from None
        if isinstance(answer, Exception):
            raise answer
        return answer


def _read(response: requests.Response) -> requests.Response:
    body = bytearray()
    for data in response.iter_content(CHUNK):
        body += data
        if len(body) > MAX_BYTES:
            response.close()
            raise AnswerTooLarge(f"more than {MAX_BYTES} bytes")
    response._content = bytes(body)  # as `content` would set it, without a limit
    return response
