"""Sealed content: it comes back as it was, from its own place, under its own key, and from nowhere else."""

from __future__ import annotations

import hashlib
import random
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.core.errors import SealBroken
from pipelines.store import seal, tables
from pipelines.store.vault.vault import Vault
from tests.refusals import refused
from tests.small_corpus import full

NOW = datetime(2023, 1, 5, tzinfo=UTC)
KEY, OTHER = bytes(range(64)), bytes(range(1, 65))
ID = "0" * 32
content = st.binary(max_size=200) | st.binary(min_size=1, max_size=4).map(lambda part: part * 500)


def admit(vault: Vault, *, count: int) -> list[str]:
    items = [(vault.record_id(str(n)), str(n)) for n in range(count)]
    vault.admit(items, corpus="memes", month="2022-12", now=NOW)
    return [record_id for record_id, _ in items]


def row(name: str, record_id: str, **cells: Any) -> dict[str, Any]:
    return full(name, record_id=record_id) | cells


def post(record_id: str, **cells: Any) -> dict[str, Any]:
    return row("records", record_id, **{"created": NOW, "title": "a plain title"} | cells)


def image(record_id: str, index: int, **cells: Any) -> dict[str, Any]:
    return row("images", record_id, **{"image": index, "bytes": b"picture", "text": "words"} | cells)


def note(record_id: str, annotator: str, **cells: Any) -> dict[str, Any]:
    given = {"image": 0, "annotator": annotator, "category": "type", "answered": NOW, "note": f"a note of {annotator}"}
    return row("annotations", record_id, **given | cells)


def written(rows: list[dict[str, Any]], path: Path, *, name: str, vault: Vault) -> pa.Table:
    assert seal.write_rows(rows, path, name=name, vault=vault) == len(rows)
    return tables.read(path, name=name)


@given(content)
def test_what_was_sealed_comes_back_and_always_looks_the_same(data: bytes) -> None:
    sealed = seal.seal(KEY, record_id=ID, column="title", data=data)
    assert sealed == seal.seal(KEY, record_id=ID, column="title", data=data)
    assert seal.unseal(KEY, record_id=ID, column="title", data=sealed) == data
    assert len(data) < 8 or data not in sealed


@given(content, st.data())
def test_one_changed_missing_or_added_byte_is_noticed(data: bytes, choose: st.DataObject) -> None:
    sealed = seal.seal(KEY, record_id=ID, column="title", data=data)
    at = choose.draw(st.integers(0, len(sealed) - 1))
    flipped = sealed[:at] + bytes([sealed[at] ^ choose.draw(st.integers(1, 255))]) + sealed[at + 1 :]
    for broken in (flipped, sealed[:at], sealed + b"\0", b""):
        with pytest.raises(SealBroken):
            seal.unseal(KEY, record_id=ID, column="title", data=broken)


@given(content)
def test_it_opens_in_no_other_place_and_under_no_other_key(data: bytes) -> None:
    sealed = seal.seal(KEY, record_id=ID, column="bytes#0", data=data)
    wrong = [(OTHER, ID, "bytes#0"), (KEY, "1" * 32, "bytes#0"), (KEY, ID, "bytes#1"), (KEY, ID, "text#0")]
    for key, record_id, column in wrong:
        with pytest.raises(SealBroken):
            seal.unseal(key, record_id=record_id, column=column, data=sealed)


def test_the_sealed_bytes_are_pinned() -> None:
    # every version of the corpus holds bytes like these: if they change, every partition is rewritten
    sealed = seal.seal(KEY, record_id=ID, column="title", data=b"the same words " * 20)
    pinned = "d2ebb66d511aabfcc534218b445e91aa553fc4eadd719dbe3f93d9f7dc90623b9bda8e31fa8b4f780db3bce88206edc6"
    assert sealed.hex() == pinned
    # zstd cuts long values into parts if it may use threads
    sealed = seal.seal(KEY, record_id=ID, column="bytes#0", data=random.Random(1).randbytes(10**6) * 2)
    assert hashlib.sha256(sealed).hexdigest() == "79d12989dac3ce10eea92c10cf500e290f54a68e1ebc811da9c28d55d1f4c47d"


def test_sealing_works_from_many_threads() -> None:
    data = [random.Random(n).randbytes(50_000) for n in range(16)]
    results: dict[int, bytes] = {}

    def work(n: int) -> None:
        for _ in range(20):
            sealed = seal.seal(KEY, record_id=ID, column="bytes#0", data=data[n])
            results[n] = seal.unseal(KEY, record_id=ID, column="bytes#0", data=sealed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[n] for n in range(16)] == data


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts=st.lists(st.text(max_size=30) | st.binary(max_size=30) | st.none(), min_size=1, max_size=20))
def test_a_written_column_reads_back_in_any_order_of_rows(texts: list[Any], vault: Vault, tmp_path: Path) -> None:
    ids = admit(vault, count=len(texts))
    rows = [note(record_id, "ann-1", note=text) for record_id, text in zip(ids, texts, strict=True)]
    assert seal.write_rows(iter(rows), tmp_path / "a.parquet", name="annotations", vault=vault) == len(rows)
    assert seal.write_rows(reversed(rows), tmp_path / "b.parquet", name="annotations", vault=vault) == len(rows)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    table = tables.read(tmp_path / "a.parquet", name="annotations")
    notes = seal.open_column(table, name="annotations", column="note", vault=vault)
    opened = dict(zip(table["record_id"].to_pylist(), notes, strict=True))
    assert opened == {i: t.encode() if isinstance(t, str) else t for i, t in zip(ids, texts, strict=True)}


def test_no_plain_word_is_in_the_file(vault: Vault, tmp_path: Path) -> None:
    ids = admit(vault, count=3)
    rows = [post(i, title="canary-title", body="canary-body", media="canary-media") for i in ids]
    seal.write_rows(rows, tmp_path / "p.parquet", name="records", vault=vault)
    assert b"canary" not in (tmp_path / "p.parquet").read_bytes()


def test_images_of_one_record_are_bound_to_their_number(vault: Vault, tmp_path: Path) -> None:
    [record_id] = admit(vault, count=1)
    rows = [image(record_id, n, bytes=b"picture %d" % n) for n in range(3)]
    table = written(rows, tmp_path / "i.parquet", name="images", vault=vault)
    assert seal.open_column(table, name="images", column="bytes", vault=vault) == [b"picture %d" % n for n in range(3)]
    swapped = table.set_column(1, "image", pa.array([1, 0, 2], type=pa.int16()))
    with pytest.raises(SealBroken, match="bytes#1"):
        seal.open_column(swapped, name="images", column="bytes", vault=vault)


def test_a_value_moved_to_another_record_or_column_is_noticed(vault: Vault, tmp_path: Path) -> None:
    ids = admit(vault, count=2)
    rows = [post(i, title=f"title {n}", body=f"body {n}") for n, i in enumerate(ids)]
    table = written(rows, tmp_path / "p.parquet", name="records", vault=vault)
    at = table.column_names.index("title")
    for other in (table["title"].take([1, 0]), table["body"]):
        with pytest.raises(SealBroken):
            seal.open_column(table.set_column(at, "title", other), name="records", column="title", vault=vault)


def test_content_of_a_destroyed_record_is_gone_from_every_file(vault: Vault, tmp_path: Path) -> None:
    ids = admit(vault, count=4)
    rows = [post(i) for i in ids]
    seal.write_rows(rows, tmp_path / "before.parquet", name="records", vault=vault)
    vault.destroy(ids[:2], reason="takedown", now=NOW)
    table = tables.read(tmp_path / "before.parquet", name="records")
    opened = seal.open_column(table, name="records", column="title", vault=vault)
    expected = {i: None if i in ids[:2] else b"a plain title" for i in ids}
    assert dict(zip(table["record_id"].to_pylist(), opened, strict=True)) == expected
    part = seal.opener(table, name="records", columns=["title"], vault=vault)
    assert part(0, 1)[0] + part(1, 4)[0] == opened
    assert seal.write_rows(rows, tmp_path / "after.parquet", name="records", vault=vault) == 2
    after = tables.read(tmp_path / "after.parquet", name="records")
    assert set(after["record_id"].to_pylist()) == set(ids[2:])


def test_no_more_rows_are_sealed_at_once_than_fit_into_memory(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, sealed = list[int](), seal._sealed

    def counted(columns: dict[str, list[Any]], **of: Any) -> dict[str, list[Any]]:
        counts.append(len(columns["body"]))
        return sealed(columns, **of)

    monkeypatch.setattr(seal, "_sealed", counted)
    monkeypatch.setattr(seal, "BATCH_BYTES", 20)
    rows = [post(i, title="", body=(b"x" if n % 2 else "x") * 10) for n, i in enumerate(admit(vault, count=7))]
    written(rows, tmp_path / "p.parquet", name="records", vault=vault)
    assert counts == [3, 3, 1], "a batch ends with the row that exceeds the limit"


def test_a_table_without_content_keeps_rows_of_strangers_and_tombstones(vault: Vault, tmp_path: Path) -> None:
    [gone] = admit(vault, count=1)
    vault.destroy([gone], reason="takedown", now=NOW)
    rows = [{"record_id": i, "image": -1, "step": "collect", "reason": "tombstone"} for i in (gone, "f" * 32)]
    assert seal.write_rows(rows, tmp_path / "d.parquet", name="drops", vault=vault) == 2


def test_records_that_no_vault_admitted_are_refused(vault: Vault, tmp_path: Path) -> None:
    with refused("UnknownRecord"):
        seal.write_rows([post("f" * 32)], tmp_path / "p.parquet", name="records", vault=vault)
    assert not (tmp_path / "p.parquet").exists()
    table = written([post(i) for i in admit(vault, count=2)], tmp_path / "p.parquet", name="records", vault=vault)
    other = Vault.open(f"sqlite:///{tmp_path}/other.sqlite", secret=bytes(range(32)))
    with other, refused("UnknownRecord"):
        seal.open_column(table, name="records", column="title", vault=other)


@pytest.mark.parametrize(
    "cells",
    [{"title": 5}, {"created": "canary"}, {"nsfw": "canary"}, {"extra": 1}],
    ids=lambda cells: next(iter(cells)),
)
def test_rows_that_do_not_fit_are_refused_without_quoting_them(
    cells: dict[str, Any], vault: Vault, tmp_path: Path
) -> None:
    [record_id] = admit(vault, count=1)
    with refused("SchemaMismatch") as caught:
        seal.write_rows([post(record_id, **cells)], tmp_path / "p.parquet", name="records", vault=vault)
    assert "canary" not in str(caught.value)
    assert not (tmp_path / "p.parquet").exists()


def test_half_a_surrogate_pair_becomes_a_question_mark(vault: Vault, tmp_path: Path) -> None:
    [record_id] = admit(vault, count=1)
    table = written([post(record_id, title="so \ud83d")], tmp_path / "p.parquet", name="records", vault=vault)
    assert seal.open_column(table, name="records", column="title", vault=vault) == [b"so ?"]


def test_an_empty_table_and_a_wrong_column(vault: Vault, tmp_path: Path) -> None:
    assert seal.write_rows([], tmp_path / "p.parquet", name="records", vault=vault) == 0
    table = tables.read(tmp_path / "p.parquet", name="records")
    assert seal.open_column(table, name="records", column="body", vault=vault) == []
    for column, part in (("subreddit", table), ("body", table.drop_columns("body"))):
        with refused("SchemaMismatch"):
            seal.open_column(part, name="records", column=column, vault=vault)


def test_only_posts_with_title_and_body_are_opened(vault: Vault, tmp_path: Path) -> None:
    ids = admit(vault, count=4)
    rows = [post(i, body="b") for i in ids]
    table = written(rows, tmp_path / "p.parquet", name="records", vault=vault)
    for column, lacking in (("body", ids[1]), ("title", ids[2])):
        cells = [None if row["record_id"] == lacking else row[column] for row in table.to_pylist()]
        table = exchanged(table, column, pa.array(cells, pa.large_binary()))
    vault.destroy(ids[3:], reason="takedown", now=NOW)
    assert list(seal.open_posts(table, vault=vault)) == [(ids[0], "a plain title", "b")]


def test_the_place_to_which_a_value_is_bound_is_pinned(vault: Vault, tmp_path: Path) -> None:
    # as the sealed bytes: if it changes, no value of an earlier version opens
    [record_id] = admit(vault, count=1)
    rows = [note(record_id, "ann-1", answered=NOW)]
    [cell] = written(rows, tmp_path / "a.parquet", name="annotations", vault=vault)["note"].to_pylist()
    row = {"record_id": record_id, "image": 0, "annotator": "ann-1", "category": "type", "answered": 1672876800000000}
    row["round"] = "-"
    bound = [b"=%s" % str(row[c]).encode() for c in tables.bound_columns("annotations")]
    assert sorted(bound) == sorted(b"=%s" % str(value).encode() for value in row.values())
    place = [b"crisis-corpus/row/1", b"annotations", b"note", *bound]
    plain = AESSIV(vault.keys([record_id])[record_id]).decrypt(cell, place)
    assert zstandard.ZstdDecompressor().decompress(plain) == b"a note of ann-1"


def exchanged(table: pa.Table, column: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(column), table.schema.field(column), values)


def test_two_annotators_notes_cannot_be_exchanged(vault: Vault, tmp_path: Path) -> None:
    [record_id] = admit(vault, count=1)
    rows = [note(record_id, "ann-1"), note(record_id, "ann-2")]
    table = written(rows, tmp_path / "a.parquet", name="annotations", vault=vault)
    notes = seal.open_column(table, name="annotations", column="note", vault=vault)
    assert notes == [b"a note of ann-1", b"a note of ann-2"]
    swapped = exchanged(table, "note", table["note"].take([1, 0]))
    renamed = exchanged(table, "annotator", table["annotator"].take([1, 0]))
    for attacked in (swapped, renamed):
        with pytest.raises(SealBroken):
            seal.open_column(attacked, name="annotations", column="note", vault=vault)


@pytest.mark.parametrize(
    ("name", "column", "old", "new"),
    [
        ("annotations", "note", {"answered": NOW}, {"answered": NOW.replace(hour=1)}),
        ("annotations", "note", {"round": "one"}, {"round": "two"}),
        ("records", "title", {"source_digest": "1" * 64}, {"source_digest": "2" * 64}),
        ("images", "text", {"sha256": "1" * 64}, {"sha256": "2" * 64}),
    ],
)
def test_an_older_value_does_not_open_in_the_newer_row(
    name: str, column: str, old: dict[str, Any], new: dict[str, Any], vault: Vault, tmp_path: Path
) -> None:
    [record_id] = admit(vault, count=1)
    row = {"annotations": note(record_id, "ann-1"), "records": post(record_id), "images": image(record_id, 0)}[name]
    before = written([row | old | {column: "before"}], tmp_path / "old.parquet", name=name, vault=vault)
    after = written([row | new | {column: "after"}], tmp_path / "new.parquet", name=name, vault=vault)
    assert seal.open_column(after, name=name, column=column, vault=vault) == [b"after"]
    with pytest.raises(SealBroken):
        seal.open_column(exchanged(after, column, before[column]), name=name, column=column, vault=vault)


def test_a_value_does_not_open_in_another_table(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tables.SCHEMAS, "twins", tables.SCHEMAS["texts"])
    [record_id] = admit(vault, count=1)
    row = {"record_id": record_id, "words": 1, "language": "en", "signature": b"secret"}
    table = written([row], tmp_path / "t.parquet", name="texts", vault=vault)
    with pytest.raises(SealBroken):
        seal.open_column(table, name="twins", column="signature", vault=vault)


def test_a_value_that_was_sealed_alone_opens_in_no_table(vault: Vault) -> None:
    [record_id] = admit(vault, count=1)
    row = note(record_id, "ann-1")
    alone = seal.seal(vault.keys([record_id])[record_id], record_id=record_id, column="note#0", data=b"a note")
    table = pa.Table.from_pylist([row | {"note": alone}], schema=tables.SCHEMAS["annotations"])
    with pytest.raises(SealBroken):
        seal.open_column(table, name="annotations", column="note", vault=vault)
