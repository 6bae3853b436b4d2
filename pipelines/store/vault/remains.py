"""Search a SQLite database's files for fragments of values that were destroyed.

SQLite zeroes the bytes that it frees (``secure_delete``), except copies in pages between which it moved rows before.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

# Ours: other encrypted bytes, 1 GB of them, hold one of a value's fragments with a probability of 10^-6.
FRAGMENT = 7
# A fragment contains one whole word at a multiple of its size.
WORD = 4
# Ours: with more values, most words of the file would be compared with their fragments.
MOST_VALUES = 64
READ_BYTES = 2**20


def possible(values: Collection[bytes], *, file: Path) -> bool:
    """Return whether a database's file, log or journal holds FRAGMENT consecutive bytes of a value, or may hold them.

    It may if a value is shorter, if there are more than MOST_VALUES, or if the files cannot be read. The caller holds a
    write transaction of the database; another connection may still move pages of the log to the file, so that the log
    is read first.
    """
    if len(values) > MOST_VALUES or any(len(value) < FRAGMENT for value in values):
        return True
    search = _Fragments(values)
    try:
        for beside in (file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-journal")):
            with suppress(FileNotFoundError), beside.open("rb", buffering=0) as log:
                if search.within(log.fileno()):
                    return True
        return search.within(_descriptor(file))
    except OSError:
        return True


class _Fragments:
    """The fragments of some values, and the words by which they are found."""

    def __init__(self, values: Collection[bytes]) -> None:
        self._fragments = {value[at : at + FRAGMENT] for value in values for at in range(len(value) - FRAGMENT + 1)}
        words = {part[at : at + WORD] for part in self._fragments for at in range(FRAGMENT - WORD + 1)}
        self._words = np.frombuffer(b"".join(words), "<u4")
        # rules out most words of the file by half of their bits
        self._halves = np.zeros(2**16, bool)
        self._halves[self._words & 0xFFFF] = True

    def within(self, descriptor: int) -> bool:
        """Return whether a file holds a fragment; the descriptor stays open and keeps its position."""
        return any(map(self._in_part, _parts(descriptor)))

    def _in_part(self, part: bytes) -> bool:
        words = np.frombuffer(part, "<u4", count=len(part) // WORD)
        likely = np.flatnonzero(self._halves.take(words.view("<u2")[::2]))
        ends = likely[np.isin(words[likely], self._words)] * WORD + WORD
        return any(
            part[max(0, end - FRAGMENT + at) :][:FRAGMENT] in self._fragments
            for end in ends.tolist()
            for at in range(FRAGMENT - WORD + 1)
        )


def _parts(descriptor: int) -> Iterator[bytes]:
    size = os.fstat(descriptor).st_size
    for at in range(0, size, READ_BYTES):
        part = os.pread(descriptor, READ_BYTES + 2 * WORD, at)
        if len(part) < min(size - at, READ_BYTES + 2 * WORD):
            raise OSError(f"{len(part)} bytes at {at} of {size}")
        yield part


def _descriptor(file: Path) -> int:
    """Return a descriptor of the database file that SQLite itself holds in this process.

    Another one must not be opened: closing it would release SQLite's locks on the file (``man 2 fcntl_locking``).
    """
    wanted = file.stat()
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - no paths are needed
        with suppress(OSError):
            if os.path.samestat(os.fstat(int(name)), wanted):
                return int(name)
    raise FileNotFoundError(file.name)
