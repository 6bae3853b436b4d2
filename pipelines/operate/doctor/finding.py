"""Describe what a check found, with counts and names only, and run checks concurrently, each with a time-out."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Literal

from pipelines.core.errors import CorpusError, name_of

Status = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """The result of one check of the deployment.

    ``fix`` is a sentence or command, empty if nothing needs to be done; ``late``: the check exceeded its time-out.
    """

    status: Status
    found: str
    fix: str = ""
    late: bool = False

    def as_json(self, name: str) -> dict[str, Any]:
        """Return the finding of the check ``name`` as a JSON object."""
        return {"check": name, "status": self.status, "found": self.found, "fix": self.fix}


@dataclass(frozen=True)
class Check:
    """A named check of the deployment.

    ``times``: how many times the time-out it may take, more than 1 if it computes instead of waiting.
    """

    name: str
    run: Callable[[], Finding]
    times: int = 1


# What a check found: no problem, one that does not stop the deployment yet, or one that stops part of it or loses data.
ok = partial(Finding, "ok")
warning = partial(Finding, "warning")
failure = partial(Finding, "failure")


def of_error(error: CorpusError, *, status: Status = "failure") -> Finding:
    """Convert an error of this project to a finding, whose fix is the error's remedy."""
    text = error.message.format(**error.fields).rstrip(".")
    return Finding(status, text, error.remedy.format(**error.fields))


# Ours: more at once would share so little CPU that imports alone exceed the time-out.
AT_ONCE = 6


def run(checks: Sequence[Check], *, seconds: float) -> list[tuple[str, Finding]]:
    """Run checks of the deployment; return each check's name and finding, in the order of ``checks``.

    The time-out of a check begins when the check begins. The thread of a check that exceeds it is left behind; such
    findings are marked ``late``, because an interpreter with such a thread may not end by itself.
    """
    waiting, running, findings = deque(enumerate(checks)), dict[int, float](), dict[int, Finding]()
    finished: SimpleQueue[tuple[int, Finding]] = SimpleQueue()
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            number, check = waiting.popleft()
            running[number] = time.monotonic() + seconds * check.times
            Thread(target=_work, args=(number, check, finished), name=check.name, daemon=True).start()
        try:
            number, finding = finished.get(timeout=max(0.0, min(running.values()) - time.monotonic()))
            if running.pop(number, None) is not None:
                findings[number] = finding
        except Empty:
            for number in [number for number, end in running.items() if end <= time.monotonic()]:
                del running[number]
                findings[number] = _late(checks[number], seconds=seconds)
    return [(check.name, findings[number]) for number, check in enumerate(checks)]


def _work(number: int, check: Check, finished: SimpleQueue[tuple[int, Finding]]) -> None:
    try:
        finding = check.run()
    except CorpusError as error:
        finding = of_error(error)
    except Exception as error:
        # the text of a foreign error may quote an address with credentials
        finding = failure(f"the check failed ({name_of(error)})", fix="Report this as a bug of `corpus doctor`.")
    finished.put((number, finding))


def _late(check: Check, *, seconds: float) -> Finding:
    """Return the finding on a late check: if it computes and this machine is busy, that is no evidence of a fault."""
    found = f"no answer within {seconds * check.times:g} s"
    if check.times > 1 and os.getloadavg()[0] > (os.cpu_count() or 1):
        found = f"not known: {found}, and this machine's load exceeds its processors"
        fix = "Repeat `corpus doctor` when it is less busy, or with `--timeout 60`."
        return Finding("warning", found, fix, late=True)
    fix = "Check that the service answers and is not overloaded; `corpus doctor --timeout 60` waits longer."
    return Finding("failure", found, fix, late=True)
