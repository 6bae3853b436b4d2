"""Parse the table in the bytes of a file: delimited text, JSON, a workbook, Parquet or Arrow.

The content decides the format, unless the :class:`Layout` states it. Nothing in the bytes is run, their expansion is
limited, and no error quotes a cell. A row with another number of cells than the others is kept apart, with its number.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.annotate.imports.cells import normal
from pipelines.core.config.base import Section

Format = Literal["csv", "tsv", "json", "jsonl", "xlsx", "parquet", "arrow"]
# Ours: far above any published table, pictures within it included, and small enough for the memory of a laptop.
MAX_BYTES = 2**30
# Ours: enough rows to see the delimiter.
SAMPLE = 2**18
# Ours: objects in cells are opened to this depth, into at most so many columns.
DEEPEST, MOST_COLUMNS = 8, 200
FASTTEXT = "__label__"
# Ours: no first row is longer.
HEAD = 2**23
BOMS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
MAGIC: dict[bytes, str] = {b"PAR1": "parquet", b"ARROW1": "arrow", b"PK\x03\x04": "zip", b"\x1f\x8b": "gz"}
csv.field_size_limit(MAX_BYTES)
REFUSED = {
    b"\xd0\xcf\x11\xe0": "it is a workbook of before 2007, or has a password: save it as .xlsx without one",
    b"\x80\x04\x95": "it is a pickle, which would run code: write it as .csv or .parquet where it was made",
    b"\x80\x05\x95": "it is a pickle, which would run code: write it as .csv or .parquet where it was made",
    b"7z\xbc\xaf": "it is a 7z archive: unpack it first",
    b"Rar!": "it is a rar archive: unpack it first",
}


class Layout(Section):
    """How the files of a dataset are written, where their content does not show it.

    ``header`` has the names of the columns of a file that has none. ``delimiter`` is one character. ``sheet`` is the
    name of the sheet of a workbook; default: the first one with rows.
    """

    format: Format | None = None
    encoding: str | None = None
    delimiter: str | None = None
    header: tuple[str, ...] = ()
    sheet: str | None = None


class Fault(Exception):
    """What is wrong with a file, in words that quote none of it, and where."""

    def __init__(self, detail: str, *, where: str = "") -> None:
        self.where = where
        super().__init__(detail)


@dataclass(frozen=True)
class Grid:
    """A table as it is in a file: the names in its first row, its columns, and the number of each row.

    ``ragged`` has the cells of rows with another number of cells than the first row, by their number, ``faults`` why
    other rows are invalid. ``note`` says what was assumed.
    """

    header: Sequence[str]
    columns: Sequence[Sequence[Any] | pa.ChunkedArray]
    numbers: Sequence[int]
    ragged: Mapping[int, list[str]] = field(default_factory=dict)
    faults: Mapping[int, str] = field(default_factory=dict)
    note: str = ""

    @property
    def rows(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number and the cells of each row, a ragged one with as many cells as the first row."""
        width = len(self.header)
        cut = {number: [*cells, *[""] * width][:width] for number, cells in self.ragged.items()}
        whole = zip(self.numbers, zip(*map(values_of, self.columns), strict=True), strict=True)
        yield from sorted(chain(((n, list(cells)) for n, cells in whole), cut.items()), key=lambda row: row[0])


def values_of(column: Sequence[Any] | pa.ChunkedArray) -> Sequence[Any]:
    """Return a column's cells as Python's; those with bytes, as pictures are, stay in Arrow's memory."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    kinds = [column.type, *(column.type.fields if pa.types.is_struct(column.type) else ())]
    return list(column) if any("binary" in str(kind) for kind in kinds) else column.to_pylist()


def limited(content: bytes, *, size: int = 0) -> bytes:
    if max(size, len(content)) > MAX_BYTES:
        raise Fault(f"it expands to more than {MAX_BYTES // 2**20} MiB: unpack it, and split it into several files")
    return content


def is_workbook(content: bytes) -> bool:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return "[Content_Types].xml" in archive.namelist()
    except zipfile.BadZipFile:
        return False


def grid_of(content: bytes, *, layout: Layout, needs: str = "") -> Grid:
    """Return the table in the bytes of a file; ``needs`` is a column that the sheet of a workbook must have."""
    if detail := next((detail for magic, detail in REFUSED.items() if content.startswith(magic)), ""):
        raise Fault(detail)
    form: str = layout.format or next((kind for magic, kind in MAGIC.items() if content.startswith(magic)), "")
    if form in ("parquet", "arrow"):
        return _arrow(content, form=form)
    if form in ("zip", "xlsx"):
        return _workbook(content, layout=layout, needs=needs)
    text, note = _text(content, encoding=layout.encoding)
    if form in ("json", "jsonl") or (not form and text.lstrip()[:1] in ("{", "[") and not layout.delimiter):
        return _json(text, lines=form == "jsonl", note=note)
    if not form and text.startswith(FASTTEXT):
        lines = [re.fullmatch(rf"((?:{FASTTEXT}\S+\s+)+)(.*)", line.strip()) for line in text.splitlines()]
        rows = [{"labels": line[1].replace(FASTTEXT, "").split(), "text": line[2]} for line in lines if line]
        return _json(json.dumps(rows), lines=False, note=note)
    return _delimited(text, layout=layout, note=note)


def flattened(grid: Grid) -> Grid:
    """Return a table whose cells with JSON objects are columns of their own, named by their last key if that is new."""
    flat: list[tuple[tuple[str, ...], Sequence[Any] | pa.ChunkedArray]] = []
    for name, column in zip(grid.header, grid.columns, strict=True):
        rows = [dict(_leaves(cell, (name,))) for cell in _objects(column)]
        paths = dict.fromkeys(path for row in rows for path in row)
        flat += [(path, [row.get(path) for row in rows]) for path in paths] if rows else [((name,), column)]
    if len(flat) > MOST_COLUMNS or all(len(path) == 1 for path, _ in flat):
        return grid
    last = Counter(normal(path[-1]) for path, _ in flat)
    header = [path[-1] if last[normal(path[-1])] == 1 else ".".join(path) for path, _ in flat]
    return replace(grid, header=header, columns=[column for _, column in flat])


def _objects(column: Sequence[Any] | pa.ChunkedArray) -> list[Any]:
    """Return the cells of a column of JSON objects, of lists of these, or of text of either; none of another column."""
    if isinstance(column, pa.ChunkedArray):
        begun = (
            pc.all(pc.match_substring_regex(column, r"^\s*(\[?\{|$)")).as_py() if column.type == pa.string() else False
        )
        cells = [_object(cell) if cell else None for cell in column.to_pylist()] if begun else []
    else:
        cells = [*column]
    return cells if any(map(_is_nested, cells)) and all(_is_nested(cell) or not cell for cell in cells) else []


def _is_nested(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict) for each in value))


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield what lies in an object or a list of objects, by the keys that lead to it."""
    if not _is_nested(value) or len(path) == DEEPEST:
        yield path, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(inner, (*path, str(key)))


def _text(content: bytes, *, encoding: str | None) -> tuple[str, str]:
    """Return the text, and what was assumed of its encoding."""
    marked = next((name for mark, name in BOMS.items() if content.startswith(mark)), None)
    zeros = [content[at : 2**12 : 2].count(0) for at in (0, 1)]
    if not marked and max(zeros) > len(content[: 2**12]) / 8:
        marked = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    try:
        text, note = content.decode(encoding or marked or "utf-8"), ""
    except LookupError:
        raise Fault(f"there is no encoding {encoding}") from None
    except UnicodeDecodeError as error:
        if encoding or marked:
            raise Fault(
                f"byte {error.start + 1:,} is not {encoding or marked}: set `encoding` in the mapping"
            ) from None
        text, note = _guessed(content)
    if "\0" in text:
        raise Fault("it has NUL characters, so that it is damaged or no text: remove them with tr -d '\\000'")
    return text, note


def _guessed(content: bytes) -> tuple[str, str]:
    """Return a text that is not quite UTF-8: with a few damaged characters, or in a code page of Western Europe."""
    text = content.decode(errors="replace")
    damaged = text.count("\ufffd")
    if sum(not c.isascii() for c in text) > 2 * damaged:
        return text, f"{damaged} damaged characters of UTF-8 were replaced"
    for page in ("cp1252", "latin-1"):
        try:
            return content.decode(page), f"read as {page}, because it is not UTF-8"
        except UnicodeDecodeError:
            continue
    raise AssertionError


def _json(text: str, *, lines: bool, note: str) -> Grid:
    """Read a list of objects, one object a line, objects by name, or columns, as pandas and others write them."""
    try:
        value = None if lines else json.loads(text)
    except (ValueError, RecursionError):
        value = None
        if not text.lstrip().startswith("{"):
            raise Fault("it is not JSON: a list of objects, or one object a line") from None
    if value is None:
        # split at line feeds only: a post may contain other line separators
        numbered = {n: _object(line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()}
    else:
        numbered = dict(enumerate(_records(value), start=1))
    rows = {number: row for number, row in numbered.items() if isinstance(row, dict)}
    if not rows and (value is not None or numbered):
        raise Fault("it is no list of JSON objects")
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    columns = [[row.get(name) for row in rows.values()] for name in names]
    return Grid(names, columns, [*rows], faults=dict.fromkeys(numbered.keys() - rows.keys(), "not_json"), note=note)


def _object(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _records(value: Any) -> list[Any]:
    """Return the rows of a JSON document."""
    if isinstance(value, dict):
        inner = [*value.values()]
        lists = [each for each in inner if isinstance(each, list) and each and isinstance(each[0], dict)]
        if len(lists) == 1:
            return list(lists[0])
        if lists and len(lists) == len(inner):  # a list for each split
            return [row if not isinstance(row, dict) else {"split": key, **row} for key in value for row in value[key]]
        if inner and all(isinstance(each, dict) for each in inner):
            if all([*each] == [*inner[0]] == [str(n) for n in range(len(inner[0]))] for each in inner):
                inner = [[*each.values()] for each in inner]  # pandas: a column is an object by row number
            else:
                return [{"key": key, **row} for key, row in value.items()]
        if inner and all(isinstance(each, list) and len(each) == len(inner[0]) for each in inner):
            return [dict(zip(value, cells, strict=True)) for cells in zip(*inner, strict=True)]
        return [value] if value else []
    return value if isinstance(value, list) else []


def _arrow(content: bytes, *, form: str) -> Grid:
    import pyarrow.feather
    import pyarrow.parquet as pq

    try:
        source = pa.BufferReader(content)
        if form == "parquet":
            parts = pq.ParquetFile(source).metadata
            limited(b"", size=sum(parts.row_group(i).total_byte_size for i in range(parts.num_row_groups)))
            table = pq.read_table(pa.BufferReader(content))
        else:
            table = pyarrow.feather.read_table(source)
    except (pa.ArrowException, OSError) as error:
        raise Fault(f"it is not whole ({type(error).__name__})") from None
    return Grid(table.column_names, table.columns, range(1, len(table) + 1))


def _workbook(content: bytes, *, layout: Layout, needs: str) -> Grid:
    from openpyxl import load_workbook

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            limited(b"", size=sum(part.file_size for part in parts.infolist()))
        book = load_workbook(io.BytesIO(content), read_only=True)
        names = [layout.sheet] if layout.sheet else book.sheetnames
        sheets = [_below_title([*_sheet(book[name])]) for name in names if name in book.sheetnames]
        book.close()
    except Fault:
        raise
    except Exception:  # openpyxl states no errors of its own for most faults of a file
        raise Fault("it is no workbook, or has a password") from None
    there = [rows for rows in sheets if rows and (not needs or needs in (normal(str(c)) for c, _ in rows[0][1]))]
    if not there:
        raise Fault(f"it has no sheet {layout.sheet or ''} with {f'a column {needs}' if needs else 'rows'}")
    width = max(len(row) for _, row in there[0])
    rows = {number: [*row, *[("", False)] * (width - len(row))] for number, row in there[0]}
    (_, head), *body = rows.items()
    header = [str(cell) for cell, _ in head]
    if layout.header:
        header, body = _headed(layout, width=width), [*rows.items()]
    faults = {} if needs else {n: "formula" for n, row in body if any(formula for _, formula in row)}
    body = [(number, row) for number, row in body if number not in faults]
    columns = [[row[at][0] for _, row in body] for at in range(width)]
    return Grid(header, columns, [number for number, _ in body], faults=faults)


def _sheet(sheet: Any) -> Iterator[tuple[int, list[tuple[Any, bool]]]]:
    """Yield the rows that are not empty: each cell, and whether it is a formula."""
    for number, row in enumerate(sheet.iter_rows(), start=1):
        cells = [(cell.value, cell.data_type == "f") for cell in row]
        if any(value not in (None, "") for value, _ in cells):
            yield number, [("" if value is None else value, formula) for value, formula in cells]


def _below_title(rows: list[tuple[int, list[tuple[Any, bool]]]]) -> list[tuple[int, list[tuple[Any, bool]]]]:
    """Return the rows from the first with several cells on: those above it are a title."""
    filled = [sum(value not in (None, "") for value, _ in row) for _, row in rows]
    return rows[next((at for at, count in enumerate(filled) if count > 1), 0) :]


def _headed(layout: Layout, *, width: int) -> list[str]:
    if len(layout.header) != width:
        raise Fault(f"the mapping's header has {len(layout.header)} names, the rows have {width} cells")
    return [*layout.header]


def _delimited(text: str, *, layout: Layout, note: str) -> Grid:
    """Read delimited text; a quote has no meaning in a file whose every line has all its cells without it."""
    stated = re.match(r"sep=(.)\r?\n", text)  # Excel's own
    text = text[stated.end() :] if stated else text
    marks = layout.delimiter or (stated[1] if stated else "\t" if layout.format == "tsv" else ",\t;|")
    if len(marks.encode()) != 1 and marks != ",\t;|":
        raise Fault("its delimiter must be one ASCII character: set `delimiter` in the mapping")
    mark, above = _delimiter(text, marks=marks)
    if above:
        text = text.split("\n", above)[above]
        note = "; ".join(filter(None, [note, f"{above} lines above the names of the columns were skipped"]))
    if not text.strip():
        return Grid(layout.header, [[] for _ in layout.header], [], note=note)
    table, numbers, ragged, closed = _parsed(text, mark=mark)
    rows = len(table) + len(ragged)
    swallowed = rows <= text.strip().count("\n") and rows < _regular_lines(text, mark=mark)
    if swallowed and not (closed and _well_quoted(text, mark=mark)):
        table, numbers, ragged, closed = _parsed(text, mark=mark, quote=False)
    if not closed:
        last = max([*numbers[-1:], *ragged])
        raise Fault(f'a cell that begins with a " never ends, at row {last:,} or before', where=f" at row {last:,}")
    if layout.header:
        return Grid(_headed(layout, width=table.num_columns), table.columns, numbers, ragged=ragged, note=note)
    header = [column[0].as_py() for column in table.columns]
    return Grid(header, table.slice(1).columns, numbers[1:], ragged=ragged, note=note)


def _parsed(text: str, *, mark: str, quote: bool = True) -> tuple[pa.Table, Sequence[int], dict[int, list[str]], bool]:
    """Return the rows as wide as the first one with their numbers, the others by number, and whether all quotes end."""
    import pyarrow.csv

    ragged: dict[int, list[str]] = {}

    def keep(row: Any) -> str:
        try:
            ragged[row.number] = next(csv.reader(io.StringIO(row.text, newline=""), delimiter=mark), [])
        except csv.Error:
            ragged[row.number] = [row.text]
        return "skip"

    text = text.strip("\r\n")
    quoting: Literal[0, 3] = 0 if quote else 3  # csv.QUOTE_MINIMAL, csv.QUOTE_NONE
    head = io.StringIO(text[:HEAD], newline="")
    width = len(next(csv.reader(head, delimiter=mark, quoting=quoting)))
    # a row after the last one is there only if all quotes end
    content = f"{text}\n{mark.join(['end'] * width)}\n".encode(errors="replace")
    table = pyarrow.csv.read_csv(
        pa.BufferReader(content),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, autogenerate_column_names=True, block_size=len(content) + 1
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=mark,
            quote_char='"' if quote else False,
            newlines_in_values=quote,
            ignore_empty_lines=False,
            invalid_row_handler=keep,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            check_utf8=False, column_types={f"f{n}": pa.string() for n in range(width)}, strings_can_be_null=False
        ),
    )
    closed = len(table) > 1 and all(column[-1].as_py() == "end" for column in table.columns)
    table = table.slice(0, len(table) - closed)
    numbers: Sequence[int] = range(1, len(table) + len(ragged) + 1)
    numbers = [number for number in numbers if number not in ragged] if ragged else numbers
    # most tables need one look: at a column without empty cells
    filled = functools.reduce(_or, table.columns, None)
    if not pc.all(filled).as_py():
        numbers, table = (
            [n for n, is_filled in zip(numbers, filled.to_pylist(), strict=True) if is_filled],
            table.filter(filled),
        )
    return table, numbers, {number: cells for number, cells in ragged.items() if any(cells)}, closed


def _or(filled: Any, column: pa.ChunkedArray) -> Any:
    """Return which rows have a cell, in the columns seen before or in this one."""
    if filled is not None and pc.all(filled).as_py():
        return filled
    here = pc.not_equal(column, "")
    return here if filled is None else pc.or_(filled, here)


def _regular_lines(text: str, *, mark: str) -> int:
    """Return the number of lines if each has the same cells, at least two, without a look at quotes; else 0."""
    lines = [line.count(mark) for line in text.split("\n") if line.strip()]
    return len(lines) if lines[0] and lines.count(lines[0]) == len(lines) else 0


def _well_quoted(text: str, *, mark: str) -> bool:
    """Return whether each quote that begins a cell has one that ends it, and none is in between."""
    try:
        for _ in csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True):
            pass
    except csv.Error:
        return False
    return True


def _delimiter(text: str, *, marks: str) -> tuple[str, int]:
    """Return the delimiter with which most rows have as many cells as the first one, and the most cells.

    Returned too is how many lines are above the first row: comments, or a title without a delimiter.
    """
    sample = text[:SAMPLE].rpartition("\n")[0] or text[:SAMPLE]
    found = {}
    for mark in marks:
        reader = csv.reader(io.StringIO(sample, newline=""), delimiter=mark)
        try:
            rows = [(len(row), row[0].startswith("#"), reader.line_num) for row in reader if row]
        except csv.Error:
            continue
        head = next((at for at, (row, under) in enumerate(pairwise(rows)) if 1 < row[0] == under[0]), 0)
        # a header that is wider than the rows below it is none of these
        head = head if all(is_comment or width == 1 for width, is_comment, _ in rows[:head]) else 0
        widths = [width for width, _, _ in rows[head:]]
        if widths and widths[0] > 1:
            found[mark] = round(widths.count(widths[0]) / len(rows), 1), widths[0], rows[head - 1][2] if head else 0
    mark = max(found, key=lambda mark: found[mark][:2], default=marks[0])
    return mark, found[mark][2] if mark in found else 0
