"""Create scratch (temporary) folders for clones, and remove those that killed processes left behind."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_folder(home: Path) -> Iterator[Path]:
    """Create a new scratch folder below ``home`` and delete it at the end of the context.

    Folders that killed processes left behind are deleted first.
    """
    scratch = home / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    for folder in scratch.iterdir():
        if not in_use(folder):
            shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix(), dir=scratch))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def prefix() -> str:
    """Return the common start of the names of this process's scratch folders: ``<host>-<process>-``."""
    return f"{socket.gethostname()}-{os.getpid()}-"


def in_use(folder: Path) -> bool:
    """Return whether the process that created a scratch folder still runs; always true for folders of other hosts."""
    host, number = (*folder.name.rsplit("-", 2), "", "")[:2]
    return host != socket.gethostname() or not number.isdigit() or Path("/proc", number).exists()
