"""Read tables as people publish and send them: files, archives of them, and folders of pictures.

Files are untrusted: only regular ones of a limited size are read (:mod:`pipelines.annotate.imports.grid` parses them).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from pipelines.annotate.imports.cells import Cells, normal
from pipelines.annotate.imports.grid import (
    MAGIC,
    MAX_BYTES,
    Fault,
    Grid,
    Layout,
    flattened,
    grid_of,
    is_workbook,
    limited,
    values_of,
)
from pipelines.core import untrusted
from pipelines.core.errors import DataError

PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp"}
SUFFIXES = {".csv", ".tsv", ".tab", ".json", ".jsonl", ".ndjson", ".xlsx", ".parquet", ".arrow", ".feather"}
BINARY = {".parquet", ".arrow", ".feather", ".xlsx", ".zip", ".gz"}
# Ours: rows that are compared with the header, and the longest name of a column.
LOOKED_AT, LONGEST_NAME = 1000, 60


class UnreadableFile(DataError):
    """A file of a published dataset cannot be read as a table."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """One row of a file: its cells by normalised column name, or the reason why it is invalid."""

    line: int
    cells: Cells = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class File:
    """One table: its name, the SHA-256 of its bytes, and its columns by normalised name.

    ``twice`` are names that several columns have: they are in no row. Pictures that cells name are below ``folder``.
    """

    name: str
    digest: str
    grid: Grid
    folder: str = ""

    @cached_property
    def _places(self) -> dict[str, int]:
        names = [normal(name) for name in self.grid.header]
        counts = Counter(names)
        return {name: at for at, name in enumerate(names) if name and counts[name] == 1}

    @property
    def columns(self) -> frozenset[str]:
        """The normalised names of the columns that have one name each."""
        return frozenset(self._places)

    @cached_property
    def twice(self) -> frozenset[str]:
        return frozenset(map(normal, self.grid.header)) - self.columns - {""}

    @cached_property
    def headerless(self) -> bool:
        """Whether the first row looks like the others: a long text, a number, or a cell that its column repeats."""
        return any(
            len(name) > LONGEST_NAME or name.strip().isdecimal() or name in values_of(column[:LOOKED_AT])
            for name, column in zip(self.grid.header, self.grid.columns, strict=True)
            if name.strip()
        )

    @property
    def size(self) -> int:
        """The number of rows, invalid ones included."""
        return len(self.grid.numbers) + len(self.grid.ragged) + len(self.grid.faults)

    def column(self, name: str) -> Sequence[Any]:
        """Return the cells of a column; a picture within a table stays in Arrow's memory."""
        return values_of(self.grid.columns[self._places[name]])

    def rows(self, *, only: Collection[str] | None = None, empty: Collection[str] = ()) -> Iterator[FileRow]:
        """Yield the rows in their order, with the cells of the columns ``only``; ``empty`` are texts of empty cells."""
        blank = {word.strip().casefold() for word in empty}
        names = sorted(self.columns if only is None else self.columns & set(only))
        faults = sorted((dict.fromkeys(self.grid.ragged, "fields") | dict(self.grid.faults)).items())
        whole: Iterator[tuple[Any, ...]] = zip(*map(self.column, names), strict=True)
        for number, cells in zip(self.grid.numbers, whole if names else iter(()), strict=False):
            while faults and faults[0][0] < number:
                yield FileRow(faults[0][0], fault=faults.pop(0)[1])
            row = dict(zip(names, cells, strict=True))
            yield FileRow(number, {n: c for n, c in row.items() if not _blank(c, blank)} if blank else row)
        yield from (FileRow(number, fault=fault) for number, fault in faults)


def _blank(cell: object, words: Collection[str]) -> bool:
    return isinstance(cell, str) and cell.strip().casefold() in words


def read_files(paths: Sequence[Path], *, layout: Layout | None = None) -> list[File]:
    """Read the tables of files; an archive or a folder may have several."""
    layout = layout or Layout()
    return [f for path in paths for f in (_folder if path.is_dir() else _read)(path, layout=layout)]


def _folder(path: Path, *, layout: Layout) -> Iterator[File]:
    """Read a folder of pictures: its files ``metadata.*``, or else a folder for each label, below one for a split."""
    tables = sorted(each for each in path.rglob("metadata.*") if each.suffix in SUFFIXES)
    for each in tables:
        inner = each.parent.relative_to(path).as_posix()
        for file in _read(each, layout=layout):
            yield replace(file, name=f"{inner}/{file.name}", folder=inner)
    if not tables:
        names = sorted(each.relative_to(path).as_posix() for each in path.rglob("*") if each.suffix.lower() in PICTURES)
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
        yield File(path.name, digest, _classes(names, names))


def _classes(names: Sequence[str], pictures: Sequence[Any] | pa.ChunkedArray) -> Grid:
    """Return the table of pictures in a folder for each label, below one for a split."""
    places = [PurePosixPath(name).parts for name in names]
    labels, splits = [p[-2] if len(p) > 1 else "" for p in places], [p[0] if len(p) > 2 else "" for p in places]
    return Grid(["file_name", "label", "split"], [pictures, labels, splits], range(1, len(names) + 1))


def _read(path: Path, *, layout: Layout) -> Iterator[File]:
    name = path.name
    try:
        whole = content_of(path)
        if whole.startswith(b"PK\x03\x04") and (grid := _packed_pictures(whole)):
            yield File(name, hashlib.sha256(whole).hexdigest(), grid)
            return
        for name, content in _unpacked(path.name, whole):
            yield File(name, hashlib.sha256(content).hexdigest(), flattened(grid_of(content, layout=layout)))
    except Fault as fault:
        raise UnreadableFile(file=name, where=fault.where, detail=fault) from None


def _packed_pictures(content: bytes) -> Grid | None:
    """Return the table of an archive that has pictures and no table: a folder for each label."""
    with suppress(zipfile.BadZipFile, RuntimeError), zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {
            part.filename: part for part in archive.infolist() if not PurePosixPath(part.filename).name.startswith(".")
        }
        kinds = {PurePosixPath(name).suffix.lower() for name in parts}
        if kinds & PICTURES and not kinds & SUFFIXES:
            names = sorted(name for name in parts if PurePosixPath(name).suffix.lower() in PICTURES)
            limited(b"", size=sum(parts[name].file_size for name in names))
            # most archives have one folder with all others
            top = os.path.commonpath([*map(os.path.dirname, names)]) if len({*map(os.path.dirname, names)}) > 1 else ""
            inner = [name.removeprefix(f"{top}/") for name in names]
            cells = [{"path": short, "bytes": archive.read(name)} for short, name in zip(inner, names, strict=True)]
            return _classes(inner, pa.chunked_array([pa.array(cells)]))
    return None


def content_of(path: Path, *, links: bool = True) -> bytes:
    """Return the bytes of a regular file that is not too large."""
    try:
        content = untrusted.read(path, links=links, most=MAX_BYTES + 1)
    except OSError as error:
        raise Fault(f"the system says: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise Fault(f"it has more than {MAX_BYTES // 2**20} MiB: split it into several files")
    return content


def _unpacked(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of a file, or of each table in an archive."""
    kind = next((kind for magic, kind in MAGIC.items() if content.startswith(magic)), "")
    try:
        if kind == "gz":
            with gzip.open(io.BytesIO(content)) as packed:
                yield from _inner(name.removesuffix(".gz"), limited(packed.read(MAX_BYTES + 1)))
        elif kind == "zip" and not is_workbook(content):
            yield from _members(content)
        elif kind or (suffix := PurePosixPath(name).suffix.lower()) not in BINARY:
            yield name, content
        else:
            raise Fault(f"its content is not that of a {suffix} file: it is cut off, or has the name of another format")
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error, RuntimeError, NotImplementedError) as error:
        raise Fault(f"the archive is damaged or has a password ({type(error).__name__})") from None


def _members(content: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        paths = {part: PurePosixPath(part.filename) for part in archive.infolist() if not part.is_dir()}
        tables = {
            part: path for part, path in paths.items() if {path.suffix.lower(), Path(path.stem).suffix} & SUFFIXES
        }
        tables = {part: p for part, p in tables.items() if not (p.name.startswith(".") or p.parts[0] == "__MACOSX")}
        if not tables:
            raise Fault(f"none of its {len(paths)} files is a table ({', '.join(sorted(SUFFIXES))})")
        limited(b"", size=sum(part.file_size for part in tables))
        for part, path in sorted(tables.items(), key=lambda pair: pair[1]):
            yield from _inner(path.name, archive.read(part))


def _inner(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a file of an archive; an archive in it could expand without end."""
    if content.startswith(b"\x1f\x8b") or (content.startswith(b"PK\x03\x04") and not is_workbook(content)):
        raise Fault("it has an archive within an archive: unpack it first")
    yield name, content
