"""Read ``answers.jsonl`` or ``answers.csv`` from a team's own annotation tool.

Parsing is strict: an unreadable line stops the import with an error that names file and line, because a guess could
change an answer.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, Strict, ValidationError

from pipelines.annotate.backend import AnnotatorAnswer, Item, item_of
from pipelines.core.errors import DataError

_JOIN = "|"
_FIELDS = ("note", "seconds", "answered", "skipped", "by")


def read(folder: Path, *, keys: Collection[str], annotator: str) -> list[AnnotatorAnswer]:
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


def without(folder: Path, *, items: Collection[str]) -> Iterator[tuple[Path, bytes]]:
    """Yield each answer file of a queue's folder that contains one of ``items``, and its content without those items.

    An unreadable JSON line, or a CSV row with an unclosed quote, is also removed if it contains the name of such an
    item.
    """
    for path, rest in ((folder / "answers.csv", _rest_of_csv), (folder / "answers.jsonl", _rest_of_jsonl)):
        if path.exists():
            before = path.read_bytes()
            if any(item.encode() in before.replace(b"\\/", b"/") for item in items):
                yield path, rest(before, items=items)


class _AnswerFault(Exception):
    """The fault of a line (``None``: of the answer that is read), in words that quote none of its content."""

    def __init__(self, detail: str, *, line: int | None = None) -> None:
        self.line = line
        super().__init__(detail)


def _jsonl(path: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
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
        text = path.read_bytes().decode("utf-8-sig")
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
