"""Our use of numba's private parts: how a kernel is compiled and cached, here alone.

These parts may change with each release. If loading this module or compiling fails, `decorators`
turns to `plain`. Loading this module loads numba.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any

from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from optmatch.model import uncounted
from optmatch.solvers.kernels.dependencies import stamp_of_kernel
from optmatch.solvers.kernels.folders import (
    cache_folder_of,
    create_cache_folder,
    tell_of_damage,
    warn_that_nothing_is_kept,
)
from optmatch.solvers.kernels.listeners import tell_of_compiling


class UnknownPartsError(Exception):
    """A kernel was not compiled: numba may have other private parts than we know."""


class DamagedError(Exception):
    """The machine code that was kept of a kernel is not what was written."""


class Kernel(CPUDispatcher):
    """A function that numba compiles when it is first called, with our options."""

    def __init__(
        self, function: Any, options: dict[str, bool], compiler: type[_Compiler] | None = None
    ) -> None:
        all_options = {
            "nopython": True,
            "nogil": True,
            "error_model": "numpy",
            "no_cfunc_wrapper": True,
            "_nrt": False,  # no memory of its own
            **options,
        }
        super().__init__(function, targetoptions=all_options, pipeline_class=compiler or _Compiler)
        if compiler is None:
            self._cache = _Cache(function)
            self._cache.allocates = bool(all_options["_nrt"])

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Give a kernel that calls this one its type.

        For numba the numbers 0 and 1 are types of their own, and each would be compiled by itself.
        """
        return super().get_call_template([types.unliteral(arg) for arg in args], kws)

    def compile(self, sig: Any) -> Any:
        """Compile a kernel, or load a kept one, while no time counts."""
        with uncounted("compiling"):
            try:
                return super().compile(sig)
            except MemoryError:
                raise
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
            compiled = self.overloads.get(args)
            if compiled is None:
                compiled = self._compiler.compile(args, returned)
                compiled = compiled._replace(entry_point=object())  # a key for callers
                self.targetctx.insert_user_function(
                    compiled.entry_point, compiled.fndesc, [compiled.library]
                )
                self.overloads[args] = compiled
            return compiled.entry_point


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
        self.state.library = _LinkedCode(self.state.targetctx.codegen(), "inner kernel")


class _LinkedCode(JITCodeLibrary):
    """Code that is linked into other code, and optimised there."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            if hasattr(library, "_reload_init"):  # from numba 0.63 on
                self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


class _Locator(_CacheLocator):
    """Tells numba where a kernel is kept, and from which sources it was made."""

    def __init__(self, function: Any) -> None:
        self.folder = cache_folder_of(Path(inspect.getfile(function)).parent)
        self.stamp = stamp_of_kernel(function)
        self.line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        return cls(py_func)

    def get_cache_path(self) -> str:
        return str(self.folder)

    def get_source_stamp(self) -> str:
        return f"{self.folder.name} {self.stamp}"

    def get_disambiguator(self) -> str:
        # Two checkouts that differ in another folder alone share the folder, not the files.
        return f"{self.line}-{self.stamp}"

    def ensure_cache_path(self) -> None:
        create_cache_folder(self.folder)


class _CacheImpl(CompileResultCacheImpl):
    """Writes machine code with its digest, since a damaged one could crash the process."""

    _locator_classes: Any = (_Locator,)

    def reduce(self, cres: Any) -> tuple[bytes, bytes]:
        content = dumps(super().reduce(cres))
        return hashlib.sha256(content).digest(), content

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        digest, content = payload
        if hashlib.sha256(content).digest() != digest:
            raise DamagedError(f"{self.filename_base}: the digest differs")
        return super().rebuild(target_context, pickle.loads(content))


class _Cache(FunctionCache):
    """Numba's cache, for which folders and files that are of no use are no error."""

    _impl_class = _CacheImpl
    allocates: bool = False
    """Whether its kernel makes arrays."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        kept = None
        # Numba's own way first loads all that it can compile, SciPy's algebra included; what
        # allocates crashes without a part of that.
        load = super().load_overload if self.allocates else self._load_overload
        try:
            with suppress(OSError), self._guard_against_spurious_io_errors():
                kept = load(sig, target_context)
        except MemoryError:
            raise
        except Exception:  # what damaged bytes make of pickle, or of numba
            self._remove_damaged_files()
        if kept is None:
            tell_of_compiling(self._py_func.__name__.lstrip("_"))
        return kept

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            warn_that_nothing_is_kept(
                f"{error.filename or self.cache_path}: {os.strerror(error.errno or 0)}"
            )

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Return the key of a signature; fields of records are compiled in by their places."""
        fields = [arg.fields for arg in sig if isinstance(arg, types.BaseNamedTuple)]
        return (*super()._index_key(sig, codegen), tuple(fields))

    def _remove_damaged_files(self) -> None:
        """Remove what is kept of this kernel, so that it is compiled and kept anew."""
        folder = Path(self.cache_path)
        with suppress(OSError):
            for file in folder.glob(escape(self._impl.filename_base) + ".*"):
                file.unlink()
        tell_of_damage(folder)
