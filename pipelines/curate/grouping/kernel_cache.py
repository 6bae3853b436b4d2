"""Cache compiled kernels by the content of their file, not by its path, because every task has its own clone."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from numba.core import config
from numba.core.caching import UserProvidedCacheLocator


class ByContent(UserProvidedCacheLocator):  # type: ignore[misc]
    """A cache with one folder below ``NUMBA_CACHE_DIR`` for each content of a file."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._folder = Path(config.CACHE_DIR) / hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]

    def get_cache_path(self) -> str:
        """Return the folder of the file's content."""
        return str(self._folder)
