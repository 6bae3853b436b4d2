"""What deleting a key leaves on disk: nothing, and what is left over from a crash is erased at the next opening."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import psycopg2
import pytest

from pipelines.errors import VaultUnavailable
from pipelines.vault import engine
from pipelines.vault.vault import Vault

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
    script = f"""
import os, signal
from datetime import UTC, datetime
from pipelines.vault.database import Database
from pipelines.vault.vault import Vault
Database.rewrite = lambda self, *tables: os.kill(os.getpid(), signal.SIGKILL)
vault = Vault.open({url!r}, secret=bytes(range(32)))
vault.destroy({ids[:20]!r}, reason="takedown", now=datetime(2023, 1, 5, tzinfo=UTC))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    values = [before[i] for i in ids[:20]]
    assert traces(tmp_path, values=values) == 20
    with Vault.open(url, secret=SECRET) as vault:
        assert vault.tombstoned(ids) == set(ids[:20])
        assert traces(tmp_path, values=values) == 0


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


@pytest.mark.faults
def test_postgresql_drops_the_statistics_of_an_earlier_vault(postgres: Path) -> None:
    own = psycopg2.connect(host=str(postgres), user="postgres", dbname="postgres")
    own.autocommit = True
    statistics = "SELECT count(*) FROM pg_stats WHERE tablename = 'records' AND attname IN ('key', 'fullname')"
    url = f"postgresql+psycopg2://postgres@/postgres?host={postgres}"
    with Vault.open(url, secret=SECRET) as vault, own.cursor() as rows:
        ids = fill(vault, count=300)
        rows.execute("ALTER TABLE records ALTER COLUMN key SET STATISTICS -1, ALTER COLUMN fullname SET STATISTICS -1")
        rows.execute("ANALYZE records")
        rows.execute(statistics)
        assert rows.fetchone() == (2,)
        with Vault.open(url, secret=SECRET) as again:
            assert len(again.keys(ids)) == 300
        rows.execute("ANALYZE records")
        rows.execute(statistics)
        assert rows.fetchone() == (0,)
    own.close()
