"""Read and write content (text and pictures): compress each value and encrypt ("seal") it under its record's key.

No other module reads or writes content. Sealing is deterministic (AES-SIV, RFC 5297), so that an unchanged partition
has unchanged bytes. In return, equal content of the same cell is recognisable, and compressed lengths are visible.

A value of a table is bound to the table, the column, the row's key and the columns that change with its content
(``tables.VERSION``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain, compress
from numbers import Integral
from pathlib import Path
from threading import get_ident
from typing import Any

import pyarrow as pa
import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from pipelines.core.errors import DataError, SealBroken
from pipelines.core.formats import version
from pipelines.core.parallel import in_parts
from pipelines.store import tables
from pipelines.store.vault.vault import Vault

# Rows, and bytes of their plain content, in memory at once.
BATCH, BATCH_BYTES = 2**16, 2**28
# Rows for which a further process takes more time than it saves: a fork and the pipe take about 20 ms.
LEAST = 4096
# Decrypts the rows from a start to an end; returns the values of each column.
Opener = Callable[[int, int], list[list[bytes | None]]]


def seal(key: bytes, *, record_id: str, column: str, data: bytes) -> bytes:
    """Compress and encrypt ``data``: 16 bytes of tag, then the ciphertext; equal inputs give equal bytes.

    The result is bound to the record and to the column (``title``, or ``bytes#0`` for image 0).
    """
    return AESSIV(key).encrypt(codecs(get_ident())[0].compress(data), alone(record_id, column))


def unseal(key: bytes, *, record_id: str, column: str, data: bytes) -> bytes:
    try:
        return codecs(get_ident())[1].decompress(AESSIV(key).decrypt(data, alone(record_id, column)))
    except (InvalidTag, ValueError):
        raise SealBroken(record_id=record_id, column=column) from None


def write_rows(rows: Iterable[Mapping[str, Any]], path: Path, *, name: str, vault: Vault) -> int:
    """Encrypt the content columns of rows and write them as the table ``name``; return the number of rows.

    Content cells hold ``str``, ``bytes`` or ``None``. Rows of records that were taken down meanwhile are left out.
    A table without content columns is written unchanged; the vault is not checked.
    """
    schema = tables.SCHEMAS[name]
    sealed = tables.sealed_columns(schema)
    batches = [[pa.array([], type=field.type) for field in schema]]
    for batch in _batches(rows, content=sealed, names=schema.names, table=name):
        columns = {column: [row[column] for row in batch] for column in schema.names}
        if sealed:
            columns = _sealed(columns, name=name, vault=vault)
        batches.append([_array(columns[field.name], field=field, name=name) for field in schema])
    arrays = [pa.concat_arrays(column) for column in zip(*batches, strict=True)]
    table = pa.table(arrays, names=schema.names)
    tables.write(table, path, name=name)
    return int(table.num_rows)


def open_column(table: pa.Table, *, name: str, column: str, vault: Vault) -> list[bytes | None]:
    """Decrypt a content column in row order; see :func:`open_columns`."""
    return open_columns(table, name=name, columns=[column], vault=vault)[0]


def open_columns(table: pa.Table, *, name: str, columns: Sequence[str], vault: Vault) -> list[list[bytes | None]]:
    """Decrypt content columns in row order; a value is ``None`` if the cell is null or the record was taken down.

    The table also needs ``tables.bound_columns(name)``. Opening columns together takes less time.
    """
    _require(table, name=name, columns=columns)
    cells = Cells.of(table, {c: column_values(table[c]) for c in columns}, name=name, vault=vault)
    return _joined(in_parts(cells.opened, count=len(table), least=LEAST))


def opener(table: pa.Table, *, name: str, columns: Sequence[str], vault: Vault) -> Opener:
    """Return a function that decrypts the content columns of the rows from a start to an end; see :func:`open_columns`.

    The keys of all rows are read now, so that the function needs no database and forked processes may call it.
    """
    _require(table, name=name, columns=columns)
    wrapped = wrapped_keys(column_values(table["record_id"]), vault=vault)
    names = tables.bound_columns(name)

    def opened(start: int, end: int) -> list[list[bytes | None]]:
        part = table.slice(start, end - start)
        bound, content = ({c: column_values(part[c]) for c in some} for some in (names, columns))
        return Cells(name, bound, content, wrapped, vault).opened(0, len(part))

    return opened


def _require(table: pa.Table, *, name: str, columns: Sequence[str]) -> None:
    if unsealed := set(columns) - set(tables.sealed_columns(tables.SCHEMAS[name])):
        raise DataError("SchemaMismatch", table=name, detail=f"{min(unsealed)} is not a content column")
    if missing := {*columns, *tables.bound_columns(name)} - set(table.column_names):
        raise DataError("SchemaMismatch", table=name, detail=f"missing columns {sorted(missing)}")


def open_posts(table: pa.Table, *, vault: Vault) -> Iterator[tuple[str, str, str]]:
    """Yield record id, decrypted title and body of each post that was not taken down; see :func:`open_columns`."""
    for start in range(0, len(table), BATCH):
        part = table.slice(start, BATCH)
        titles, bodies = open_columns(part, name="records", columns=["title", "body"], vault=vault)
        for record_id, title, body in zip(part["record_id"].to_pylist(), titles, bodies, strict=True):
            if title is not None and body is not None:
                yield record_id, title.decode(), body.decode()


def _batches(
    rows: Iterable[Mapping[str, Any]], *, content: list[str], names: list[str], table: str
) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the rows in batches limited by number and by bytes of content, after a check of their columns."""
    batch, size, known = [], 0, set(names)
    for row in rows:
        if row.keys() != known:
            detail = f"missing or unknown columns {sorted(row.keys() ^ known)}"
            raise DataError("SchemaMismatch", table=table, detail=detail)
        batch.append(row)
        for column in content:
            value = row[column]
            size += len(value) if isinstance(value, str | bytes) else 0
        if len(batch) == BATCH or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _sealed(columns: dict[str, list[Any]], *, name: str, vault: Vault) -> dict[str, list[Any]]:
    """Return the rows of live records with their content encrypted."""
    wrapped = wrapped_keys(columns["record_id"], vault=vault)
    if not wrapped.keys() >= set(columns["record_id"]):
        live = [record_id in wrapped for record_id in columns["record_id"]]
        columns = {column: list(compress(values, live)) for column, values in columns.items()}
    content = {column: columns[column] for column in tables.sealed_columns(tables.SCHEMAS[name])}
    bound = {column: columns[column] for column in tables.bound_columns(name)}
    cells = Cells(name, bound, content, wrapped, vault)
    parts = in_parts(cells.sealed, count=len(columns["record_id"]), least=LEAST)
    return columns | dict(zip(content, _joined(parts), strict=True))


def _joined(parts: list[list[list[bytes | None]]]) -> list[list[bytes | None]]:
    return [list(chain.from_iterable(column)) for column in zip(*parts, strict=True)]


def _array(values: list[Any], *, field: pa.Field, name: str) -> pa.Array:
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        # Arrow's own message quotes the value
        raise DataError("SchemaMismatch", table=name, detail=f"{field.name} ({type(error).__name__})") from None


# zstd's default; every setting is explicit, because a changed default would change every sealed byte.
LEVEL = 3
# The first associated datum of a value of a table; a value sealed alone has a single datum, its place.
FORMAT = b"crisis-corpus/row/%d" % version("sealed")
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
        shrink = codecs(get_ident())[0].compress

        def sealed_cell(cipher: AESSIV, bound: list[bytes], value: Any, _row: int) -> bytes:
            return cipher.encrypt(shrink(_plain(value, name=self.name, column=bound[2])), bound)

        return self._each(sealed_cell, start, end)

    def opened(self, start: int, end: int) -> list[list[bytes | None]]:
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
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
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
        raise DataError("SchemaMismatch", table=name, detail=f"{column} holds {type(value).__name__}")
    return b"=" + str(value).encode(errors="surrogatepass")


def alone(record_id: str, column: str) -> list[bytes]:
    """Return the associated data of a value that is no cell of a table."""
    return [f"{record_id}/{column}".encode()]


def _plain(value: object, *, name: str, column: bytes) -> bytes:
    if isinstance(value, str):
        # an unpaired surrogate, which JSON allows, is not encodable: it becomes a question mark
        return value.encode(errors="replace")
    if not isinstance(value, bytes):
        detail = f"{column.decode()} holds {type(value).__name__}, not text or bytes"
        raise DataError("SchemaMismatch", table=name, detail=detail)
    return value


@cache
def codecs(thread: int) -> tuple[zstandard.ZstdCompressor, zstandard.ZstdDecompressor]:
    """Return a thread's own compressor and decompressor: neither is thread-safe."""
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False, write_content_size=True, threads=0)
    return compressor, zstandard.ZstdDecompressor()
