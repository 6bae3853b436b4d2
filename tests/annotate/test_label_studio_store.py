"""Cleaning what a deleted round leaves in files; SQLite itself forgets at once only in some builds."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from pipelines.annotate.backends import label_studio
from pipelines.annotate.backends.backend import Queue
from pipelines.annotate.backends.label_studio import FOLDERS, LabelStudio, clean
from tests.refusals import refused

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
    queue = Queue("memes/calibration", "a1")
    with contextlib.closing(_database(tmp_path, journal="DELETE")) as server:
        service = Service(server)
        backend = LabelStudio("http://127.0.0.1:9", keys=str, folder=tmp_path, accounts={})
        monkeypatch.setattr(backend, "_client", lambda _: service)
        monkeypatch.setattr(backend, "_project", lambda _: 1)
        monkeypatch.setattr(backend, "_rows", lambda *_, **__: iter(service.rows))
        with refused("BackendUnavailable", match="busy"):
            backend.remove(queue, items=[("r000", 0)])
        server.execute("COMMIT")
        assert _holding(tmp_path) == {"label_studio.sqlite3"}
        # it is not removed again: it no longer exists
        assert backend.present(queue) == {}
        assert _holding(tmp_path) == set()
        assert [path.name for path in tmp_path.iterdir()] == ["label_studio.sqlite3"]
