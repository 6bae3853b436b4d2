"""Import and load a model without side effects on its files.

This module is stored with every model version and imports nothing else of this project.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def opening() -> Iterator[None]:
    """Turn off the writing of bytecode and garbage collection while a model is loaded.

    Compiled files would change the recorded digest of the files. Garbage collection takes one fifth of the time that
    importing the libraries takes, and frees nothing.
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
