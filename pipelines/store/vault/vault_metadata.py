"""Store the vault's metadata: check values of its secret, and whether freed bytes must still be erased."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass, field

import sqlalchemy as sa

from pipelines.core.errors import ConfigError
from pipelines.store.vault.database import Database, marks
from pipelines.store.vault.keyring import Keyring


def put(connection: sa.Connection, *, name: str, value: bytes) -> None:
    """Store a value by name in the vault's metadata; call this function inside the write transaction."""
    connection.execute(sa.delete(marks).where(marks.c.name == name))
    connection.execute(sa.insert(marks).values(name=name, value=value))


def get(connection: sa.Connection, *, name: str) -> bytes | None:
    """Return a value from the vault's metadata by name, or ``None`` if there is none."""
    value = connection.scalar(sa.select(marks.c.value).where(marks.c.name == name))
    return None if value is None else bytes(value)


def claim(database: Database, *, keyring: Keyring) -> None:
    """Bind a new vault to its secret, or check that an existing vault is opened with its secret."""
    with database.writing() as connection:
        if get(connection, name="identity") is None:
            put(connection, name="identity", value=keyring.identity_check)
            put(connection, name="wrapping", value=keyring.wrapping_check)
        require_current(connection, keyring=keyring)


def require_current(connection: sa.Connection, *, keyring: Keyring) -> None:
    """Reject a project secret that belongs to another vault or was rotated out after this process opened the vault."""
    if get(connection, name="identity") != keyring.identity_check:
        raise ConfigError("VaultMismatch", which="identity")
    if get(connection, name="wrapping") != keyring.wrapping_check:
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
    pending = get(connection, name="erase") is not None
    put(connection, name="erase", value=(asked := secrets.token_bytes(8)))
    return Erasure(asked, None if pending else freed)


def finish_erasure(database: Database, *, known: Erasure | None = None) -> None:
    """Erase freed bytes from the vault's database if this is pending; requests that arrive meanwhile remain pending.

    If the pending request is the ``known`` one, and a search finds that no fragment of its values is left, the
    database is not rewritten.

    Raises:
        VaultUnavailable: a reader holds the old state; the request stays pending until the vault is opened again.
    """
    with database.reading() as connection:
        asked = get(connection, name="erase")
    if asked is None:
        return
    freed = known.freed if known and known.asked == asked else None
    if freed is None or database.may_hold(freed):
        database.rewrite("records")
    with database.writing() as connection:
        connection.execute(sa.delete(marks).where(marks.c.name == "erase", marks.c.value == asked))
