"""Where compiled kernels are kept: in a folder of the user, never beside the sources.

The name of the folder tells from which sources the kernels were made, so checkouts and versions
share a place, and kernels of a removed package are not taken for those of a later one. Loading
this module loads numba.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs
from numba import __version__ as numba_version, config

_CONFIG: Any = config

DISABLED: bool = _CONFIG.DISABLE_JIT
"""Whether numba was told to compile nothing."""

_KEPT = 8  # folders of compiled kernels of one room, the newest ones


def kernel_folder() -> Path:
    """Return where compiled kernels are kept: in ``NUMBA_CACHE_DIR``, or the user's caches."""
    if chosen := _CONFIG.CACHE_DIR:
        return Path(chosen)
    caches = Path(platformdirs.user_cache_dir("optmatch"))
    if not caches.is_absolute():  # for a user without a home folder
        caches = Path(os.devnull)
    return caches / "kernels"


@cache
def room_of(folder: Path) -> Path:
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
def make_room(room: Path) -> None:
    """Make the folder of a room, and remove the oldest ones of the same room."""
    room.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):  # another process may remove the same folder
        same = room.parent.glob(room.name.rpartition("-")[0] + "-" + "?" * 16)
        for old in sorted(same, key=lambda found: found.stat().st_mtime)[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)


@cache
def warn_of_no_room(reason: str) -> None:
    """Warn once that each process will compile anew."""
    warnings.warn(
        f"compiled kernels cannot be kept, so each process compiles them anew: {reason};"
        " NUMBA_CACHE_DIR names another folder",
        RuntimeWarning,
        stacklevel=2,
    )
