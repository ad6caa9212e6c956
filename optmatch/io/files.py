"""Files: whole or not at all, and never over another one by accident."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from optmatch.io.arrays import array_file, attach, detach
from optmatch.io.contents import read_bytes
from optmatch.io.fields import check_format
from optmatch.io.problems import PROBLEM_FORMAT, problem_from_tree, problem_to_tree
from optmatch.io.recognition import describe_tree
from optmatch.io.schedules import SCHEDULE_FORMAT, solution_from_tree, solution_to_tree
from optmatch.io.text import layout, parse_json
from optmatch.model import FormatError, InputError, Problem, Solution, naming
from optmatch.model.files import (
    check_target as check_target,
    is_stream,
    locked,
    path_name,
    replace_file,
)


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
        former_arrays = _former_arrays(target)
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


def _former_arrays(target: Path) -> Path | None:
    """Find the file of arrays that a file which is to be replaced has named.

    None if its name shows that it is not one of ours, which may not be deleted.
    """
    if not target.is_file():
        return None
    try:
        name = array_file(parse_json(target.read_bytes(), str(target)))
    except (OSError, FormatError):
        return None
    if name is None:
        return None
    is_own_name = name.startswith(target.name.removesuffix(".json") + ".")
    if not (is_own_name and name.endswith(".npz")):
        return None
    return target.with_name(name)
