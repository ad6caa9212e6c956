"""Files: whole or not at all, never over another one by accident, with large arrays beside them.

An `.npz` with the arrays is bound to its file by its name and its SHA-256.
"""

from __future__ import annotations

import io
import json
import os
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.io.fields import check_format, check_keys, check_object, shorten
from optmatch.io.problems import (
    PROBLEM_FORMAT,
    SCHEDULE_FORMAT,
    problem_from_tree,
    problem_to_tree,
    solution_from_tree,
    solution_to_tree,
)
from optmatch.io.text import (
    describe_tree,
    digest,
    layout,
    parse_json,
    plain,
    read_arrays,
    read_bytes,
    replace_entries,
)
from optmatch.model import FormatError, InputError, Problem, Solution, naming
from optmatch.model.files import (
    check_target as check_target,
    is_stream,
    locked,
    path_name,
    replace_file,
)

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
    if name is None:
        return plain(tree), b""
    array_at: dict[str, NDArray[Any]] = {}

    def note(entry: Any, where: str) -> Any:
        """Note an array by its JSON pointer."""
        if isinstance(entry, np.ndarray):
            array_at[where] = entry
        return entry

    # An entry takes two bytes at least as text, which decides most cases at once.
    replace_entries(tree, note)
    n_bytes = 2 * sum(array.size for array in array_at.values())
    if n_bytes <= MOST_BYTES:
        texts = (json.dumps(array.tolist(), separators=(",", ":")) for array in array_at.values())
        n_bytes = sum(map(len, texts))
    if n_bytes <= MOST_BYTES:
        return plain(tree), b""
    large: dict[str, Any] = {}

    def refer(entry: Any, where: str) -> Any:
        """Take out a large array, under its JSON pointer with points as a name."""
        if not isinstance(entry, np.ndarray) or entry.size <= _SMALL:
            return entry
        array_name = where.strip("/").replace("/", ".")
        large[array_name] = entry
        return {"npz": array_name}

    referring = replace_entries(tree, refer)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **large)
    content = buffer.getvalue()
    sha256 = digest(content)
    arrays = {"file": f"{name}.{sha256[:8]}.npz", "sha256": sha256}
    return {**plain(referring), "arrays": arrays}, content


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
    arrays = _read_archive(named, folder)

    def put_back(entry: Any, where: str) -> Any:
        """Return the array that a reference names, other entries as they are."""
        if not isinstance(entry, dict) or set(entry) != {"npz"} or not where:
            return entry
        name = entry["npz"]
        if not isinstance(name, str) or name not in arrays:
            raise FormatError(f"npz = {name!r}: the file of arrays has no such array", where=where)
        if arrays[name].dtype.kind not in "iuf":
            raise FormatError(f"npz = {name!r}: its entries are no numbers", where=where)
        return arrays[name]

    return replace_entries(tree, put_back)  # type: ignore[no-any-return]


def array_file(tree: Any) -> str | None:
    """Return the name of the file of arrays that a tree refers to, if it is a plain name."""
    named = tree.get("arrays") if isinstance(tree, dict) else None
    name = named.get("file") if isinstance(named, dict) else None
    if not isinstance(name, str) or len(name.encode(errors="replace")) > _LONGEST_NAME:
        return None
    return name if Path(name).name == name else None


def _read_archive(named: dict[str, Any], folder: Path | None) -> dict[str, NDArray[Any]]:
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


def save(obj: Problem | Solution, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a problem file or a schedule file.

    Parameters
    ----------
    obj
        A problem, or a solution with or without a schedule; a solution brings its problem along.
    path
        The file. Large arrays go to an ``.npz`` beside it, which the file names.
    force
        Whether a file that is there may be replaced.

    Raises
    ------
    InputError
        If `obj` has no file format, or `path` cannot be written or is there already.

    Notes
    -----
    Each file is written under another name and then renamed, the arrays first: a crash leaves the
    old state or the new one.

    Examples
    --------
    >>> import tempfile
    >>> import optmatch as om
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     om.save(om.AllToAll(om.HexMesh(2, 2, ports=4)), folder + "/mesh.json")
    ...     om.load(folder + "/mesh.json").fabric
    HexMesh(rows=2, cols=2, ports=4)
    """
    if isinstance(obj, str | os.PathLike):
        raise InputError(
            f"obj = {obj!r}: a problem or a solution comes first, then the file", where="obj"
        )
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"path of type {type(path).__name__}: a path is expected", where="path")
    with naming(path):
        save_tree(_to_tree(obj), path, force=force)


def save_tree(tree: dict[str, Any], path: str | os.PathLike[str], *, force: bool) -> list[str]:
    """Write the tree of a file and, if they are large, its arrays beside it.

    A reader finds the old file with its arrays or the new one: the new arrays are written first,
    under a name that their content determines, and the old ones are removed last. Returns the
    names of the files.
    """
    target = check_target(path, force=force)
    if is_stream(target):
        replace_file(target, (layout(detach(tree, None)[0]) + "\n").encode())
        return [path_name(path)]

    tree, arrays = detach(tree, target.name.removesuffix(".json"))
    with locked(target.parent):  # the named arrays stay while others replace the file
        former_arrays = None
        with suppress(OSError, FormatError):  # absent, or none of ours
            former_name = array_file(parse_json(target.read_bytes(), str(target))) or ""
            is_own = former_name.startswith(target.name.removesuffix(".json") + ".")
            if is_own and former_name.endswith(".npz"):
                former_arrays = target.with_name(former_name)
        array_name = array_file(tree)
        array_path = None if array_name is None else target.with_name(array_name)
        if array_path is not None:
            replace_file(array_path, arrays)
        try:
            replace_file(target, (layout(tree) + "\n").encode())
        except BaseException:
            # The old file stays, and its arrays with it.
            if array_path is not None and array_path != former_arrays:
                array_path.unlink(missing_ok=True)
            raise
        if former_arrays is not None and former_arrays != array_path:
            former_arrays.unlink(missing_ok=True)

    written = [path_name(path)]
    if array_path is not None:
        written.append(os.fspath(array_path))
    return written


_TABLES = (".csv", ".tsv", ".txt", ".npy", ".npz", ".mtx")
_READ_TABLE = (
    "a matrix of traffic is read by optmatch.io.read_matrix, for Demand.from_matrix, and by"
    " `optmatch generate demand --matrix`"
)


def load(path: str | os.PathLike[str]) -> Problem | Solution:
    """Read a problem file or a schedule file.

    Parameters
    ----------
    path
        The file; its ``"format"`` says which it is.

    Returns
    -------
    Problem or Solution
        The solution as it was saved; a certificate that is a list comes back as a tuple.

    Raises
    ------
    FormatError
        If the file cannot be read, is no JSON, or breaks the format. Carries the file as ``path``
        and the place as ``where``, a JSON pointer.
    InputError
        If a value breaks a rule of the problem or schedule, or the digest of the problem differs.

    See Also
    --------
    save : Write such a file.

    Examples
    --------
    >>> import optmatch as om
    >>> om.load("instances/all-to-all/hex-4x4-8.json")
    AllToAll(fabric=HexMesh(rows=4, cols=4, ports=8))
    """
    name = path_name(path)
    folder = Path(name).parent
    with nullcontext() if is_stream(name) else locked(folder, shared=True):
        return _read(read_bytes(name), name, folder)


def dumps(obj: Problem | Solution) -> str:
    """Write a problem or a solution as one text, with all arrays in it.

    Examples
    --------
    >>> import optmatch as om
    >>> loads(dumps(om.AllToAll(om.IdealSwitch(4)))).fabric
    IdealSwitch(n=4)
    """
    return layout(detach(_to_tree(obj), None)[0])


def loads(text: str | bytes, *, path: str = "<text>") -> Problem | Solution:
    """Read a problem or a solution from a text; `path` is what messages call it."""
    if not isinstance(text, str | bytes):
        raise InputError(f"text of type {type(text).__name__}: a text is expected", where="text")
    return _read(text, path, None)


def _to_tree(obj: Problem | Solution) -> dict[str, Any]:
    """Return a problem or a solution as the tree of its file, with arrays of NumPy in it."""
    if isinstance(obj, Solution):
        return solution_to_tree(obj)
    if isinstance(obj, Problem):
        return problem_to_tree(obj, arrays=True)
    raise InputError(f"{type(obj).__name__} has no file format: a problem or a solution")


def _read(content: str | bytes, path: str, folder: Path | None) -> Problem | Solution:
    """Read a problem or a solution from the text of a file.

    Large arrays lie in `folder`, None for a stream. Anything else is refused, with what it looks
    like.
    """
    try:
        tree = parse_json(content, path)
    except FormatError as error:
        if Path(path).suffix in _TABLES:
            error.message += f"; {_READ_TABLE}"
        raise

    # Files of other programs are told by what they look like.
    with naming(path):
        description = "" if isinstance(tree, dict) and "format" in tree else describe_tree(tree)
        if description:
            raise FormatError(f"no problem and no answer, which have a format{description}")
        if check_format(tree, "", PROBLEM_FORMAT, SCHEDULE_FORMAT) == PROBLEM_FORMAT:
            return problem_from_tree(attach(tree, folder))
        return solution_from_tree(attach(tree, folder))
