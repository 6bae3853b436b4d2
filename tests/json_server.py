"""Serve JSON on a free port of loopback: a function answers each request with a status and a value."""

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


Answer = Callable[[Request], tuple[int, Any] | None]


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return None


class Server(ThreadingHTTPServer):
    daemon_threads = True

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
            data = json.dumps(answered[1]).encode()
            self.send_response(answered[0])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PUT = do_PATCH = do_GET

    with serving(Handler) as address:
        yield address
