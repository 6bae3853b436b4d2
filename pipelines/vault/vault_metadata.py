"""What the vault remembers of itself: which secret it belongs to, and whether freed bytes wait to be erased."""

from __future__ import annotations

import secrets

import sqlalchemy as sa

from pipelines.errors import VaultMismatch
from pipelines.vault.database import Database, marks
from pipelines.vault.keyring import Keyring


def put(connection: sa.Connection, *, name: str, value: bytes) -> None:
    """Set one mark inside the writer's transaction."""
    connection.execute(sa.delete(marks).where(marks.c.name == name))
    connection.execute(sa.insert(marks).values(name=name, value=value))


def get(connection: sa.Connection, *, name: str) -> bytes | None:
    """Return one mark."""
    value = connection.scalar(sa.select(marks.c.value).where(marks.c.name == name))
    return None if value is None else bytes(value)


def claim(database: Database, *, keyring: Keyring) -> None:
    """Tie a new vault to its secret, or check that an old one is opened with the secret it knows.

    Raises:
        VaultMismatch: with another secret every record would get another id, and no tombstone would be found.
    """
    with database.writing() as connection:
        if get(connection, name="identity") is None:
            put(connection, name="identity", value=keyring.identity_check)
            put(connection, name="wrapping", value=keyring.wrapping_check)
        require_current(connection, keyring=keyring)


def require_current(connection: sa.Connection, *, keyring: Keyring) -> None:
    """Refuse a keyring whose secret is foreign, or was rotated away after this process opened the vault.

    Raises:
        VaultMismatch: naming the half of the secret that differs.
    """
    if get(connection, name="identity") != keyring.identity_check:
        raise VaultMismatch(which="identity")
    if get(connection, name="wrapping") != keyring.wrapping_check:
        raise VaultMismatch(which="wrapping")


def ask_erasure(connection: sa.Connection) -> None:
    """Note, in the transaction that frees bytes, that they must be erased: even if the process dies before it can."""
    put(connection, name="erase", value=secrets.token_bytes(8))


def finish_erasure(database: Database) -> None:
    """Erase freed bytes if anyone asked and nobody did; what is asked meanwhile stays asked.

    Raises:
        VaultUnavailable: a reader keeps the old state alive; the request stands, and the next opener tries again.
    """
    with database.reading() as connection:
        asked = get(connection, name="erase")
    if asked is None:
        return
    database.rewrite()
    with database.writing() as connection:
        connection.execute(sa.delete(marks).where(marks.c.name == "erase", marks.c.value == asked))
