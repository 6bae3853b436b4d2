"""Remove deleted data from the disk of the embedded Label Studio.

SQLite leaves deleted rows in free pages of the database file, so the file is rewritten. Exports and uploads made in the
browser are in folders next to that file, which are emptied.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

from pipelines.errors import BackendUnavailable

# Ours: the server writes in short transactions.
BUSY_SECONDS = 60.0
FOLDERS = ("export", "media/export", "media/upload", "test_data")


def clean(folder: Path) -> None:
    """Rewrite Label Studio's database without deleted rows, and empty its folders of exports and uploads."""
    for name in FOLDERS:
        for path in sorted((folder / name).glob("*")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    database = folder / "label_studio.sqlite3"
    if not database.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(database, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
            # Keep the copy that VACUUM makes out of the temporary folder.
            for statement in ("PRAGMA temp_store=MEMORY", "VACUUM"):
                connection.execute(statement).fetchall()
            # A checkpoint that a reader blocks raises nothing; its first column is then nonzero.
            [(blocked, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError:
        blocked = True
    if blocked:
        raise BackendUnavailable(backend="label_studio", detail="its database is busy")
