"""The bytes of foreign files, read and unpacked within bounds."""

from __future__ import annotations

import gzip
import io
import logging
import math
import os
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FormatError, InputError, check_size, largest
from optmatch.model.files import path_name

_log = logging.getLogger("optmatch")

_PATIENCE_S = 1.0
_GZIP_MAGIC = b"\x1f\x8b"
_NPY_MAGIC = b"\x93NUMPY"
_MEMBER = b"PK\1\2"
"""Begins each entry of the directory of an archive."""
_MOST_PACKED = 1040
"""Gzip packs at most 1032 bytes into one."""
_ENTRY_BYTES = 8
_PIECE_BYTES = 1 << 20

Shape = tuple[int, ...]


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a file, or a pipe to its end.

    More than `optmatch.model.SIZES` allows is refused.
    """
    name = path_name(path)
    try:
        with _open(Path(name)) as file:
            content = _read_up_to(file, largest("bytes") + 1)
    except (OSError, ValueError) as exc:  # a name with a null byte is a ValueError
        reason = getattr(exc, "strerror", None) or exc
        raise FormatError(f"cannot be read: {reason}", path=name) from exc
    check_content("bytes", len(content), name)
    return content


def _read_up_to(file: BinaryIO, most_bytes: int) -> bytes:
    """Read at most so many bytes, in pieces: one large read allocates all of its buffer first."""
    pieces = list[bytes]()
    n_bytes = 0
    while n_bytes < most_bytes:
        piece = file.read(min(_PIECE_BYTES, most_bytes - n_bytes))
        if not piece:
            break
        pieces.append(piece)
        n_bytes += len(piece)
    return b"".join(pieces)


def _open(path: Path) -> BinaryIO:
    """Open a file to read its bytes.

    Where that has to wait until a writer opens a pipe, a message says so.
    """
    hint = Timer(_PATIENCE_S, _log.warning, ("%s: a pipe, waiting for a writer", path))
    try:
        if path.is_fifo():
            hint.start()
        return path.open("rb")
    finally:
        hint.cancel()


def decode(content: bytes, name: str) -> str:
    """Return bytes as text; raise `FormatError` if they are not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise FormatError(f"byte {exc.start}: a file is UTF-8 text", path=name) from exc


def unzip(content: bytes, name: str) -> bytes:
    """Unpack what gzip has packed, up to the largest size; other bytes stay what they are."""
    if content[:2] != _GZIP_MAGIC:
        return content
    # A large file states its size modulo 2**32 at its end; most of those too large are refused
    # here.
    if len(content) > largest("bytes") // _MOST_PACKED:
        check_content("bytes", int.from_bytes(content[-4:], "little"), name)  # the stated size
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = _read_up_to(file, largest("bytes") + 1)  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error) as exc:
        raise FormatError(f"cannot be read: {exc}", path=name) from exc
    check_content("bytes", len(unpacked), name)
    return unpacked


def read_arrays(
    content: bytes, name: str, *, check_shape: Callable[[str, Shape], None] | None = None
) -> dict[str, NDArray[Any]]:
    """Read an ``.npz`` archive, or one ``.npy`` array under the empty name.

    All sizes that the headers state are checked before any array is allocated; objects of Python
    are refused. `check_shape` is called with name and stated shape of each, and may refuse it.
    """
    from zipfile import BadZipFile

    try:
        if content[:6] == _NPY_MAGIC:
            shape = _check_header(io.BytesIO(content), len(content), name)
            if check_shape is not None:
                check_shape("", shape)
            return {"": np.load(io.BytesIO(content), allow_pickle=False)}

        # An archive is checked as a whole before anything in it is unpacked.
        _check_archive(content, name, check_shape)
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except FormatError:
        raise
    except MemoryError as exc:
        raise FormatError("its arrays need more memory than there is", path=name) from exc
    except (ValueError, OSError, EOFError, KeyError, BadZipFile) as exc:
        raise FormatError(f"is no file of arrays: {exc}", path=name) from exc
    except Exception as exc:  # NumPy and zipfile raise nearly anything for damaged headers
        raise FormatError(f"is damaged: {exc}", path=name) from exc


def _check_archive(
    content: bytes, name: str, check_shape: Callable[[str, Shape], None] | None
) -> None:
    """Check what the directory and the headers of an ``.npz`` archive state, unpacking nothing."""
    from zipfile import ZipFile

    # The number of members is counted in the bytes, because ZipFile makes an object for each.
    check_content("arrays", content.count(_MEMBER), name)
    with ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()

        # Packed zeros take a thousandth of their size: a small archive may state a huge array.
        size_bytes = sum(member.file_size for member in members)
        check_content("entries", size_bytes // _ENTRY_BYTES, name)
        check_content("bytes", size_bytes, name)

        most_common = Counter(member.filename for member in members).most_common(1)
        for filename, count in most_common:
            if count > 1:
                raise FormatError(f"{filename!r} is in it {count} times", path=name)

        for member in members:
            with archive.open(member) as stream:
                shape = _check_header(stream, member.file_size, name)
            if check_shape is not None:
                check_shape(member.filename.removesuffix(".npy"), shape)


def check_content(kind: str, count: int, name: str) -> None:
    """Raise `FormatError` if a file states or holds more than `check_size` allows."""
    try:
        check_size(kind, count, "")
    except InputError as exc:
        raise FormatError(str(exc), path=name) from exc


def _check_header(stream: Any, size_bytes: int, name: str) -> Shape:
    """Return the shape that the header of an ``.npy`` array states, before the array is read.

    Objects of Python, and arrays of more than `size_bytes`, are refused; and so is an array
    without entries with a side longer than any real array, since readers make other arrays as
    long.
    """
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)

    if dtype.hasobject or math.prod(shape) * dtype.itemsize > size_bytes:
        raise FormatError(f"an array of shape {shape} and type {dtype} in it", path=name)
    check_content("entries", math.prod(max(side, 1) for side in shape), name)
    return shape
