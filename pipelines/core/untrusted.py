"""Read files in folders that others can write to: regular ones, without waiting, and without following a link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read(path: Path, *, links: bool = False, most: int = -1) -> bytes:
    """Return the content of a regular file, of a larger one the first ``most`` bytes; raise ``OSError`` for another.

    ``links``: follow a link, of a path that an operator names.
    """
    # a pipe without a writer is opened at once
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file: copy its content to one", str(path))
        return file.read(most)
