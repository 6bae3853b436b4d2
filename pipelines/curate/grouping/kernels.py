"""Inner loops, compiled by numba on first use and kept on disk, so that only the first task of a machine waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

try:
    import numba
except ImportError:
    numba = None
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(function: Kernel) -> Kernel:
    """Compile a kernel, which calls kernels of its own file only; it runs without the interpreter's lock."""
    if numba is None:
        return function
    try:
        fast: Kernel = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no place to keep it can be written
        fast = numba.njit(nogil=True)(function)
    return fast
