"""The sources of a compiled kernel: its stamp changes when any part of them changes.

A kernel takes over the code of the kernels that it calls and the values of the constants that it
names, wherever they are defined. Numba by itself looks at the file of the kernel alone, and would
give the old answer after a change in another file.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_OWN_PACKAGE = "optmatch"


def stamp_of_kernel(function: Any) -> str:
    """Return a digest of the files and constants that decide about the code of a kernel.

    It has sixteen hexadecimal digits; `function` is the Python function of the kernel.
    """
    # Walk from the kernel to all kernels that it calls, and collect files and constants.
    files = set[Path]()
    constants = set[str]()
    seen_kernels = {function}
    pending = [function]
    while pending:
        kernel = pending.pop()
        files.add(Path(inspect.getfile(kernel)))
        for name, value in _globals_of(kernel):
            called = getattr(value, "__wrapped__", value)
            if isinstance(called, FunctionType):
                if called not in seen_kernels:
                    seen_kernels.add(called)
                    pending.append(called)
            else:
                constants.add(f"{name} = {_describe(value)}")

    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(_digest_of(file))
    for constant in sorted(constants):
        digest.update(constant.encode())
    return digest.hexdigest()[:16]


@cache
def _digest_of(file: Path) -> bytes:
    """Return the digest of a file; files do not change while a process runs."""
    return hashlib.sha256(file.read_bytes()).digest()


def _globals_of(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and values of the globals that a function refers to.

    If one of them is a module of this package, what is taken from it is yielded too.
    """
    names = set(_names_in(function.__code__))
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        if not isinstance(value, ModuleType):
            yield name, value
        elif value.__name__.partition(".")[0] == _OWN_PACKAGE:
            for attribute in sorted(names & vars(value).keys()):
                yield f"{name}.{attribute}", vars(value)[attribute]


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in a function, and in functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _describe(value: Any) -> str:
    """Describe a constant, so that different values have different descriptions."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, type):
        # The places of the fields of a record are compiled into the kernel.
        return f"{value.__qualname__} {getattr(value, '_fields', '')}"
    if isinstance(value, (bool, int, float, str, tuple, np.generic)):
        return f"{type(value).__name__} {value!r}"
    return type(value).__name__
