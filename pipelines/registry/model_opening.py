"""How a version is imported and opened; it travels with every version, and imports nothing."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def opening() -> Iterator[None]:
    """Import and open without leaving compiled code among files whose digests are on record, and fast.

    Of the seconds that libraries take to import, Python spends one in five collecting what nobody has dropped yet.
    """
    compiling, collecting = sys.dont_write_bytecode, gc.isenabled()
    sys.dont_write_bytecode = True
    gc.disable()
    try:
        yield
    finally:
        sys.dont_write_bytecode = compiling
        if collecting:
            gc.enable()
