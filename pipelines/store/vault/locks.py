"""Let one process at a time work on what all hosts of a corpus share, such as its takedowns.

Hosts that share a vault share its locks: with PostgreSQL they are the server's advisory locks, which end with the
connection, with SQLite locks of the kernel on files in ``CORPUS_HOME``, which end with the process.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from pipelines.core.config.settings import Settings
from pipelines.core.errors import VaultUnavailable
from pipelines.store.vault.database import WRITER_LOCK
from pipelines.store.vault.engine import Engine, database_file


@contextmanager
def alone(settings: Settings, name: str, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock ``name``, and yield whether it is held: without ``wait``, another process may have it."""
    with (of_host if database_file(settings.vault_url) else _of_server)(settings, name, wait=wait) as held:
        yield held


@contextmanager
def of_host(settings: Settings, name: str, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock for the processes that use this ``CORPUS_HOME``, and yield whether it is held."""
    folder = settings.home / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


@contextmanager
def _of_server(settings: Settings, name: str, *, wait: bool) -> Iterator[bool]:
    engine = Engine(settings.vault_url, where="CORPUS_VAULT_URL", lock=WRITER_LOCK, unavailable=VaultUnavailable)
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    try:
        with engine.translated():
            connection = engine.sql.connect().execution_options(isolation_level="AUTOCOMMIT")
        with connection:
            with engine.translated():
                lock = sa.func.pg_advisory_lock if wait else sa.func.pg_try_advisory_lock
                held = connection.scalar(sa.select(lock(number))) is not False
            try:
                yield held
            finally:
                # a server that restarted has released it; what was done meanwhile is done
                with suppress(DBAPIError):
                    connection.exec_driver_sql("SELECT pg_advisory_unlock_all()")
    finally:
        engine.close()
