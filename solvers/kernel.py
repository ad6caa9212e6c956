"""Our decorator for numba kernels: cached on disk where possible, plain Python on request."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile `function` by numba on its first call.

    Where no cache folder can be written (a locked container), the kernel is compiled in each
    process instead. ``OPTMATCH_JIT=0`` in the environment leaves the Python function as it is.
    """
    if os.environ.get("OPTMATCH_JIT") == "0":
        return function
    import numba

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        compiled: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # "cannot cache function": numba finds no place for it
        compiled = numba.njit(**options)(function)
    return compiled
