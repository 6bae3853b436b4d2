"""Compile inner loops with numba; the cache on disk makes later tasks on the machine start faster."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config
from numba.core.caching import UserProvidedCacheLocator

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


class ByContent(UserProvidedCacheLocator):  # type: ignore[misc]
    """Locate numba's cache by the digest of a source file, because each task's clone has another path."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._folder = Path(config.CACHE_DIR) / hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]

    def get_cache_path(self) -> str:
        return str(self._folder)


def compiled(function: Kernel) -> Kernel:
    """Compile ``function`` without the GIL; it may call only compiled functions of the same file."""
    try:
        fast: Kernel = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no writable cache folder
        fast = numba.njit(nogil=True)(function)
    return fast
