"""Read and remove tasks in the form that Label Studio 1.23.2 sends; ``test_label_studio.py`` asks the server itself.

And clean what a deleted round leaves in files; SQLite itself forgets at once only in some builds.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.annotate.backends import Queue, label_studio
from pipelines.annotate.backends.label_studio import FOLDERS, LabelStudio, clean, title
from tests.json_server import Request, json_server
from tests.refusals import refused

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


WORD = "PLANTEDQUINCEWORD"


def _holding(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file() and WORD.encode() in path.read_bytes()}


def _database(folder: Path, *, journal: str) -> sqlite3.Connection:
    """A table of which half the rows, and the word with them, were deleted by a connection that stays open."""
    connection = sqlite3.connect(folder / "label_studio.sqlite3", isolation_level=None)
    connection.execute("PRAGMA secure_delete=OFF")
    connection.execute(f"PRAGMA journal_mode={journal}")
    connection.execute("CREATE TABLE task (id INTEGER PRIMARY KEY, data TEXT)")
    connection.executemany("INSERT INTO task (data) VALUES (?)", [(WORD * 400,), ("stays " * 400,)] * 40)
    connection.execute("DELETE FROM task WHERE data LIKE ?", (f"{WORD}%",))
    return connection


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_deleted_rows_are_gone_and_others_stay(tmp_path: Path, journal: str) -> None:
    with contextlib.closing(_database(tmp_path, journal=journal)) as server:
        assert _holding(tmp_path)
        clean(tmp_path)
        assert _holding(tmp_path) == set()
        assert server.execute("SELECT count(*) FROM task").fetchone() == (40,)
        clean(tmp_path)


def test_exports_and_uploads_go_and_other_files_stay(tmp_path: Path) -> None:
    clean(tmp_path)
    assert not list(tmp_path.iterdir()), "no database is nothing to clean"
    kept = tmp_path / "media" / "avatars" / "face.png"
    for path in (kept, *(tmp_path / name / "deep" / "file.json" for name in FOLDERS)):
        path.parent.mkdir(parents=True)
        path.write_text(WORD)
    clean(tmp_path)
    assert _holding(tmp_path) == {"face.png"}
    assert all((tmp_path / name).is_dir() for name in FOLDERS)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_studio, "BUSY_SECONDS", 0.05)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("journal", "statements"),
    [("DELETE", ["BEGIN IMMEDIATE"]), ("WAL", ["BEGIN", "SELECT count(*) FROM task"])],
    ids=["a busy database", "a reader that keeps the old pages"],
)
def test_what_is_not_clean_is_reported(tmp_path: Path, journal: str, statements: list[str]) -> None:
    with contextlib.closing(_database(tmp_path, journal=journal)) as server:
        for statement in statements:
            server.execute(statement).fetchall()
        with refused("BackendUnavailable", match="busy"):
            clean(tmp_path)
        server.execute("COMMIT")
        clean(tmp_path)
        assert _holding(tmp_path) == set()


class Service:
    """A Label Studio with one queue, as far as ``remove`` and ``present`` ask it; it is busy once it has deleted."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.rows = [(("r000", 0), {"id": 1, "created_at": "2026-01-31T12:00:00Z"})]
        self.actions = self

    def create(self, **_: object) -> None:
        self.rows.clear()
        self.connection.execute("BEGIN IMMEDIATE")


@pytest.mark.usefixtures("impatient")
def test_a_removal_that_was_cut_short_is_ended_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(_database(tmp_path, journal="DELETE")) as server:
        service = Service(server)
        backend = LabelStudio("http://127.0.0.1:9", keys=str, folder=tmp_path, accounts={})
        monkeypatch.setattr(backend, "_client", lambda _: service)
        monkeypatch.setattr(backend, "_project", lambda _: 1)
        monkeypatch.setattr(backend, "_rows", lambda *_, **__: iter(service.rows))
        with refused("BackendUnavailable", match="busy"):
            backend.remove(QUEUE, items=[("r000", 0)])
        server.execute("COMMIT")
        assert _holding(tmp_path) == {"label_studio.sqlite3"}
        # it is not removed again: it no longer exists
        assert backend.present(QUEUE) == {}
        assert _holding(tmp_path) == set()
        assert [path.name for path in tmp_path.iterdir()] == ["label_studio.sqlite3"]
