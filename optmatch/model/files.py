"""Files that are written whole or not at all, and never over another one by accident."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, Any

from optmatch.model.errors import FormatError, InputError

PICTURES = (".png", ".svg", ".pdf")
"""How names of pictures end."""

_DAY_S = 86_400.0


def path_name(path: object, where: str = "path") -> str:
    """Return a path as text.

    Parameters
    ----------
    path
        Whatever a caller has given as a path.
    where
        The name of the argument, for messages.

    Raises
    ------
    InputError
        If it is neither a text nor a path.
    FormatError
        If no file can have this name: it has a null byte in it, or half a pair of surrogates.

    Examples
    --------
    >>> path_name(Path("a/b.json"))
    'a/b.json'
    >>> path_name(3)
    Traceback (most recent call last):
        ...
    optmatch.model.errors.InputError: path = 3: a path is expected
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise InputError(f"{where} = {path!r:.60}: a path is expected", where=where)
    name = os.fsdecode(path)
    if "\0" in name:
        raise FormatError("has a null byte in its name: it cannot be read or written", path=name)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        raise FormatError(
            "has letters in its name that no file can have: it cannot be read or written",
            path=name,
        ) from None
    return name


def file_path(path: object, where: str = "path") -> Path:
    """Return a path, which may be given as bytes too; errors are those of `path_name`."""
    return Path(path_name(path, where))


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file in small letters, before that of gzip; empty without one."""
    endings = [suffix.lower() for suffix in file_path(path).suffixes]
    if endings[-1:] == [".gz"]:
        endings.pop()
    return endings[-1] if endings else ""


def check_target(
    path: str | os.PathLike[str], *, force: bool = False, endings: Collection[str] = ()
) -> Path:
    """Refuse a file that could not be written, before work is spent on it.

    Parameters
    ----------
    path
        The file to be written, or a pipe or a device.
    force
        Whether a file that is there already may be replaced.
    endings
        The endings of names that are allowed, such as ``".json"``; empty for all.

    Returns
    -------
    Path
        The file behind all links; a pipe or a device as it was named.

    Raises
    ------
    InputError
        If the file is there (without `force`), is a folder, lies in no folder or in one that
        cannot be written, or if its name has none of the `endings`.
    """
    name = path_name(path)
    target = Path(os.path.realpath(name))
    if endings and Path(name).suffix.lower() not in endings:
        raise InputError(f"its name has to end in {', '.join(endings)}", path=name)

    # A file must not be there, or may be replaced, and its folder has to be writeable.
    if is_stream(name):
        return Path(name)  # written to, and never replaced
    if target.is_dir():
        raise InputError("is a folder, not a file to write", path=name)
    if target.exists() and not force:
        raise InputError("is there already; --force replaces it, in Python force=True", path=name)
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} is not there", path=name)
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"the folder {target.parent} is not writeable", path=name)
    return target


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is a pipe, a device, or an open file of this process as /dev/stdout.

    Parameters
    ----------
    path
        A path, which need not exist.
    """
    name = Path(path).absolute()  # no link is followed
    if re.match(r"/dev/(stdout|stderr|fd/)|/proc/[^/]+/fd/", str(name)):
        return True
    return name.exists() and not name.is_file() and not name.is_dir()


def replace_file(target: Path, content: bytes) -> None:
    """Write a file under another name in the same folder, then rename it; write into a pipe.

    An `OSError` names the file.

    Readers see the old content or the new one, and never a part of it.

    Parameters
    ----------
    target
        The file, which need not exist, or a pipe.
    content
        All that is written.
    """
    try:
        if is_stream(target):
            target.write_bytes(content)
        else:
            # Parts that killed runs have left beside the file are removed once they are a day old:
            # whether another process still writes one cannot be seen from here.
            for part in target.parent.glob(f".{escape(target.name)}.{'[0-9a-f]' * 16}.part"):
                with suppress(OSError):  # another process may remove the file now, too
                    if part.stat().st_mtime < time.time() - _DAY_S:
                        part.unlink()

            part = target.with_name(f".{target.name}.{os.urandom(8).hex()}.part")
            try:
                with part.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(target)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
    except OSError as exc:
        exc.filename = os.fspath(target)
        exc.filename2 = None
        raise


@contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Lock a folder against all other holders, or, if `shared`, against exclusive ones alone.

    Where folders cannot be locked, or one stays locked for ten seconds, there is no lock.

    Parameters
    ----------
    folder
        The folder that is locked while the block runs.
    shared
        Whether other holders of a shared lock may hold it at the same time.
    """
    # Where the folder cannot be opened or locked, the block runs without a lock.
    handle = None
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)

        # Tried every 10 ms, for ten seconds.
        for _ in range(1000):
            if lock_at_once(handle, shared=shared):
                break
            time.sleep(0.01)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def lock_at_once(file: IO[Any] | int, *, shared: bool = False) -> bool:
    """Lock an open file for this process until it is closed; False if another one holds it.

    A shared lock keeps out those alone that are not. Where the system knows no locks, as on
    Windows, the result is True.
    """
    try:
        import fcntl
    except ImportError:
        return True
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
