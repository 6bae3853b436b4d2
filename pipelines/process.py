"""Read the clock, and end a process together with its parent."""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime

# Set for commands that an Airflow worker starts; a command that a person starts may outlive their terminal.
DIES_WITH_PARENT = "CORPUS_DIES_WITH_PARENT"


def now() -> datetime:
    """Return the current time in UTC; only commands call this function, steps receive the time as an argument."""
    return datetime.now(UTC)


def die_with_parent() -> None:
    """Make Linux end this process when the Airflow worker that started it ends."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1

        def end(*_: object) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if os.getpgrp() == os.getpid():
                os.killpg(0, signal.SIGTERM)
            sys.exit(143)

        signal.signal(signal.SIGTERM, end)
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
