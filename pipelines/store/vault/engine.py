"""Open this project's databases: SQLite with a write-ahead log that loses no commit, or PostgreSQL.

Both allow one writer at a time (``BEGIN IMMEDIATE`` in SQLite, an advisory lock in PostgreSQL), so that what a writer
has read is still valid when it writes. Rows are looked up by id in chunks; errors never show statement parameters.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from sqlite3 import SQLITE_BUSY, SQLITE_LOCKED
from sqlite3 import OperationalError as SqliteError
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from crisis_corpus.journal import require_in
from pipelines.core.errors import BadParams, CorpusError
from pipelines.core.formats import version

# Longer than the rewrite of a vault of a million records (2.5 s measured), so that a writer can wait for it.
BUSY_SECONDS = 60
# The second: the shared memory of the write-ahead log cannot grow.
FULL = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")
# The low byte of SQLite's extended error codes.
PRIMARY = 0xFF
# SQLite allows 32,766 variables per statement, psycopg2 any number; more than this is no faster.
CHUNK = 5_000


class Engine:
    """An open database for any number of readers and one writer at a time, across processes."""

    def __init__(self, url: str, *, where: str, lock: int, unavailable: type[CorpusError]) -> None:
        self._lock, self._unavailable = lock, unavailable
        try:
            parsed = sa.make_url(url)
            self.backend = parsed.get_backend_name()
            if self.backend not in {"sqlite", "postgresql"}:
                raise BadParams(where=where, detail="is neither sqlite nor postgresql")
            if self.backend == "sqlite":
                self.sql = sa.create_engine(parsed, hide_parameters=True, connect_args={"timeout": BUSY_SECONDS})
                _make_file(parsed.database)
                sa.event.listen(self.sql, "connect", _prepare_sqlite)
                sa.event.listen(self.sql, "begin", _begin_sqlite)
            else:
                self.sql = sa.create_engine(
                    parsed, hide_parameters=True, pool_pre_ping=True, isolation_level="READ COMMITTED"
                )
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise BadParams(where=where, detail=f"cannot be used ({type(error).__name__})") from None

    def close(self) -> None:
        self.sql.dispose()

    def insert(self, table: sa.Table) -> Any:
        """Return an INSERT of this kind of database, which may have an ON CONFLICT clause."""
        return (sqlite if self.backend == "sqlite" else postgresql).insert(table)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Open a read transaction with a consistent state; raise ``unavailable`` if the database does not answer."""
        with self.translated(), self.sql.execution_options(begin="BEGIN").begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Open the only write transaction; other writers wait up to a minute and then raise ``unavailable``."""
        with self.translated(), self.sql.execution_options(begin="BEGIN IMMEDIATE").begin() as connection:
            if self.backend == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'")
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(self._lock)))
            yield connection

    def prepare(self, connection: sa.Connection, metadata: sa.MetaData, *, name: str) -> bool:
        """Create the tables of the format ``name`` in a database that has none of them; return whether it had none.

        Raises:
            UnknownFormat: this release does not read the version in which the tables were written.
        """
        new = not any(map(sa.inspect(connection).has_table, metadata.tables))
        if new:
            metadata.create_all(connection)
            stated = sa.Table(f"{name}_format", sa.MetaData(), sa.Column("version", sa.Integer, nullable=False))
            stated.create(connection)
            connection.execute(sa.insert(stated).values(version=version(name)))
        require_in(connection, name=name, known=version(name))
        return new

    def rewrite(self, *tables: str) -> None:
        """Rewrite the database without freed bytes, and empty the write-ahead log; PostgreSQL rewrites these tables.

        ``secure_delete`` alone sometimes leaves a copy where SQLite had moved rows before. Raises ``unavailable`` if
        a reader holds the old state for more than a minute.
        """
        if self.backend == "postgresql":
            with self.translated(), self.sql.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql(f"SET lock_timeout = '{BUSY_SECONDS}s'")
                connection.exec_driver_sql(f"VACUUM (FULL) {', '.join(tables)}")
            return
        with self.translated(), self.sql.connect() as connection:
            connection.exec_driver_sql("VACUUM")
            self._empty_log(connection)

    def _empty_log(self, connection: sa.Connection) -> None:
        if connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar_one():
            raise self._unavailable(detail="a reader still uses its write-ahead log")

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Convert the database driver's errors to this project's errors, without the driver's text."""
        try:
            yield
        except DBAPIError as error:
            raise self._unavailable(detail=_detail(error.orig)) from None


class Store:
    """Base of the classes that keep something in an open database; any number of processes may use one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def close(self) -> None:
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rows(self, query: sa.Select[Any]) -> Sequence[Any]:
        with self._engine.reading() as connection:
            return connection.execute(query).all()


def database_file(url: str) -> Path | None:
    """Return the file of a SQLite database; ``None`` for another kind of database or a malformed address."""
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        return None
    return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None


def file_missing(url: str) -> bool:
    """Return whether an address is that of a SQLite file which does not exist."""
    file = database_file(url)
    return file is not None and not file.exists()


def chunks(ids: Collection[str]) -> Iterator[list[str]]:
    """Yield the distinct ids as sorted lists, each short enough for one SQL statement."""
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), CHUNK):
        yield ordered[start : start + CHUNK]


def _make_file(database: str | None) -> None:
    if database and database != ":memory:":
        path = Path(database)
        path.parent.mkdir(parents=True, exist_ok=True)
        # closing a file that SQLite has open in this process would release its locks
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _detail(error: BaseException | None) -> str:
    code = getattr(error, "sqlite_errorname", "")
    if code in FULL:
        return "its file system is full"
    return f"the database returned {type(error).__name__}{f' ({code})' if code else ''}"


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # the driver's own implicit transactions would turn BEGIN IMMEDIATE into a nested one
    connection.isolation_level = None
    _enter_wal(connection)
    # A key must be on disk before content sealed under it is pushed, and every stored answer was paid for. VACUUM
    # copies live keys through its temporary database, which must not be on disk.
    for pragma in ("synchronous = FULL", "secure_delete = ON", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {pragma}")


def _enter_wal(connection: Any) -> None:
    # SQLite does not call its busy handler for this lock, so two concurrent first openers fail immediately
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except SqliteError as error:
            busy = getattr(error, "sqlite_errorcode", SQLITE_BUSY) & PRIMARY in (SQLITE_BUSY, SQLITE_LOCKED)
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: sa.Connection) -> None:
    # VACUUM sets no option, because it cannot run inside a transaction
    if statement := connection.get_execution_options().get("begin"):
        connection.exec_driver_sql(statement)
