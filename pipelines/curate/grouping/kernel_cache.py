"""Cache compiled numba kernels by the content of the source file, because each task's clone has another path."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from numba.core import config
from numba.core.caching import UserProvidedCacheLocator


class ByContent(UserProvidedCacheLocator):  # type: ignore[misc]
    """Locate numba's cache in one folder below ``NUMBA_CACHE_DIR`` for each digest of a source file."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._folder = Path(config.CACHE_DIR) / hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]

    def get_cache_path(self) -> str:
        """Return the folder in which numba caches the compiled functions of the source file."""
        return str(self._folder)
