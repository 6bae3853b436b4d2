"""Find deleted records in files, and rewrite files without them.

Content becomes unreadable when its key is destroyed. This module removes what stays readable: record ids, and names
made of ids (a cluster or group of near-duplicates is named after one of its records).
"""

from __future__ import annotations

import binascii
import mmap
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from pipelines.storage import tables
from pipelines.takedown.redacted_tables import BLANK, TOKEN, GoneRows, Left, StillThere, ids_in_table

TOKEN_BYTES = re.compile(TOKEN.pattern.encode())
# Files in which each line is about one record; a DVC object has no suffix and is recognised by its header.
LINES = frozenset({".csv", ".tsv", ".jsonl", ".txt"})
HEADER = b"record_id,"


class Gone:
    """A set of deleted records, with methods that find and remove their ids in files."""

    def __init__(self, record_ids: Collection[str]) -> None:
        self.ids = frozenset(record_ids)
        self.array = tables.strings(sorted(self.ids))
        self._bytes = frozenset(i.encode() for i in self.ids)
        self._rows = GoneRows(self.ids, array=self.array)

    def within(self, path: Path) -> int:
        """Count the rows and names in a file that contain the id of a deleted record.

        Of a Parquet file the text columns are read, never the sealed ones; of any other file the bytes.
        """
        return self._rows.within(path) if is_table(path) else len(self._tokens(path))

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
        if is_table(path):
            return self._rows.without(path, to)
        left = self._lines(path, to) if _begins(path, HEADER) else self._blank(path, to)
        if places := self.within(to):
            to.unlink()
            raise StillThere(records=len(self.ids), places=places)
        return left

    def _lines(self, path: Path, to: Path) -> Left:
        old = path.read_bytes()
        fresh = self.out_of(old, name="object.csv")
        to.write_bytes(fresh)
        return Left(rows=len(old.splitlines()) - len(fresh.splitlines()))

    def _blank(self, path: Path, to: Path) -> Left:
        found = self._tokens(path)
        shutil.copyfile(path, to)
        if found:
            with to.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
                for start in found:
                    data[start : start + len(BLANK)] = BLANK.encode()
        return Left(renamed=len(found))

    def _tokens(self, path: Path) -> list[int]:
        if not path.stat().st_size or not self.ids:
            return []
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return [match.start() for match in TOKEN_BYTES.finditer(data) if match.group() in self._bytes]


def ids_in(path: Path) -> bytes:
    """Return all ids that :meth:`Gone.within` could find in a file: 16 bytes each, in any order, with repetitions."""
    if is_table(path):
        return ids_in_table(path)
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
