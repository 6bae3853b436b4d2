"""Record in the vault who opened the content of which records, when and why; rows are only added.

A row has no content. It keeps the ids of the records, in the order of their bytes, so that a person whose post was read
can be told who read it: the ids stay after a takedown, as the tombstone does, and say nothing without the vault's
secret. Each row is authenticated under the project secret together with the row before.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from pipelines.core.errors import DataError
from pipelines.store.vault.database import UtcDateTime, append_only
from pipelines.store.vault.vault import Item, Vault

ID_BYTES = 16
# apart from the vault's tables: a vault of an earlier release gets it with its first row
metadata = sa.MetaData()
access = sa.Table(
    "access",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("why", sa.String(500), nullable=False),
    sa.Column("corpus", sa.String(64), nullable=False),
    sa.Column("items", sa.Integer, nullable=False),
    sa.Column("ids", sa.LargeBinary, nullable=False),
    sa.Column("mac", sa.String(32), nullable=False),
)


@dataclass(frozen=True)
class Access:
    """One opening of content: the person, the time, the reason, and how many items of a corpus."""

    number: int
    at: datetime
    who: str
    why: str
    corpus: str
    items: int
    ids: bytes = field(repr=False)

    def names(self, record_id: str) -> bool:
        """Return whether the content of a record was opened."""
        wanted = bytes.fromhex(record_id)
        return any(self.ids[at : at + ID_BYTES] == wanted for at in range(0, len(self.ids), ID_BYTES))


def record(vault: Vault, *, corpus: str, items: Collection[Item], who: str, why: str, now: datetime) -> None:
    """Add the row of an opening; call this before the content is decrypted."""
    ids = bytes.fromhex("".join(sorted({record_id for record_id, _ in items})))
    with vault.database.writing() as connection:
        if not sa.inspect(connection).has_table(access.name):
            metadata.create_all(connection)
            for statement in append_only(access.name)[vault.database.backend]:
                connection.exec_driver_sql(statement)
        last = connection.execute(sa.select(access).order_by(access.c.number.desc()).limit(1)).one_or_none()
        row = Access(last.number + 1 if last else 1, now, who, why, corpus, len(items), ids)
        mac = _mac(vault, row, before=last.mac if last else "")
        connection.execute(sa.insert(access).values(**vars(row), mac=mac))


def every(vault: Vault) -> list[Access]:
    """Return all openings, oldest first, after a check that none was altered or removed between two others."""
    with vault.database.reading() as connection:
        there = sa.inspect(connection).has_table(access.name)
        rows = connection.execute(sa.select(access).order_by(access.c.number)).all() if there else []
    stored, before = [], ""
    for row in rows:
        one = Access(*row[:-1])
        if not hmac.compare_digest(row.mac, _mac(vault, one, before=before)):
            raise DataError("AccessAltered", number=one.number)
        stored.append(one)
        before = row.mac
    return stored


def _mac(vault: Vault, row: Access, *, before: str) -> str:
    digest = hashlib.sha256(row.ids).hexdigest()
    said = (before, row.number, row.at.isoformat(), row.who, row.why, row.corpus, row.items, digest)
    return vault.record_id(repr(said), domain="access")
