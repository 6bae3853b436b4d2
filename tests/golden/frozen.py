"""Bring the outs of a corpus into comparable lines, and compare two corpora line by line.

A file becomes lines by key: a row of a table by its key columns, a number by its path in a JSON file, the cells of a
table of a page by their place, anything else its digest. Content is hashed and never kept.
"""

from __future__ import annotations

import csv
import hashlib
import json
import lzma
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Lines = dict[str, str]
Frozen = dict[str, dict[str, Lines]]
"""The lines of every file, by stage or month and by path."""
Unseal = Callable[[pa.Table], pa.Table]

# What two runs of equal code have otherwise. Measured: seconds. Drawn or dated: ids of MLflow's runs, commits, times.
# Digests over files that hold one of these, or content under keys that are drawn for each record: of packs, of pairs
# of packs, and of the one sealed file of a model.
OWN = re.compile(r"(^|\.)(seconds|seconds_per_record|data_commit|run|pair)(\.|$)|(^|\.)files(\.neighbours\.parquet)?$")
NOW = re.compile(r"20(2[4-9]|[3-9]\d)-\d\d-\d\d(T\d\d:|$)")  # the sandbox's posts and answers are older
# The head of a table with measured times.
MEASURED = re.compile("second", re.IGNORECASE)
# Columns of tables whose rows are kept readable, because they are labels and scores and no content.
READABLE = {"scores", "labels", "split"}
# The tables of a report are in CSV files and in Markdown, too.
SAME = (".tex", ".html")
VOCABULARY = "tokenizer.json"
# A library that adds up in another order moves the last bits.
DIGITS = 9
# Lines that are named for each file; the rest is counted.
SHOWN = 8
# Characters of a record's pseudonym that are kept.
ID = 10


def lines_of(path: Path, *, unseal: Unseal) -> Lines:
    """Return the lines of a file, in short."""
    return in_short(path.name, _lines_of(path, unseal=unseal))


def in_short(name: str, lines: Lines) -> Lines:
    """Return one digest for each table of a file that repeats another one, and one for a vocabulary."""
    if not name.endswith((*SAME, VOCABULARY)):
        return lines
    parts = groupby(lines.items(), key=lambda line: line[0].partition(" row")[0] if name.endswith(SAME) else "all")
    return {part: _digest(json.dumps(list(members)).encode()) for part, members in parts}


def _lines_of(path: Path, *, unseal: Unseal) -> Lines:
    match path.suffix:
        case ".parquet":
            return dict(_rows(unseal(pq.read_table(path))))
        case ".json":
            return values_of(json.loads(path.read_text()))
        case ".csv" | ".tex" | ".md" | ".html":
            return {
                f"table {n} row {m}": "|".join(cells)
                for n, table in enumerate(_tables(path), start=1)
                if not MEASURED.search(" ".join(table[0]))
                for m, cells in enumerate(table, start=1)
            }
    return {"digest": _digest(path.read_bytes())}


def values_of(value: Any) -> Lines:
    """Return every leaf of a JSON value by its path, but those that are each run's own."""
    return {path: text for path, text in flat(value) if not OWN.search(path) and not NOW.match(text)}


def flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every leaf of a JSON value with its path."""
    if isinstance(value, dict | list) and value:
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(member, f"{path}.{key}" if path else str(key))
    else:
        yield path, text_of(value)


def text_of(value: Any) -> str:
    """Return a value as text: a float with so many digits, bytes as their digest."""
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    if isinstance(value, bytes):
        return _digest(value)
    if isinstance(value, list):
        return " ".join(f"{round(member, 6):g}" if isinstance(member, float) else str(member) for member in value)
    return str(value)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _rows(table: pa.Table) -> Iterator[tuple[str, str]]:
    metadata = table.schema.metadata or {}
    key = [name for name in metadata.get(b"key", b"").decode().split(",") if name in table.column_names]
    yield "columns", " ".join(f"{field.name}:{field.type}" for field in table.schema)
    readable = READABLE & {*table.column_names}
    seen: dict[str, int] = {}
    for row in table.to_pylist():
        name = " ".join(str(row[column])[:ID] for column in key) if key else str(len(seen))
        seen[name] = seen.get(name, 0) + 1
        rest = [text_of(value) for column, value in row.items() if column not in key]
        text = "|".join(rest) if readable else _digest("|".join(rest).encode())[:8]
        yield name if seen[name] == 1 else f"{name} #{seen[name]}", text


def _tables(path: Path) -> list[list[list[str]]]:
    """Return the cells of the tables of a file, by rows."""
    text = path.read_text()
    match path.suffix:
        case ".csv":
            return [list(csv.reader(text.splitlines()))] if text.strip() else []
        case ".html":
            parser = _Page()
            parser.feed(text)
            return [table for table in parser.tables if table]
    # rules divide the rows of the one table of a LaTeX file
    mark, cut = ("&", re.compile(r"\s*&\s*|\s*\\\\.*")) if path.suffix == ".tex" else ("|", re.compile(r"\s*\|\s*"))
    blocks = (list(lines) for inside, lines in groupby(text.splitlines(), key=lambda line: mark in line) if inside)
    tables = [[[cell for cell in cut.split(line.strip()) if cell] for line in block] for block in blocks]
    return [[row for table in tables for row in table]] if path.suffix == ".tex" and tables else tables


class _Page(HTMLParser):
    """The cells of all tables of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        self._inside = self._inside or tag in ("td", "th")
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.tables[-1][-1][-1] += data.strip()


def freeze(root: Path, outs: Mapping[str, Iterable[str]], *, unseal: Unseal) -> Frozen:
    """Return the lines of all files at or below the outs of each stage."""
    frozen: Frozen = {}
    for stage, paths in outs.items():
        for out in (root / path for path in paths):
            files = [out] if out.is_file() else sorted(path for path in out.rglob("*") if path.is_file())
            for file in files:
                name = file.relative_to(root).as_posix()
                frozen.setdefault(stage, {})[name] = lines_of(file, unseal=unseal)
    return frozen


def save(frozen: Frozen, path: Path) -> None:
    """Write the digest of each file as JSON, for readers of a diff, and the lines beside it, compressed."""
    index = {
        stage: {name: _digest(json.dumps(lines).encode())[:12] for name, lines in files.items()}
        for stage, files in frozen.items()
    }
    path.parent.mkdir(exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")
    path.with_suffix(".xz").write_bytes(lzma.compress(json.dumps(frozen, sort_keys=True).encode(), preset=9))


def load(path: Path) -> Frozen:
    """Read what :func:`save` wrote."""
    frozen: Frozen = json.loads(lzma.decompress(path.with_suffix(".xz").read_bytes()))
    return frozen


def differences(wanted: Frozen, found: Frozen) -> Iterator[str]:
    """Yield one line for each difference, below the name of its stage."""
    for stage in sorted(wanted.keys() | found.keys()):
        before, after = wanted.get(stage, {}), found.get(stage, {})
        told = [
            line
            for name in sorted(before.keys() | after.keys())
            for line in _of_file(name, before.get(name), after.get(name))
        ]
        if told:
            yield f"{stage}:"
            yield from told


def _of_file(name: str, before: Lines | None, after: Lines | None) -> Iterator[str]:
    if before is None or after is None:
        yield f"  {name}: {'new' if before is None else 'missing'}"
        return
    changed = [key for key in before if key in after and before[key] != after[key]]
    for what, keys in (("changed", changed), ("missing", before.keys() - after), ("new", after.keys() - before)):
        if name.endswith(".parquet") and keys:
            first = ", ".join(sorted(keys)[:SHOWN])
            yield f"  {name}: {len(keys)} rows {what}: {first}{', …' if len(keys) > SHOWN else ''}"
        else:
            for key in sorted(keys)[:SHOWN]:
                yield f"  {name}: {key}: {before.get(key, what)} -> {after.get(key, what)}"
            if len(keys) > SHOWN:
                yield f"  {name}: {len(keys) - SHOWN} further values {what}"
