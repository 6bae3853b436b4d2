"""Read tables part by part: a batch of rows is in memory at once, whatever the size of the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.storage import tables

# Rows of a batch; those of small columns take a few MB.
BATCH = 2**14


def batches(path: Path, *, name: str, columns: list[str] | None = None, size: int | None = None) -> Iterator[pa.Table]:
    """Yield the rows of a table in their order, at most ``size`` (:data:`BATCH`) at a time, as ``tables.read``."""
    wanted = tables.with_bound(name, columns or tables.SCHEMAS[name].names)
    # buffering ahead would hold whole row groups
    with pq.ParquetFile(path, pre_buffer=False) as file:
        tables.require_columns(file.schema_arrow, name=name, columns=wanted)
        for batch in file.iter_batches(size or BATCH, columns=wanted):
            yield pa.Table.from_batches([batch]).select(wanted)


def part(path: Path, *, name: str, columns: list[str], start: int, count: int) -> pa.Table:
    """Read ``count`` rows from row ``start`` on, without holding the others."""
    wanted = tables.with_bound(name, columns)
    found, at = [pa.schema([tables.SCHEMAS[name].field(column) for column in wanted]).empty_table()], 0
    for batch in batches(path, name=name, columns=columns):
        rows = batch.slice(max(0, start - at), max(0, start + count - max(start, at)))
        found.append(rows.replace_schema_metadata(None))
        at += len(batch)
        if at >= start + count:
            break
    return pa.concat_tables(found)
