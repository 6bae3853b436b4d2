"""Read and write content (text and pictures): compress each value and encrypt ("seal") it under its record's key.

No other module reads or writes content. Sealing is deterministic (AES-SIV, RFC 5297), so that an unchanged partition
has unchanged bytes. In return, equal content of the same cell is recognisable, and compressed lengths are visible.

A value of a table is bound to the table, the column, the row's key and the columns that change with its content
(``tables.VERSION``). Earlier releases bound values to record, column and image number only; such values still open if
the vault is older and :func:`resealed` was not applied to all of its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from numbers import Integral
from pathlib import Path
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
# Rows whose plain content is in memory at once: about 250 MB for large images.
BATCH = 512
# The first associated datum of a value of a table; a value sealed alone has a single datum, its place.
FORMAT = b"crisis-corpus/row/2"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def seal(key: bytes, *, record_id: str, column: str, data: bytes) -> bytes:
    """Compress and encrypt ``data``: 16 bytes of tag, then the ciphertext; equal inputs give equal bytes.

    Args:
        key: the record's key, 64 bytes.
        record_id: the record of the content; bound to the result.
        column: the column (``title``, or ``bytes#0`` for image 0); bound to the result.
        data: the plain content.
    """
    return _seal(AESSIV(key), bound=_alone(record_id, column), data=data)


def unseal(key: bytes, *, record_id: str, column: str, data: bytes) -> bytes:
    """Decrypt a value that :func:`seal` encrypted.

    Raises:
        SealBroken: the value was altered, moved from another cell, or sealed under another key.
    """
    try:
        return _unseal(AESSIV(key), bound=_alone(record_id, column), data=data)
    except (InvalidTag, ValueError):
        raise SealBroken(record_id=record_id, column=column) from None


def write_rows(rows: Iterable[Mapping[str, Any]], path: Path, *, name: str, vault: Vault) -> int:
    """Encrypt the content columns of rows and write them as the table ``name``; return the number of rows.

    Content cells hold ``str``, ``bytes`` or ``None``. Rows of records that were taken down meanwhile are left out.
    A table without content columns is written unchanged; the vault is not checked.

    Raises:
        SchemaMismatch: a row has other columns than the schema, or a value of another type.
        UnknownRecord: a record is not in the vault; nothing is written.
    """
    schema = tables.SCHEMAS[name]
    sealed = tables.sealed_columns(schema)
    columns: dict[str, list[Any]] = {column: [] for column in schema.names}
    iterator = iter(rows)
    while batch := list(islice(iterator, BATCH)):
        for row in batch:
            if row.keys() != columns.keys():
                raise SchemaMismatch(
                    table=name, detail=f"missing or unknown columns {sorted(row.keys() ^ columns.keys())}"
                )
        for row in _sealed(batch, name=name, vault=vault) if sealed else batch:
            for column, values in columns.items():
                values.append(row[column])
    arrays = [_array(columns.pop(field.name), field=field, name=name) for field in schema]
    table = pa.table(arrays, names=schema.names)
    tables.write(table, path, name=name)
    return int(table.num_rows)


def open_column(table: pa.Table, *, name: str, column: str, vault: Vault) -> list[bytes | None]:
    """Decrypt a content column in row order; a value is ``None`` if the cell is null or the record was taken down.

    Args:
        table: a table of the schema ``name`` with at least ``column`` and ``tables.bound_columns(name)``.
        name: the table's name.
        column: a content column of the table.
        vault: the vault with the records' keys.

    Raises:
        SchemaMismatch: ``column`` is not a content column, or a column is missing.
        SealBroken: a value was altered, moved from another table or row, or belongs to an older version of the row.
        UnknownRecord: the rows were sealed with another vault.
    """
    if column not in tables.sealed_columns(tables.SCHEMAS[name]):
        raise SchemaMismatch(table=name, detail=f"{column} is not a content column")
    if missing := {column, *tables.bound_columns(name)} - set(table.column_names):
        raise SchemaMismatch(table=name, detail=f"missing columns {sorted(missing)}")
    filled = table.filter(table[column].is_valid())["record_id"].unique().to_pylist()
    ciphers, old = _ciphers(filled, vault=vault), cache(vault.opens_old_seals)
    opened: list[bytes | None] = []
    for row, value in zip(_bound_rows(table, name=name), table[column], strict=True):
        cipher, data = ciphers.get(row["record_id"]), value.as_py()
        if data is None or cipher is None:
            opened.append(None)
        else:
            opened.append(_unseal_cell(cipher, row, name=name, column=column, data=data, old=old))
    return opened


def resealed(table: pa.Table, *, name: str, vault: Vault) -> pa.Table:
    """Return a table whose content is sealed again, bound to table and row; content of deleted records is unchanged.

    Raises:
        SchemaMismatch, SealBroken, UnknownRecord: as :func:`open_column`.
    """
    ciphers = _ciphers(table["record_id"].unique().to_pylist(), vault=vault)
    for column in tables.sealed_columns(tables.SCHEMAS[name]):
        opened = zip(
            _bound_rows(table, name=name), open_column(table, name=name, column=column, vault=vault), strict=True
        )
        fresh = [
            was.as_py()
            if data is None
            else _seal(ciphers[row["record_id"]], bound=_place(row, name=name, column=column), data=data)
            for (row, data), was in zip(opened, table[column], strict=True)
        ]
        at = table.column_names.index(column)
        table = table.set_column(at, table.schema.field(at), pa.array(fresh, table.schema.field(at).type))
    return table


def open_posts(table: pa.Table, *, vault: Vault) -> Iterator[tuple[str, str, str]]:
    """Yield record id, decrypted title and body of each post that was not taken down; see :func:`open_column`."""
    titles, bodies = (open_column(table, name="posts", column=c, vault=vault) for c in ("title", "body"))
    for record_id, title, body in zip(table["record_id"].to_pylist(), titles, bodies, strict=True):
        if title is not None and body is not None:
            yield record_id, title.decode(), body.decode()


def _sealed(batch: list[Mapping[str, Any]], *, name: str, vault: Vault) -> Iterator[dict[str, Any]]:
    """Yield the rows of live records with their content sealed."""
    content = tables.sealed_columns(tables.SCHEMAS[name])
    ciphers = _ciphers({row["record_id"] for row in batch}, vault=vault)
    for row in batch:
        record_id = row["record_id"]
        if (cipher := ciphers.get(record_id)) is None:
            continue
        result = dict(row)
        for column in content:
            value = row[column]
            if value is None:
                continue
            if not isinstance(value, str | bytes):
                raise SchemaMismatch(table=name, detail=f"{column} holds {type(value).__name__}, not text or bytes")
            result[column] = _seal(cipher, bound=_place(row, name=name, column=column), data=_plain(value))
        yield result


def _ciphers(record_ids: Iterable[str], *, vault: Vault) -> dict[str, AESSIV]:
    wanted = set(record_ids)
    keys = vault.keys(wanted)
    vault.require_known(wanted - keys.keys())
    return {record_id: AESSIV(key) for record_id, key in keys.items()}


def _bound_rows(table: pa.Table, *, name: str) -> Iterator[dict[str, Any]]:
    columns = tables.bound_columns(name)
    for values in zip(*(table[column].to_pylist() for column in columns), strict=True):
        yield dict(zip(columns, values, strict=True))


def _place(row: Mapping[str, Any], *, name: str, column: str) -> list[bytes]:
    """Return the associated data of a value: format, table, column, and the row's bound columns."""
    bound = [_encoded(row[c], name=name, column=c) for c in tables.bound_columns(name)]
    return [FORMAT, name.encode(), column.encode(), *bound]


def _encoded(value: object, *, name: str, column: str) -> bytes:
    if value is None:
        return b"-"
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
        value = (value - EPOCH) // timedelta(microseconds=1)
    if not isinstance(value, str | Integral):
        raise SchemaMismatch(table=name, detail=f"{column} holds {type(value).__name__}")
    return b"=" + str(value).encode(errors="surrogatepass")


def _alone(record_id: str, column: str) -> list[bytes]:
    return [f"{record_id}/{column}".encode()]


def _unseal_cell(
    cipher: AESSIV, row: Mapping[str, Any], *, name: str, column: str, data: bytes, old: Callable[[], bool]
) -> bytes:
    record_id, where = row["record_id"], f"{column}#{row['image']}" if "image" in row else column
    for bound in (_place(row, name=name, column=column), _alone(record_id, where)):
        try:
            return _unseal(cipher, bound=bound, data=data)
        except (InvalidTag, ValueError):
            if not old():
                break
    raise SealBroken(record_id=record_id, column=where)


def _plain(value: str | bytes) -> bytes:
    # an unpaired surrogate, which JSON allows, is not encodable: it becomes a question mark
    return value.encode(errors="replace") if isinstance(value, str) else value


@cache
def _zstd(thread: int) -> tuple[zstandard.ZstdCompressor, zstandard.ZstdDecompressor]:
    # neither is thread-safe
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False, write_content_size=True, threads=0)
    return compressor, zstandard.ZstdDecompressor()


def _seal(cipher: AESSIV, *, bound: list[bytes], data: bytes) -> bytes:
    return cipher.encrypt(_zstd(get_ident())[0].compress(data), bound)


def _unseal(cipher: AESSIV, *, bound: list[bytes], data: bytes) -> bytes:
    return _zstd(get_ident())[1].decompress(cipher.decrypt(data, bound))


def _array(values: list[Any], *, field: pa.Field, name: str) -> pa.Array:
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        # Arrow's own message quotes the value
        raise SchemaMismatch(table=name, detail=f"{field.name} ({type(error).__name__})") from None
