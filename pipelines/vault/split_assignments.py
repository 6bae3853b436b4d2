"""Store every split assignment permanently, so that a test record stays a test record as the corpus grows.

Rows of the table ``assignments`` are only added; the database refuses updates and deletes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import sqlalchemy as sa

from pipelines.errors import SplitConflict
from pipelines.vault.database import assignments

Item = tuple[str, int]


def read(connection: sa.Connection, *, corpus: str, version: int) -> dict[Item, str]:
    """Return the split of each item (record id, image number) in a corpus and split version."""
    query = sa.select(assignments.c.record_id, assignments.c.image, assignments.c.split).where(
        assignments.c.corpus == corpus, assignments.c.version == version
    )
    return {(record_id, image): split for record_id, image, split in connection.execute(query)}


def append(connection: sa.Connection, *, corpus: str, version: int, rows: Mapping[Item, str], now: datetime) -> None:
    """Add the split assignments that are new; call this function inside the write transaction."""
    standing = read(connection, corpus=corpus, version=version)
    moved = sorted(item for item, split in rows.items() if standing.get(item, split) != split)
    if moved:
        record_id, image = moved[0]
        detail = f"{len(moved)} items have another split already; the first is {record_id} image {image}"
        raise SplitConflict(corpus=corpus, detail=detail)
    added = [
        {"corpus": corpus, "version": version, "record_id": r, "image": i, "split": split, "assigned_at": now}
        for (r, i), split in sorted(rows.items())
        if (r, i) not in standing
    ]
    if added:
        connection.execute(sa.insert(assignments), added)
