"""Files without records: every table of the project, names made of ids, and files that are no tables."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.models.fitting.training_records import trained_on
from pipelines.store import tables
from pipelines.store.table_files import Column
from pipelines.takedown.redaction import BLANK, Gone, Left
from tests.refusals import refused
from tests.small_corpus import full, least

IDS = [f"{n:032x}" for n in range(0xA0, 0xA8)]


def cell(column: Column, record_id: str) -> Any:
    """A value that names a record wherever text could."""
    if column.accepted_values:
        return [] if pa.types.is_list(column.type) else least(column)
    if column.name in ("record_id", "other_id"):
        return record_id
    if pa.types.is_list(column.type):
        return [f"about {record_id}"] if pa.types.is_string(column.type.value_type) else [0.5]
    if pa.types.is_string(column.type):
        return f"{record_id}#0"
    return record_id.encode() if column.sealed else least(column)


def row(name: str, record_id: str) -> dict[str, Any]:
    """A row of a table that names a record wherever text could."""
    return {column.name: cell(column, record_id) for column in tables.CONTRACTS[name].columns}


@pytest.mark.parametrize("name", sorted(name for name, schema in tables.SCHEMAS.items() if "record_id" in schema.names))
def test_every_table_of_the_project_loses_the_rows_and_every_name(name: str, tmp_path: Path) -> None:
    schema = tables.SCHEMAS[name]
    rows = [row(name, i) for i in IDS[:4]]
    tables.write(pa.Table.from_pylist(rows, schema=schema), tmp_path / "before.parquet", name=name)
    gone = Gone(IDS[1:3])
    assert gone.within(tmp_path / "before.parquet")
    left = gone.without(tmp_path / "before.parquet", tmp_path / "after.parquet")
    assert left.rows == 2
    fresh = [row for row in rows if row["record_id"] not in gone.ids]
    tables.write(pa.Table.from_pylist(fresh, schema=schema), tmp_path / "fresh.parquet", name=name)
    assert (tmp_path / "after.parquet").read_bytes() == (tmp_path / "fresh.parquet").read_bytes()


def spread(count: int) -> list[str]:
    """Ids as the vault makes them: uniform, so that every row group gets some."""
    return sorted(hashlib.md5(bytes([n]), usedforsecurity=False).hexdigest() for n in range(count))


@pytest.mark.parametrize("name", sorted(name for name, schema in tables.SCHEMAS.items() if "record_id" in schema.names))
def test_a_large_table_is_rewritten_in_its_row_groups_to_the_same_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "IMAGES_GROUP_ROWS" if name == "images" else "GROUP_ROWS", 8)
    schema, ids = tables.SCHEMAS[name], spread(56)
    rows = [row(name, i) for i in ids]
    tables.write(pa.Table.from_pylist(rows, schema=schema), old := tmp_path / "before", name=name)
    assert pq.read_metadata(old).num_row_groups == 8
    # the row groups with a record each, all rows of a group, and the first and the last row group
    for taken in (ids[20:21], [i for i in ids if i[0] in "67"], [ids[0], ids[-1]]):
        assert Gone(taken).without(old, tmp_path / "after").rows == len(taken)
        fresh = pa.Table.from_pylist([row for row in rows if row["record_id"] not in taken], schema=schema)
        tables.write(fresh, tmp_path / "fresh", name=name)
        assert (tmp_path / "after").read_bytes() == (tmp_path / "fresh").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["after", "before", "fresh"]


def test_a_table_that_still_names_a_record_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "GROUP_ROWS", 8)
    monkeypatch.setattr(Gone, "_kept", lambda _self, table: (table, 0))
    rows = [row("gold", i) for i in spread(40)]
    ids = [row["record_id"] for row in rows]
    tables.write(pa.Table.from_pylist(rows, schema=tables.SCHEMAS["gold"]), old := tmp_path / "a", name="gold")
    with refused("StillThere"):
        Gone(ids[:1]).without(old, tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)), max_size=12), st.sets(st.sampled_from(IDS)))
def test_the_rest_names_no_deleted_record_and_is_otherwise_complete(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], taken: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    rows = [full("pairs", record_id=a, other_id=b, other_image=n) for n, (a, b) in enumerate(pairs)]
    tables.write(pa.Table.from_pylist(rows, schema=tables.SCHEMAS["pairs"]), folder / "a.parquet", name="pairs")
    gone = Gone(taken)
    named = gone.within(folder / "a.parquet")
    gone.without(folder / "a.parquet", folder / "b.parquet")
    assert gone.within(folder / "b.parquet") == 0
    kept = pq.read_table(folder / "b.parquet").to_pylist()
    assert sorted((r["record_id"], r["other_id"]) for r in kept) == sorted(p for p in pairs if taken.isdisjoint(p))
    assert bool(named) == (len(kept) < len(rows))


def test_a_set_gets_the_name_of_the_first_that_is_left(tmp_path: Path) -> None:
    members = [(IDS[0], 1), (IDS[2], 0), (IDS[1], 2), (IDS[1], 0)]
    rows = [{"record_id": i, "image": n, "group": f"{IDS[0]}/1", "split": "train"} for i, n in members]
    rows.append({"record_id": IDS[5], "image": 0, "group": f"{IDS[5]}/0", "split": "test"})
    tables.write(pa.Table.from_pylist(rows, schema=tables.SCHEMAS["splits"]), tmp_path / "a.parquet", name="splits")
    assert Gone([IDS[0]]).without(tmp_path / "a.parquet", tmp_path / "b.parquet") == Left(rows=1, renamed=3)
    groups = {(r["record_id"], r["image"]): r["group"] for r in pq.read_table(tmp_path / "b.parquet").to_pylist()}
    assert set(groups.values()) == {f"{IDS[1]}/0", f"{IDS[5]}/0"} and groups[IDS[2], 0] == f"{IDS[1]}/0"


def test_a_name_anywhere_else_is_blanked(tmp_path: Path) -> None:
    table = pa.table({"note": [f"see {IDS[0]}", "nobody", None], "tags": [[IDS[0], "x"], [], None], "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "a.parquet")
    Gone(IDS[:1]).without(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert pq.read_table(tmp_path / "b.parquet").to_pydict() == {
        "note": [f"see {BLANK}", "nobody", None],
        "tags": [[BLANK, "x"], [], None],
        "n": [1, 2, 3],
    }


def test_a_file_that_is_no_table_is_blanked_in_place_and_longer_digests_are_no_ids(tmp_path: Path) -> None:
    longer = IDS[0] + "ff"
    (tmp_path / "a.json").write_text(json.dumps({"who": IDS[:2], "sha": longer}))
    gone = Gone(IDS[:1])
    assert gone.within(tmp_path / "a.json") == 1
    assert gone.without(tmp_path / "a.json", tmp_path / "b.json") == Left(renamed=1)
    assert json.loads((tmp_path / "b.json").read_text()) == {"who": [BLANK, IDS[1]], "sha": longer}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json"])
def test_lines_go_and_other_texts_are_blanked(name: str) -> None:
    text = "\n".join([f'["{i}", 1]' for i in IDS[:3]]).encode() + b"\n"
    found = Gone(IDS[1:2]).out_of(text, name=name).decode().splitlines()
    kept = [f'["{IDS[0]}", 1]', f'["{IDS[2]}", 1]']
    assert found == (kept if name != "a.json" else [kept[0], f'["{BLANK}", 1]', kept[1]])


def test_an_object_of_lines_is_known_by_its_header_and_loses_the_lines(tmp_path: Path) -> None:
    lines = [f"{i},0,test\n" for i in IDS[:3]]
    (tmp_path / "object").write_text("record_id,image,split\n" + "".join(lines))
    gone = Gone(IDS[:2])
    assert gone.without(tmp_path / "object", tmp_path / "after") == Left(rows=2)
    assert (tmp_path / "after").read_text() == "record_id,image,split\n" + lines[2]


def test_empty_files_name_no_record(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    tables.write(tables.SCHEMAS["splits"].empty_table(), tmp_path / "t.parquet", name="splits")
    assert [Gone(IDS).within(tmp_path / name) for name in ("empty", "t.parquet")] == [0, 0]
    assert Gone(IDS).without(tmp_path / "t.parquet", tmp_path / "u.parquet") == Left()
    assert (tmp_path / "t.parquet").read_bytes() == (tmp_path / "u.parquet").read_bytes()
    assert Gone([]).within(tmp_path / "t.parquet") == 0


@settings(max_examples=30, deadline=None)
@given(ids=st.lists(st.sampled_from([*IDS, "z", "é", "\U00010000", "\uffff"])), ordered=st.booleans())
def test_the_digest_of_a_list_is_that_of_its_sorted_lines_once_each(ids: list[str], ordered: bool) -> None:
    ids = sorted(set(ids)) if ordered else ids
    lines = "".join(f"{one}\n" for one in sorted(set(ids))).encode()
    parts = pa.chunked_array([pa.array(["x", *ids[:2]], pa.string()).slice(1), pa.array(ids[2:], pa.string())])
    for given_as in (ids, set(ids), parts):
        found = trained_on(given_as)
        assert (found.records, found.digest) == (len(set(ids)), hashlib.sha256(lines).hexdigest())
