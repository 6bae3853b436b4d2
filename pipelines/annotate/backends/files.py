"""Exchange annotation tasks and answers through plain folders, for teams that use their own annotation tool.

A queue is the folder ``<annotation_files>/<corpus>/<round>/<annotator>``. This module writes ``tasks.jsonl``,
``images/``, ``form.json`` and a ``README.txt`` that explains them. The team's tool writes ``answers.jsonl`` or
``answers.csv``, which is parsed strictly: an unreadable line stops the import with an error that names file and line,
because a guess could change an answer.

Give each annotator only their own folder, so that annotators cannot see each other's answers. Until ``purge`` the
folders hold unencrypted content (folders have mode 700, files mode 600).
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, Strict, ValidationError

from pipelines.annotate.backends import AnnotationTask, AnnotatorAnswer, Backend, Item, Queue, item_of, name_of
from pipelines.annotate.form import Form
from pipelines.core import untrusted
from pipelines.core.config.settings import Settings
from pipelines.core.errors import AnnotationError, DataError
from pipelines.core.process import now

_JOIN = "|"
_FIELDS = ("note", "seconds", "answered", "skipped", "by")


def read_answers(folder: Path, *, keys: Collection[str], annotator: str) -> list[AnnotatorAnswer]:
    """Return the annotator's answers in a queue's folder in file order; empty if there is no answer file."""
    paths = [path for path in (folder / "answers.csv", folder / "answers.jsonl") if path.exists()]
    if not paths:
        return []
    path, *others = paths
    answers, line = [], 0
    try:
        if others:
            raise _AnswerFault("answers.jsonl exists too; leave one of the two")
        for line, row in _csv(path, keys=keys) if path.suffix == ".csv" else _jsonl(path):
            answers.append(_answer(row, keys=keys, annotator=annotator, line=line))
    except _AnswerFault as fault:
        raise DataError("BadAnswers", file=str(path), line=fault.line or line, detail=fault) from None
    return answers


def without_items(folder: Path, *, items: Collection[str]) -> Iterator[tuple[Path, bytes]]:
    """Yield each answer file of a queue's folder that contains one of ``items``, and its content without those items.

    An unreadable JSON line, or a CSV row with an unclosed quote, is also removed if it contains the name of such an
    item.
    """
    for path, rest in ((folder / "answers.csv", _rest_of_csv), (folder / "answers.jsonl", _rest_of_jsonl)):
        if path.exists():
            before = untrusted.read(path)
            if any(item.encode() in before.replace(b"\\/", b"/") for item in items):
                yield path, rest(before, items=items)


class _AnswerFault(Exception):
    """The fault of a line (``None``: of the answer that is read), in words that quote none of its content."""

    def __init__(self, detail: str, *, line: int | None = None) -> None:
        self.line = line
        super().__init__(detail)


def _jsonl(path: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    lines = untrusted.read(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1].strip():
        raise _AnswerFault("the last line has no line break and may be incomplete", line=len(lines))
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise _AnswerFault("the line is not JSON", line=number) from None
        if not isinstance(row, dict) or set(row) - {"item", "values", "id", *_FIELDS}:
            raise _AnswerFault("the line is not an object with the fields of an answer only", line=number)
        yield number, row


def _csv(path: Path, *, keys: Collection[str]) -> Iterator[tuple[int, Mapping[str, object]]]:
    try:
        text = untrusted.read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise _AnswerFault("the line is not UTF-8", line=line) from None
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = rows.fieldnames or []
        if header.count("item") != 1 or len(set(header)) < len(header) or set(header) - {"item", *keys, *_FIELDS}:
            known = ", ".join(["item", *keys, *_FIELDS])
            raise _AnswerFault(f"the header must have `item` and only columns of {known}, each once", line=1)
        for row in rows:
            if None in row or None in row.values():
                raise _AnswerFault(f"the row has not {len(header)} cells", line=rows.line_num)
            values = {key: row[key].split(_JOIN) for key in keys if row.get(key)}
            yield rows.line_num, {"values": values} | {name: cell for name, cell in row.items() if name not in keys}
    except csv.Error:
        raise _AnswerFault("the file is not valid CSV", line=rows.reader.line_num) from None


def _moment(value: object) -> datetime:
    moment = datetime.fromisoformat(str(value))
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("no moment of UTC") from None


# A cell may hold one label without a list around it.
Labels = Annotated[tuple[Annotated[str, Strict()], ...], BeforeValidator(lambda v: [v] if isinstance(v, str) else v)]


class AnswerLine(BaseModel):
    """An answer of a file; an empty field counts as absent."""

    model_config = ConfigDict(coerce_numbers_to_str=True, str_strip_whitespace=True)

    item: Annotated[Item, BeforeValidator(lambda name: item_of(str(name)))]
    by: str
    id: str
    answered: Annotated[datetime, PlainValidator(_moment)]
    values: dict[str, Labels] = Field(default_factory=dict)
    note: str = ""
    seconds: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    skipped: bool = False


# The fault of a field, in words that quote none of its content.
_FAULTS = {
    "item": "'item' must be record_id/image, as in tasks.jsonl",
    "answered": "'answered' must be a date and time with a time zone (ISO 8601)",
    "values": "the labels of a category must be a list of strings",
    "seconds": "'seconds' must be a number of at least 0",
    "skipped": "'skipped' must be true or false",
}


def _answer(row: Mapping[str, object], *, keys: Collection[str], annotator: str, line: int) -> AnnotatorAnswer:
    filled = {name: value for name, value in row.items() if value not in (None, "")}
    absent = {"item": "", "answered": "", "by": annotator, "id": f"{line:09d}"}
    try:
        answer = AnswerLine.model_validate(absent | filled)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise _AnswerFault(_FAULTS.get(name, f"'{name}' must be a text")) from None
    if answer.values.keys() - set(keys):
        raise _AnswerFault("'values' has other categories than the form")
    return AnnotatorAnswer(**dict(answer))


def _rest_of_jsonl(content: bytes, *, items: Collection[str]) -> bytes:
    return b"".join(line for line in content.splitlines(keepends=True) if not _names(line, items=items))


def _names(line: bytes, *, items: Collection[str]) -> bool:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if isinstance(row, dict) and isinstance(row.get("item"), str):
        return row["item"] in items
    return any(re.search(re.escape(item.encode()) + rb"(?![0-9])", line) for item in items)


def _rest_of_csv(content: bytes, *, items: Collection[str]) -> bytes:
    # an unclosed quote turns the rest of the file into one cell
    csv.field_size_limit(max(csv.field_size_limit(), len(content)))
    names = re.compile("|".join(re.escape(item) + "(?![0-9])" for item in sorted(items)))
    rows = csv.reader(io.StringIO(content.decode("utf-8-sig", errors="replace"), newline=""))
    kept = io.StringIO(newline="")
    csv.writer(kept).writerows(row for row in rows if not any(names.search(cell) for cell in row))
    return kept.getvalue().encode()


_PART = re.compile(r"[a-z0-9][a-z0-9_-]*")
_TABLE = re.compile(r"[a-z0-9_-]+-[0-9]+\.[a-z]+")
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
        with usable():
            if (folder / "form.json").exists():
                return
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            images = (folder / "images").relative_to(self._root)
            for part in reversed([images, *images.parents][:-1]):
                (self._root / part).mkdir(mode=0o700, exist_ok=True)
            write(folder / "README.txt", self.readme(form).encode())
            write(folder / "form.json", json.dumps(asdict(form), indent=2).encode())

    def readme(self, form: Form) -> str:
        """Return what the folder's README says."""
        keys = ", ".join(question.key for question in form.questions)
        required = "required" if form.note_required else "may be empty"
        blur = "  * Keep pictures blurred until the annotator asks for one.\n" if form.content == "images" else ""
        return _README.format(title=form.title, keys=keys, required=required, blur=blur)

    def placed(self, queue: Queue, *, rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
        """Return further fields of the list's rows of new tasks; ``rows`` are those that are there."""
        return {}

    def present(self, queue: Queue) -> dict[Item, datetime]:
        """Return each item in the queue's ``tasks.jsonl`` with the time at which it was added."""
        return {item_of(str(row["item"])): added for row, added in self._tasks(self._folder(queue))}

    def add(self, queue: Queue, *, tasks: Sequence[AnnotationTask]) -> None:
        """Append tasks to the queue's ``tasks.jsonl``; pictures first, so that every listed task is complete."""
        folder, rows = self._folder(queue), [row for row, _ in self._tasks(self._folder(queue))]
        held = {row["item"] for row in rows}
        fresh = {task.item: task for task in tasks if name_of(task.item) not in held}
        with usable():
            if not (folder / "form.json").exists():
                raise _unavailable(f"the queue {queue.title} was not prepared")
            more = {"added": self._clock().isoformat(), **self.placed(queue, rows=rows)}
            for task in sorted(fresh.values(), key=lambda task: task.position):
                rows.append(_row(task, folder=folder) | more)
            if fresh:
                _write_rows(folder / "tasks.jsonl", rows)

    def answers(self, queue: Queue) -> list[AnnotatorAnswer]:
        """Return the answers that the annotation team's own tool wrote to the queue's folder."""
        folder = self._folder(queue)
        with usable():
            if not (folder / "form.json").exists():
                return []
            keys = [question["key"] for question in json.loads(untrusted.read(folder / "form.json"))["questions"]]
            answers = read_answers(folder, keys=keys, annotator=queue.annotator)
        return sorted(answers, key=lambda answer: (answer.item, answer.answered, answer.id))

    def remove(self, queue: Queue, *, items: Collection[Item]) -> None:
        """Remove the items' tasks, pictures and answers from the queue's folder."""
        folder = self._folder(queue)
        gone = {name_of(item) for item in items}
        with usable():
            rows = [row for row, _ in self._tasks(folder)]
            if doomed := [row for row in rows if row["item"] in gone]:
                _write_rows(folder / "tasks.jsonl", [row for row in rows if row["item"] not in gone])
                for row in doomed:
                    if row.get("image"):
                        with _opened(folder / "images") as place, contextlib.suppress(FileNotFoundError):
                            os.unlink(Path(str(row["image"])).name, dir_fd=place)
            for path, kept in without_items(folder, items=gone):
                write(path, kept)

    def purge(self, queues: Collection[Queue]) -> None:
        """Delete the queues' folders with all files, and then parent folders that have become empty.

        Files are deleted without being overwritten, because current file systems and disks do not guarantee that
        overwriting erases the data.
        """
        for queue in queues:
            folder = self._folder(queue)
            with usable():
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
        with usable():
            lines = untrusted.read(path).split(b"\n") if path.exists() else []
        for number, line in enumerate(lines, start=1):
            if line:
                try:
                    row = dict(json.loads(line))
                    added = datetime.fromisoformat(str(row["added"]))
                    if not _ours(row):
                        raise ValueError
                except (ValueError, KeyError, TypeError):
                    detail = "the task was changed after it was written"
                    raise DataError("BadAnswers", file=str(path), line=number, detail=detail) from None
                yield row, added


def _ours(row: Mapping[str, object]) -> bool:
    """Return whether a task's row names files as :meth:`Files.add` does: of its own item, in the queue's folder."""
    image, table = row.get("image"), row.get("table")
    picture = f"{_picture(item_of(str(row['item'])))}." + f"({'|'.join([*_SUFFIXES.values(), 'bin'])})"
    return (image is None or re.fullmatch(picture, str(image)) is not None) and (
        table is None or _TABLE.fullmatch(str(table)) is not None
    )


def _picture(item: Item) -> str:
    return f"images/{_UNSAFE.sub('-', item[0])}-{item[1]}"


def _row(task: AnnotationTask, *, folder: Path) -> dict[str, object]:
    """Return a task's row for the list, and write its picture next to the list."""
    name = None
    if task.image is not None:
        suffix = _SUFFIXES.get(task.media_type or "", "bin")
        name = f"{_picture(task.item)}.{suffix}"
        write(folder / name, task.image)
    shown = {"text": dict(task.text), "image": name, "media_type": task.media_type}
    sides = [{category: list(labels) for category, labels in side.items()} for side in task.sides]
    place = {"item": name_of(task.item), "position": task.position}
    return {**place, **shown, "sides": sides, "disputed": list(task.disputed)}


def _write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    write(path, "".join(f"{json.dumps(row)}\n" for row in rows).encode())


def write(path: Path, content: bytes) -> None:
    """Write a file with mode 600 atomically, so that a concurrent reader sees either the old or the new file."""
    new, flags = f".{path.name}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with _opened(path.parent) as place:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=place)
        with os.fdopen(os.open(new, flags, 0o600, dir_fd=place), "wb") as file:
            file.write(content)
        os.replace(new, path.name, src_dir_fd=place, dst_dir_fd=place)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Open a folder that is no link to another one."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield place
    finally:
        os.close(place)


def _unavailable(detail: str) -> AnnotationError:
    return AnnotationError("BackendUnavailable", backend="files", detail=detail)


@contextlib.contextmanager
def usable() -> Iterator[None]:
    """Turn an error of a file or folder into that of a backend that cannot be used."""
    try:
        yield
    except OSError as error:
        where = Path(str(error.filename)).name if error.filename else "a folder"
        raise _unavailable(f"{where} cannot be read or written: {error.strerror}") from None


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
