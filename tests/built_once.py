"""Build an expensive fixture once for all pytest workers of a session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

_places: list[Path] = []


def share(factory: pytest.TempPathFactory) -> None:
    """Choose the folder of the session: workers share the parent of their base folders."""
    base = factory.getbasetemp()
    _places[:] = [(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built-once"]
    _places[0].mkdir(exist_ok=True)


def one_at_a_time(name: str) -> FileLock:
    """Return a lock that one worker of the session holds at a time, such as for a port that a fixture contains."""
    return FileLock(_places[0] / f"{name}.held")


def built_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that ``make`` has filled; the first worker to ask fills it, the others wait for it.

    Tests read the folder or copy it; they never write to it. ``make`` gets the final path, because some of the tools
    that fill it store absolute paths. A failed build is repeated by the next caller.

    Args:
        name: identifies the content within the session.
        make: fills the empty folder that it receives.
    """
    [place] = _places
    folder, done = place / name, place / f"{name}.done"
    with FileLock(place / f"{name}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
