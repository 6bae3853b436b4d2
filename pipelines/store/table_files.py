"""Write tables as Parquet files in a fixed format, cut into row groups by record id.

A row group has the rows whose record id begins with certain bits, and ids are uniform. So the rows of one record are in
one group, and the rows of other groups are the same with and without them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# DVC and every reader handle row groups of this size well (DESIGN.md section 4: at most 256 MB).
ROW_GROUP_BYTES = 256 * 2**20
# Bits of a record id that a row group may be cut by.
BITS = 16


def group_count(rows: int, *, at_most: int) -> int:
    """Return the number of row groups of a table: a power of two, so that they have ``at_most`` rows on average."""
    return int(min(2**BITS, 1 << (max(0, rows - 1) // at_most).bit_length()))


def in_order(table: pa.Table, *, key: Sequence[str]) -> pa.Table:
    """Return the rows sorted by the columns of ``key``, and rows of the same key by all other columns."""
    ordered = table.take(pc.sort_indices(table, [(column, "ascending") for column in key]))
    same = pa.scalar(True)
    for column in key:
        equal = pc.equal(ordered[column].slice(1), ordered[column].slice(0, max(0, len(ordered) - 1)))
        same = pc.and_(same, pc.fill_null(equal, True))
    if not pc.any(same).as_py():
        return ordered
    # the order must not depend on the input
    every = list(dict.fromkeys([*key, *table.column_names]))
    return table.take(pc.sort_indices(_sortable(table), [(column, "ascending") for column in every]))


def _sortable(table: pa.Table) -> pa.Table:
    for i, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            texts = [None if value is None else repr(value) for value in table[field.name].to_pylist()]
            table = table.set_column(i, field.name, pa.array(texts, pa.string()))
    return table


def write(table: pa.Table, path: Path, *, sealed: Collection[str], groups: int = 1) -> None:
    """Write the rows in their order, in ``groups`` row groups by record id, of which those without rows are left out.

    The rows are sorted by ``record_id`` unless there is one group; one of more than ROW_GROUP_BYTES is cut once more.
    """
    # sealed bytes neither compress nor repeat; trying to would make writing three times as slow
    plain = [column for column in table.column_names if column not in sealed]
    path.parent.mkdir(parents=True, exist_ok=True)
    # in a clone the file may be a link into DVC's cache, whose object must not change
    path.unlink(missing_ok=True)
    with pq.ParquetWriter(
        path,
        table.schema,
        compression={column: "zstd" if column in plain else "none" for column in table.column_names},
        use_dictionary=plain,
        write_statistics=plain,
        version="2.6",
        store_schema=True,
    ) as writer:
        for group in _cut(table, groups=groups):
            rows = max(1, int(ROW_GROUP_BYTES / max(1.0, group.nbytes / max(1, group.num_rows))))
            writer.write_table(group, row_group_size=rows)


def _cut(table: pa.Table, *, groups: int) -> list[pa.Table]:
    if groups == 1:
        return [table]
    bounds = [f"{at:0{BITS // 4}x}" for at in range(0, 2**BITS, 2**BITS // groups)][1:]
    ids = table["record_id"].combine_chunks()
    cuts = [0, *(bisect_left(range(len(ids)), bound, key=lambda at: ids[at].as_py()) for bound in bounds), len(ids)]
    return [table.slice(a, b - a) for a, b in pairwise(cuts) if a < b]
