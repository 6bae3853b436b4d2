"""Compile inner loops with numba on first use and cache them on disk, so that only a machine's first task waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

try:
    import numba
except ImportError:
    numba = None
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(function: Kernel) -> Kernel:
    """Return the compiled kernel, which runs without the GIL and may only call kernels of the same file."""
    if numba is None:
        return function
    try:
        fast: Kernel = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no writable cache folder
        fast = numba.njit(nogil=True)(function)
    return fast
