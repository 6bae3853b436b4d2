"""Define the vault's tables, its metadata (check values of its secret) and its engine, which can erase freed bytes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from pipelines.core.errors import ConfigError, VaultUnavailable
from pipelines.store.vault.engine import Engine, chunks
from pipelines.store.vault.keyring import Keyring

# Any constant, as long as every process uses the same one.
WRITER_LOCK = 0x0C0_4B5_5EA1


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A database column for UTC times, also on SQLite, which has no time zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Return a time in UTC for storage; SQLite's type stores no time zone."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Return the stored time with the UTC time zone."""
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
# All tombstones are read by each takedown.
sa.Index(
    "records_tombstones",
    records.c.record_id,
    records.c.deleted_at,
    records.c.reason,
    sqlite_where=records.c.deleted_at.is_not(None),
    postgresql_where=records.c.deleted_at.is_not(None),
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
# The deletion sweep's last result for a record; a record without a row was never checked.
checks = sa.Table(
    "checks",
    metadata,
    sa.Column("record_id", sa.String(32), primary_key=True),
    sa.Column("checked_at", UtcDateTime, nullable=False),
    sa.Column("outcome", sa.String(16), nullable=False),
)
# A corpus's newest sweep, open until ``ended`` is set; its counts survive a killed process.
sweeps = sa.Table(
    "sweeps",
    metadata,
    sa.Column("corpus", sa.String(64), primary_key=True),
    sa.Column("begun", UtcDateTime, nullable=False),
    sa.Column("ended", UtcDateTime),
    sa.Column("fresh", sa.Integer, nullable=False),
    sa.Column("missing", sa.Integer, nullable=False),
    sa.Column("marked", sa.Integer, nullable=False),
)
# What takedowns removed from the lists of training records: see ``vault.removals``.
removals = sa.Table(
    "removals",
    metadata,
    sa.Column("before", sa.String(64), primary_key=True),
    sa.Column("after", sa.String(64), primary_key=True),
    sa.Column("removed", sa.Integer, nullable=False),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("mac", sa.String(32), nullable=False),
)


def append_only(table: str) -> dict[str, list[str]]:
    """Return by kind of database the statements that make it refuse to change or remove a table's rows."""
    return {
        "sqlite": [
            f"""CREATE TRIGGER {table}_{event} BEFORE {event} ON {table}
            BEGIN SELECT RAISE(ABORT, '{table} are append-only'); END"""
            for event in ("UPDATE", "DELETE")
        ],
        "postgresql": [
            f"""CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION '{table} are append-only'; END $$""",
            f"""CREATE TRIGGER {table}_refuse BEFORE UPDATE OR DELETE ON {table}
            FOR EACH ROW EXECUTE FUNCTION {table}_refuse()""",
        ],
    }


# ANALYZE would copy keys and names as a histogram into pg_statistic, which no rewrite of the table erases.
_NO_STATISTICS = {
    "postgresql": [f"ALTER TABLE records ALTER COLUMN {column} SET STATISTICS 0" for column in ("key", "fullname")]
}


class Database(Engine):
    """The database engine of a vault, which can erase freed bytes from the file."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        if not create and url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).is_file():
            raise ConfigError("NoVault", place=url)
        super().__init__(url, where="CORPUS_VAULT_URL", lock=WRITER_LOCK, unavailable=VaultUnavailable)
        with self.writing() as connection:
            new = not sa.inspect(connection).has_table(marks.name)
            if new and not create:
                raise ConfigError("NoVault", place=self.sql.url.render_as_string())
            if self.prepare(connection, metadata, name="vault"):
                for statement in [*append_only(assignments.name)[self.backend], *_NO_STATISTICS.get(self.backend, ())]:
                    connection.exec_driver_sql(statement)

    def may_hold(self, values: Collection[bytes]) -> bool:
        """Return whether fragments of deleted values may be left in the database's files: :mod:`.remains`.

        The write-ahead log is emptied first. The files of PostgreSQL cannot be searched.
        """
        from pipelines.store.vault import remains

        if self.backend == "postgresql":
            return True
        if not values:
            return False
        with self.translated(), self.sql.connect() as connection:
            self._empty_log(connection)
        # other processes write no page meanwhile
        with self.writing() as connection:
            files = {row.name: row.file for row in connection.exec_driver_sql("PRAGMA database_list")}
            return remains.possible(values, file=Path(files["main"]))


class _JsonList(FunctionElement[str]):
    """The texts of a JSON list as rows: one parameter, and so one statement, for any number of them."""

    inherit_cache = True


@compiles(_JsonList, "sqlite")
def _sqlite(element: _JsonList, compiler: SQLCompiler, **options: Any) -> str:
    listed = compiler.process(element.clause_expr, **options)
    return f"(SELECT value FROM json_each{listed})"  # noqa: S608 - the texts are a parameter


@compiles(_JsonList, "postgresql")
def _postgresql(element: _JsonList, compiler: SQLCompiler, **options: Any) -> str:
    listed = compiler.process(element.clause_expr, **options)
    return f"(SELECT json_array_elements_text(({listed})::json))"


def among(ids: Collection[str]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that selects the rows of the table ``records`` with these ids (at most one chunk)."""
    listed = _JsonList(sa.literal(json.dumps(list(ids)), sa.Text()))
    return records.c.record_id.op("IN", is_comparison=True)(listed)


def tombstoned(database: Database, record_ids: Collection[str]) -> set[str]:
    """Return which of these records have a tombstone; this needs no secret."""
    query = sa.select(records.c.record_id).where(records.c.deleted_at.is_not(None))
    with database.reading() as connection:
        return {record_id for ids in chunks(record_ids) for record_id in connection.scalars(query.where(among(ids)))}


def put_mark(connection: sa.Connection, *, name: str, value: bytes) -> None:
    """Store a value by name in the vault's metadata; call this function inside the write transaction."""
    connection.execute(sa.delete(marks).where(marks.c.name == name))
    connection.execute(sa.insert(marks).values(name=name, value=value))


def get_mark(connection: sa.Connection, *, name: str) -> bytes | None:
    value = connection.scalar(sa.select(marks.c.value).where(marks.c.name == name))
    return None if value is None else bytes(value)


def claim(database: Database, *, keyring: Keyring) -> None:
    """Bind a new vault to its secret, or check that an existing vault is opened with its secret."""
    with database.writing() as connection:
        if get_mark(connection, name="identity") is None:
            put_mark(connection, name="identity", value=keyring.identity_check)
            put_mark(connection, name="wrapping", value=keyring.wrapping_check)
        require_current(connection, keyring=keyring)


def require_current(connection: sa.Connection, *, keyring: Keyring) -> None:
    """Reject a project secret that belongs to another vault or was rotated out after this process opened the vault."""
    if get_mark(connection, name="identity") != keyring.identity_check:
        raise ConfigError("VaultMismatch", which="identity")
    if get_mark(connection, name="wrapping") != keyring.wrapping_check:
        raise ConfigError("VaultMismatch", which="wrapping")


@dataclass(frozen=True)
class Erasure:
    """A request to erase freed bytes: its value in the metadata, and the freed values, ``None`` if they are unknown."""

    asked: bytes
    freed: Collection[bytes] | None = field(default=None, repr=False)


def ask_erasure(connection: sa.Connection, *, freed: Collection[bytes] | None = None) -> Erasure:
    """Record that freed bytes must be erased, in the transaction that frees them, in case this process is killed.

    ``freed`` are all values that the transaction frees, encrypted; they stay in memory. What an earlier request that
    is still pending freed is unknown, so that the values are taken as unknown, too.
    """
    pending = get_mark(connection, name="erase") is not None
    put_mark(connection, name="erase", value=(asked := secrets.token_bytes(8)))
    return Erasure(asked, None if pending else freed)


def finish_erasure(database: Database, *, known: Erasure | None = None) -> None:
    """Erase freed bytes from the vault's database if this is pending; requests that arrive meanwhile remain pending.

    If the pending request is the ``known`` one, and a search finds that no fragment of its values is left, the database
    is not rewritten. While a reader holds the old state, the request stays pending until the vault is opened again.
    """
    with database.reading() as connection:
        asked = get_mark(connection, name="erase")
    if asked is None:
        return
    freed = known.freed if known and known.asked == asked else None
    if freed is None or database.may_hold(freed):
        database.rewrite("records")
    with database.writing() as connection:
        connection.execute(sa.delete(marks).where(marks.c.name == "erase", marks.c.value == asked))
