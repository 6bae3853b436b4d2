"""Encrypt the content of all corpus versions again, bound to table and row, and accept no other form afterwards.

Tables that were written before format 2 bind content to record, column and image number only, so that the notes of two
annotators could be exchanged. Objects are replaced as by a takedown (:mod:`pipelines.takedown.object_versions`), so old
versions can still be checked out. A killed run is repeated: rewriting gives the same bytes.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from pipelines.config.settings import Settings
from pipelines.errors import CommitLost
from pipelines.storage import seal, tables
from pipelines.takedown.object_versions import Change, Objects
from pipelines.takedown.pointers import Pointers, as_changes
from pipelines.takedown.redacted_tables import Left, write
from pipelines.takedown.redaction import is_table
from pipelines.vault.vault import Vault
from pipelines.workspace.clone import workspace
from pipelines.workspace.objects import TREE

# Ours: attempts when other publishers move the branch first.
ATTEMPTS = 5


def run(*, settings: Settings, vault: Vault) -> dict[str, int]:
    """Encrypt all tables with content again, commit the new objects, remove the old ones; return the numbers of tables.

    Raises:
        CommitLost: other processes committed to the corpus branch first, ATTEMPTS times; objects of both formats exist.
        SealBroken: an encrypted value was altered; nothing is committed or removed.
    """
    for attempt in range(ATTEMPTS):
        with workspace(settings) as clone, Objects.opened(clone) as objects:
            every = _rewritten(objects, vault=vault)
            changes = {digest: change for digest, change in every.items() if change.digest != digest}
            paths = Pointers(clone.path, objects=objects).move(as_changes(changes, settings=settings))
            try:
                if paths:
                    clone.commit(f"vault: {len(changes)} tables sealed to their rows", paths=paths)
            except CommitLost:
                if attempt + 1 == ATTEMPTS:
                    raise
                continue
            vault.refuse_old_seals()
            objects.remove(changes)
            break
    return {"tables": len(every), "resealed": len(changes)}


def _rewritten(objects: Objects, *, vault: Vault) -> dict[str, Change]:
    changes = {}
    for digest in objects.digests():
        if digest.endswith(TREE):
            continue
        with objects.file(digest) as path:
            name = _named(path)
        if name is not None:
            changes[digest] = objects.rewritten(digest, partial(_reseal, name=name, vault=vault))
    return changes


def _reseal(path: Path, to: Path, *, name: str, vault: Vault) -> Left:
    write(seal.resealed(pq.read_table(path), name=name, vault=vault), to)
    return Left()


def _named(path: Path) -> str | None:
    """Return which table with content a file is, or ``None``; no two tables have the same content columns."""
    if not is_table(path):
        return None
    schema = pq.read_schema(path)
    content = tables.sealed_columns(schema)
    same = [name for name, known in tables.SCHEMAS.items() if content and tables.sealed_columns(known) == content]
    # a table of an early version that lacks a column cannot be read by this version either
    return next((name for name in same if set(tables.bound_columns(name)) <= set(schema.names)), None)
