"""Work that forked processes share: the same result for any number of them, and no result if one is lost."""

from __future__ import annotations

import os
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.core.errors import SealBroken
from pipelines.core.parallel import in_parts
from pipelines.store import seal, tables
from pipelines.store.vault.vault import Vault
from tests.refusals import refused
from tests.small_corpus import full

NOW = datetime(2023, 1, 5, tzinfo=UTC)
PARENT = os.getpid()


@pytest.fixture(params=[1, 2, 3])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    return with_cores(request.param, monkeypatch)


def with_cores(number: int, monkeypatch: pytest.MonkeyPatch) -> int:
    # threads that other tests of this process left behind would forbid a fork
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(number)))
    return number


def posts(vault: Vault, *, count: int) -> list[dict[str, Any]]:
    items = [(vault.record_id(str(n)), str(n)) for n in range(count)]
    vault.admit(items, corpus="posts", month="2022-12", now=NOW)
    cells = full("records", created=NOW)
    return [cells | {"record_id": r, "title": f"title {r}", "body": f"body {r}" if n % 3 else ""}
            for n, (r, _) in enumerate(items)]  # fmt: skip


def test_each_core_computes_one_part_in_order(cores: int) -> None:
    parts = in_parts(lambda start, end: (os.getpid(), list(range(start, end))), count=11, least=2)
    assert [number for _, part in parts for number in part] == list(range(11))
    assert len({pid for pid, _ in parts}) == len(parts) == cores


def test_a_small_table_and_a_process_with_threads_do_not_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cores(4, monkeypatch)
    assert in_parts(lambda start, end: (os.getpid(), start, end), count=9, least=5) == [(PARENT, 0, 9)]
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert in_parts(lambda start, end: (os.getpid(), start, end), count=9, least=1) == [(PARENT, 0, 9)]


def test_a_part_is_computed_here_where_no_process_may_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cores(2, monkeypatch)

    def refuse() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    assert in_parts(lambda start, end: (os.getpid(), start, end), count=8, least=4) == [(PARENT, 0, 4), (PARENT, 4, 8)]


def test_tables_have_the_same_bytes_for_any_number_of_processes(
    cores: int, vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = posts(vault, count=40)
    seal.write_rows(rows, tmp_path / "one.parquet", name="records", vault=vault)
    monkeypatch.setattr(seal, "LEAST", 5)
    monkeypatch.setattr(seal, "BATCH", 17)
    path = tmp_path / "shared.parquet"
    assert seal.write_rows(rows, path, name="records", vault=vault) == 40
    assert path.read_bytes() == (tmp_path / "one.parquet").read_bytes()
    table = tables.read(path, name="records")
    opened = seal.open_columns(table, name="records", columns=["title", "body"], vault=vault)
    by_id = {row["record_id"]: row for row in rows}
    expected = [by_id[r] for r in table["record_id"].to_pylist()]
    assert opened == [[row[c].encode() for row in expected] for c in ("title", "body")]
    posted = [(row["record_id"], row["title"], row["body"]) for row in expected]
    assert list(seal.open_posts(table, vault=vault)) == posted


def test_an_altered_value_in_a_part_of_another_process_is_noticed(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal.write_rows(posts(vault, count=8), tmp_path / "p.parquet", name="records", vault=vault)
    table = tables.read(tmp_path / "p.parquet", name="records")
    at = table.column_names.index("title")
    swapped = table.set_column(at, "title", table["title"].take([0, 1, 2, 3, 4, 5, 7, 6]))
    with_cores(2, monkeypatch)
    monkeypatch.setattr(seal, "LEAST", 4)
    with pytest.raises(SealBroken) as caught:
        seal.open_column(swapped, name="records", column="title", vault=vault)
    assert caught.value.args == SealBroken(record_id=table["record_id"][6].as_py(), column="title").args
    with refused("SchemaMismatch"):
        rows = [*posts(vault, count=7), posts(vault, count=8)[7] | {"title": 5}]
        seal.write_rows(rows, tmp_path / "new.parquet", name="records", vault=vault)
    assert not (tmp_path / "new.parquet").exists()


@pytest.mark.parametrize("end", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(3), lambda: 1 / 0])
def test_a_lost_process_leaves_no_table(
    end: Any, vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = posts(vault, count=8)
    with_cores(2, monkeypatch)
    monkeypatch.setattr(seal, "LEAST", 4)
    encoded = seal._encoded

    def lost(*args: Any, **names: Any) -> list[bytes]:
        return encoded(*args, **names) if os.getpid() == PARENT else end()

    monkeypatch.setattr(seal, "_encoded", lost)
    others = psutil.Process().children()
    with refused("WorkerLost") as caught:
        seal.write_rows(rows, tmp_path / "p.parquet", name="records", vault=vault)
    assert any(cause in str(caught.value) for cause in ("SIGKILL", "exit status 3", "ZeroDivisionError"))
    assert not (tmp_path / "p.parquet").exists()
    assert psutil.Process().children() == others


def test_an_error_here_ends_the_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cores(2, monkeypatch)

    def work(start: int, _: int) -> None:
        if start:
            signal.pause()
        raise KeyboardInterrupt

    others = psutil.Process().children()
    with pytest.raises(KeyboardInterrupt):
        in_parts(work, count=2, least=1)
    assert psutil.Process().children() == others
