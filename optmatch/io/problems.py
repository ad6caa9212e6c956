"""Problems as JSON objects, the digest that ties a schedule to its problem, and device files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from optmatch.io.contents import read_bytes
from optmatch.io.fields import check_format, choose, from_object, to_object
from optmatch.io.text import canonical, digest, layout, parse_json, pointer
from optmatch.model import Device, FormatError, InputError, Problem, naming
from optmatch.model.files import path_name
from optmatch.problems import PROBLEMS

PROBLEM_FORMAT = "optmatch/problem/1"
_GONE_KINDS = ("placement", "rail-sharing", "tenancy")
"""Kinds that files of earlier versions may have; nothing reads or solves them any more."""


def problem_to_tree(problem: Problem, *, arrays: bool = False) -> dict[str, Any]:
    """Return the JSON object of a problem, with every default written out.

    With `arrays`, matrices stay arrays, to be laid beside the text; else they become lists.
    """
    cls = PROBLEMS.get(problem.kind)
    if cls is not type(problem):
        raise InputError(f"{type(problem).__name__} has no file format")
    return {
        "format": PROBLEM_FORMAT,
        "kind": problem.kind,
        **to_object(problem, keep_ndim=2 if arrays else None),
    }


def problem_from_tree(tree: Any, where: str = "") -> Problem:
    """Build a problem from its JSON object, whose ``kind`` names its class."""
    check_format(tree, where, PROBLEM_FORMAT)
    if tree.get("kind") in _GONE_KINDS:
        raise FormatError(
            f"kind = {tree['kind']!r}: this kind of problem is gone; known are"
            f" {', '.join(PROBLEMS)}",
            where=pointer(where, "kind"),
        )
    cls: Callable[..., Problem] = choose(tree, "kind", PROBLEMS, where)
    return from_object(cls, tree, where, tags=("format", "kind"))


def problem_digest(problem: Problem) -> str:
    """Return the SHA-256 of the canonical JSON of a problem, in hexadecimal.

    Equal problems have equal digests, whatever layout their files have and defaults they omit.
    Fields that a class once had count as null, so that digests of former files hold.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> from optmatch.problems import AllToAll
    >>> problem_digest(AllToAll(HexMesh(2, 2, ports=4)))[:16]
    'c244a11e29db85c4'
    """
    tree = problem_to_tree(problem)
    _add_removed_fields(problem, tree)
    return digest(canonical(tree))


def _add_removed_fields(value: Any, tree: dict[str, Any]) -> None:
    """Add the fields that classes once had to the tree of a data class, as null."""
    tree.update(dict.fromkeys(getattr(value, "removed_fields", ())))
    for part in fields(value):
        entry: Any = getattr(value, part.name)
        if is_dataclass(entry) and isinstance(tree.get(part.name), dict):
            _add_removed_fields(entry, tree[part.name])


DEVICE_FORMAT = "optmatch/device/1"


def read_device(path: str | os.PathLike[str]) -> Device:
    """Read a device file.

    Parameters
    ----------
    path
        JSON with ``"format": "optmatch/device/1"`` and the fields of `Device`; those that are
        absent have their defaults.

    Raises
    ------
    FormatError
        If the file cannot be read, is no JSON, or breaks the format.
    InputError
        If a value breaks a rule of `Device`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from optmatch.model import DEVICES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "chip.json")
    ...     _ = file.write_text(write_device(DEVICES["smartlight"]))
    ...     read_device(file) == DEVICES["smartlight"]
    True
    """
    name = path_name(path)
    tree: Any = parse_json(read_bytes(path), name)
    with naming(name):
        check_format(tree, "", DEVICE_FORMAT)
        return from_object(Device, tree, "", tags=["format"])


def write_device(device: Device) -> str:
    """Return the text of a device file, with all fields."""
    return layout({"format": DEVICE_FORMAT, **to_object(device)}) + "\n"
