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
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, TypeVar

from pipelines.core.errors import CorpusError

# More would wait for the process that reads and writes the table.
MOST = 4

Part = TypeVar("Part")


def in_parts(work: Callable[[int, int], Part], *, count: int, least: int) -> list[Part]:
    """Return the results of ``work(start, end)`` for consecutive parts of ``count`` rows, in their order.

    A part has ``least`` rows at least, and one is computed by this process. ``work`` only reads: it may use no database
    and no library with threads. A process with further threads does not fork, because the child would wait for ever for
    a lock that such a thread holds; nor does one that may not start processes.
    """
    parts = max(1, min(_cores(), count // least))
    edges = [count * n // parts for n in range(parts + 1)]
    (first, *others) = pairwise(edges)
    started = [_start(work, *part) for part in others]
    try:
        results = [work(*first)]
        for child, part in zip(started, others, strict=True):
            results.append(_received(*child) if child else work(*part))
        return results
    finally:
        for process, pipe in filter(None, started):
            pipe.close()
            process.kill()
            process.join()


def _cores() -> int:
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return min(MOST, len(os.sched_getaffinity(0)))


def _start(work: Callable[[int, int], Part], start: int, end: int) -> tuple[ForkProcess, Connection] | None:
    """Fork a process for one part; return it with the pipe of its result, ``None`` if no process may start."""
    receiver, sender = Pipe(duplex=False)
    process = get_context("fork").Process(target=_send, args=(work, start, end, sender))
    try:
        process.start()
    except OSError:
        receiver.close()
        return None
    finally:
        sender.close()
    return process, receiver


def _send(work: Callable[[int, int], object], start: int, end: int, sender: Connection) -> None:
    # the handlers of the command would clean up after it
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    gc.disable()  # a collection would copy every page of the parent
    try:
        outcome = False, work(start, end)
    except CorpusError as error:
        outcome = True, error
    except BaseException as error:
        outcome = True, type(error).__name__  # its message may quote content
    sender.send(outcome)


def _received(process: ForkProcess, pipe: Connection) -> Any:
    """Return the result of a process, or raise its error."""
    try:
        failed, result = pipe.recv()
    except (EOFError, OSError):
        process.join()
        status = process.exitcode or 0
        cause = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        raise CorpusError("WorkerLost", cause=cause) from None
    if failed:
        raise result if isinstance(result, CorpusError) else CorpusError("WorkerLost", cause=result)
    return result
