"""Give each table bytes that cannot be guessed once the key of one of its records is deleted.

git keeps digest and size of every table for good. Without these bytes, anyone who guesses the row of a deleted record,
such as its label, adds it to today's table and compares. The bytes follow from the keys of all records that the table
names, so that equal tables are equal; their number does, too, and hides that of the row's own.

They are before the footer of a Parquet file, which readers find from the end, and a comment at the end of a CSV file.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow.parquet as pq

from pipelines.store.vault.vault import Vault

# Columns whose value is the id of a record: the row is about that record.
ABOUT = ("record_id", "other_id")
PARQUET, CSV = b"PAR1", b"record_id,"
# After the bytes and their number, before the footer.
MARK = b"\ncrisis-corpus/blind\n"
COMMENT = b"# blind "
ID = re.compile(rb"^[0-9a-f]{32}(?=,)", re.MULTILINE)
BYTES = 32
# Ours: rows of our tables differ by some ten bytes when compressed, which shows in 1 % of the lengths then.
LENGTHS = 2**12


def blind(path: Path, *, keys: Callable[[], Vault]) -> None:
    """Put the bytes into a table that names records, in place of earlier ones; leave other files.

    A file with several names, such as a link to an object, is copied first. ``keys`` opens the vault.
    """
    with path.open("rb") as file:
        head = file.read(len(CSV))
    if head.startswith(PARQUET):
        ids, (start, end), wrap = _named(path), _gap(path), _framed
    elif head == CSV:
        data = path.read_bytes()
        ids, end, wrap = {match.decode() for match in ID.findall(data)}, len(data), _comment
        start = at if (at := data.rfind(COMMENT)) >= 0 else end
    else:
        return
    if ids:
        _put(path, wrap(_made(_seed(ids, vault=keys()))), start=start, end=end)


def _made(seed: bytes) -> bytes:
    return hashlib.shake_256(seed).digest(BYTES + int.from_bytes(seed[:4], "little") % LENGTHS)


def _seed(ids: Iterable[str], *, vault: Vault) -> bytes:
    wanted, seed = sorted(ids), hashlib.sha256(MARK)
    known = vault.keys(wanted)
    for record_id in wanted:
        # a record of a deployment without its content has no key
        key = known.get(record_id) or vault.record_id(record_id, domain="blind").encode()
        seed.update(record_id.encode() + b"\0" + key)
    return seed.digest()


def _named(path: Path) -> set[str]:
    with pq.ParquetFile(path) as table:
        names = [name for name in ABOUT if name in table.schema_arrow.names]
        read = table.read(columns=names) if names else None
    return {value for name in names for value in read[name].unique().to_pylist()} - {None} if read else set()


def _gap(path: Path) -> tuple[int, int]:
    """Return where the bytes of a Parquet file begin and where its footer does."""
    size, tail = path.stat().st_size, len(PARQUET) + 4
    with path.open("rb") as file:
        file.seek(size - tail)
        end = size - tail - int.from_bytes(file.read(4), "little")
        file.seek(end - len(MARK) - 4)
        length, mark = int.from_bytes(file.read(4), "little"), file.read(len(MARK))
    return (end - len(MARK) - 4 - length if mark == MARK else end), end


def _framed(data: bytes) -> bytes:
    return data + len(data).to_bytes(4, "little") + MARK


def _comment(data: bytes) -> bytes:
    return COMMENT + data.hex().encode() + b"\n"


def _put(path: Path, data: bytes, *, start: int, end: int) -> None:
    with path.open("rb") as file:
        file.seek(start)
        if (rest := file.read()) == (fresh := data + rest[end - start :]):
            return
    if path.stat().st_nlink > 1:
        copy = path.with_name(f".{path.name}.blind")
        shutil.copyfile(path, copy)
        copy.replace(path)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(fresh)
        file.truncate()
