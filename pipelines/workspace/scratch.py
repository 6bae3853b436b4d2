"""Create scratch (temporary) folders for clones, and define the environment of commands that run in them."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.core.config.settings import Settings, with_secret
from pipelines.core.process import DIES_WITH_PARENT


@contextmanager
def scratch_folder(home: Path) -> Iterator[Path]:
    """Create a scratch folder for the context; those that killed processes left behind are deleted first."""
    scratch = home / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    for folder in scratch.iterdir():
        if not in_use(folder):
            shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix(), dir=scratch))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def temporary_files(home: Path) -> Iterator[None]:
    """Let libraries keep their temporary files in a scratch folder, where what a killed process left is removed."""
    with scratch_folder(home) as folder:
        before, tempfile.tempdir = tempfile.tempdir, str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = before


def prefix() -> str:
    """Return the common start of the names of this process's scratch folders: ``<host>-<process>-``."""
    return f"{socket.gethostname()}-{os.getpid()}-"


def in_use(folder: Path) -> bool:
    """Return whether the process that created a scratch folder still runs; always true for folders of other hosts."""
    host, number = (*folder.name.rsplit("-", 2), "", "")[:2]
    return host != socket.gethostname() or not number.isdigit() or Path("/proc", number).exists()


def step_environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables of a command in a clone; this interpreter's folder comes first in ``PATH``."""
    binaries = str(Path(sys.executable).parent)
    return {
        **with_secret(),
        "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
        "CORPUS_HOME": str(settings.home),
        "PYTHONPATH": "",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "DVC_NO_ANALYTICS": "1",
        # the step of a killed task must not keep running beside the next attempt
        DIES_WITH_PARENT: "1",
        **compiled_kernels(settings.home),
    }


def compiled_kernels(home: Path) -> dict[str, str]:
    """Return variables with which numba caches compiled functions in this Python environment, or below ``home``."""
    folder = (Path(sys.prefix) if os.access(sys.prefix, os.W_OK) else home) / "kernels"
    return {
        "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR") or str(folder),
        "NUMBA_CACHE_LOCATOR_CLASSES": "pipelines.curate.kernels.ByContent",
    }
