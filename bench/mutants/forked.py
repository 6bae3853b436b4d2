"""Run tests in forks of this process, which has imported the libraries and nothing of the project.

So a mutant is seen wherever the project's files are read: in the fork and in all processes that a test starts.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from itertools import filterfalse
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

OWN = (
    *("pipelines", "crisis_corpus", "crisis_corpus_sandbox", "corpus_view", "dvc_airflow", "tests", "conftest"),
    *("bench", "__main__", "sitecustomize"),
)
TIERS = "not airflow"
PR_SET_CHILD_SUBREAPER = 36


def own(module: str) -> bool:
    """Return whether a module belongs to the project."""
    return module.partition(".")[0] in OWN


def preload(modules: list[str]) -> None:
    """Import libraries once for all forks; a library that cannot be imported alone is left to the tests."""
    for name in filterfalse(own, modules):
        with suppress(BaseException):
            importlib.import_module(name)
    early = sorted(name for name in sys.modules if name.partition(".")[0] in ("pipelines", "crisis_corpus"))
    if early:  # a fork would test them as they are here, and every mutant would survive
        raise SystemExit(f"imported before the forks: {early[0]} and {len(early) - 1} more")
    gc.collect()
    gc.freeze()


def adopt() -> None:
    """Become the parent of what a test leaves behind, so that :func:`forked` can end it."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def forked(act: Callable[[], int], *, tree: Path, log: Path, late: Callable[[], bool]) -> int | None:
    """Call ``act`` in a fork with ``tree`` as the project; return its result, or ``None`` once it is ``late``."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _in_fork(act, tree=tree, log=log)
    status = None
    while not late():
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        status = None
        time.sleep(0.02)
    _end_descendants()
    return None if status is None else os.waitstatus_to_exitcode(status)


def _in_fork(act: Callable[[], int], *, tree: Path, log: Path) -> None:
    result = 70
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(tree)
        sys.path[:] = [str(tree), *(part for part in sys.path if part and not (Path(part) / "pipelines").is_dir())]
        for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
            del sys.modules[name]
        # processes that tests start must not import ours
        sys.modules["__main__"] = ModuleType("__main__")
        result = act()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(result)


def _end_descendants() -> None:
    """End the fork and what it started; a killed process's children become ours, hence the loop."""
    while children := psutil.Process().children(recursive=True):
        for child in children:
            with suppress(psutil.Error):
                child.send_signal(signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def tests(chosen: list[str], *, place: Path, plugin: object, stop: bool) -> int:
    """Run tests in this process, in the order of ``chosen``; return pytest's exit status."""
    base = place / "pt"
    shutil.rmtree(base, ignore_errors=True)
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-m", TIERS, f"--basetemp={base}", *["-x"] * stop]
    return int(pytest.main([*options, *chosen], plugins=[plugin, _Order(chosen)]))


class _Order:
    """Keep the order that was asked for, and of the tier of faults only what needs PostgreSQL."""

    def __init__(self, chosen: list[str]) -> None:
        self._place = {name: n for n, name in enumerate(chosen)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not item.get_closest_marker("faults") or "postgresql" in item.nodeid]
        # the project's own hook puts long files first
        items.sort(key=lambda item: self._place.get(item.nodeid, len(self._place)))


def after(seconds: float) -> Callable[[], bool]:
    """Return a function that tells whether so much time has passed."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


class Killer:
    """Record the first test that fails, and why, in a few words; and which test runs.

    Args:
        path: where to write that.
        normal: how long each test takes, with its fixtures; a test is late after ``patience`` times that and 10 s.
    """

    def __init__(self, path: Path, *, normal: Callable[[str], float], patience: float) -> None:
        self._path, self._now, self._normal, self._patience = path, path.with_suffix(".now"), normal, patience
        self._known: tuple[str, float] = "", time.monotonic()
        path.unlink(missing_ok=True)
        self._now.unlink(missing_ok=True)

    def late(self) -> bool:
        """Return whether the test that runs, or the collection before the first, takes too long."""
        now = self._now.read_text() if self._now.exists() else ""
        if now != self._known[0]:
            self._known = now, time.monotonic()
        return time.monotonic() - self._known[1] > self._patience * self._normal(now) + 10

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._now.write_text(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self._path.exists():
            crash = getattr(report.longrepr, "reprcrash", None)
            why = str(getattr(crash, "message", ""))[:160]
            self._path.write_text(json.dumps({"killer": report.nodeid, "when": report.when, "why": why}))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self._path.exists():
            self._path.write_text(json.dumps({"killer": report.nodeid, "when": "import", "why": ""}))
