"""Read and remove tasks in the form that Label Studio 1.23.2 sends; ``test_label_studio.py`` asks the server itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.annotate.backends.backend import Queue
from pipelines.annotate.backends.label_studio import LabelStudio, title
from tests.json_server import Request, json_server

QUEUE = Queue("memes/calibration", "a1")
ADDED, CHANGED = "2026-11-23T18:05:07.332745Z", "2026-11-23T18:05:09.111672Z"
SAID = [
    {"from_name": "kind", "to_name": "_content", "type": "choices", "value": {"choices": ["None", "Irony/sarcasm"]}},
    {"from_name": "_note", "to_name": "_content", "type": "textarea", "value": {"text": ["why"]}},
]


def task(number: int, *, skipped: bool | None = None) -> dict[str, Any]:
    """Return a task, without an answer unless one was submitted or skipped."""
    own = {"id": 10 + number, "completed_by": 2, "updated_at": CHANGED, "lead_time": 20.0, "result": SAID}
    answers = [] if skipped is None else [own | {"was_cancelled": skipped}]
    meta = {"item": f"r00{number}/0", "position": number, "disputed": []}
    return {"id": number, "meta": meta, "created_at": ADDED, "updated_at": CHANGED, "annotations": answers}


@pytest.fixture
def backend() -> Iterator[LabelStudio]:
    # a user has imported the last one
    kept = [task(0, skipped=False), task(1, skipped=True), task(2), task(3), task(4, skipped=False) | {"meta": None}]

    def answer(request: Request) -> tuple[int, Any]:
        if request.method == "POST":
            chosen = request.body["selectedItems"]
            assert request.query == {"id": "delete_tasks", "project": "1"} and chosen["all"] is False
            kept[:] = [row for row in kept if row["id"] not in chosen["included"]]
            return 200, {"processed_items": len(chosen["included"])}
        if request.query.get("page", "1") != "1":
            return 404, {"detail": "Invalid page."}
        if request.path == "/api/projects/":
            return 200, {"count": 1, "next": None, "previous": None, "results": [{"id": 1, "title": title(QUEUE)}]}
        if request.path == "/api/users/":
            return 200, [{"id": 2, "email": "a1@annotators.invalid", "username": ""}]
        names = request.query["include"].split(",")
        return 200, {"total": len(kept), "tasks": [{k: row[k] for k in row if k in names} for row in kept]}

    with json_server(answer) as url:
        yield LabelStudio(url, keys=lambda _: "token", folder=None, accounts={})


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
