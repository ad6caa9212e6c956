"""Who wants to know that kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
