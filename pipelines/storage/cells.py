"""Encrypt and decrypt the cells of a table's content columns, part by part, for :mod:`pipelines.storage.seal` only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from numbers import Integral
from threading import get_ident
from typing import Any

import pyarrow as pa
import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from pipelines.errors import SchemaMismatch, SealBroken
from pipelines.storage import tables
from pipelines.vault.vault import Vault

# zstd's default; every setting is explicit, because a changed default would change every sealed byte.
LEVEL = 3
# The first associated datum of a value of a table; a value sealed alone has a single datum, its place.
FORMAT = b"crisis-corpus/row/2"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Cells:
    """Content cells of a table, with what is needed to encrypt or decrypt those of any part of its rows."""

    name: str
    bound: Mapping[str, list[Any]]
    """The columns to which content is bound; ``record_id`` is the first."""
    content: Mapping[str, list[Any]]
    wrapped: Mapping[str, bytes]
    """The keys of live records, encrypted: each process decrypts those of its part."""
    vault: Vault

    @classmethod
    def of(cls, table: pa.Table, content: Mapping[str, list[Any]], *, name: str, vault: Vault) -> Cells:
        """Return the cells ``content`` of a table; the record of a cell that is not null must be in the vault."""
        bound = {column: column_values(table[column]) for column in tables.bound_columns(name)}
        filled = {
            record_id
            for cells in content.values()
            for record_id, cell in zip(bound["record_id"], cells, strict=True)
            if cell is not None
        }
        return cls(name, bound, content, wrapped_keys(filled, vault=vault), vault)

    def sealed(self, start: int, end: int) -> list[list[bytes | None]]:
        """Return the encrypted cells of these rows, by column."""
        shrink = codecs(get_ident())[0].compress

        def sealed_cell(cipher: AESSIV, bound: list[bytes], value: Any, _row: int) -> bytes:
            return cipher.encrypt(shrink(_plain(value, name=self.name, column=bound[2])), bound)

        return self._each(sealed_cell, start, end)

    def opened(self, start: int, end: int) -> list[list[bytes | None]]:
        """Return the decrypted cells of these rows, by column."""
        expand = codecs(get_ident())[1].decompress

        def opened_cell(cipher: AESSIV, bound: list[bytes], value: bytes, row: int) -> bytes:
            try:
                return expand(cipher.decrypt(value, bound))
            except (InvalidTag, ValueError):
                record_id, where = self._at(bound[2].decode(), row)
                raise SealBroken(record_id=record_id, column=where) from None

        return self._each(opened_cell, start, end)

    def _each(
        self, treat: Callable[[AESSIV, list[bytes], Any, int], bytes], start: int, end: int
    ) -> list[list[bytes | None]]:
        """Return ``treat(cipher, associated data, value, row)`` of these rows' cells by column.

        A cell that is null or has no key is ``None``.
        """
        ids = self.bound["record_id"][start:end]
        keys = self.vault.unwrap({r: self.wrapped[r] for r in ids if r in self.wrapped})
        bound = [_encoded(values[start:end], name=self.name, column=c) for c, values in self.bound.items()]
        content = [values[start:end] for values in self.content.values()]
        made: list[list[bytes | None]] = [[] for _ in content]
        columns = [([FORMAT, self.name.encode(), c.encode()], out) for c, out in zip(self.content, made, strict=True)]
        last, cipher = None, None
        rows = zip(ids, zip(*bound, strict=True), zip(*content, strict=True), strict=True)
        for row, (record_id, place, values) in enumerate(rows, start):
            if record_id != last:
                key = keys.get(record_id)
                last, cipher = record_id, AESSIV(key) if key else None
            for value, (head, out) in zip(values, columns, strict=True):
                out.append(None if value is None or cipher is None else treat(cipher, [*head, *place], value, row))
        return made

    def _at(self, column: str, row: int) -> tuple[str, str]:
        images = self.bound.get("image")
        return self.bound["record_id"][row], f"{column}#{images[row]}" if images else column


def wrapped_keys(record_ids: Iterable[str], *, vault: Vault) -> dict[str, bytes]:
    """Return the encrypted keys of those records that were not taken down."""
    wanted = set(record_ids)
    wrapped = vault.wrapped_keys(wanted)
    vault.require_known(wanted - wrapped.keys())
    return wrapped


def column_values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column as a list; texts and bytes without a Python call for each."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return found
    return list(column.to_pylist())


def _encoded(values: Iterable[object], *, name: str, column: str) -> list[bytes]:
    return [
        b"=" + value.encode("utf-8", "surrogatepass")
        if type(value) is str
        else _encoded_other(value, name=name, column=column)
        for value in values
    ]


def _encoded_other(value: object, *, name: str, column: str) -> bytes:
    if value is None:
        return b"-"
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
        value = (value - EPOCH) // timedelta(microseconds=1)
    if not isinstance(value, str | Integral):
        raise SchemaMismatch(table=name, detail=f"{column} holds {type(value).__name__}")
    return b"=" + str(value).encode(errors="surrogatepass")


def alone(record_id: str, column: str) -> list[bytes]:
    """Return the associated data of a value that is no cell of a table."""
    return [f"{record_id}/{column}".encode()]


def _plain(value: object, *, name: str, column: bytes) -> bytes:
    if isinstance(value, str):
        # an unpaired surrogate, which JSON allows, is not encodable: it becomes a question mark
        return value.encode(errors="replace")
    if not isinstance(value, bytes):
        raise SchemaMismatch(table=name, detail=f"{column.decode()} holds {type(value).__name__}, not text or bytes")
    return value


@cache
def codecs(thread: int) -> tuple[zstandard.ZstdCompressor, zstandard.ZstdDecompressor]:
    """Return a thread's own compressor and decompressor: neither is thread-safe."""
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False, write_content_size=True, threads=0)
    return compressor, zstandard.ZstdDecompressor()
