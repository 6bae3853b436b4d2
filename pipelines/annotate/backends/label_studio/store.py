"""What the embedded Label Studio keeps on disk of things that were deleted, and its removal.

SQLite leaves deleted rows in free pages of its file: the file is written anew. Exports and uploads that somebody made
in the browser lie in folders beside it.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

from pipelines.errors import BackendUnavailable

# The server writes in short transactions; ours.
BUSY_SECONDS = 60.0
FOLDERS = ("export", "media/export", "media/upload", "test_data")


def clean(folder: Path) -> None:
    """Write the database anew without deleted rows, and empty the folders of exports and uploads.

    Raises:
        BackendUnavailable: the database stayed busy for a minute; repeat it.
    """
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
            # The copy that VACUUM makes stays out of the temporary folder.
            for statement in ("PRAGMA temp_store=MEMORY", "VACUUM"):
                connection.execute(statement).fetchall()
            # Where a reader keeps it from ending it raises nothing: its first figure says so.
            [(blocked, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError:
        blocked = True
    if blocked:
        raise BackendUnavailable(backend="label_studio", detail="its database is busy")
