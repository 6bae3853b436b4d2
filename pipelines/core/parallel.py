"""Share the work on the rows of a large table among forked processes, at most one for each core.

Threads would not help: encrypting a short value holds the interpreter's lock. A forked process sees the rows without a
copy and returns its result through a pipe. The results do not depend on the number of processes.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

from pipelines.core.errors import CorpusError

# More would wait for the process that reads and writes the table.
MOST = 4

Part = TypeVar("Part")


def in_parts(work: Callable[[int, int], Part], *, count: int, least: int) -> list[Part]:
    """Return the results of ``work(start, end)`` for consecutive parts of ``count`` rows, in their order.

    One part is computed by this process. A process that runs further threads does not fork, because the child would
    wait for ever for a lock that such a thread holds; nor does one that may not start processes.

    Args:
        work: reads its rows only: it may use no database, and no library with threads of its own.
        count: the number of rows.
        least: the number of rows of a part that is worth a process.
    """
    parts = max(1, min(_cores(), count // least))
    edges = [count * n // parts for n in range(parts + 1)]
    (first, *others) = pairwise(edges)
    started = [_start(work, *part) for part in others]
    try:
        results = [work(*first)]
        for child, part in zip(started, others, strict=True):
            results.append(child.result() if child else work(*part))
        return results
    finally:
        for child in filter(None, started):
            child.end()


def _cores() -> int:
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return min(MOST, len(os.sched_getaffinity(0)))


class _Child(Generic[Part]):
    def __init__(self, pid: int, pipe: Connection) -> None:
        self._pid, self._pipe = pid, pipe

    def result(self) -> Part:
        """Return the part's result, or raise its error."""
        result: Part
        try:
            failed, result = self._pipe.recv()
        except (EOFError, OSError):
            raise CorpusError("WorkerLost", cause=self._cause()) from None
        if failed:
            raise result if isinstance(result, CorpusError) else CorpusError("WorkerLost", cause=result)
        return result

    def end(self) -> None:
        """Kill the process if it still runs; its result is not needed any more."""
        self._pipe.close()
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _cause(self) -> str:
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self._pid = 0
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def _start(work: Callable[[int, int], Part], start: int, end: int) -> _Child[Part] | None:
    """Fork a process for one part; return ``None`` if the system allows no further process."""
    receiver, sender = Pipe(duplex=False)
    try:
        pid = os.fork()
    except OSError:
        receiver.close()
        sender.close()
        return None
    if pid:
        sender.close()
        return _Child(pid, receiver)
    try:
        # the handlers of the command would clean up after it
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        gc.disable()  # a collection would copy every page of the parent
        receiver.close()
        sender.send(_outcome(work, start, end))
        os._exit(0)
    except BaseException:
        os._exit(1)


def _outcome(work: Callable[[int, int], Part], start: int, end: int) -> tuple[bool, Part | CorpusError | str]:
    try:
        return False, work(start, end)
    except CorpusError as error:
        return True, error
    except BaseException as error:
        return True, type(error).__name__  # its message may quote content
