"""Log how the time of a ``corpus`` command is spent (its phases): imports, git, DVC, work.

Every process of a ``corpus`` command appends one JSON line to the file in ``CORPUS_PHASES``; if it is unset, nothing is
measured. A line has names, ids of the Airflow task and seconds. Phases are exclusive: time inside an inner phase, or in
an import, is not part of the outer one.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PHASES = "CORPUS_PHASES"
# Set for the processes that a measured command starts: their time is part of its `work`.
INNER = "CORPUS_PHASES_INNER"
WORK, IMPORTS = "work", "imports"
# Python's import machinery: it looks up `_find_and_load` by name for every module that is not loaded yet.
MACHINERY: Any = sys.modules["_frozen_importlib"]
IDS = {"dag": "AIRFLOW_CTX_DAG_ID", "run": "AIRFLOW_CTX_DAG_RUN_ID", "task": "AIRFLOW_CTX_TASK_ID"}


@dataclass
class _Clock:
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    open: list[str] = field(default_factory=list)
    mark: float = 0.0
    thread: int = 0

    def charge(self) -> None:
        now = time.monotonic()
        self.spent[self.open[-1]] += now - self.mark
        self.mark = now


_clock = _Clock()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Add the time of a ``with`` block to a named phase; no effect outside a measured command or the main thread."""
    if not _clock.open or threading.get_ident() != _clock.thread:
        yield
        return
    _clock.charge()
    _clock.open.append(name)
    try:
        yield
    finally:
        _clock.charge()
        _clock.open.pop()


@contextmanager
def measured() -> Iterator[None]:
    """Measure the phases of this process and log them at its end; no effect if ``CORPUS_PHASES`` is unset."""
    path, inner = os.environ.get(PHASES), INNER in os.environ
    if not path:
        yield
        return
    os.environ[INNER] = "1"
    find = MACHINERY._find_and_load

    def timed(name: str, import_: Any) -> Any:
        # an import inside an import is part of it
        if _clock.open[-1:] == [IMPORTS]:
            return find(name, import_)
        with phase(IMPORTS):
            return find(name, import_)

    _clock.mark, _clock.thread, _clock.open = time.monotonic() - _age(), threading.get_ident(), [IMPORTS]
    _clock.charge()
    _clock.open = [WORK]
    MACHINERY._find_and_load = timed
    try:
        yield
    finally:
        MACHINERY._find_and_load = find
        _clock.charge()
        _clock.open = []
        _write(path, spent=_clock.spent, inner=inner)
        _clock.spent.clear()


def _age() -> float:
    """Return the seconds since this process started (Linux), else its CPU seconds."""
    if sys.platform != "linux":
        return time.process_time()
    # psutil counts from the boot time in whole seconds, which is too coarse
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _write(path: str, *, spent: Mapping[str, float], inner: bool) -> None:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    line = {
        "command": " ".join(sys.argv[1 : 3 if sys.argv[1:2] == ["task"] else 2]),
        "inner": inner,
        **{key: os.environ[name] for key, name in IDS.items() if name in os.environ},
        "seconds": {name: round(seconds, 3) for name, seconds in sorted(spent.items())},
        "cpu": round(sum(usage.ru_utime + usage.ru_stime for usage in used), 3),
    }
    # one write of one line: lines of several processes do not mix
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{json.dumps(line)}\n".encode())
    finally:
        os.close(file)
