"""Kernels by the documented parts of numba alone: slower to compile, with the same answers.

Compiled kernels are kept where others are; numba would else put them beside the sources.
"""

from __future__ import annotations

import inspect
import shutil
import warnings
from functools import cache
from pathlib import Path
from threading import local
from typing import Any

import numba
from numba.core.errors import NumbaError
from numba.core.event import Event, Listener, register

from optmatch.model import uncounted
from optmatch.solvers.kernels.dependencies import stamp_of_kernel
from optmatch.solvers.kernels.folders import (
    cache_folder_of,
    create_cache_folder,
    tell_of_damage,
    warn_that_nothing_is_kept,
)
from optmatch.solvers.kernels.listeners import tell_of_compiling

_CONFIG: Any = numba.config


@cache
def warn_of_plain(reason: str) -> None:
    """Warn once that first calls take longer."""
    warnings.warn(
        f"numba {numba.__version__} has other private parts than we know, so kernels are compiled"
        f" in its plain way, and first calls take longer: {reason}",
        RuntimeWarning,
        stacklevel=2,
    )


class PlainKernel:
    """A kernel that numba compiles in its plain way when it is first called."""

    def __init__(self, function: Any) -> None:
        """Take the Python function of the kernel; nothing is compiled yet."""
        folder = _writable_folder_for(function)
        self._kernel = _compile_when_called(function, folder)
        self._is_prepared = False

    def __call__(self, *args: Any) -> Any:
        """Call the kernel; what comes before its first run counts in no time limit."""
        if not self._is_prepared:
            with uncounted("compiling"):
                self._prepare(args)
        return self._kernel(*args)

    @property
    def _numba_type_(self) -> Any:
        """The type that numba asks of a global of a kernel."""
        return self._kernel._numba_type_

    def _prepare(self, args: tuple[Any, ...]) -> None:
        """Compile the kernel for arguments of these types, or load its code from disk."""
        signature = tuple(numba.typeof(arg) for arg in args)
        try:
            self._kernel.compile(signature)
        except (NumbaError, MemoryError):
            raise
        except Exception:
            # Damaged files raise whatever their bytes make of pickle. If they are not the reason,
            # the error comes again.
            folder = Path(self._kernel.stats.cache_path)
            shutil.rmtree(folder, ignore_errors=True)
            tell_of_damage(folder)
            self._kernel.compile(signature)
        self._is_prepared = True


def plain_kernel(function: Any, *, inner: bool) -> Any:
    """Return a kernel that numba compiles when first called; inner ones are kept by callers."""
    _tell_listeners_of_compilations()
    return _compile_when_called(function, None) if inner else PlainKernel(function)


def _compile_when_called(function: Any, folder: Path | None) -> Any:
    """Make a dispatcher of numba, which compiles a function when it is first called.

    Its machine code is kept in `folder`, or nowhere if that is None.
    """
    njit: Any = numba.njit
    options = {"nogil": True, "error_model": "numpy"}
    if folder is None:
        return njit(**options)(function)

    # Numba reads the folder from its settings while it makes the function, and only then.
    setting_before = _CONFIG.CACHE_DIR
    try:
        _CONFIG.CACHE_DIR = str(folder)
        return njit(cache=True, **options)(function)
    finally:
        _CONFIG.CACHE_DIR = setting_before


def _writable_folder_for(function: Any) -> Path | None:
    """Return the folder for the machine code of a function; None if nothing can be kept in it."""
    folder = cache_folder_of(Path(inspect.getfile(function)).parent)
    try:
        create_cache_folder(folder)
        (folder / "writable").touch()
    except OSError as error:
        warn_that_nothing_is_kept(f"{error.filename or folder}: {error.strerror}")
        return None
    return folder / stamp_of_kernel(function)


class _Compilations(Listener, local):
    """Tells listeners of each kernel that is compiled, and stops time limits meanwhile."""

    def __init__(self) -> None:
        # A block of `uncounted` for each compilation that goes on in this thread, the outer first.
        self._uncounted_blocks: list[Any] = []

    def on_start(self, event: Event) -> None:
        """Take notice that numba compiles; inner kernels are compiled inside others, untold."""
        if not self._uncounted_blocks:
            tell_of_compiling(event.data["dispatcher"].py_func.__name__.lstrip("_"))
        block = uncounted("compiling")
        block.__enter__()
        self._uncounted_blocks.append(block)

    def on_end(self, event: Event) -> None:
        """Let the time count again."""
        if self._uncounted_blocks:
            self._uncounted_blocks.pop().__exit__(None, None, None)


@cache
def _tell_listeners_of_compilations() -> None:
    """Make numba tell of each kernel that it compiles; once is enough."""
    register("numba:compile", _Compilations())
