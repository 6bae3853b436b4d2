"""Limit the total time and the size of an answer of an API; the time-outs of requests limit each read only."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import Any

import requests

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
        """Limit each exchange to ``seconds`` from the start of the request to the last byte."""
        super().__init__()
        self._seconds = seconds

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request; the caller sees a redirect as an answer, because credentials belong to one server only."""
        # of each read: longer than the whole may take, so that it only ends a thread that was left behind
        kwargs.setdefault("timeout", 2 * self._seconds)
        return super().request(*args, **kwargs | {"allow_redirects": False})

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a prepared request and read the whole answer.

        Raises:
            AnswerTooSlow: the total time is over.
            AnswerTooLarge: the body exceeds ``MAX_BYTES``.
            requests.RequestException: the exchange failed.
        """
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
