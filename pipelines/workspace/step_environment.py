"""Define the environment variables with which commands run in a clone of the corpus repository."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pipelines.config.settings import Settings, with_secret
from pipelines.process import DIES_WITH_PARENT


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
