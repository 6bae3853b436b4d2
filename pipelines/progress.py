"""Report the progress of long work on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable


def silent(message: object) -> None:
    """Discard a progress message; this is the default of parameters that take a progress callback."""


def reporter(name: str, *, total: int) -> Callable[[int], None]:
    """Return a callback that takes the number of items done and writes about twenty lines ``name: done/total``."""
    said = 0

    def progress(done: int) -> None:
        nonlocal said
        if done > said and (done - said >= total / 20 or done == total):
            said = done
            sys.stderr.write(f"{name}: {done}/{total}\n")

    return progress
