"""Run checks of the deployment concurrently, each with a time-out; one that never returns delays no other."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from threading import Thread

from pipelines.doctor.finding import Check, Finding, Status, failure, of_error
from pipelines.errors import CorpusError

SECONDS = 10.0
# Ours: more at once would share so little CPU that imports alone exceed the time-out.
AT_ONCE = 6
# For a patient check, which reads every object of a cache.
PATIENCE = 24 * 3600.0


def run(checks: Sequence[Check], *, seconds: float = SECONDS) -> list[tuple[str, Finding]]:
    """Run checks of the deployment; return each check's name and finding, in the order of ``checks``.

    The time-out of a check begins when the check begins. The thread of a check that exceeds it is left behind; such
    findings are marked ``late``, because an interpreter with such a thread may not end by itself.
    """
    waiting, running, found = deque(enumerate(checks)), dict[int, float](), dict[int, Finding]()
    finished: SimpleQueue[tuple[int, Finding]] = SimpleQueue()
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            number, check = waiting.popleft()
            running[number] = time.monotonic() + (PATIENCE if check.patient else seconds * check.times)
            Thread(target=_work, args=(number, check, finished), name=check.name, daemon=True).start()
        try:
            number, finding = finished.get(timeout=max(0.0, min(running.values()) - time.monotonic()))
            if running.pop(number, None) is not None:
                found[number] = finding
        except Empty:
            for number in [number for number, end in running.items() if end <= time.monotonic()]:
                del running[number]
                found[number] = _late(checks[number], seconds=seconds)
    return [(check.name, found[number]) for number, check in enumerate(checks)]


def _work(number: int, check: Check, finished: SimpleQueue[tuple[int, Finding]]) -> None:
    try:
        finding = check.run()
    except CorpusError as error:
        finding = of_error(error)
    except Exception as error:
        # the text of a foreign error may quote an address with credentials
        finding = failure(f"the check failed ({type(error).__name__})", fix="Report this as a bug of `corpus doctor`.")
    finished.put((number, finding))


def _late(check: Check, *, seconds: float) -> Finding:
    """Return the finding on a late check: if it computes and this machine is busy, that is no evidence of a fault."""
    status: Status = "failure"
    found = f"no answer within {seconds * check.times:g} s"
    fix = "Check that the service answers and is not overloaded; `corpus doctor --timeout 60` waits longer."
    if check.times > 1 and os.getloadavg()[0] > (os.cpu_count() or 1):
        status, found = "warning", f"not known: {found}, and this machine's load exceeds its processors"
        fix = "Repeat `corpus doctor` when it is less busy, or with `--timeout 60`."
    return Finding(status, found, fix, late=True)
