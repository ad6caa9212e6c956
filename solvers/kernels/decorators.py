"""Our decorators for numba kernels: compiled once and kept on disk, or plain Python on request."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial, update_wrapper
from threading import RLock
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

from optmatch.model import uncounted

Function = TypeVar("Function", bound=Callable[..., Any])

_MAKING = RLock()
"""Held while a kernel is made, so that two threads do not make the same one."""


def kernel(function: Function) -> Function:
    """Compile `function` by numba on its first call. It allocates nothing.

    The caller brings the arrays that the kernel works in. A kernel that makes no arrays needs no
    reference counts of numba; their code would take as long to compile as all the rest, and time
    in each call. ``OPTMATCH_JIT=0`` in the environment leaves the Python function as it is.
    """
    return _compile_when_called(function)


def inner_kernel(function: Function) -> Function:
    """Like `kernel`, for code that only kernels call: there is no way into it from Python."""
    return _compile_when_called(function, inner=True)


def inlined_kernel(function: Function) -> Function:
    """Like `inner_kernel`, for one that is called so often that handing over its records counts.

    Its code is put in the place of each call: a call hands over seven words for each array.
    """
    return _compile_when_called(function, inner=True, forceinline=True)


def allocating_kernel(function: Function) -> Function:
    """Like `kernel`, for one that makes arrays: slow to compile, so for rare methods."""
    return _compile_when_called(function, _nrt=True)


def _compile_when_called(function: Function, *, inner: bool = False, **options: bool) -> Function:
    """Return a `LazyKernel` in place of a function, or the function where kernels are off."""
    if os.environ.get("OPTMATCH_JIT") == "0":
        return function
    lazy: Any = LazyKernel(function, partial(_make_kernel, function, inner, options))
    return lazy  # type: ignore[no-any-return]


def _make_kernel(function: Any, inner: bool, options: dict[str, bool]) -> Any:
    """Make a kernel of `compiler`, or of `plain` if numba has other private parts than we know.

    An `inner` one can be called by kernels only; `options` are options of numba by name. Where
    numba is told to compile nothing, the function stays as it is.
    """
    with uncounted():
        from optmatch.solvers.kernels.folders import DISABLED
        from optmatch.solvers.kernels.plain import plain_kernel, warn_of_plain

        if DISABLED:
            return function
        if not LazyKernel.plain:
            try:
                from optmatch.solvers.kernels.compiler import InnerKernel, Kernel

                return InnerKernel(function, options) if inner else Kernel(function, options)
            except Exception as error:  # numba may raise any type
                LazyKernel.make_anew(plain=True)
                warn_of_plain(f"{type(error).__name__}: {error}")
        return plain_kernel(function, inner=inner)


class LazyKernel:
    """A kernel that is not made before it is used: loading numba takes half a second.

    ``_make`` makes it, and ``_made`` is the result, None before the first use.
    """

    plain: ClassVar[bool] = False
    """Whether kernels are made in numba's plain way, since it has other parts than we know."""
    _all: ClassVar[WeakSet[LazyKernel]] = WeakSet()

    def __init__(self, function: Any, make: Callable[[], Any]) -> None:
        """Take the Python function, and a function without arguments that makes its kernel."""
        update_wrapper(self, function)
        self._make = make
        self._made: Any = None
        LazyKernel._all.add(self)

    def __call__(self, *args: Any) -> Any:
        """Call the kernel."""
        try:
            return (self._made or self.made)(*args)
        except Exception as error:
            if type(error).__name__ != "UnknownPartsError":
                raise
            return self._call_plain(args, error)  # nothing has run yet

    def _call_plain(self, args: Any, error: Exception) -> Any:
        """Call a kernel that numba compiles plainly; if that fails too, the kernel is at fault.

        `error` is what went wrong in our way to compile, for the warning.
        """
        from numba.core.errors import NumbaError

        from optmatch.solvers.kernels.plain import warn_of_plain

        LazyKernel.make_anew(plain=True)
        try:
            result = self.made(*args)
        except NumbaError as fault:
            LazyKernel.make_anew(plain=False)
            raise fault from None
        warn_of_plain(str(error))
        return result

    @classmethod
    def make_anew(cls, *, plain: bool) -> None:
        """Make all kernels again when they are next called, in numba's plain way or in ours."""
        with _MAKING:
            cls.plain = plain
            for lazy in list(cls._all):
                lazy._made = None

    @property
    def made(self) -> Any:
        """The kernel itself; while another thread makes it, waiting counts in no time limit."""
        with uncounted(), _MAKING:
            if self._made is None:
                self._made = self._make()
            return self._made

    @property
    def _numba_type_(self) -> Any:
        """The type that numba asks of a global of a kernel."""
        return self.made._numba_type_
