"""The vault's database: its tables, and what a vault needs beyond what every database of this project does."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

import sqlalchemy as sa

from pipelines.errors import VaultUnavailable
from pipelines.vault.engine import BUSY_SECONDS, Engine

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
# What the deletion sweep last heard of a record; a record without a row was never asked about.
checks = sa.Table(
    "checks",
    metadata,
    sa.Column("record_id", sa.String(32), primary_key=True),
    sa.Column("checked_at", UtcDateTime, nullable=False),
    sa.Column("outcome", sa.String(16), nullable=False),
)
# A corpus's newest sweep, open until ``ended``: its counts outlive a killed process.
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


class Database(Engine):
    """The engine of one vault; it leaves no freed bytes behind when asked."""

    def __init__(self, url: str) -> None:
        """Connect and make the tables.

        Raises:
            BadParams: the address is malformed or of another database.
            VaultUnavailable: the database does not answer.
        """
        super().__init__(
            url,
            where="CORPUS_VAULT_URL",
            lock=WRITER_LOCK,
            unavailable=VaultUnavailable,
            # VACUUM copies live keys through its temporary database: never to disk
            pragmas=("secure_delete = ON", "temp_store = MEMORY"),
        )
        with self.writing() as connection:
            new = not sa.inspect(connection).has_table(marks.name)
            # a vault of an earlier release gets the tables that came since; no column of an old one ever changes
            metadata.create_all(connection)
            if new:
                for statement in _APPEND_ONLY[self.backend]:
                    connection.exec_driver_sql(statement)

    def rewrite(self) -> None:
        """Write the file anew without the freed bytes, and empty the write-ahead log.

        ``secure_delete`` alone leaves a stray copy now and then, where SQLite had split a page before.

        Raises:
            VaultUnavailable: a reader kept the old state alive for more than a minute.
        """
        if self.backend == "postgresql":
            with self.translated(), self.sql.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql(f"SET lock_timeout = '{BUSY_SECONDS}s'")
                connection.exec_driver_sql("VACUUM (FULL) records")
            return
        with self.translated(), self.sql.connect() as connection:
            connection.exec_driver_sql("VACUUM")
            if connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar_one():
                raise VaultUnavailable(detail="a reader holds on to its write-ahead log")


def among(ids: Collection[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a row of ``records`` is one of these (a chunk of them)."""
    return records.c.record_id.in_(ids)
