"""Our use of numba's private parts: how a kernel is compiled and cached, here alone.

These parts may change with each release. If loading this module or compiling fails, `decorators`
turns to `plain`. Loading this module loads numba.
"""

from __future__ import annotations

import inspect
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature

from optmatch.model import uncounted
from optmatch.solvers.kernels.folders import make_room, room_of, warn_of_no_room
from optmatch.solvers.kernels.listeners import tell_of_compiling


class UnknownPartsError(Exception):
    """A kernel was not compiled: numba may have other private parts than we know."""


class Kernel(CPUDispatcher):
    """A function that numba compiles when it is first called, with our options."""

    def __init__(
        self, function: Any, options: dict[str, bool], compiler: type[_Compiler] | None = None
    ) -> None:
        ours = {"nopython": True, "nogil": True, "error_model": "numpy", "_nrt": False}
        ours |= {"no_cfunc_wrapper": True} | options
        super().__init__(function, targetoptions=ours, pipeline_class=compiler or _Compiler)
        self._cache = _Cache(function)
        self._cache.allocates = bool(ours["_nrt"])

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Give a kernel that calls this one its type: for numba, 0 and 1 are types of their own.

        Each would be compiled by itself.
        """
        return super().get_call_template([types.unliteral(arg) for arg in args], kws)

    def compile(self, sig: Any) -> Any:
        """Compile a kernel, or load a kept one, while no time counts."""
        with uncounted("compiling"):
            try:
                return super().compile(sig)
            except Exception as error:  # numba may raise any type
                reason = (str(error).splitlines() or [""])[0]
                raise UnknownPartsError(f"{type(error).__name__}: {reason}") from error


class InnerKernel(Kernel):
    """A kernel that only kernels call.

    It has no machine code of its own: each kernel that calls it takes its code over, and all of
    that is optimised once. Numba would do so again at each level of the calls.
    """

    _compiler: Any
    overloads: Any

    def __init__(self, function: Any, options: dict[str, bool]) -> None:
        super().__init__(function, options | {"no_cpython_wrapper": True}, _InnerCompiler)

    def __call__(self, *args: Any) -> Any:
        """Refuse: without a wrapper, a call from Python would crash."""
        raise TypeError(f"{self.py_func.__name__}: only kernels call it, not Python")

    def compile(self, sig: Any) -> Any:
        """Make the code that calling kernels take over; there is nothing to keep on disk."""
        with uncounted(), global_compiler_lock:
            args, returned = normalize_signature(sig)
            found = self.overloads.get(args)
            if found is None:
                made = self._compiler.compile(args, returned)
                found = made._replace(entry_point=object())  # a key for callers
                self.targetctx.insert_user_function(
                    found.entry_point, found.fndesc, [found.library]
                )
                self.overloads[args] = found
            return found.entry_point


class _Flags(Flags):
    """Numba's flags, as keys of its tables of functions: there they are compared all the time."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Flags) and self._values == other._values:
            return True
        return bool(super().__eq__(other))


class _Compiler(Compiler):
    """Numba's compiler, with our flags."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state.flags = _Flags(self.state.flags)


class _InnerCompiler(_Compiler):
    """The same, without machine code."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state.flags.no_compile = True
        self.state.library = _Part(self.state.targetctx.codegen(), "inner kernel")


class _Part(JITCodeLibrary):
    """Code that is linked into other code, and optimised there."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            if hasattr(library, "_reload_init"):  # from numba 0.63 on
                self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


class _Place(_CacheLocator):
    """Tells numba where a kernel is kept."""

    def __init__(self, function: Any) -> None:
        self.room = room_of(Path(inspect.getfile(function)).parent)
        self.line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Place:
        return cls(py_func)

    def get_cache_path(self) -> str:
        return str(self.room)

    def get_source_stamp(self) -> str:
        return self.room.name

    def get_disambiguator(self) -> str:
        return str(self.line)

    def ensure_cache_path(self) -> None:
        make_room(self.room)


class _CacheImpl(CompileResultCacheImpl):
    _locator_classes: Any = (_Place,)


class _Cache(FunctionCache):
    """Numba's cache, for which a folder that cannot be read or written is no error."""

    _impl_class = _CacheImpl
    allocates: bool = False
    """Whether its kernel makes arrays."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = None
        with suppress(OSError), self._guard_against_spurious_io_errors():
            # Numba's own way first loads all that it can compile, SciPy's algebra included; what
            # allocates crashes without a part of that.
            load = super().load_overload if self.allocates else self._load_overload
            found = load(sig, target_context)
        if found is None:
            tell_of_compiling(self._py_func.__name__.lstrip("_"))
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            warn_of_no_room(
                f"{error.filename or self.cache_path}: {os.strerror(error.errno or 0)}"
            )
