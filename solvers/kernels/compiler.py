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
    """A function that numba compiles when it is first called, with our options.

    A dispatcher of numba holds the Python function and its machine code for each signature of
    arguments. Numba's decorator would make a plain one; ours has a cache of its own on disk.

    Parameters
    ----------
    function
        The Python function to compile.
    options
        Options of numba by name, such as ``{"_nrt": True}``, which override those of all kernels.
    compiler
        The class that compiles. None for machine code that Python can call, which is kept on disk.
        Code that another class makes is not kept: it goes into the kernels that call it, and is
        kept with those.
    """

    def __init__(
        self, function: Any, options: dict[str, bool], compiler: type[_Compiler] | None = None
    ) -> None:
        """Make the dispatcher; nothing is compiled yet."""
        # No Python objects inside, no global lock while it runs, division by zero as in NumPy, and
        # no second entry for callers in C. `_nrt` is numba's own memory management: without it a
        # kernel can make no arrays, but is compiled sooner, and loaded from disk sooner.
        all_options = {
            "nopython": True,
            "nogil": True,
            "error_model": "numpy",
            "no_cfunc_wrapper": True,
            "_nrt": False,
            **options,
        }
        super().__init__(function, targetoptions=all_options, pipeline_class=compiler or _Compiler)
        if compiler is None:
            self._cache = _Cache(function)
            self._cache.allocates = bool(all_options["_nrt"])

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the code of this kernel for the arguments of a kernel that calls it.

        For numba a literal number in a call, such as 0 or 1, is a type of its own, and the kernel
        would be compiled once for each. Here it has the type of all integers.
        """
        return super().get_call_template([types.unliteral(arg) for arg in args], kws)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        """Prepare numba and find the types of arguments as well without a running time limit."""
        with uncounted("compiling"):
            return super()._compile_for_args(*args, **kws)

    def compile(self, sig: Any) -> Any:
        """Compile a kernel for a signature, or load it from disk; the time limit does not run.

        UnknownPartsError is raised if numba fails for any reason but a lack of memory.
        """
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
        """Make the dispatcher, without a wrapper by which Python could call it."""
        super().__init__(function, options | {"no_cpython_wrapper": True}, _InnerCompiler)

    def __call__(self, *args: Any) -> Any:
        """Refuse: without a wrapper, a call from Python would crash."""
        raise TypeError(f"{self.py_func.__name__}: only kernels call it, not Python")

    def compile(self, sig: Any) -> Any:
        """Make the code that calling kernels take over, and return the key by which they find it.

        The code of each signature is made once in a process, and is not kept on disk.
        """
        with uncounted(), global_compiler_lock:
            args, returned = normalize_signature(sig)
            compiled = self.overloads.get(args)
            if compiled is None:
                compiled = self._compiler.compile(args, returned)
                # The key is the address of machine code elsewhere. There is none here, and any
                # object will do that stands for this code alone.
                compiled = compiled._replace(entry_point=object())
                self.targetctx.insert_user_function(
                    compiled.entry_point, compiled.fndesc, [compiled.library]
                )
                self.overloads[args] = compiled
            return compiled.entry_point


class _Flags(Flags):
    """Numba's flags, quicker to compare.

    Numba uses them as keys of its tables of functions, where it hashes and compares them again and
    again.
    """

    def __hash__(self) -> int:
        """Return the same number for all: few different flags occur, equality tells them apart."""
        return 1

    def __eq__(self, other: object) -> bool:
        """Compare the flags that are set; numba's own comparison decides where they differ."""
        if isinstance(other, _Flags) and self._values == other._values:
            return True
        return bool(super().__eq__(other))


class _Compiler(Compiler):
    """Numba's compiler, with our flags."""

    def __init__(self, *args: Any) -> None:
        """Take numba's arguments; the flags of the state are replaced by those of our class."""
        super().__init__(*args)
        self.state.flags = _Flags(self.state.flags)


class _InnerCompiler(_Compiler):
    """The compiler of inner kernels: it ends before machine code is made."""

    def __init__(self, *args: Any) -> None:
        """Take numba's arguments; the code goes into a library that others link."""
        super().__init__(*args)
        self.state.flags.no_compile = True
        self.state.library = _LinkedCode(self.state.targetctx.codegen(), "inner kernel")


class _LinkedCode(JITCodeLibrary):
    """Code that is linked into other code, and optimised there."""

    def finalize(self) -> None:
        """Link the code of called kernels in; numba's own method would optimise it here too."""
        for library in dict.fromkeys(self._linking_libraries):
            if hasattr(library, "_reload_init"):  # from numba 0.63 on
                self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


class _Locator(_CacheLocator):
    """Tells numba where a kernel is kept, and from which sources it was made."""

    def __init__(self, function: Any) -> None:
        """Find the folder and the stamp of a kernel."""
        self.folder = cache_folder_of(Path(inspect.getfile(function)).parent)
        self.stamp = stamp_of_kernel(function)
        self.line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        """Return the locator of a Python function; called by numba."""
        return cls(py_func)

    def get_cache_path(self) -> str:
        """Return the folder in which the kernel is kept."""
        return str(self.folder)

    def get_source_stamp(self) -> str:
        """Return what must be equal for a kept kernel to be used: its folder and its sources."""
        return f"{self.folder.name} {self.stamp}"

    def get_disambiguator(self) -> str:
        """Return the part of a file's name that tells kernels of one name apart."""
        # Two checkouts whose modules differ in other folders alone share the cache folder of these
        # modules. The stamp tells their files apart.
        return f"{self.line}-{self.stamp}"

    def ensure_cache_path(self) -> None:
        """Create the folder in which the kernel is kept."""
        create_cache_folder(self.folder)


class _CacheImpl(CompileResultCacheImpl):
    """Writes machine code with its digest, since damaged code could crash the process."""

    _locator_classes: Any = (_Locator,)

    def reduce(self, cres: Any) -> tuple[bytes, bytes]:
        """Return the digest and the bytes of the code of a kernel, to be written."""
        content = dumps(super().reduce(cres))
        return hashlib.sha256(content).digest(), content

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return the code of a kernel from what `reduce` made; `DamagedError` if it differs."""
        digest, content = payload
        if hashlib.sha256(content).digest() != digest:
            raise DamagedError(f"{self.filename_base}: the digest differs")
        return super().rebuild(target_context, pickle.loads(content))


class _Cache(FunctionCache):
    """Numba's cache, for which unusable folders and files are no error: it compiles then."""

    _impl_class = _CacheImpl
    allocates: bool = False
    """Whether its kernel makes arrays."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load the machine code of a kernel from disk; None if there is none that can be used."""
        kept_code = None

        # Numba's own way first loads all that it can compile, SciPy's algebra included. The way
        # without that is quicker, but a kernel that makes arrays would crash.
        load = super().load_overload if self.allocates else self._load_overload
        try:
            with suppress(OSError), self._guard_against_spurious_io_errors():
                kept_code = load(sig, target_context)
        except MemoryError:
            raise
        except Exception:  # what damaged bytes make of pickle, or of numba
            self._remove_damaged_files()
        if kept_code is None:
            tell_of_compiling(self._py_func.__name__.lstrip("_"))
        return kept_code

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the machine code of a kernel; a folder that cannot be written is a warning."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            warn_that_nothing_is_kept(
                f"{error.filename or self.cache_path}: {os.strerror(error.errno or 0)}"
            )

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Return the key of a signature in the cache; it names the fields of all records.

        Fields are compiled in by their places, which may change while the types stay the same.
        """
        fields = [arg.fields for arg in sig if isinstance(arg, types.BaseNamedTuple)]
        return (*super()._index_key(sig, codegen), tuple(fields))

    def _remove_damaged_files(self) -> None:
        """Remove what is kept of this kernel, so that it is compiled and kept anew."""
        folder = Path(self.cache_path)
        with suppress(OSError):
            for file in folder.glob(escape(self._impl.filename_base) + ".*"):
                file.unlink()
        tell_of_damage(folder)
