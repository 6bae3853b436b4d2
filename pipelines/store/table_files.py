"""Define the contract of a table, and write tables as Parquet files in a fixed format, cut by record id.

The rules of a contract have the names of dbt's tests. A row group has the rows whose record id begins with certain
bits, and ids are uniform. So the rows of one record are in one group, and the rows of other groups are the same with
and without them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.core.errors import DataError
from pipelines.core.formats import version

# of the encryption; :mod:`pipelines.store.seal` binds each value to it
SEALED = {b"sealed": b"%d" % version("sealed")}
# DVC and every reader handle row groups of this size well (DESIGN.md section 4: at most 256 MB).
ROW_GROUP_BYTES = 256 * 2**20
# Bits of a record id that a row group may be cut by.
BITS = 16


@dataclass(frozen=True)
class Column:
    """The contract of a column; the rules hold for each element of a list, which is never null.

    Args:
        nullable: whether a value may be null.
        empty: whether a text may have no characters.
        accepted_values: the only texts that may be written; without them, any.
        accepted_range: the least and the greatest number; ``None`` is no bound. A float is finite in any case.
        sealed: whether the values are encrypted content.
        about: the unit, or what the name does not say.
    """

    name: str
    type: pa.DataType
    nullable: bool = False
    empty: bool = False
    accepted_values: tuple[str, ...] = ()
    accepted_range: tuple[float | None, float | None] = (None, None)
    sealed: bool = False
    about: str = ""

    def violations(self, values: pa.ChunkedArray) -> Iterator[tuple[str, int]]:
        """Yield each rule with the number of values that violate it."""
        if not self.nullable:
            yield "not_null", values.null_count
        if pa.types.is_list(self.type):
            values = pc.list_flatten(values)
            yield "not_null", values.null_count
        if pa.types.is_string(values.type):
            if not self.empty:
                yield "not_empty_string", _count(pc.equal(values, ""))
            if self.accepted_values:
                accepted = pa.array([*self.accepted_values, None], pa.string())
                yield "accepted_values", _count(pc.invert(pc.is_in(values, value_set=accepted)))
        if pa.types.is_floating(values.type):
            yield "finite", _count(pc.invert(pc.is_finite(values)))
        for bound, outside in zip(self.accepted_range, (pc.less, pc.greater), strict=True):
            if bound is not None:
                yield "accepted_range", _count(outside(values, pa.scalar(bound, values.type)))


@dataclass(frozen=True)
class Contract:
    """The contract of a table: what it holds, the columns that identify a row and sort the file, and its columns."""

    about: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table's files, in which nothing but types, key and sealed columns is stated."""
        fields = [pa.field(c.name, c.type, metadata=SEALED if c.sealed else None) for c in self.columns]
        return pa.schema(fields, metadata={b"key": ",".join(self.key).encode(), b"format": b"%d" % version("table")})

    def require(self, table: pa.Table, *, name: str) -> None:
        """Raise an error if a row of the sorted table violates the contract; ``name`` is the table's in the error."""
        found = [(c.name, *violation) for c in self.columns for violation in c.violations(table[c.name])]
        found.append((", ".join(self.key), "unique", _count(_repeats(table, key=self.key))))
        for column, rule, count in found:
            if count:
                raise DataError("ContractViolated", table=name, column=column, rule=rule, count=count)


def _count(mask: pa.ChunkedArray) -> int:
    return pc.sum(mask).as_py() or 0


def _repeats(table: pa.Table, *, key: Sequence[str]) -> pa.ChunkedArray:
    """Return for each row of a sorted table but the first whether it has the key of the row before."""
    same = pa.scalar(True)
    for column in key:
        one, other = table[column].slice(1), table[column].slice(0, max(0, len(table) - 1))
        both = pc.and_(pc.is_null(one), pc.is_null(other))
        same = pc.and_(same, pc.coalesce(pc.equal(one, other), both))
    return same


def group_count(rows: int, *, at_most: int) -> int:
    """Return the number of row groups of a table: a power of two, so that they have ``at_most`` rows on average."""
    return int(min(2**BITS, 1 << (max(0, rows - 1) // at_most).bit_length()))


def in_order(table: pa.Table, *, key: Sequence[str]) -> pa.Table:
    """Return the rows sorted by the columns of ``key``, which identify a row."""
    return table.take(pc.sort_indices(table, [(column, "ascending") for column in key]))


def write(table: pa.Table, path: Path, *, sealed: Collection[str] = (), groups: int = 1) -> None:
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
