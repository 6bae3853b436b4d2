"""Read and write content (text and pictures): compress each value and encrypt ("seal") it under its record's key.

No other module reads or writes content. Sealing is deterministic (AES-SIV, RFC 5297), so that an unchanged partition
has unchanged bytes. In return, equal content of the same cell is recognisable, and compressed lengths are visible.

A value of a table is bound to the table, the column, the row's key and the columns that change with its content
(``tables.VERSION``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from pathlib import Path
from threading import get_ident
from typing import Any

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from pipelines.errors import SchemaMismatch, SealBroken
from pipelines.parallel import in_parts
from pipelines.storage import tables
from pipelines.storage.cells import Cells, alone, codecs, column_values, wrapped_keys
from pipelines.vault.vault import Vault

# Rows, and bytes of their plain content, in memory at once.
BATCH, BATCH_BYTES = 2**16, 2**28
# Rows for which a further process takes more time than it saves: a fork and the pipe take about 20 ms.
LEAST = 4096
# Decrypts the rows from a start to an end; returns the values of each column.
Opener = Callable[[int, int], list[list[bytes | None]]]


def seal(key: bytes, *, record_id: str, column: str, data: bytes) -> bytes:
    """Compress and encrypt ``data``: 16 bytes of tag, then the ciphertext; equal inputs give equal bytes.

    Args:
        key: the record's key, 64 bytes.
        record_id: the record of the content; bound to the result.
        column: the column (``title``, or ``bytes#0`` for image 0); bound to the result.
        data: the plain content.
    """
    return _seal(AESSIV(key), bound=alone(record_id, column), data=data)


def unseal(key: bytes, *, record_id: str, column: str, data: bytes) -> bytes:
    """Decrypt a value that :func:`seal` encrypted."""
    try:
        return _unseal(AESSIV(key), bound=alone(record_id, column), data=data)
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

    Args:
        table: a table of the schema ``name`` with at least ``columns`` and ``tables.bound_columns(name)``.
        name: the table's name.
        columns: content columns of the table; opening them together takes less time.
        vault: the vault with the records' keys.
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
        raise SchemaMismatch(table=name, detail=f"{min(unsealed)} is not a content column")
    if missing := {*columns, *tables.bound_columns(name)} - set(table.column_names):
        raise SchemaMismatch(table=name, detail=f"missing columns {sorted(missing)}")


def open_posts(table: pa.Table, *, vault: Vault) -> Iterator[tuple[str, str, str]]:
    """Yield record id, decrypted title and body of each post that was not taken down; see :func:`open_columns`."""
    for start in range(0, len(table), BATCH):
        part = table.slice(start, BATCH)
        titles, bodies = open_columns(part, name="posts", columns=["title", "body"], vault=vault)
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
            raise SchemaMismatch(table=table, detail=f"missing or unknown columns {sorted(row.keys() ^ known)}")
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


def _seal(cipher: AESSIV, *, bound: list[bytes], data: bytes) -> bytes:
    return cipher.encrypt(codecs(get_ident())[0].compress(data), bound)


def _unseal(cipher: AESSIV, *, bound: list[bytes], data: bytes) -> bytes:
    return codecs(get_ident())[1].decompress(cipher.decrypt(data, bound))


def _array(values: list[Any], *, field: pa.Field, name: str) -> pa.Array:
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        # Arrow's own message quotes the value
        raise SchemaMismatch(table=name, detail=f"{field.name} ({type(error).__name__})") from None
