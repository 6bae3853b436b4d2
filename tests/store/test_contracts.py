"""Contracts of tables: each rule refuses what violates it, and every table is written under its contract."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.label.aggregate import Agreement
from pipelines.llm.outcome import Outcome
from pipelines.store import tables
from pipelines.store.table_files import Column
from tests.refusals import refused
from tests.small_corpus import ROOT, full, write_table
from tests.train import small_memes, small_posts

CONTRACTS = sorted(tables.CONTRACTS.items())
# Modules that write Parquet without a contract, and why.
WITHOUT = {
    "pipelines/store/tables.py": "writes what it has checked",
    "pipelines/takedown/redaction.py": "removes rows of tables that were checked when they were written",
    "pipelines/release/export/release_folder.py": "the columns of a release are those of its scheme",
}
WRITERS = {"ParquetWriter", "write_table", "to_parquet", "write_dataset", "write_to_dataset", "sink_parquet"}


def violations(column: Column) -> Iterator[tuple[str, object]]:
    """Yield each rule of a column with a value that violates it."""
    listed, (low, high) = pa.types.is_list(column.type), column.accepted_range
    kind = column.type.value_type if listed else column.type
    rules: dict[str, list[object]] = {
        "not_empty_string": [""] if pa.types.is_string(kind) and not column.empty else [],
        "accepted_values": ["something else"] if column.accepted_values else [],
        "finite": [math.nan, math.inf] if pa.types.is_floating(kind) else [],
        "accepted_range": ([] if low is None else [low - 1]) + ([] if high is None else [high + 1]),
        "not_null": [None] if listed else [],
    }
    yield from ((rule, [value] if listed else value) for rule, values in rules.items() for value in values)
    if not column.nullable:
        yield "not_null", None


CASES = [
    pytest.param(name, column, rule, value, id=f"{name}-{column.name}-{rule}-{value}")
    for name, contract in CONTRACTS
    for column in contract.columns
    for rule, value in violations(column)
]


@pytest.mark.parametrize(("name", "column", "rule", "value"), CASES)
def test_a_value_against_a_rule_is_refused(name: str, column: Column, rule: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, [full(name)], name=name)
    before = path.read_bytes()
    with refused("ContractViolated") as caught:
        write_table(path, [full(name) | {column.name: value}], name=name)
    assert caught.value.fields == {"table": name, "column": column.name, "rule": rule, "count": 1}
    assert path.read_bytes() == before, "the table of before stays"
    assert "something else" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name, _ in CONTRACTS])
def test_two_rows_of_one_key_are_refused(name: str, tmp_path: Path) -> None:
    with refused("ContractViolated") as caught:
        write_table(tmp_path / "t.parquet", [full(name)] * 3, name=name)
    key = ", ".join(tables.CONTRACTS[name].key)
    assert caught.value.fields == {"table": name, "column": key, "rule": "unique", "count": 2}
    assert not (tmp_path / "t.parquet").exists()


def test_a_null_is_a_key_of_its_own(tmp_path: Path) -> None:
    rows = [full("predictions", seed=seed) for seed in (None, 0, 1)]
    write_table(tmp_path / "t.parquet", rows, name="predictions")
    with refused("ContractViolated"):
        write_table(tmp_path / "t.parquet", [*rows, full("predictions", seed=None)], name="predictions")


@pytest.mark.parametrize(("name", "contract"), CONTRACTS)
def test_what_a_contract_allows_is_written(name: str, contract: tables.Contract, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for column in contract.columns:
        listed = pa.types.is_list(column.type)
        values: list[object] = [v for v in (*column.accepted_values, *column.accepted_range) if v is not None]
        values = [[value] for value in values] if listed else values
        values += ([None] if column.nullable else []) + ([""] if column.empty else [])
        rows += [full(name) | {column.name: value} for value in values]
    distinct = {tuple(row[column] for column in contract.key): row for row in rows}
    write_table(tmp_path / "t.parquet", distinct.values(), name=name)
    assert tables.read(tmp_path / "t.parquet", name=name).num_rows == len(distinct)
    write_table(tmp_path / "t.parquet", [], name=name)


def test_the_tables_of_the_small_corpora_keep_their_contracts(tmp_path: Path) -> None:
    with small_posts.opened(tmp_path) as vault:
        small_posts.write(tmp_path, vault=vault)
        small_memes.write(tmp_path, vault=vault)
    names = {tuple(contract.schema.names): name for name, contract in CONTRACTS}
    for table in map(pq.read_table, paths := sorted(tmp_path.rglob("*.parquet"))):
        name = names[tuple(table.column_names)]
        tables.CONTRACTS[name].require(table, name=name)
    assert {path.stem for path in paths} >= {"records", "splits", "gold", "examples", "votes", "silver"}


def test_the_key_and_the_columns_to_which_content_is_bound_are_columns() -> None:
    for name, contract in CONTRACTS:
        names = [column.name for column in contract.columns]
        assert len(names) == len(set(names)) and {*contract.key, *tables.bound_columns(name)} <= set(names), name
        assert contract.about.endswith("."), name
    assert set(tables.OUTCOMES) == {*Outcome}
    agreement = next(c for c in tables.CONTRACTS["silver"].columns if c.name == "agreement")
    assert agreement.accepted_values == Agreement.__args__


def written_by(code: str) -> set[str]:
    """Return what a module calls or imports that writes Parquet: a function of a library, or ``table_files.write``."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            found.add(f"{owner}.write" if (owner, node.attr) == ("table_files", "write") else node.attr)
        elif isinstance(node, ast.ImportFrom):
            owner = (node.module or "").rpartition(".")[2]
            found |= {f"{owner}.{name.name}" if owner == "table_files" else name.name for name in node.names}
    return found & {*WRITERS, "table_files.write"}


def test_every_table_is_written_under_its_contract() -> None:
    folders = ("pipelines", "plugins", "dags", "client", "sandbox")
    modules = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {str(path.relative_to(ROOT)): written_by(path.read_text()) for path in modules}
    assert found.pop("pipelines/store/table_files.py") == {"ParquetWriter", "write_table"}
    writers = {module for module, names in found.items() if names}
    assert writers == WITHOUT.keys(), "declare the table in pipelines/store/tables.py, and write it with tables.write"


def test_a_module_that_writes_a_table_on_its_own_is_seen() -> None:
    for code in (
        "import pyarrow.parquet as pq\npq.write_table(1, 2)",
        "from pyarrow.parquet import ParquetWriter as W",
        "frame.to_parquet(path)",
        "from pipelines.store.table_files import write",
        "from pipelines.store import table_files as t, table_files\ntable_files.write(1, 2)",
    ):
        assert written_by(code), code
