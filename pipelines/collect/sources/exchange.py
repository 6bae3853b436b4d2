"""Limit the total time and the size of an answer of an API; the time-outs of requests limit each read only."""

from __future__ import annotations

import io
import queue
import threading
import time
from typing import Any

import requests
import urllib3

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
        return super().request(*args, **kwargs | {"allow_redirects": False})

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a prepared request and read the whole answer.

        Raises:
            AnswerTooSlow: the total time is over.
            AnswerTooLarge: the body exceeds ``MAX_BYTES``.
            requests.RequestException: the exchange failed.
        """
        until = time.monotonic() + self._seconds
        answers: queue.SimpleQueue[requests.Response | Exception] = queue.SimpleQueue()

        def exchange() -> None:
            try:
                answers.put(self._read(super(BoundedSession, self).send(request, **kwargs | {"stream": True}), until))
            except Exception as error:
                answers.put(error)

        # No time-out of a socket limits names, handshakes and headers that arrive byte by byte. A thread that is left
        # behind ends with its connection.
        threading.Thread(target=exchange, name="exchange", daemon=True).start()
        try:
            answer = answers.get(timeout=self._seconds)
        except queue.Empty:
            raise AnswerTooSlow(f"no complete answer within {self._seconds:g} s") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _read(self, response: requests.Response, until: float) -> requests.Response:
        body = bytearray()
        try:
            while data := response.raw.read1(CHUNK, decode_content=True):
                body += data
                if len(body) > MAX_BYTES:
                    raise AnswerTooLarge(f"more than {MAX_BYTES} bytes")
                if time.monotonic() > until:
                    raise AnswerTooSlow(f"no complete answer within {self._seconds:g} s")
        except urllib3.exceptions.ReadTimeoutError as error:
            raise requests.ReadTimeout(error) from None
        except urllib3.exceptions.HTTPError as error:
            raise requests.exceptions.ChunkedEncodingError(error) from None
        except BaseException:
            response.close()
            raise
        response.raw = io.BytesIO(body)
        return response
