"""Find deleted records in files, and rewrite files without them.

Content becomes unreadable when its key is destroyed. This module removes what stays readable: record ids, and names
made of ids (a cluster or group of near-duplicates is named after one of its records).
"""

from __future__ import annotations

import binascii
import mmap
import re
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.core.errors import DataError
from pipelines.store import table_files, tables
from pipelines.store.blind import ABOUT, CSV

# Columns that name a set of rows after one of them, as "<record_id><mark><image>".
SETS = ("cluster", "group")
# The columns of a list of training records: some that only the list of a trained model has, all of a model package's.
OF_SPLITS, OF_PACK = frozenset({"group", "split"}), ["record_id"]
TOKEN = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
TOKEN_BYTES = re.compile(TOKEN.pattern.encode())
# A text that begins with an id and is too short for a second one.
ONE_ID = r"^[0-9a-f]{32}(?:[^0-9a-f][\s\S]{0,31})?$"
BLANK = "0" * 32
# Files in which each line is about one record; a DVC object has no suffix and is recognised by its header.
LINES = frozenset({".csv", ".tsv", ".jsonl", ".txt"})


@dataclass(frozen=True)
class Left:
    """What removing deleted records changed in a file: the number of removed rows, and of ids replaced or blanked.

    ``lists`` has, for a list of training records, the digests of its ids before and after and the number removed.
    """

    rows: int = 0
    renamed: int = 0
    lists: tuple[tuple[str, str, int], ...] = field(default=(), compare=False)


class Gone:
    """A set of deleted records, with methods that find and remove their ids in files."""

    def __init__(self, record_ids: Collection[str]) -> None:
        self.ids = frozenset(record_ids)
        self.array = tables.strings(sorted(self.ids))
        self._bytes = frozenset(i.encode() for i in self.ids)

    def within(self, path: Path) -> int:
        """Count the rows and names in a file that contain the id of a deleted record.

        Of a Parquet file the text columns are read, never the sealed ones; of any other file the bytes.
        """
        if not is_table(path):
            return len(self._tokens(path))
        file = pq.ParquetFile(path)
        texts = _texts(file.schema_arrow)
        if not texts:
            return 0
        table = file.read(columns=texts)
        return int(pc.sum(self._about(table)).as_py() or 0) + sum(
            int(pc.sum(pc.is_in(_flat(table[name]), value_set=self._mentions(table[name]))).as_py() or 0)
            for name in texts
            if name not in ABOUT
        )

    def named_in(self, text: bytes) -> bool:
        """Return whether a text contains the id of a deleted record."""
        return not self._bytes.isdisjoint(TOKEN_BYTES.findall(text))

    def out_of(self, text: bytes, *, name: str) -> bytes:
        """Return a file's text without deleted records: drop lines with an id or, in other formats, blank the ids."""
        if Path(name).suffix in LINES:
            return b"".join(line for line in text.splitlines(keepends=True) if not self.named_in(line))
        return TOKEN_BYTES.sub(lambda m: BLANK.encode() if m.group() in self._bytes else m.group(), text)

    def without(self, path: Path, to: Path) -> Left:
        """Write a copy of a file to ``to`` without rows of the deleted records; other rows keep their values and order.

        A cluster or group that was named after a deleted record is named after its smallest remaining record id, as in
        the stage that makes it. A table of a known schema gets the bytes that its stage would write without the
        records. If the copy still names a deleted record, it is removed and :class:`StillThere` raised.
        """
        work = self._rows if is_table(path) else self._lines if _begins(path, CSV) else self._blank
        left = work(path, to)
        if places := self.within(to):
            to.unlink()
            raise DataError("StillThere", records=len(self.ids), places=places)
        return left

    def _rows(self, path: Path, to: Path) -> Left:
        table = pq.read_table(path)
        kept, renamed = self._kept(table)
        write(kept, to)
        names = table.column_names
        lists = self._lists(table) if names == OF_PACK or OF_SPLITS.issubset(names) else ()
        return Left(rows=table.num_rows - kept.num_rows, renamed=renamed, lists=lists)

    def _lines(self, path: Path, to: Path) -> Left:
        old = path.read_bytes()
        fresh = self.out_of(old, name="object.csv")
        to.write_bytes(fresh)
        return Left(rows=len(old.splitlines()) - len(fresh.splitlines()))

    def _blank(self, path: Path, to: Path) -> Left:
        offsets = self._tokens(path)
        shutil.copyfile(path, to)
        if offsets:
            with to.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
                for start in offsets:
                    data[start : start + len(BLANK)] = BLANK.encode()
        return Left(renamed=len(offsets))

    def _tokens(self, path: Path) -> list[int]:
        if not path.stat().st_size or not self.ids:
            return []
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return [match.start() for match in TOKEN_BYTES.finditer(data) if match.group() in self._bytes]

    def _kept(self, table: pa.Table) -> tuple[pa.Table, int]:
        """Return the rows that stay, in the order of their table, and how many names in them were replaced."""
        kept, renamed = table.filter(pc.invert(self._about(table))), 0
        for at, column in enumerate(kept.schema):
            if not _is_text(column.type) or column.name in ABOUT:
                continue
            if len(mentions := self._mentions(kept[column.name])):
                values = _renamed(kept, column.name, mentions=set(mentions.to_pylist()), blank=self._blanked)
                renamed += pc.sum(pc.is_in(_flat(kept[column.name]), value_set=mentions)).as_py()
                kept = kept.set_column(at, column, pa.array(values, column.type))
        name = renamed and _name(kept.schema)
        key = tables.key_of(tables.SCHEMAS[name]) if name else []
        return table_files.in_order(kept, key=key) if key else kept, renamed

    def _lists(self, table: pa.Table) -> tuple[tuple[str, str, int], ...]:
        parts = [table["record_id"]]
        if "split" in table.column_names:
            parts.append(table["record_id"].filter(pc.equal(table["split"], tables.TRAIN)))
        left = [part.filter(pc.invert(pc.is_in(part, value_set=self.array))) for part in parts]
        changes = [(tables.listed(old), tables.listed(new)) for old, new in zip(parts, left, strict=True)]
        return tuple((old, new, had - kept) for (had, old), (kept, new) in changes if (had, old) != (kept, new))

    def _about(self, table: pa.Table) -> pa.ChunkedArray:
        matches = pa.chunked_array([pa.array([False]).take(pa.array([0] * table.num_rows, pa.int32()))])
        for name in ABOUT:
            if name in table.column_names:
                matches = pc.or_(matches, pc.is_in(table[name], value_set=self.array))
        return matches

    def _mentions(self, column: pa.ChunkedArray) -> pa.Array:
        single, starts, rest = _parted(column)
        named = single.filter(pc.is_in(starts, value_set=self.array)).to_pylist()
        return tables.strings(named + [v for v in rest.to_pylist() if not self.ids.isdisjoint(TOKEN.findall(v))])

    def _blanked(self, value: str) -> str:
        return TOKEN.sub(lambda match: BLANK if match.group() in self.ids else match.group(), value)


def ids_in(path: Path) -> bytes:
    """Return all ids that :meth:`Gone.within` could find in a file: 16 bytes each, in any order, with repetitions."""
    if is_table(path):
        with pq.ParquetFile(path) as file:
            texts = _texts(file.schema_arrow)
            parts = (file.read_row_group(number, columns=texts) for number in range(file.num_row_groups))
            return b"".join(_ids(part[name], whole=name in ABOUT) for part in parts for name in texts)
    if not path.stat().st_size:
        return b""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return binascii.unhexlify(b"".join(TOKEN_BYTES.findall(data)))


def is_table(path: Path) -> bool:
    """Return whether a file is Parquet, by its first bytes."""
    return _begins(path, b"PAR1")


def _begins(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(mark)) == mark


def write(table: pa.Table, to: Path) -> None:
    """Write a table with any columns, also of an older schema, in the format of :func:`tables.write`, rows in order."""
    name = _name(table.schema)
    # a schema of an earlier commit or of a pack has no known key
    groups = tables.group_count(len(table), name=name) if name else 1
    # Arrow reads the items of lists under another name
    table = table.cast(tables.SCHEMAS[name]) if name else table
    table_files.write(table, to, sealed=tables.sealed_columns(table.schema), groups=groups)


def _name(schema: pa.Schema) -> str | None:
    return next((name for name, known in tables.SCHEMAS.items() if schema.equals(known)), None)


def _texts(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if _is_text(field.type)]


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.list_flatten(column) if pa.types.is_list(column.type) else column


def _parted(column: pa.ChunkedArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the distinct values of a column that may contain an id, in two parts.

    The first part are values that begin with an id and contain no other, and these ids; the second the other values.
    """
    values = _flat(column).unique().drop_null()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    likely = values.filter(pc.match_substring_regex(values, "[0-9a-f]{32}"))
    begins = pc.match_substring_regex(likely, ONE_ID)
    single = likely.filter(begins)
    return single, pc.utf8_slice_codeunits(single, 0, 32).cast(pa.string()), likely.filter(pc.invert(begins))


def _ids(column: pa.ChunkedArray, *, whole: bool) -> bytes:
    single, starts, rest = _parted(column)
    if whole:
        return binascii.unhexlify("".join(starts.filter(pc.equal(pc.utf8_length(single), 32)).to_pylist()))
    return binascii.unhexlify("".join([*starts.to_pylist(), *TOKEN.findall(" ".join(rest.to_pylist()))]))


def _renamed(table: pa.Table, name: str, *, mentions: set[str], blank: Callable[[str], str]) -> list[object]:
    heirs: dict[str, str] = {}
    if name in SETS and {"record_id", "image"} <= set(table.column_names):
        named = table.filter(pc.is_in(table[name], value_set=tables.strings(sorted(mentions))))
        members = zip(*(named[column].to_pylist() for column in ("record_id", "image", name)), strict=True)
        for record_id, image, value in sorted(members):
            heirs.setdefault(value, f"{record_id}{value[32:33]}{image}")

    def blanked(value: object) -> object:
        if isinstance(value, list):
            return [blanked(each) for each in value]
        return heirs.get(value) or blank(value) if isinstance(value, str) and value in mentions else value

    return [blanked(value) for value in table[name].to_pylist()]
