"""The vault's database: its tables, and transactions that are safe between processes on SQLite and PostgreSQL alike.

One writer at a time on both (SQLite's ``BEGIN IMMEDIATE``, an advisory lock on PostgreSQL), so that what a writer
has read still holds when it writes. Rows are looked up by ids in chunks; statements never show their parameters.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import OperationalError as SqliteError
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from pipelines.errors import BadParams, VaultUnavailable

# Longer than the rewrite of a vault of a million records (2.5 s measured), so that a writer outwaits it.
BUSY_SECONDS = 60
# SQLite takes 32,766 variables a statement, psycopg2 any number; more than this is no faster.
CHUNK = 5_000
# Any constant will do, as long as every process uses the same one.
WRITER_LOCK = 0x0C0_4B5_5EA1


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """An aware time in UTC on every database; SQLite has no time zones of its own."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Hand the database UTC."""
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Give back aware times."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = sa.MetaData()
records = sa.Table(
    "records",
    metadata,
    sa.Column("record_id", sa.String(32), primary_key=True),
    sa.Column("corpus", sa.String(64)),
    sa.Column("month", sa.String(7)),
    sa.Column("fullname", sa.LargeBinary),
    sa.Column("key", sa.LargeBinary),
    sa.Column("first_seen", UtcDateTime),
    sa.Column("last_seen", UtcDateTime),
    sa.Column("missed", sa.Integer, nullable=False, server_default="0"),
    sa.Column("deleted_at", UtcDateTime),
    sa.Column("reason", sa.String(64)),
    sa.CheckConstraint("deleted_at IS NULL OR (key IS NULL AND fullname IS NULL)", name="tombstones_hold_nothing"),
)
assignments = sa.Table(
    "assignments",
    metadata,
    sa.Column("corpus", sa.String(64), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("record_id", sa.String(32), primary_key=True),
    sa.Column("image", sa.Integer, primary_key=True),
    sa.Column("split", sa.String(32), nullable=False),
    sa.Column("assigned_at", UtcDateTime, nullable=False),
)
marks = sa.Table(
    "marks",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
)
_APPEND_ONLY = {
    "sqlite": [
        f"""CREATE TRIGGER assignments_{event} BEFORE {event} ON assignments
        BEGIN SELECT RAISE(ABORT, 'assignments are append-only'); END"""
        for event in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        """CREATE FUNCTION assignments_refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'assignments are append-only'; END $$""",
        """CREATE TRIGGER assignments_refuse BEFORE UPDATE OR DELETE ON assignments
        FOR EACH ROW EXECUTE FUNCTION assignments_refuse()""",
    ],
}


class Database:
    """An engine for one vault: reads, writes one at a time, and leaves no freed bytes behind when asked."""

    def __init__(self, url: str) -> None:
        """Connect to ``sqlite:///path`` (made with mode 600) or ``postgresql+psycopg2://...`` and make the tables.

        Raises:
            BadParams: the address is malformed or of another database.
            VaultUnavailable: the database does not answer.
        """
        try:
            parsed = sa.make_url(url)
            self.backend = parsed.get_backend_name()
            if self.backend not in {"sqlite", "postgresql"}:
                raise BadParams(where="CORPUS_VAULT_URL", detail="names neither sqlite nor postgresql")
            if self.backend == "sqlite":
                _make_file(parsed.database)
                connect: dict[str, Any] = {"timeout": BUSY_SECONDS}
                self._engine = sa.create_engine(parsed, hide_parameters=True, connect_args=connect)
                sa.event.listen(self._engine, "connect", _prepare_sqlite)
                sa.event.listen(self._engine, "begin", _begin_sqlite)
            else:
                self._engine = sa.create_engine(
                    parsed, hide_parameters=True, pool_pre_ping=True, isolation_level="READ COMMITTED"
                )
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise BadParams(where="CORPUS_VAULT_URL", detail=f"cannot be used ({type(error).__name__})") from None
        with self.writing() as connection:
            if not sa.inspect(connection).has_table(marks.name):
                metadata.create_all(connection)
                for statement in _APPEND_ONLY[self.backend]:
                    connection.exec_driver_sql(statement)

    def close(self) -> None:
        """Let go of every connection."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Give a transaction that sees one state of the vault.

        Raises:
            VaultUnavailable: the database does not answer in time.
        """
        with _translated(), self._engine.execution_options(begin="BEGIN").begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Give the one transaction that may write now; others wait up to a minute.

        Raises:
            VaultUnavailable: another writer did not finish in time, or the database does not answer.
        """
        with _translated(), self._engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection:
            if self.backend == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'")
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(WRITER_LOCK)))
            yield connection

    def rewrite(self) -> None:
        """Write the file anew without the freed bytes, and empty the write-ahead log.

        ``secure_delete`` alone leaves a stray copy now and then, where SQLite had split a page before.

        Raises:
            VaultUnavailable: a reader kept the old state alive for more than a minute.
        """
        if self.backend == "postgresql":
            with _translated(), self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql(f"SET lock_timeout = '{BUSY_SECONDS}s'")
                connection.exec_driver_sql("VACUUM (FULL) records")
            return
        with _translated(), self._engine.connect() as connection:
            connection.exec_driver_sql("VACUUM")
            if connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar_one():
                raise VaultUnavailable(detail="a reader holds on to its write-ahead log")


def chunks(ids: Collection[str]) -> Iterator[list[str]]:
    """Cut ids into sorted lists that fit one statement, without repetitions."""
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), CHUNK):
        yield ordered[start : start + CHUNK]


def among(ids: Collection[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a row of ``records`` is one of these (a chunk of them)."""
    return records.c.record_id.in_(ids)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise VaultUnavailable(detail=f"its database answered {type(error.orig).__name__}") from None


def _make_file(database: str | None) -> None:
    if database and database != ":memory:":
        path = Path(database)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # the driver's own implicit transactions would turn BEGIN IMMEDIATE into a nested one
    connection.isolation_level = None
    _enter_wal(connection)
    # a key must be on disk before content sealed under it can be pushed anywhere
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    # VACUUM copies live keys through its temporary database: never to disk
    connection.execute("PRAGMA temp_store = MEMORY")


def _enter_wal(connection: Any) -> None:
    # SQLite does not call its busy handler for this one lock, so two first openers collide at once
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except SqliteError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: sa.Connection) -> None:
    # VACUUM asks for none: it cannot run inside a transaction
    if statement := connection.get_execution_options().get("begin"):
        connection.exec_driver_sql(statement)
