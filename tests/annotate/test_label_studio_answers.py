"""Read and remove tasks in the form that Label Studio 1.23.2 sends; ``test_label_studio.py`` asks the server itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pipelines.annotate.backends.backend import Queue
from pipelines.annotate.backends.label_studio import LabelStudio, title

QUEUE = Queue("memes/calibration", "a1")
ADDED, CHANGED = "2026-11-23T18:05:07.332745Z", "2026-11-23T18:05:09.111672Z"


def part(name: str, kind: str, **value: Any) -> dict[str, Any]:
    return {"from_name": name, "to_name": "_content", "type": kind, "value": value}


def task(number: int, **annotation: Any) -> dict[str, Any]:
    own = {"id": 10 + number, "completed_by": 2, "updated_at": CHANGED, "lead_time": 20.0}
    return {
        "id": number, "meta": {"item": f"r00{number}/0", "position": number, "disputed": []}, "created_at": ADDED,
        "updated_at": CHANGED, "annotations": [own | annotation] if annotation else [],
    }  # fmt: skip


def tasks() -> list[dict[str, Any]]:
    """One task that is answered, one that is skipped, two without an answer, and one that a user has imported."""
    said = [part("kind", "choices", choices=["None", "Irony/sarcasm"]), part("_note", "textarea", text=["why"])]
    return [
        task(0, result=said, was_cancelled=False), task(1, result=said, was_cancelled=True), task(2), task(3),
        task(4, result=said, was_cancelled=False) | {"meta": None},
    ]  # fmt: skip


@pytest.fixture
def backend() -> Iterator[LabelStudio]:
    kept = tasks()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(address.query).items()}
            if asked.get("page", "1") != "1":
                self.reply({"detail": "Invalid page."}, status=404)
            elif address.path == "/api/projects/":
                self.reply({"count": 1, "next": None, "previous": None, "results": [{"id": 1, "title": title(QUEUE)}]})
            elif address.path == "/api/users/":
                self.reply([{"id": 2, "email": "a1@annotators.invalid", "username": ""}])
            else:
                names = asked["include"].split(",")
                self.reply({"total": len(kept), "tasks": [{k: row[k] for k in row if k in names} for row in kept]})

        def do_POST(self) -> None:
            chosen = json.loads(self.rfile.read(int(self.headers["content-length"])))["selectedItems"]
            assert self.path == "/api/dm/actions/?id=delete_tasks&project=1" and chosen["all"] is False
            kept[:] = [row for row in kept if row["id"] not in chosen["included"]]
            self.reply({"processed_items": len(chosen["included"])})

        def reply(self, body: object, *, status: int = 200) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield LabelStudio(f"http://127.0.0.1:{server.server_port}", keys=lambda _: "token", folder=None, accounts={})
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_submitted_answer_counts_and_a_skipped_one_is_marked(backend: LabelStudio) -> None:
    submitted, skipped = backend.answers(QUEUE)
    assert (submitted.item, submitted.skipped, skipped.item, skipped.skipped) == (("r000", 0), False, ("r001", 0), True)
    assert (submitted.values, submitted.note) == ({"kind": ("None", "Irony/sarcasm")}, "why")
    assert (submitted.by, submitted.id, submitted.seconds) == ("a1@annotators.invalid", "10", 20.0)
    assert f"{submitted.answered:%H:%M:%S.%f %Z}" == "18:05:09.111672 UTC"


def test_every_removed_item_leaves_and_the_others_stay(backend: LabelStudio) -> None:
    backend.remove(QUEUE, items=[("r000", 0), ("r001", 0), ("r009", 0)])
    assert set(backend.present(QUEUE)) == {("r002", 0), ("r003", 0)}
    assert backend.answers(QUEUE) == []
    assert {f"{added:%H:%M:%S.%f %Z}" for added in backend.present(QUEUE).values()} == {"18:05:07.332745 UTC"}
