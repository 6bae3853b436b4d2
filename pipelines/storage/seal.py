"""Read and write content: compress each value and encrypt ("seal") it under its record's key.

No other module reads or writes content. Sealing is deterministic (AES-SIV, RFC 5297), so that an unchanged partition
has unchanged bytes. The cost: equal content of the same cell is recognisable, and compressed lengths are visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
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


def seal(key: bytes, *, record_id: str, column: str, data: bytes) -> bytes:
    """Compress and encrypt ``data``: 16 bytes of tag, then the ciphertext; equal inputs give equal bytes.

    Args:
        key: the record's key, 64 bytes.
        record_id: the record of the content; bound to the result.
        column: the column (``title``, or ``bytes#0`` for image 0); bound to the result.
        data: the plain content.
    """
    return _seal(AESSIV(key), where=f"{record_id}/{column}", data=data)


def unseal(key: bytes, *, record_id: str, column: str, data: bytes) -> bytes:
    """Decrypt a value that :func:`seal` encrypted.

    Raises:
        SealBroken: the value was altered, moved from another cell, or sealed under another key.
    """
    return _unseal(AESSIV(key), record_id=record_id, column=column, data=data)


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
    """Decrypt a column in row order; a value is ``None`` if the cell is null or the record was taken down.

    Args:
        table: of the schema ``name``, with at least ``record_id``, ``image`` if the schema has it, and ``column``.
        name: the table's name.
        column: a content column of the table.
        vault: the vault with the records' keys.

    Raises:
        SchemaMismatch: ``column`` is not a content column, or a column is missing.
        SealBroken: a value was altered or moved.
        UnknownRecord: the rows were sealed with another vault.
    """
    if column not in tables.sealed_columns(tables.SCHEMAS[name]):
        raise SchemaMismatch(table=name, detail=f"{column} is not a content column")
    needed = ["record_id", column, *(["image"] if "image" in tables.SCHEMAS[name].names else [])]
    if missing := set(needed) - set(table.column_names):
        raise SchemaMismatch(table=name, detail=f"missing columns {sorted(missing)}")
    ids = table["record_id"].to_pylist()
    images = table["image"].to_pylist() if "image" in needed else [None] * len(ids)
    filled = table.filter(table[column].is_valid())["record_id"].unique().to_pylist()
    ciphers = _ciphers(filled, vault=vault)
    opened: list[bytes | None] = []
    for record_id, image, value in zip(ids, images, table[column], strict=True):
        cipher = ciphers.get(record_id)
        data = value.as_py()
        if data is None or cipher is None:
            opened.append(None)
        else:
            opened.append(_unseal(cipher, record_id=record_id, column=_place(column, image=image), data=data))
    return opened


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
            place = f"{record_id}/{_place(column, image=row.get('image'))}"
            result[column] = _seal(cipher, where=place, data=_plain(value))
        yield result


def _ciphers(record_ids: Iterable[str], *, vault: Vault) -> dict[str, AESSIV]:
    wanted = set(record_ids)
    keys = vault.keys(wanted)
    vault.require_known(wanted - keys.keys())
    return {record_id: AESSIV(key) for record_id, key in keys.items()}


def _place(column: str, *, image: int | None) -> str:
    return column if image is None else f"{column}#{image}"


def _plain(value: str | bytes) -> bytes:
    # an unpaired surrogate, which JSON allows, is not encodable: it becomes a question mark
    return value.encode(errors="replace") if isinstance(value, str) else value


@cache
def _zstd(thread: int) -> tuple[zstandard.ZstdCompressor, zstandard.ZstdDecompressor]:
    # neither is thread-safe
    compressor = zstandard.ZstdCompressor(
        level=LEVEL, write_checksum=False, write_content_size=True, write_dict_id=False, threads=0
    )
    return compressor, zstandard.ZstdDecompressor()


def _seal(cipher: AESSIV, *, where: str, data: bytes) -> bytes:
    return cipher.encrypt(_zstd(get_ident())[0].compress(data), [where.encode()])


def _unseal(cipher: AESSIV, *, record_id: str, column: str, data: bytes) -> bytes:
    try:
        compressed = cipher.decrypt(data, [f"{record_id}/{column}".encode()])
    except (InvalidTag, ValueError):
        raise SealBroken(record_id=record_id, column=column) from None
    return _zstd(get_ident())[1].decompress(compressed)


def _array(values: list[Any], *, field: pa.Field, name: str) -> pa.Array:
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        # Arrow's own message quotes the value
        raise SchemaMismatch(table=name, detail=f"{field.name} ({type(error).__name__})") from None
