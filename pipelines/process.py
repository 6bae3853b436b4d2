"""Read the clock, and end a process with the one that started it."""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime

# Set by what starts a command for an Airflow worker: a person's own may outlive their terminal.
DIES_WITH_PARENT = "CORPUS_DIES_WITH_PARENT"


def now() -> datetime:
    """Read the clock, once, at the edge; steps take the time as an argument."""
    return datetime.now(UTC)


def die_with_parent() -> None:
    """Ask Linux to end this process when the Airflow worker that started it dies."""
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
