"""The bytes of a table: from its records' keys, unseen by readers, and not in an object to which the file is a link."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from pipelines.store import tables
from pipelines.store.blind import BYTES, COMMENT, LENGTHS, blind
from pipelines.store.vault.vault import Vault
from pipelines.takedown.redaction import Gone
from tests.small_corpus import NOW, admit, gold_rows, write_table

IDS = [f"{n:032x}" for n in range(40)]


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    with Vault.open(f"sqlite:///{tmp_path / 'vault.sqlite'}", secret=bytes(range(64))) as vault:
        admit(vault, {i: f"t3_{i}" for i in IDS}, corpus="posts", month="2022-11")
        yield vault


def gold(path: Path, ids: list[str]) -> Path:
    write_table(path, gold_rows({(i, 0): {"labels": ["mild"]} for i in ids}), name="gold")
    return path


def lines(path: Path, ids: list[str]) -> Path:
    path.write_text("record_id,image,split\n" + "".join(f"{i},0,test\n" for i in ids))
    return path


@pytest.mark.parametrize("write", [gold, lines])
def test_bytes_follow_from_the_keys_of_all_records_and_from_nothing_else(
    tmp_path: Path, vault: Vault, write: Callable[[Path, list[str]], Path]
) -> None:
    one, other, plain = (write(tmp_path / name, IDS) for name in ("one", "other", "plain"))
    for path in (one, one, other):  # again, it changes nothing
        blind(path, keys=lambda: vault)
    assert one.read_bytes() == other.read_bytes() != plain.read_bytes()
    assert one.stat().st_size - plain.stat().st_size >= BYTES
    vault.destroy([IDS[3]], reason="test", now=NOW)
    blind(other, keys=lambda: vault)
    assert one.read_bytes() != other.read_bytes(), "without its key, nobody makes the table again"
    # the rewrite of a takedown is what the stage would write
    Gone([IDS[3]]).without(one, tmp_path / "left")
    for path in (tmp_path / "left", without := write(tmp_path / "without", [i for i in IDS if i != IDS[3]])):
        blind(path, keys=lambda: vault)
    assert (tmp_path / "left").read_bytes() == without.read_bytes()


def test_sizes_of_tables_that_differ_in_a_row_tell_nothing(tmp_path: Path, vault: Vault) -> None:
    sizes = []
    for count in range(1, len(IDS)):
        blind(path := gold(tmp_path / "gold.parquet", IDS[:count]), keys=lambda: vault)
        sizes.append(path.stat().st_size)
    steps = [after - before for before, after in pairwise(sizes)]
    assert sum(step < 0 for step in steps) > len(steps) / 4 and max(map(abs, steps)) > LENGTHS / 4


def test_readers_see_the_same_table_and_a_linked_object_keeps_its_bytes(tmp_path: Path, vault: Vault) -> None:
    path = gold(tmp_path / "gold.parquet", IDS)
    before, table = path.read_bytes(), pq.read_table(path)
    os.link(path, tmp_path / "object")
    blind(path, keys=lambda: vault)
    assert (tmp_path / "object").read_bytes() == before != path.read_bytes()
    assert tables.read(path, name="gold").equals(table) and len(pd.read_parquet(path)) == len(IDS)
    # tables of no record, and other files, are left
    for name, content in {"gaps": None, "text": b"record_id\n", "empty": b""}.items():
        if content is None:
            write_table(tmp_path / name, [], name="gaps")
        else:
            (tmp_path / name).write_bytes(content)
        shutil.copy(tmp_path / name, tmp_path / "kept")
        blind(tmp_path / name, keys=lambda: pytest.fail("the vault is not needed"))
        assert (tmp_path / name).read_bytes() == (tmp_path / "kept").read_bytes()
    assert COMMENT not in path.read_bytes()
