"""Exchange annotation tasks and answers through plain folders, for teams that use their own annotation tool.

A queue is the folder ``<annotation_files>/<corpus>/<round>/<annotator>``. This module writes ``tasks.jsonl``,
``images/``, ``form.json`` and a ``README.txt`` that explains them. The team's tool writes ``answers.jsonl`` or
``answers.csv``. Give each annotator only their own folder, so that annotators cannot see each other's answers. Until
``purge`` the folders hold unencrypted content (folders have mode 700, files mode 600).
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.annotate import answer_files
from pipelines.annotate.backend import AnnotationTask, AnnotatorAnswer, Item, Queue, item_of, name_of
from pipelines.annotate.backends import Backend
from pipelines.annotate.forms.form import Form
from pipelines.core.config.settings import Settings
from pipelines.core.errors import AnnotationError, DataError
from pipelines.core.process import now

_PART = re.compile(r"[a-z0-9][a-z0-9_-]*")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


class Files(Backend):
    """A backend whose annotation queues are folders below ``root``, for a team's own annotation tool."""

    keeps = True

    def __init__(self, root: Path, *, clock: Callable[[], datetime]) -> None:
        self.accounts: Mapping[str, str] = {}
        self._root = root
        self._clock = clock

    @classmethod
    def open(cls, settings: Settings, *, params: Any, pseudonyms: Collection[str]) -> Files:
        """Return the backend with folders below ``CORPUS_ANNOTATION_FILES``."""
        return cls(settings.annotation_files, clock=now)

    def prepare(self, queue: Queue, *, form: Form) -> None:
        """Create the queue's folder with the form and a README if the folder does not exist."""
        folder = self._folder(queue)
        with _usable():
            if (folder / "form.json").exists():
                return
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            images = (folder / "images").relative_to(self._root)
            for part in reversed([images, *images.parents][:-1]):
                (self._root / part).mkdir(mode=0o700, exist_ok=True)
            _write(folder / "README.txt", _readme(form).encode())
            _write(folder / "form.json", json.dumps(asdict(form), indent=2).encode())

    def present(self, queue: Queue) -> dict[Item, datetime]:
        """Return each item in the queue's ``tasks.jsonl`` with the time at which it was added."""
        return {item_of(str(row["item"])): added for row, added in self._tasks(self._folder(queue))}

    def add(self, queue: Queue, *, tasks: Sequence[AnnotationTask]) -> None:
        """Append tasks to the queue's ``tasks.jsonl``; pictures first, so that every listed task is complete."""
        folder, rows = self._folder(queue), [row for row, _ in self._tasks(self._folder(queue))]
        held = {row["item"] for row in rows}
        fresh = {task.item: task for task in tasks if name_of(task.item) not in held}
        with _usable():
            if not (folder / "form.json").exists():
                raise _unavailable(f"the queue {queue.title} was not prepared")
            added = self._clock().isoformat()
            for task in sorted(fresh.values(), key=lambda task: task.position):
                rows.append(_row(task, folder=folder) | {"added": added})
            if fresh:
                _write_rows(folder / "tasks.jsonl", rows)

    def answers(self, queue: Queue) -> list[AnnotatorAnswer]:
        """Return the answers that the annotation team's own tool wrote to the queue's folder."""
        folder = self._folder(queue)
        with _usable():
            if not (folder / "form.json").exists():
                return []
            keys = [question["key"] for question in json.loads((folder / "form.json").read_bytes())["questions"]]
            answers = answer_files.read(folder, keys=keys, annotator=queue.annotator)
        return sorted(answers, key=lambda answer: (answer.item, answer.answered, answer.id))

    def remove(self, queue: Queue, *, items: Collection[Item]) -> None:
        """Remove the items' tasks, pictures and answers from the queue's folder."""
        folder = self._folder(queue)
        gone = {name_of(item) for item in items}
        with _usable():
            rows = [row for row, _ in self._tasks(folder)]
            if doomed := [row for row in rows if row["item"] in gone]:
                _write_rows(folder / "tasks.jsonl", [row for row in rows if row["item"] not in gone])
                for row in doomed:
                    if row.get("image"):
                        (folder / str(row["image"])).unlink(missing_ok=True)
            for path, kept in answer_files.without(folder, items=gone):
                _write(path, kept)

    def purge(self, queues: Collection[Queue]) -> None:
        """Delete the queues' folders with all files, and then parent folders that have become empty.

        Files are deleted without being overwritten, because current file systems and disks do not guarantee that
        overwriting erases the data.
        """
        for queue in queues:
            folder = self._folder(queue)
            with _usable():
                if folder.exists():
                    shutil.rmtree(folder)
            for above in folder.parents:
                if above == self._root:
                    break
                with contextlib.suppress(OSError):
                    above.rmdir()

    def address(self, queue: Queue) -> str:
        """Return the path of the queue's folder."""
        return str(self._folder(queue))

    def _folder(self, queue: Queue) -> Path:
        parts = [*queue.name.split("/"), queue.annotator]
        if not all(_PART.fullmatch(part) for part in parts):
            raise _unavailable(f"the queue {queue.title} is not usable as a folder name")
        return self._root.joinpath(*parts)

    def _tasks(self, folder: Path) -> Iterator[tuple[dict[str, object], datetime]]:
        """Yield each row of ``tasks.jsonl`` and the time it was added."""
        path = folder / "tasks.jsonl"
        with _usable():
            lines = path.read_bytes().split(b"\n") if path.exists() else []
        for number, line in enumerate(lines, start=1):
            if line:
                try:
                    row = dict(json.loads(line))
                    added = datetime.fromisoformat(str(row["added"]))
                    item_of(str(row["item"]))
                except (ValueError, KeyError, TypeError):
                    detail = "the task was changed after it was written"
                    raise DataError("BadAnswers", file=str(path), line=number, detail=detail) from None
                yield row, added


def _row(task: AnnotationTask, *, folder: Path) -> dict[str, object]:
    """Return a task's row for the list, and write its picture next to the list."""
    name = None
    if task.image is not None:
        suffix = _SUFFIXES.get(task.media_type or "", "bin")
        name = f"images/{_UNSAFE.sub('-', task.item[0])}-{task.item[1]}.{suffix}"
        _write(folder / name, task.image)
    shown = {"text": dict(task.text), "image": name, "media_type": task.media_type}
    sides = [{category: list(labels) for category, labels in side.items()} for side in task.sides]
    place = {"item": name_of(task.item), "position": task.position}
    return {**place, **shown, "sides": sides, "disputed": list(task.disputed)}


def _write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    _write(path, "".join(f"{json.dumps(row)}\n" for row in rows).encode())


def _write(path: Path, content: bytes) -> None:
    """Write a file with mode 600 atomically, so that a concurrent reader sees either the old or the new file."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600, exist_ok=False)
    new.write_bytes(content)
    new.replace(path)


def _unavailable(detail: str) -> AnnotationError:
    return AnnotationError("BackendUnavailable", backend="files", detail=detail)


@contextlib.contextmanager
def _usable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unavailable(f"a folder cannot be read or written ({type(error).__name__})") from None


def _readme(form: Form) -> str:
    keys = ", ".join(question.key for question in form.questions)
    required = "required" if form.note_required else "may be empty"
    blur = "  * Keep pictures blurred until the annotator asks for one.\n" if form.content == "images" else ""
    return _README.format(title=form.title, keys=keys, required=required, blur=blur)


_README = """{title}

This folder is for one annotator. Do not share it with other annotators: they must not see each other's answers.
It holds plain content. Keep it on this machine; `corpus round close` deletes the folder.

What your tool reads
  form.json    the questions, the labels to choose from, the guideline, the warning and the support contacts
  tasks.jsonl  one task per line: item, position (the order of presentation), text (title, body), image (a file below
               this folder), and for an adjudicator sides (the answers to decide between) and disputed (the categories)

What your tool must do
  * Show the warning and the contacts of form.json above every task.
{blur}  * Let the annotator skip any task without a reason and without a penalty.

What your tool writes: one of these two files, in UTF-8
  answers.csv    a header, then one answer per row:
                 item, {keys}, note, seconds, answered, skipped, by
                 Labels of one category are joined by |. An empty cell means that the question was not answered.
  answers.jsonl  one answer per line, each ended by a line break:
                 {{"item": "...", "values": {{"category": ["label"]}}, "note": "", "seconds": 12.5,
                  "answered": "2026-01-31T12:00:00Z", "skipped": false, "by": "..."}}

  item      as in tasks.jsonl
  answered  a date and time with a time zone, ISO 8601
  note      free text of the annotator; {required}
  seconds   the time taken; may be empty
  skipped   true or false; empty means false
  by        the account that answered; empty means the annotator of this folder
Write to a temporary name and rename the file when it is complete, so that no partial file is read.
"""
