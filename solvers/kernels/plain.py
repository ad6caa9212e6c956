"""Kernels by the documented parts of numba alone: slower to compile, with the same answers.

Compiled kernels are kept where others are; numba would else put them beside the sources.
"""

from __future__ import annotations

import inspect
import warnings
from functools import cache
from pathlib import Path
from threading import local
from typing import Any

import numba
from numba.core.event import Event, Listener, register

from optmatch.model import uncounted
from optmatch.solvers.kernels.folders import make_room, room_of, warn_of_no_room
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


def plain_kernel(function: Any, *, inner: bool) -> Any:
    """Return a kernel that numba compiles when first called; inner ones are kept by callers."""
    _listen()
    njit: Any = numba.njit
    options = {"nogil": True, "error_model": "numpy"}
    room = None if inner else _room_for(function)
    if room is None:
        return njit(**options)(function)
    before = _CONFIG.CACHE_DIR
    try:
        _CONFIG.CACHE_DIR = str(room)
        return njit(cache=True, **options)(function)
    finally:
        _CONFIG.CACHE_DIR = before


def _room_for(function: Any) -> Path | None:
    """Return the folder of a function's room, or None if nothing can be kept in it."""
    room = room_of(Path(inspect.getfile(function)).parent)
    try:
        make_room(room)
        probe = room / "writable"
        probe.touch()
    except OSError as error:
        warn_of_no_room(f"{error.filename or room}: {error.strerror}")
        return None
    return room


class _Compilations(Listener, local):
    """Tells listeners of each kernel that is compiled, while no time counts."""

    def __init__(self) -> None:
        self._within: list[Any] = []

    def on_start(self, event: Event) -> None:
        """Note that numba compiles; a kernel may be compiled because another one calls it."""
        if not self._within:
            tell_of_compiling(event.data["dispatcher"].py_func.__name__.lstrip("_"))
        self._within.append(uncounted("compiling"))
        self._within[-1].__enter__()

    def on_end(self, event: Event) -> None:
        """Let the time count again."""
        if self._within:
            self._within.pop().__exit__(None, None, None)


@cache
def _listen() -> None:
    register("numba:compile", _Compilations())
