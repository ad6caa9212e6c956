"""Our decorators for numba kernels: compiled once and kept on disk, or plain Python on request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_LISTENERS: list[Callable[[str], None]] = []


@contextmanager
def told_of_compiling(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with the name of each kernel that is compiled, in any thread."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


def tell_of_compiling(name: str) -> None:
    """Tell all who listen that a kernel of this name is about to be compiled."""
    for listener in list(_LISTENERS):
        listener(name)


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
