"""Tables: the same rows give the same bytes, and other columns are refused."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.store import table_files, tables
from pipelines.store.table_files import Column, Contract
from tests.refusals import refused

VALUES = {
    pa.string(): st.sampled_from(["a", "é", "zz"]),
    pa.int16(): st.integers(0, 3),
    pa.int32(): st.integers(1, 3),
    pa.uint64(): st.sampled_from([0, 2**63, 2**64 - 1]),
    pa.float32(): st.sampled_from([0.0, 0.5]),
    pa.float64(): st.sampled_from([0.0, 0.25]),
    pa.bool_(): st.booleans(),
    pa.binary(32): st.sampled_from([bytes(32), b"\xff" * 32]),
    pa.large_binary(): st.sampled_from([b"", b"\x00\xff"]),
    tables.UTC: st.datetimes(datetime(2022, 12, 1), datetime(2022, 12, 2), timezones=st.just(UTC)),
}


def cells_of(column: Column) -> st.SearchStrategy[object]:
    listed = pa.types.is_list(column.type)
    kind = column.type.value_type if listed else column.type
    values = st.sampled_from(column.accepted_values) if column.accepted_values else VALUES[kind]
    values = values | st.just("") if column.empty else values
    values = st.lists(values, max_size=2) if listed else values
    return values | st.none() if column.nullable else values


def rows_of(contract: Contract) -> st.SearchStrategy[list[dict]]:
    rows = st.fixed_dictionaries({column.name: cells_of(column) for column in contract.columns})
    return st.lists(rows, max_size=12, unique_by=lambda row: tuple(row[name] for name in contract.key))


@pytest.mark.parametrize("name", sorted(tables.SCHEMAS))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), seed=st.integers(0, 100))
def test_the_same_rows_in_any_order_and_any_pieces_give_the_same_bytes(
    name: str, data: st.DataObject, seed: int, tmp_path: Path
) -> None:
    schema = tables.SCHEMAS[name]
    rows = data.draw(rows_of(tables.CONTRACTS[name]))
    shuffled = random.Random(seed).sample(rows, len(rows))
    names = random.Random(seed).sample(schema.names, len(schema.names))
    pieces = [pa.Table.from_pylist([row], schema=schema) for row in shuffled] or [schema.empty_table()]
    tables.write(pa.Table.from_pylist(rows, schema=schema), tmp_path / "one.parquet", name=name)
    tables.write(pa.concat_tables(pieces).select(names), tmp_path / "two.parquet", name=name)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    back = tables.read(tmp_path / "one.parquet", name=name)
    assert back.schema.equals(schema)
    expected = pa.Table.from_pylist(rows, schema=schema).to_pylist()
    assert sorted(map(repr, back.to_pylist())) == sorted(map(repr, expected))


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"record_id": ["a"], "image": [0], "step": ["x"]}),
        pa.table({"record_id": ["a"], "image": [0], "step": ["x"], "reason": ["y"], "more": [1]}),
        pa.table({"record_id": ["a"], "image": ["nought"], "step": ["x"], "reason": ["y"]}),
        pa.table({"record_id": ["a"], "image": [2**20], "step": ["x"], "reason": ["y"]}),
    ],
    ids=["a column less", "a column more", "another type", "too large"],
)
def test_other_columns_are_refused_and_nothing_is_written(table: pa.Table, tmp_path: Path) -> None:
    with refused("SchemaMismatch", match="drops") as caught:
        tables.write(table, tmp_path / "t.parquet", name="drops")
    assert "nought" not in str(caught.value)
    assert not (tmp_path / "t.parquet").exists()


def test_a_file_that_is_linked_to_the_cache_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "object").write_text("an earlier table")
    (tmp_path / "sample.parquet").hardlink_to(tmp_path / "object")
    tables.write(tables.SCHEMAS["sample"].empty_table(), tmp_path / "sample.parquet", name="sample")
    assert (tmp_path / "object").read_text() == "an earlier table"
    assert tables.read(tmp_path / "sample.parquet", name="sample").num_rows == 0


def test_reading_another_table_is_refused(tmp_path: Path) -> None:
    tables.write(tables.SCHEMAS["sample"].empty_table(), tmp_path / "t.parquet", name="sample")
    with refused("SchemaMismatch", match="missing"):
        tables.read(tmp_path / "t.parquet", name="drops")


def test_columns_can_be_chosen_and_files_joined(tmp_path: Path) -> None:
    schema = tables.SCHEMAS["sample"]
    for n in (1, 0):
        rows = pa.Table.from_pylist([{"record_id": f"r{n}", "image": n}], schema=schema)
        tables.write(rows, tmp_path / f"{n}.parquet", name="sample")
    paths = [tmp_path / "1.parquet", tmp_path / "0.parquet"]
    assert tables.concat(paths, name="sample").to_pylist() == [{"record_id": f"r{n}", "image": n} for n in (0, 1)]
    assert tables.concat(paths, name="sample", columns=["image"]).to_pylist() == [{"image": 0}, {"image": 1}]
    assert tables.concat([], name="sample").num_rows == 0
    with refused("SchemaMismatch"):
        tables.read(paths[0], name="sample", columns=["image", "nothing"])


def test_a_table_is_read_in_parts_across_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "ROW_GROUP_BYTES", 200)
    path, schema = tmp_path / "s.parquet", tables.SCHEMAS["sample"]
    tables.write(pa.Table.from_pylist([{"record_id": f"r{n:02d}", "image": n} for n in range(50)], schema=schema),
                 path, name="sample")  # fmt: skip
    assert pq.ParquetFile(path).num_row_groups > 2
    whole = tables.read(path, name="sample")
    for size in (1, 7, 50, 99):
        parts = list(tables.batches(path, name="sample", size=size))
        assert max(map(len, parts)) <= size
        assert pa.concat_tables(parts).to_pylist() == whole.to_pylist()
    monkeypatch.setattr(tables, "BATCH", 9)
    for start, count in ((0, 50), (0, 3), (8, 2), (13, 30), (49, 9), (50, 5)):
        part = tables.part(path, name="sample", columns=["record_id", "image"], start=start, count=count)
        assert part.to_pylist() == whole.slice(start, count).to_pylist()
    with refused("SchemaMismatch"):
        next(tables.batches(path, name="sample", columns=["nothing"]))


def test_content_columns_are_marked() -> None:
    assert tables.sealed_columns(tables.SCHEMAS["records"]) == ["title", "body", "media"]
    assert tables.sealed_columns(tables.SCHEMAS["images"]) == ["bytes", "text"]
    assert tables.key_of(tables.SCHEMAS["images"]) == ["record_id", "image"]
