"""Listeners that are told when kernels are compiled."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

_log = logging.getLogger("optmatch")

_LISTENERS: list[Callable[[str], None]] = []


@contextmanager
def told_of_compiling(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with the name of each kernel that is compiled, in any thread."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


def tell_of_compiling(kernel: str) -> None:
    """Tell all listeners that a kernel of this name is about to be compiled.

    Without listeners, the first kernel is reported to the log, and to a terminal.
    """
    if not _LISTENERS:
        _say_once()
    for listener in list(_LISTENERS):
        listener(kernel)


@cache
def _say_once() -> None:
    """Say in the log, and on a terminal, that kernels are compiled and that this happens once."""
    text = "compiling kernels, once for this installation; `optmatch warm-up` does it beforehand"
    _log.info(text)
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"optmatch: {text}", file=sys.stderr)
