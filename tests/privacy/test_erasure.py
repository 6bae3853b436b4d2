"""What deleting a key leaves on disk: nothing, and what is left over from a crash is erased at the next opening."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import psycopg2
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from pipelines.core.errors import VaultUnavailable
from pipelines.store.vault import database, engine, remains
from pipelines.store.vault.vault import Vault

SECRET = bytes(range(32))
NOW = datetime(2023, 1, 5, tzinfo=UTC)


def fill(vault: Vault, *, count: int, start: int = 0) -> list[str]:
    items = [(vault.record_id(f"t3_{n:x}"), f"t3_{n:x}") for n in range(start, start + count)]
    vault.admit(items, corpus="memes", month="2022-12", now=NOW)
    return [record_id for record_id, _ in items]


def wrapped(file: Path) -> dict[str, tuple[bytes, bytes]]:
    """Read what the file holds for each live record, past the vault."""
    connection = sqlite3.connect(file)
    rows = connection.execute("SELECT record_id, key, fullname FROM records WHERE key IS NOT NULL").fetchall()
    connection.close()
    return {record_id: (key, name) for record_id, key, name in rows}


def traces(folder: Path, *, values: list[tuple[bytes, bytes]]) -> int:
    """Count the values of which the vault's files (database, log, index of the log) still hold 16 bytes anywhere."""
    disk = b"".join(file.read_bytes() for file in sorted(folder.glob("vault.sqlite*")))
    return sum(any(part in disk for part in (key[:16], key[32:48], key[-16:], name)) for key, name in values)


def freed_page(file: Path, *, holds: bytes) -> None:
    """Leave a freed page with these bytes in the file, as SQLite may do; a rewrite removes it."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("CREATE TABLE other (value BLOB)")
    connection.execute("INSERT INTO other VALUES (?)", [holds])
    connection.execute("DROP TABLE other")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def freed_pages(file: Path) -> int:
    connection = sqlite3.connect(file)
    [count] = connection.execute("PRAGMA freelist_count").fetchone()
    connection.close()
    return int(count)


def fragments(folder: Path, *, values: list[tuple[bytes, bytes]]) -> int:
    """Count how often the vault's files hold 7 consecutive bytes of one of the values."""
    parts = {value[at : at + 7] for pair in values for value in pair for at in range(len(value) - 6)}
    disk = [file.read_bytes() for file in sorted(folder.glob("vault.sqlite*"))]
    return sum(data[at : at + 7] in parts for data in disk for at in range(len(data) - 6))


def test_a_takedown_without_a_rewrite_leaves_no_fragment_in_the_file(tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path}/vault.sqlite", tmp_path / "vault.sqlite"
    with Vault.open(url, secret=SECRET) as vault:
        ids = fill(vault, count=600)
        before = wrapped(file)
        freed_page(file, holds=b"of no record")
        gone = ids[::60]
        for at, record_id in enumerate(gone):
            assert fragments(tmp_path, values=[before[record_id]])
            vault.destroy([record_id], reason="takedown", now=NOW)
            assert not fragments(tmp_path, values=[before[i] for i in gone[: at + 1]])
    assert freed_pages(file) == 1, "the file was rewritten"


def test_a_copy_of_a_fragment_in_a_freed_page_makes_the_takedown_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "CHUNK", 1)
    url, file = f"sqlite:///{tmp_path}/vault.sqlite", tmp_path / "vault.sqlite"
    with Vault.open(url, secret=SECRET) as vault:
        ids = sorted(fill(vault, count=5))
        before = wrapped(file)
        for gone in (ids[:2], ids[2:4], ids[4:]):
            key, name = before[gone[0]]
            freed_page(file, holds=b"." * 33 + (key[20:27] if gone[0] == ids[0] else name[-7:]) + b"..")
            vault.destroy(gone, reason="takedown", now=NOW)
            assert not fragments(tmp_path, values=[before[i] for i in gone])
            assert freed_pages(file) == 0


def test_what_an_earlier_request_freed_is_unknown_so_that_the_next_takedown_rewrites(tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path}/vault.sqlite", tmp_path / "vault.sqlite"
    with Vault.open(url, secret=SECRET) as vault:
        ids = fill(vault, count=40)
        freed_page(file, holds=b"of no record")
        with vault.database.writing() as connection:
            database.ask_erasure(connection)
        vault.destroy(ids[:1], reason="takedown", now=NOW)
    assert freed_pages(file) == 0


def test_a_search_keeps_the_locks_by_which_other_processes_know_that_the_vault_is_open(tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path}/vault.sqlite", tmp_path / "vault.sqlite"
    visit = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM marks').fetchall(); c.close()"
    )
    with Vault.open(url, secret=SECRET) as vault:
        ids = fill(vault, count=3)
        Vault.open(url, secret=SECRET).close()
        vault.destroy(ids[:1], reason="takedown", now=NOW)
        subprocess.run([sys.executable, "-c", visit, file], check=True)
        # the last one to close the database would have removed it
        assert file.with_name("vault.sqlite-wal").exists()


@hypothesis(max_examples=60, deadline=None)
@given(
    at=st.integers(0, 2**20 + 60),
    start=st.integers(0, 33),
    length=st.integers(6, 8),
    suffix=st.sampled_from(("", "-wal")),
)
def test_a_fragment_is_found_at_every_place(
    at: int, start: int, length: int, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("search") / "vault.sqlite"
    value = random.Random(5).randbytes(41)
    data = bytearray(2**20 + 70)
    data[at : at + length] = value[start : start + length]
    file.write_bytes(b"")
    file.with_name(file.name + suffix).write_bytes(data)
    with file.open("rb"):
        assert remains.possible([b"\xff" * 16, value], file=file) == (length >= remains.FRAGMENT)


def test_a_search_that_cannot_tell_says_that_bytes_may_remain(tmp_path: Path) -> None:
    file, value = tmp_path / "vault.sqlite", bytes(range(64))
    file.write_bytes(b"\0" * 4096)
    assert remains.possible([value], file=file), "no descriptor of it is open"
    with file.open("rb"):
        assert not remains.possible([value], file=file)
        assert remains.possible([value, b"short"], file=file)
        assert remains.possible([random.Random(n).randbytes(16) for n in range(65)], file=file)
        file.rename(tmp_path / "moved")
        file.write_bytes(b"")
        assert remains.possible([value], file=file), "SQLite has another file open"


def test_no_byte_of_a_destroyed_key_or_name_stays_in_the_file_or_its_log(tmp_path: Path) -> None:
    rng = random.Random(3)
    seen: dict[str, tuple[bytes, bytes]] = {}
    gone: set[str] = set()
    with Vault.open(f"sqlite:///{tmp_path}/vault.sqlite", secret=SECRET) as vault:
        for start in range(0, 1200, 200):
            fill(vault, count=200, start=start)
            seen |= wrapped(tmp_path / "vault.sqlite")
            assert traces(tmp_path, values=[seen[i] for i in seen.keys() - gone]) == len(seen) - len(gone)
            batch = rng.sample(sorted(seen.keys() - gone), 90)
            vault.destroy(batch, reason="takedown-" + "x" * 50, now=NOW)
            gone |= set(batch)
            assert traces(tmp_path, values=[seen[i] for i in gone]) == 0
        assert (tmp_path / "vault.sqlite-wal").stat().st_size < 20_000


def test_a_process_killed_right_after_the_deletion_leaves_the_rest_to_the_next_one(tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path}/vault.sqlite", tmp_path / "vault.sqlite"
    with Vault.open(url, secret=SECRET) as vault:
        ids = fill(vault, count=40)
    before = wrapped(file)
    # a copy where SQLite had moved rows
    freed_page(file, holds=before[ids[0]][0])
    script = f"""
import os, signal
from datetime import UTC, datetime
from pipelines.store.vault.database import Database
from pipelines.store.vault.vault import Vault
Database.may_hold = lambda self, values: os.kill(os.getpid(), signal.SIGKILL)
vault = Vault.open({url!r}, secret=bytes(range(32)))
vault.destroy({ids[:20]!r}, reason="takedown", now=datetime(2023, 1, 5, tzinfo=UTC))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    values = [before[i] for i in ids[:20]]
    assert traces(tmp_path, values=values) == 20
    with Vault.open(url, secret=SECRET) as vault:
        assert vault.tombstoned(ids) == set(ids[:20])
        assert traces(tmp_path, values=values) == 0
    assert freed_pages(file) == 0, "the file was not rewritten"


def test_a_reader_that_holds_the_old_log_is_reported_and_repeating_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.2)
    url, file = f"sqlite:///{tmp_path}/vault.sqlite", tmp_path / "vault.sqlite"
    with Vault.open(url, secret=SECRET) as vault:
        ids = fill(vault, count=10)
        before = wrapped(file)
        reader = sqlite3.connect(file, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM records").fetchone()
        with pytest.raises(VaultUnavailable, match="reader"):
            vault.destroy(ids[:1], reason="takedown", now=NOW)
        assert vault.keys(ids[:1]) == {}
        reader.execute("COMMIT")
        assert vault.destroy(ids[:1], reason="takedown", now=NOW) == 0
        assert traces(tmp_path, values=[before[ids[0]]]) == 0
        reader.close()


def test_a_writer_that_waits_too_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.2)
    with Vault.open(f"sqlite:///{tmp_path}/vault.sqlite", secret=SECRET) as vault:
        other = sqlite3.connect(tmp_path / "vault.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(VaultUnavailable) as caught:
            fill(vault, count=1)
        assert "t3_" not in str(caught.value)
        other.execute("ROLLBACK")
        other.close()
        assert fill(vault, count=1)


def test_the_first_to_open_a_file_waits_for_a_writer(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "vault.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.2, other.close).start()
    with Vault.open(f"sqlite:///{tmp_path}/vault.sqlite", secret=SECRET) as vault:
        assert fill(vault, count=1)


def test_the_file_is_for_its_owner_only_and_secure(tmp_path: Path) -> None:
    with Vault.open(f"sqlite:///{tmp_path}/deep/vault.sqlite", secret=SECRET) as vault:
        fill(vault, count=1)
        modes = {file.stat().st_mode & 0o777 for file in (tmp_path / "deep").iterdir()}
        assert modes == {0o600}
        assert sqlite3.connect(tmp_path / "deep" / "vault.sqlite").execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.faults
def test_postgresql_keeps_no_byte_in_its_tables(postgres: Path) -> None:
    connection = psycopg2.connect(host=str(postgres), user="postgres", dbname="postgres")
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute("CREATE DATABASE erasure")
    own = psycopg2.connect(host=str(postgres), user="postgres", dbname="erasure")
    own.autocommit = True
    with Vault.open(f"postgresql+psycopg2://postgres@/erasure?host={postgres}", secret=SECRET) as vault:
        ids = fill(vault, count=300)
        with own.cursor() as rows:
            rows.execute("SELECT record_id, key FROM records")
            before = {record_id: bytes(key) for record_id, key in rows}
            rows.execute("ANALYZE records")
        own.close()
        cursor.execute("CHECKPOINT")

        def left(wanted: list[str]) -> int:
            files = [file for file in (postgres / "data" / "base").rglob("*") if file.is_file()]
            disk = b"".join(file.read_bytes() for file in files)
            return sum(before[record_id] in disk for record_id in wanted)

        assert left(ids) == 300
        vault.destroy(ids[:100], reason="takedown", now=NOW)
        cursor.execute("CHECKPOINT")
        assert left(ids[:100]) == 0
        assert left(ids[100:]) == 200
    connection.close()
