"""Large arrays beside a JSON file: an `.npz`, bound to it by name and SHA-256."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.io.contents import read_arrays, read_bytes
from optmatch.io.fields import check_keys, check_object, shorten
from optmatch.io.text import digest, plain, pointer
from optmatch.model import FormatError

MOST_BYTES = 1_000_000
"""Arrays that together take more bytes than this as JSON lie in a file of their own."""

_SMALL = 100  # arrays of up to so many entries stay readable even then
_KEYS = ("file", "sha256")
_LONGEST_NAME = 255  # bytes; file systems take no longer one


def detach(tree: dict[str, Any], name: str | None) -> tuple[dict[str, Any], bytes]:
    """Turn the arrays of a tree into lists or, if they are too large, into references.

    Returns the plain tree and the content of a NumPy archive, empty if there is none. Where an
    array was taken out stands ``{"npz": its name}``, and the entry ``"arrays"`` names the file.
    Its name begins with `name` (None keeps all arrays in the text) and contains the digest of the
    content, so a text never meets the arrays of another.
    """
    array_at = dict(_list_arrays(tree, ""))
    if name is None or not _is_large(array_at.values()):
        return plain(tree), b""
    large: dict[str, Any] = {
        _name_of(where): array for where, array in array_at.items() if array.size > _SMALL
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **large)
    content = buffer.getvalue()
    sha256 = digest(content)
    arrays = {"file": f"{name}.{sha256[:8]}.npz", "sha256": sha256}
    return {**plain(_refer(tree, "", set(large))), "arrays": arrays}, content


def attach(tree: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """Put the arrays of the file in `folder` back where a tree refers to them.

    A tree without the entry ``"arrays"`` stays as it is. A file of arrays that is absent, changed,
    or lacks an array is a `FormatError`.
    """
    if "arrays" not in tree:
        return tree
    tree = dict(tree)
    named = tree.pop("arrays")
    check_object(named, "/arrays")
    check_keys(named, "/arrays", allowed=_KEYS, required=_KEYS)
    arrays = _read(named, folder)
    return {key: _put(part, pointer("", key), arrays) for key, part in tree.items()}


def array_file(tree: Any) -> str | None:
    """Return the name of the file of arrays that a tree refers to, if it is a plain name."""
    named = tree.get("arrays") if isinstance(tree, dict) else None
    name = named.get("file") if isinstance(named, dict) else None
    if not isinstance(name, str) or len(name.encode(errors="replace")) > _LONGEST_NAME:
        return None
    return name if Path(name).name == name else None


def _read(named: dict[str, Any], folder: Path | None) -> dict[str, NDArray[Any]]:
    """Read the archive of arrays that a file names, in its folder.

    `named` is ``{"file": name, "sha256": digest}``; a name that is not plain, no regular file, and
    another digest are refused.
    """
    name = array_file({"arrays": named})
    if name is None or not name.endswith(".npz"):
        raise FormatError(
            f"file = {shorten(named['file'])}: the name of an .npz file in the same folder",
            where="/arrays/file",
        )
    if folder is None:
        raise FormatError(f"{name} lies beside a file, not beside a stream", where="/arrays/file")

    # The archive has to be the one that the file was written with.
    target = folder / name
    if not target.is_file() or target.is_symlink():
        reason = "no regular file" if target.exists() else "No such file or directory"
        raise FormatError(f"{name} cannot be read: {reason}", where="/arrays/file")
    try:
        content = read_bytes(target)
        if digest(content) != named["sha256"]:
            stated = shorten(named["sha256"], 66)
            raise FormatError(f"sha256 = {stated}, but {name} has another", where="/arrays/sha256")
        return read_arrays(content, name)
    except FormatError as exc:
        # The archive is a part of the file that names it, which the caller puts into the message.
        exc.where = exc.where or "/arrays/file"
        exc.path = ""
        raise


def _is_large(arrays: Collection[NDArray[Any]]) -> bool:
    """Tell whether arrays take more than `MOST_BYTES` as JSON.

    An entry takes two bytes at least, which decides most cases at once.
    """
    if 2 * sum(array.size for array in arrays) > MOST_BYTES:
        return True
    texts = (json.dumps(array.tolist(), separators=(",", ":")) for array in arrays)
    return sum(map(len, texts)) > MOST_BYTES


def _name_of(where: str) -> str:
    """Return the name of an array in the archive: its JSON pointer with points."""
    return where.strip("/").replace("/", ".")


def _list_arrays(tree: Any, where: str) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the JSON pointer of each array in a tree of dicts and lists, and the array."""
    if isinstance(tree, np.ndarray):
        yield where, tree
    elif isinstance(tree, dict | list):
        entries = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, value in entries:
            yield from _list_arrays(value, pointer(where, key))


def _refer(tree: Any, where: str, names: set[str]) -> Any:
    """Replace the arrays with some names by references; all others stay arrays.

    Names are made from the JSON pointer of an array.
    """
    name = _name_of(where)
    if isinstance(tree, np.ndarray):
        return {"npz": name} if name in names else tree
    if isinstance(tree, dict):
        return {key: _refer(value, pointer(where, key), names) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_refer(value, pointer(where, k), names) for k, value in enumerate(tree)]
    return tree


def _put(tree: Any, where: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Put arrays in place of the references of a tree, which are ``{"npz": name}``.

    `where` is the place of the tree in the file, as a JSON pointer. The references are those of
    large arrays, which stand in the ``.npz`` file beside.
    """
    if isinstance(tree, list):
        return [_put(value, pointer(where, k), arrays) for k, value in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    if set(tree) != {"npz"}:
        return {key: _put(value, pointer(where, key), arrays) for key, value in tree.items()}
    name = tree["npz"]
    if not isinstance(name, str) or name not in arrays:
        raise FormatError(f"npz = {name!r}: the file of arrays has no such array", where=where)
    if arrays[name].dtype.kind not in "iuf":
        raise FormatError(f"npz = {name!r}: its entries are no numbers", where=where)
    return arrays[name]
