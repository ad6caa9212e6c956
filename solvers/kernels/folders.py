"""Where compiled kernels are kept: in a folder of the user, never beside the sources.

The kernels of one folder of modules are kept in one cache folder, whose name has a digest of the
sources. Checkouts and versions can share a place, and kernels of a removed package are not taken
for those of a later one. Loading this module loads numba.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs
from numba import __version__ as numba_version, config

_log = logging.getLogger("optmatch")

_CONFIG: Any = config

DISABLED: bool = _CONFIG.DISABLE_JIT
"""Whether numba was told to compile nothing."""

_KEPT_VERSIONS = 8
"""How many cache folders are kept of one folder of modules: those of the newest sources."""


def kernel_folder() -> Path:
    """Return where compiled kernels are kept: in ``NUMBA_CACHE_DIR``, or the user's caches."""
    if chosen := _CONFIG.CACHE_DIR:
        return Path(chosen)
    user_caches = Path(platformdirs.user_cache_dir("optmatch"))
    if not user_caches.is_absolute():
        # A user without a home folder: nothing can be created below the null device.
        user_caches = Path(os.devnull)
    return user_caches / "kernels"


@cache
def cache_folder_of(modules: Path) -> Path:
    """Return the folder that keeps the kernels of a folder of modules.

    Its name changes with any of these modules, since a kernel takes over the code of those that it
    calls, and with what else decides about the machine code. Code that a kernel takes over from
    other folders is in `dependencies.stamp_of_kernel`.
    """
    settings = numba_version, _CONFIG.OPT, _CONFIG.BOUNDSCHECK
    digest = hashlib.sha256(repr(settings).encode())
    for module in (*sorted(Path(__file__).parent.glob("*.py")), *sorted(modules.glob("*.py"))):
        digest.update(module.read_bytes())
    return kernel_folder() / f"{modules.name}-{digest.hexdigest()[:16]}"


@cache
def create_cache_folder(folder: Path) -> None:
    """Create a cache folder, and remove the oldest ones of the same modules."""
    folder.mkdir(parents=True, exist_ok=True)
    modules_name, _, _ = folder.name.rpartition("-")
    with suppress(OSError):  # another process may remove the same folder
        versions = sorted(
            folder.parent.glob(f"{modules_name}-{'?' * 16}"),
            key=lambda version: version.stat().st_mtime,
        )
        for oldest in versions[:-_KEPT_VERSIONS]:
            shutil.rmtree(oldest, ignore_errors=True)


@cache
def warn_that_nothing_is_kept(reason: str) -> None:
    """Warn once that each process will compile anew."""
    warnings.warn(
        f"compiled kernels cannot be kept, so each process compiles them anew: {reason};"
        " NUMBA_CACHE_DIR names another folder",
        RuntimeWarning,
        stacklevel=2,
    )


@cache
def tell_of_damage(folder: Path) -> None:
    """Say once for a cache folder that it has damaged files, which are made anew."""
    _log.warning("%s: compiled kernels are damaged; they are removed and compiled anew", folder)
