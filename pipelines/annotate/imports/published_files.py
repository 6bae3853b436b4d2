"""Read the files of a published dataset (CSV, JSON Lines, JSON, Parquet) into rows, and parse cells.

The files are untrusted. The length of cells is limited, and no error quotes a cell. An unreadable line becomes a row
with a fault and is counted with its line number.
"""

from __future__ import annotations

import ast
import codecs
import csv
import hashlib
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from crisis_corpus.hydrate import FULLNAME
from pipelines.core.errors import DataError
from pipelines.core.taxonomy.scheme import normal

if TYPE_CHECKING:
    from pipelines.annotate.imports.mapping import Names

Format = Literal["csv", "jsonl", "json", "parquet"]
FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}
# Of a spreadsheet in many languages; the likeliest first.
DELIMITERS = ",;\t"
WORKBOOKS = {".xlsx", ".xls", ".ods"}
NOT_UTF8 = "it is not UTF-8 (in a spreadsheet: save it as CSV UTF-8; or iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW)"
# Ours: far above a prolific person's posts, and small enough for Python's parser to read at once.
MAX_CELL = 4 * 2**20
ADDRESS = re.compile(r"(?:/comments/|redd\.it/)([0-9a-z]{1,13})(?:[/?#]|$)", re.IGNORECASE)
# Reddit's ids have had five or more characters since 2006; a shorter one is more likely a row number.
BARE = re.compile(r"([0-9a-z]{5,13})", re.IGNORECASE)
REDDIT_BEGAN = 2005
# A string of a list as Python or JSON writes it, one that is not finished, and a list that ends before its bracket.
STRING = r"""(?:[uU]?(?:'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+"))"""
UNFINISHED = r"""(?:[uU]?(?:'(?:[^'\\]++|\\.)*+\\?|"(?:[^"\\]++|\\.)*+\\?)?)"""
CUT_LIST = re.compile(rf"\s*\[\s*(?:({STRING}(?:\s*,\s*{STRING})*+)\s*(?:,\s*{UNFINISHED})?|{UNFINISHED})", re.DOTALL)
CUT_CHARACTER = "crisis_corpus_cut_character"
TRUE, FALSE = {"1", "1.0", "true", "yes", "y", "x"}, {"0", "0.0", "false", "no", "n", ""}
Cells = dict[str, object]


class UnreadableFile(DataError):
    """A file of a published dataset does not have the expected format."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """One line of a file: its cells by normalised column name, or the reason why it is invalid."""

    line: int
    cells: Cells = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """One file: its name, the SHA-256 of its bytes, the union of its rows' columns, and the rows."""

    name: str
    digest: str
    columns: frozenset[str]
    rows: list[FileRow]


def read_file(path: Path, *, usual: Format) -> File:
    """Read a file in the format that its suffix indicates, or else in ``usual``, the dataset's usual format."""
    read = {"csv": _csv, "jsonl": _jsonl, "json": _json, "parquet": _parquet}[FORMATS.get(path.suffix.lower(), usual)]
    if path.suffix.lower() in WORKBOOKS:
        raise UnreadableFile(file=path.name, where="", detail="it is a workbook; save its sheet as CSV UTF-8")
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        rows = list(read(path))
    except UnicodeDecodeError:
        raise UnreadableFile(file=path.name, where="", detail=NOT_UTF8) from None
    except (OSError, ValueError, RecursionError) as error:  # int() rejects a JSON number of 5,000 digits
        raise UnreadableFile(file=path.name, where="", detail=type(error).__name__) from None
    return File(path.name, digest, frozenset(key for row in rows for key in row.cells), rows)


def _csv(path: Path) -> Iterator[FileRow]:
    csv.field_size_limit(MAX_CELL)
    with path.open(newline="", encoding="utf-8-sig", errors=CUT_CHARACTER) as file:
        header_line = file.readline()
        file.seek(0)
        lines = csv.reader(file, strict=True, delimiter=max(DELIMITERS, key=header_line.count))
        try:
            header = next(lines, [])
            for line in lines:
                if not line:
                    continue
                if len(line) == len(header):
                    yield FileRow(lines.line_num, _cells(list(zip(header, line, strict=True))))
                else:
                    yield FileRow(lines.line_num, fault="fields")
        except csv.Error as error:
            # its messages name the rule only
            where = f" at line {lines.line_num}"
            raise UnreadableFile(file=path.name, where=where, detail=str(error)) from None


def _cut_character(error: UnicodeError) -> tuple[str, int]:
    """Replace a character whose last bytes are cut off at the end of a cell; any other fault is an error."""
    if isinstance(error, UnicodeDecodeError):
        rest = error.object[error.end : error.end + 1]
        if 0xC2 <= error.object[error.start] <= 0xF4 and rest in (b"", b'"', b",", b"\r", b"\n"):
            return "\ufffd", error.end
    raise error


codecs.register_error(CUT_CHARACTER, _cut_character)


def _jsonl(path: Path) -> Iterator[FileRow]:
    # split at line feeds only: a post may contain other line separators
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), start=1):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            yield _object(number, value)


def _json(path: Path) -> Iterator[FileRow]:
    rows = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(rows, list):
        raise UnreadableFile(file=path.name, where="", detail="it is not a JSON list of rows")
    yield from map(_object, count(1), rows)


def _parquet(path: Path) -> Iterator[FileRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path).to_pylist()
    except pa.ArrowException as error:
        raise UnreadableFile(file=path.name, where="", detail=type(error).__name__) from None
    yield from map(_object, count(1), rows)


def _object(number: int, value: object) -> FileRow:
    return (
        FileRow(number, _cells(list(value.items()))) if isinstance(value, dict) else FileRow(number, fault="not_json")
    )


def _cells(pairs: list[tuple[str, object]]) -> Cells:
    """Return the cells by column; a name that two columns share is dropped."""
    names = Counter(normal(name) for name, _ in pairs)
    return {normal(name): value for name, value in pairs if names[normal(name)] == 1}


def first(cells: Cells, names: Names) -> object:
    """Return the first of the named cells that is present and not blank, or ``None``."""
    for name in names:
        value = cells.get(normal(name))
        if value is not None and value != "":
            return value
    return None


def text_of(value: object) -> str:
    """Return a cell as text, empty for ``None``; an unpaired surrogate is replaced by a question mark."""
    return "" if value is None else str(value).encode(errors="replace").decode()


def list_of(value: object) -> list[str] | None:
    """Return the strings of a JSON list or of a cell with a JSON or Python list; ``None`` for anything else."""
    if isinstance(value, str):
        value = _literal(value)
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
        return None
    return [text_of(part) for part in value]


def complete_posts(cell: object) -> list[str] | None:
    """Return the complete strings of a list whose end was cut off, or ``None`` for anything else."""
    match = CUT_LIST.fullmatch(cell) if isinstance(cell, str) else None
    return list_of(f"[{match[1] or ''}]") if match else None


def _literal(cell: str) -> object:
    if len(cell) > MAX_CELL or not cell.lstrip().startswith("["):
        return None
    parsers: tuple[Callable[[str], object], ...] = (json.loads, ast.literal_eval)
    for parse in parsers:
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse(cell.strip())
    return None


def flag_of(value: object) -> bool | None:
    """Return whether a cell is 1 (true) or 0 (false), or ``None`` for any other content."""
    if isinstance(value, float) and math.isnan(value):
        return None
    word = "" if value is None else str(value).strip().casefold()
    return word in TRUE if word in TRUE | FALSE else None


def fullname_of(value: object) -> str | None:
    """Return the fullname (``t3_...``) of a post given as fullname, bare id or URL, or ``None`` for other text."""
    word = text_of(value).strip()
    if FULLNAME.fullmatch(word.lower()):
        return word.lower()
    match = ADDRESS.search(word) or BARE.fullmatch(word)
    return f"t3_{match[1].lower()}" if match else None


def moment_of(value: object) -> datetime | None:
    """Parse seconds since the epoch or an ISO date to an aware UTC time, or return ``None`` for other text."""
    word = text_of(value).strip()
    try:
        if re.fullmatch(r"\d{9,10}(\.\d+)?", word):
            word = datetime.fromtimestamp(float(word), tz=UTC).isoformat()
        moment = datetime.fromisoformat(word)
        moment = (moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)).replace(microsecond=0)
    except (ValueError, OverflowError):
        return None
    return moment if moment.year >= REDDIT_BEGAN else None
