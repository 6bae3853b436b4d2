"""Serve JSON on a free port of loopback: a function answers each request with a status, a value, and maybe headers.

A value of bytes is sent unchanged.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: Any


Answer = Callable[[Request], tuple[int, Any] | tuple[int, Any, dict[str, str]] | None]


def completion(message: dict[str, Any], *, model: str, tokens: tuple[int, int], finish: str = "stop") -> dict[str, Any]:
    """Return an answer in the form of OpenAI's chat completions, with so many tokens read and written."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    head = {"id": "x", "object": "chat.completion", "created": 1, "model": model}
    return {**head, "choices": [choice], "usage": usage}


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return None


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        return None  # a broken connection is part of a test


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Yield the address of a server on a free port of loopback."""
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def json_server(answer: Answer) -> Iterator[str]:
    """Yield the server's address; without an answer, the connection is closed."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            place = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {name: values[-1] for name, values in parse_qs(place.query).items()}
            answered = answer(Request(self.command, place.path, query, json.loads(raw) if raw else None, self.headers))
            if answered is None:
                self.connection.close()
                self.close_connection = True
                return
            status, value, *headers = answered
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            usual = {"Content-Type": "application/json", "Content-Length": str(len(data))}
            for name, text in (usual | (headers[0] if headers else {})).items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PUT = do_PATCH = do_GET

    with serving(Handler) as address:
        yield address
