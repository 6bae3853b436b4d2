"""Replace row groups of a Parquet file without decoding the others: their bytes are copied, and the footer is adapted.

The footer is a struct of Thrift's compact protocol (``parquet.thrift`` of apache/parquet-format, with the field numbers
used here). Arrow can read and write it only together with the data, so it is decoded here field by field, whatever the
fields mean. A footer that does not encode to the same bytes again, or groups that have gaps, are left to the caller.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any

MAGIC = b"PAR1"
# The types of fields and elements; others do not occur in a footer.
TRUE, FALSE, BYTE, I16, I32, I64, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 8, 9, 12
INTEGERS = (I16, I32, I64)
# Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData
ROWS, GROUPS, COLUMNS, GROUP_ROWS, GROUP_AT, GROUP_ORDINAL = 3, 4, 1, 3, 5, 7
CHUNK_AT, META, META_SIZE = 2, 3, 7
META_OFFSETS = {"data": 9, "dictionary": 11}
# Page indexes, bloom filters and encrypted chunks are elsewhere in the file: not supported
CHUNK_ELSEWHERE, META_ELSEWHERE = (4, 6, 8, 9), (10, 14)
COPIED = 2**22
Struct = dict[int, tuple[int, Any]]
"""Fields in their order: number -> type and value. A list is the type of its elements and their values."""


class _Unknown(ValueError):
    """The footer has a form that this module does not know."""


class _FooterReader:
    """Read values of Thrift's compact protocol from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self) -> Struct:
        found: Struct = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            found[number] = head & 15, self._value(head & 15)
        return found

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        readers = {BYTE: self._byte, BINARY: self._binary, LIST: self._list, STRUCT: self.struct}
        readers |= dict.fromkeys(INTEGERS, self._signed)
        return readers[kind]()

    def _binary(self) -> bytes:
        size = self._unsigned()
        self._at += size
        return self._data[self._at - size : self._at]

    def _list(self) -> tuple[int, list[Any]]:
        head = self._byte()
        size, of = head >> 4 if head >> 4 < 15 else self._unsigned(), head & 15
        return of, [self._byte() if of in (TRUE, FALSE) else self._value(of) for _ in range(size)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _unsigned(self) -> int:
        found = shift = 0
        while (byte := self._byte()) & 0x80:
            found |= (byte & 0x7F) << shift
            shift += 7
        return found | byte << shift

    def _signed(self) -> int:
        zigzag = self._unsigned()
        return zigzag >> 1 ^ -(zigzag & 1)


def _encoded(struct: Struct) -> bytes:
    made, last = bytearray(), 0
    for number, (kind, value) in struct.items():
        made += bytes([number - last << 4 | kind]) if 0 < number - last <= 15 else bytes([kind]) + _signed(number)
        made += b"" if kind in (TRUE, FALSE) else _value(kind, value)
        last = number
    return bytes(made) + b"\0"


def _value(kind: int, value: Any) -> bytes:
    if kind == BYTE:
        return bytes([value])
    if kind in INTEGERS:
        return _signed(value)
    if kind == BINARY:
        return _unsigned(len(value)) + bytes(value)
    if kind == STRUCT:
        return _encoded(value)
    of: int
    values: list[Any]
    of, values = value
    head = bytes([len(values) << 4 | of]) if len(values) < 15 else bytes([15 << 4 | of]) + _unsigned(len(values))
    return head + (bytes(values) if of in (TRUE, FALSE) else b"".join(_value(of, each) for each in values))


def _unsigned(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _signed(value: int) -> bytes:
    return _unsigned(value << 1 ^ value >> 63)


def spliced(path: Path, to: Path, *, groups: Mapping[int, Path | None]) -> bool:
    """Write a copy of a Parquet file with other row groups; return whether that was possible (else nothing is written).

    The copy has the bytes that Arrow would have written with these row groups.

    Args:
        path: a file that Arrow wrote.
        to: where to write the copy.
        groups: number of the row group (from 0) -> a file of the same schema and settings with one row group to put in
            its place, or ``None`` to drop it.
    """
    try:
        footer = _footer(path)
        fresh = {number: _only_group(given) if given else None for number, given in groups.items()}
    except (ValueError, IndexError, KeyError):
        return False
    kept: list[Struct] = []
    with path.open("rb") as old, to.open("wb") as new:
        new.write(MAGIC)
        for number, group in enumerate(footer[GROUPS][1][1]):
            source = groups.get(number, path)
            if source is None:
                continue
            moved = fresh.get(number) or group
            with source.open("rb") as given:
                _copy(given if number in groups else old, new, group=moved, ordinal=len(kept))
            kept.append(moved)
        footer[GROUPS] = LIST, (STRUCT, kept)
        footer[ROWS] = I64, sum(group[GROUP_ROWS][1] for group in kept)
        encoded = _encoded(footer)
        new.write(encoded + len(encoded).to_bytes(4, "little") + MAGIC)
    return True


def _footer(path: Path) -> Struct:
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        size, mark = int.from_bytes(file.read(4), "little"), file.read()
        end = file.seek(-8 - size, os.SEEK_END)
        data = file.read(size)
    footer = _FooterReader(data).struct()
    if mark != MAGIC or _encoded(footer) != data or footer[GROUPS][1][0] != STRUCT:
        raise _Unknown(path.name)
    at = len(MAGIC)
    for group in footer[GROUPS][1][1]:
        start, size = _range(group)
        if start != at:
            raise _Unknown(path.name)
        at += size
    if at != end:
        raise _Unknown(path.name)
    return footer


def _only_group(path: Path) -> Struct:
    group: Struct
    [group] = _footer(path)[GROUPS][1][1]
    return group


def _range(group: Struct) -> tuple[int, int]:
    """Return the first byte and the size of a row group, whose column chunks must follow one another."""
    first = at = min(_start(chunk) for chunk in group[COLUMNS][1][1])
    for chunk in group[COLUMNS][1][1]:
        meta = chunk[META][1]
        if _start(chunk) != at or not chunk.keys().isdisjoint(CHUNK_ELSEWHERE):
            raise _Unknown(at)
        if not meta.keys().isdisjoint(META_ELSEWHERE):
            raise _Unknown(at)
        at += meta[META_SIZE][1]
    return first, at - first


def _start(chunk: Struct) -> int:
    meta = chunk[META][1]
    starts: list[int] = [meta[number][1] for number in META_OFFSETS.values() if number in meta]
    return min(starts)


def _copy(old: BufferedReader, new: BufferedWriter, *, group: Struct, ordinal: int) -> None:
    """Copy the bytes of a row group to the end of a file, and adapt its places in the footer."""
    start, size = _range(group)
    by = new.tell() - start
    old.seek(start)
    for left in range(size, 0, -COPIED):
        new.write(old.read(min(COPIED, left)))
    for chunk in group[COLUMNS][1][1]:
        for fields, numbers in ((chunk, [CHUNK_AT]), (chunk[META][1], META_OFFSETS.values())):
            _shift(fields, numbers=numbers, by=by)
    _shift(group, numbers=[GROUP_AT], by=by)
    if GROUP_ORDINAL in group:
        group[GROUP_ORDINAL] = I16, ordinal


def _shift(fields: Struct, *, numbers: Any, by: int) -> None:
    for number in numbers:
        # 0 means that the place is not given
        if number in fields and fields[number][1]:
            fields[number] = I64, fields[number][1] + by
