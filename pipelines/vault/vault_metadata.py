"""Store the vault's metadata: check values of its secret, and whether freed bytes must still be erased."""

from __future__ import annotations

import secrets

import sqlalchemy as sa

from pipelines.errors import VaultMismatch
from pipelines.vault.database import Database, marks
from pipelines.vault.keyring import Keyring

# The format of sealed values that a vault requires; vaults that were created before have no such row.
SEAL, ROW_SEAL = "seal", b"2"


def put(connection: sa.Connection, *, name: str, value: bytes) -> None:
    """Store a value by name in the vault's metadata; call this function inside the write transaction."""
    connection.execute(sa.delete(marks).where(marks.c.name == name))
    connection.execute(sa.insert(marks).values(name=name, value=value))


def get(connection: sa.Connection, *, name: str) -> bytes | None:
    """Return a value from the vault's metadata by name, or ``None`` if there is none."""
    value = connection.scalar(sa.select(marks.c.value).where(marks.c.name == name))
    return None if value is None else bytes(value)


def claim(database: Database, *, keyring: Keyring) -> None:
    """Bind a new vault to its secret, or check that an existing vault is opened with its secret.

    Raises:
        VaultMismatch: the secret differs: every record would get another id, and no tombstone would be found.
    """
    with database.writing() as connection:
        if get(connection, name="identity") is None:
            put(connection, name="identity", value=keyring.identity_check)
            put(connection, name="wrapping", value=keyring.wrapping_check)
            put(connection, name=SEAL, value=ROW_SEAL)
        require_current(connection, keyring=keyring)


def require_current(connection: sa.Connection, *, keyring: Keyring) -> None:
    """Reject a project secret that belongs to another vault or was rotated out after this process opened the vault.

    Raises:
        VaultMismatch: the secret differs; the error states in which part.
    """
    if get(connection, name="identity") != keyring.identity_check:
        raise VaultMismatch(which="identity")
    if get(connection, name="wrapping") != keyring.wrapping_check:
        raise VaultMismatch(which="wrapping")


def ask_erasure(connection: sa.Connection) -> None:
    """Record that freed bytes must be erased, in the transaction that frees them, in case this process is killed."""
    put(connection, name="erase", value=secrets.token_bytes(8))


def finish_erasure(database: Database) -> None:
    """Erase freed bytes from the vault's database if this is pending; requests that arrive meanwhile remain pending.

    Raises:
        VaultUnavailable: a reader holds the old state; the request stays pending until the vault is opened again.
    """
    with database.reading() as connection:
        asked = get(connection, name="erase")
    if asked is None:
        return
    database.rewrite("records")
    with database.writing() as connection:
        connection.execute(sa.delete(marks).where(marks.c.name == "erase", marks.c.value == asked))
