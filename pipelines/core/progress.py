"""Report the progress of long computations on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def silent(message: object) -> None:
    """Ignore a progress message; this is the default of parameters that take a progress callback."""


def reporter(name: str, *, total: int) -> Callable[[int], None]:
    """Return a function that, called with the number of completed items, prints ``name: done/total`` and the time left.

    A terminal shows one line that is rewritten at most once a second; a log gets about twenty lines.
    """
    terminal = sys.stderr.isatty()
    said, began, last = 0, time.monotonic(), float("-inf")

    def progress(done: int) -> None:
        nonlocal said, last
        now = time.monotonic()
        due = now - last >= 1 if terminal else done - said >= total / 20
        if done <= said or not (due or done == total):
            return
        said, last = done, now
        text = f"{name}: {done}/{total}"
        if done < total:
            text += f", about {duration((now - began) * (total - done) / done)} left"
        sys.stderr.write(f"\r\x1b[K{text}" + "\n" * (done == total) if terminal else f"{text}\n")
        sys.stderr.flush()

    return progress


def duration(seconds: float) -> str:
    """Format a duration, such as ``12 s``, ``5 min`` or ``3.5 h``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
