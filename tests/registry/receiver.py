"""A receiver of webhooks on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.json_server import QuietHandler, serving


@dataclass
class Receiver:
    """What came, and what is answered: a status for each in turn, the last one for all after it."""

    url: str
    answers: list[int] = field(default_factory=lambda: [204])
    came: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.came]

    def told(self) -> list[tuple[str, int | None]]:
        return [(data["event"], data["to"]) for data in (json.loads(body)["data"] for _, body in self.came)]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            made.came.append(({key.lower(): value for key, value in self.headers.items()}, body))
            status = made.answers.pop(0) if len(made.answers) > 1 else made.answers[0]
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("location", f"{made.url}/elsewhere")
            self.end_headers()

        do_GET = do_POST

    with serving(Handler) as address:
        made = Receiver(f"{address}/hook")
        yield made
