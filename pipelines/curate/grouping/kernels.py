"""Compile inner loops with numba on first use; the disk cache makes later tasks on the machine start faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

try:
    import numba
except ImportError:
    numba = None
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(function: Kernel) -> Kernel:
    """Compile ``function`` with numba, without the GIL; return it unchanged if numba is not installed.

    The function may call only compiled functions of the same file.
    """
    if numba is None:
        return function
    try:
        fast: Kernel = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no writable cache folder
        fast = numba.njit(nogil=True)(function)
    return fast
