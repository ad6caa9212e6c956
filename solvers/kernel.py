"""Our decorators for numba kernels: compiled once and kept on disk, or plain Python on request."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile `function` by numba on its first call. It allocates nothing.

    Whoever calls it brings the arrays that it works in. Without memory of its own numba counts no
    references, which takes as long to compile as all the rest, and time in each call.
    ``OPTMATCH_JIT=0`` in the environment leaves the Python function as it is.
    """
    return _compile(function)


def inner_kernel(function: Function) -> Function:
    """Like `kernel`, for what kernels alone call: there is no way into it from Python."""
    return _compile(function, inner=True)


def allocating_kernel(function: Function) -> Function:
    """Like `kernel`, for one that makes arrays: slow to compile, so for rare methods."""
    return _compile(function, _nrt=True)


def _compile(function: Function, *, inner: bool = False, **options: bool) -> Function:
    if os.environ.get("OPTMATCH_JIT") == "0":
        return function
    from optmatch.solvers.compiler import DISABLED, InnerKernel, Kernel

    if DISABLED:
        return function
    compiled: Any = (InnerKernel if inner else Kernel)(function, options)
    return compiled  # type: ignore[no-any-return]
