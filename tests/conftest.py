"""What every test has alike: a project secret, so that what is drawn from it is the same, and compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("CORPUS_SECRET", "5e" * 64)
# compiled once, not once a home or a checkout
os.environ.setdefault("NUMBA_CACHE_LOCATOR_CLASSES", "pipelines.curate.kernel_cache.ByContent")
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / "var" / "kernels"))
