"""Reads the files of a published dataset into rows, whatever their format, and tells what a cell says.

A file is somebody else's: cells are bounded, no message quotes one, and a line that cannot be read is a row with a
fault, so that it is counted with its number.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pipelines.annotate.imports.mapping import Names
from pipelines.collect.submission import FULLNAME
from pipelines.errors import DataError
from pipelines.taxonomy.rules import normal

Format = Literal["csv", "jsonl", "json", "parquet"]
FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}
# ours: a prolific person's posts stay far below it, and Python's own parser takes it in a blink
MAX_CELL = 4 * 2**20
ADDRESS = re.compile(r"(?:/comments/|redd\.it/)([0-9a-z]{1,13})(?:[/?#]|$)", re.IGNORECASE)
# a shorter number is likelier a row's own; Reddit's ids have five digits and more since 2006
BARE = re.compile(r"([0-9a-z]{5,13})", re.IGNORECASE)
REDDIT_BEGAN = 2005
TRUE, FALSE = {"1", "1.0", "true", "yes", "y", "x"}, {"0", "0.0", "false", "no", "n", ""}
Cells = dict[str, object]


class UnreadableFile(DataError):
    """A file is not of its format at all."""

    message = "{file} cannot be read{where}: {detail}."
    remedy = "Nothing was written. State the file's format in the mapping, or repair the file."


@dataclass(frozen=True, slots=True)
class Row:
    """One line: its cells by the columns' letters and digits, or why it has none (``fields``, ``not_json``)."""

    line: int
    cells: Cells = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """One file: its name, the SHA-256 of its bytes, the columns that any row has, and the rows."""

    name: str
    digest: str
    columns: frozenset[str]
    rows: list[Row]


def read_file(path: Path, *, usual: Format) -> File:
    """Read a file in the format that its name tells, else in the ``usual`` one of its dataset.

    Raises:
        UnreadableFile: naming the file and, where known, the line.
    """
    read = {"csv": _csv, "jsonl": _jsonl, "json": _json, "parquet": _parquet}[FORMATS.get(path.suffix.lower(), usual)]
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        rows = list(read(path))
    except (OSError, ValueError, RecursionError) as error:  # a number of 5,000 digits is JSON, and no int
        raise UnreadableFile(file=path.name, where="", detail=type(error).__name__) from None
    return File(path.name, digest, frozenset(key for row in rows for key in row.cells), rows)


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(MAX_CELL)
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file, strict=True)
        try:
            header = next(lines, [])
            for line in lines:
                if not line:
                    continue
                if len(line) == len(header):
                    yield Row(lines.line_num, _cells(list(zip(header, line, strict=True))))
                else:
                    yield Row(lines.line_num, fault="fields")
        except csv.Error as error:
            detail = type(error).__name__
            raise UnreadableFile(file=path.name, where=f" at line {lines.line_num}", detail=detail) from None


def _jsonl(path: Path) -> Iterator[Row]:
    # only the line feed ends a line: a post may hold other separators
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), start=1):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            yield _object(number, value)


def _json(path: Path) -> Iterator[Row]:
    rows = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(rows, list):
        raise UnreadableFile(file=path.name, where="", detail="it holds no list of rows")
    for number, value in enumerate(rows, start=1):
        yield _object(number, value)


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path).to_pylist()
    except pa.ArrowException as error:
        raise UnreadableFile(file=path.name, where="", detail=type(error).__name__) from None
    for number, value in enumerate(rows, start=1):
        yield _object(number, value)


def _object(number: int, value: object) -> Row:
    return Row(number, _cells(list(value.items()))) if isinstance(value, dict) else Row(number, fault="not_json")


def _cells(pairs: list[tuple[str, object]]) -> Cells:
    """Return the cells by their columns; a name that two columns share means neither."""
    found: Cells = {}
    twice = set()
    for name, value in pairs:
        key = normal(name)
        if key in found:
            twice.add(key)
        found[key] = value
    return {key: value for key, value in found.items() if key not in twice}


def first(cells: Cells, names: Names) -> object:
    """Return the first cell that is there and not blank; ``None`` where none is."""
    for name in names:
        value = cells.get(normal(name))
        if value is not None and value != "":
            return value
    return None


def text_of(value: object) -> str:
    """Return a cell as text: nothing for ``None``, half a surrogate pair becomes a question mark."""
    return "" if value is None else str(value).encode(errors="replace").decode()


def list_of(value: object) -> list[str] | None:
    """Return a list of strings: a JSON list, or one in a cell as JSON or Python writes it; ``None`` for anything else.

    Python's literals are parsed, never run, and only up to ``MAX_CELL`` characters.
    """
    if isinstance(value, str):
        value = _literal(value)
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
        return None
    return [text_of(part) for part in value]


def _literal(cell: str) -> object:
    if len(cell) > MAX_CELL or not cell.lstrip().startswith("["):
        return None
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(cell.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def flag_of(value: object) -> bool | None:
    """Return whether a 0/1 cell is set; ``None`` where it says neither."""
    if isinstance(value, float) and math.isnan(value):
        return None
    word = "" if value is None else str(value).strip().casefold()
    return word in TRUE if word in TRUE | FALSE else None


def fullname_of(value: object) -> str | None:
    """Return the fullname (``t3_...``) that a fullname, a bare id or a post's address means, else ``None``."""
    word = text_of(value).strip()
    if FULLNAME.fullmatch(word.lower()):
        return word.lower()
    found = ADDRESS.search(word) or BARE.fullmatch(word)
    return f"t3_{found[1].lower()}" if found else None


def moment_of(value: object) -> datetime | None:
    """Return a time in aware UTC from seconds of the epoch or an ISO date, else ``None``."""
    word = text_of(value).strip()
    try:
        if re.fullmatch(r"\d{9,10}(\.\d+)?", word):
            word = datetime.fromtimestamp(float(word), tz=UTC).isoformat()
        found = datetime.fromisoformat(word)
        found = (found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)).replace(microsecond=0)
    except (ValueError, OverflowError):
        return None
    return found if found.year >= REDDIT_BEGAN else None
