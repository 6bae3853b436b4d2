"""Rewrap every record's key, which makes older backups of the vault unreadable once the old secret is destroyed."""

from __future__ import annotations

import sqlalchemy as sa

from pipelines.vault.database import among, records
from pipelines.vault.engine import chunks
from pipelines.vault.keyring import Keyring


def rewrap(connection: sa.Connection, *, old: Keyring, new: Keyring) -> int:
    """Encrypt keys and Reddit fullnames of all live records again with ``new``; return the number of these records."""
    live = connection.scalars(sa.select(records.c.record_id).where(records.c.deleted_at.is_(None))).all()
    columns = sa.select(records.c.record_id, records.c.key, records.c.fullname)
    statement = sa.update(records).where(records.c.record_id == sa.bindparam("id"))
    for ids in chunks(live):
        rows = connection.execute(columns.where(among(ids))).all()
        keys = old.unwrap([(r, key) for r, key, _ in rows], column="key")
        names = old.unwrap([(r, name) for r, _, name in rows], column="fullname")
        values = [
            {
                "id": r,
                "key": new.wrap(keys[r], record_id=r, column="key"),
                "fullname": new.wrap(names[r], record_id=r, column="fullname"),
            }
            for r in ids
        ]
        connection.execute(statement, values)
    return len(live)
