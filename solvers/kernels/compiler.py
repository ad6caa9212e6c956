"""What numba makes of a kernel, and where it is kept. Loading this module loads numba.

What is compiled lies in a folder of the user, never beside the sources: a package that is gone
leaves nothing there that a later one would take for its own. The name of the folder tells what the
kernels were made from, so any number of checkouts and versions share a place.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs
from numba import __version__ as numba_version
from numba.core import config, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature

from optmatch.model import uncounted
from optmatch.solvers.kernels.listeners import tell_of_compiling

_CONFIG: Any = config

DISABLED: bool = _CONFIG.DISABLE_JIT
"""Whether numba was told to compile nothing."""

_KEPT = 8  # folders of compiled kernels of one room, the newest ones


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
        """Compile, or load what is kept, while no time counts."""
        with uncounted("compiling"):
            return super().compile(sig)


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
        """Make what calling kernels take over; there is nothing to keep on disk."""
        with uncounted(), global_compiler_lock:
            args, returned = normalize_signature(sig)
            found = self.overloads.get(args)
            if found is None:
                made = self._compiler.compile(args, returned)
                found = made._replace(entry_point=object())  # by which callers find it, no more
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


def kernel_folder() -> Path:
    """Return where compiled kernels are kept: in ``NUMBA_CACHE_DIR``, or the user's caches."""
    if chosen := _CONFIG.CACHE_DIR:
        return Path(chosen)
    caches = Path(platformdirs.user_cache_dir("optmatch"))
    if not caches.is_absolute():  # of a user without a home, to whom nothing belongs
        caches = Path(os.devnull)
    return caches / "kernels"


@cache
def _room(folder: Path) -> Path:
    """Return where the kernels of a folder of modules are kept.

    Its name changes with any of the modules, since a kernel has parts of those that it calls, here
    or in this folder, and with what else decides what numba makes of them.
    """
    settings = numba_version, _CONFIG.OPT, _CONFIG.BOUNDSCHECK
    digest = hashlib.sha256(repr(settings).encode())
    for module in (*sorted(Path(__file__).parent.glob("*.py")), *sorted(folder.glob("*.py"))):
        digest.update(module.read_bytes())
    return kernel_folder() / f"{folder.name}-{digest.hexdigest()[:16]}"


@cache
def _make(room: Path) -> None:
    """Make the folder of a room, and remove the oldest ones of the same room."""
    room.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):  # another process may be about the same
        same = room.parent.glob(room.name.rpartition("-")[0] + "-" + "?" * 16)
        for old in sorted(same, key=lambda found: found.stat().st_mtime)[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)


@cache
def _warn(reason: str) -> None:
    """Say once that each process will compile anew."""
    warnings.warn(
        f"compiled kernels cannot be kept, so each process compiles them anew: {reason};"
        " NUMBA_CACHE_DIR names another folder",
        RuntimeWarning,
        stacklevel=2,
    )


class _Place(_CacheLocator):
    """Tells numba where a kernel is kept."""

    def __init__(self, function: Any) -> None:
        self.room = _room(Path(inspect.getfile(function)).parent)
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
        _make(self.room)


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
            _warn(f"{error.filename or self.cache_path}: {os.strerror(error.errno or 0)}")
