"""Our decorator for numba kernels: cached on disk where possible, plain Python on request."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from optmatch.model import uncounted

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile `function` by numba on its first call.

    Where no cache folder can be written (a locked container), the kernel is compiled in each
    process instead. ``OPTMATCH_JIT=0`` in the environment leaves the Python function as it is.
    """
    return _compile(function)


def bare_kernel(function: Function) -> Function:
    """Like `kernel`, for functions that allocate nothing and are called very often.

    For each array of a tuple that is passed on, numba counts references by atomic instructions.
    A kernel that allocates nothing does not need that, and it can take a third of the time.
    """
    return _compile(function, _nrt=False)


@cache
def _digest(folder: Path) -> str:
    """Return a digest of all modules of a folder, which changes with any of them."""
    digest = hashlib.sha256()
    for module in sorted(folder.glob("*.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()[:8]


@cache
def _leave_compiling_out() -> None:
    """Let no time limit count how long numba compiles a kernel, or loads one that was compiled."""
    from numba.core import event

    here = threading.local()  # the event says when a thread asks for the lock of the compiler

    class Compiling(event.Listener):
        def on_start(self, event: object) -> None:
            here.left_out = [*getattr(here, "left_out", ()), ExitStack()]
            here.left_out[-1].enter_context(uncounted())

        def on_end(self, event: object) -> None:
            if getattr(here, "left_out", ()):
                here.left_out.pop().close()

    event.register("numba:compiler_lock", Compiling())


def _compile(function: Function, **options: Any) -> Function:
    if os.environ.get("OPTMATCH_JIT") == "0":
        return function
    import numba

    _leave_compiling_out()
    # numba compiles anew when a kernel's own file has changed. What it calls may be in others,
    # and become part of it; so the name of what is cached tells in which state they all were.
    folder = Path(function.__code__.co_filename).parent
    function.__qualname__ += f"_{_digest(folder)}"
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        compiled: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # "cannot cache function": numba finds no place for it
        compiled = numba.njit(**options)(function)
    return compiled
