"""How large a question may be: refused early by name, instead of running until the memory is full.

The table is for what files, commands and constructors describe in a few bytes and build in full.
A row is raised by a variable of the environment: ``OPTMATCH_MAX_CELLS=5000000``.
"""

from __future__ import annotations

import os

from optmatch.model.errors import InputError

SIZES: dict[str, int] = {
    "arrays": 10_000,
    "bytes": 256 * 2**20,
    "cells": 1_000_000,
    "depth": 100,
    "entries": 100_000_000,
    "fibres": 10_000_000,
    "operations": 50_000_000,
    "ports": 1_000_000,
    "ranks": 131_072,
    "repeats": 1_000_000,
    "tasks": 1_000_000,
}
"""The largest sizes by default: arrays of an archive, bytes of a file once it is unpacked, cells
of a fabric, nested levels of a text, entries of a matrix, pairs of ports or 8 bytes of an archive
of arrays, fibres of racks, operations of a step or sends of a collective, ports of a fabric, ranks
of a job, values that aliases of a text repeat, tasks of a sweep."""


def largest(what: str) -> int:
    """Return the largest size of a kind: that of the environment, or the default.

    Examples
    --------
    >>> largest("depth")
    100
    """
    given = os.environ.get(f"OPTMATCH_MAX_{what.upper()}", "")
    return int(given) if given.isdecimal() else SIZES[what]


def check_size(what: str, count: int, where: str) -> None:
    """Refuse more than the largest size.

    Parameters
    ----------
    what
        A row of `SIZES`.
    count
        How many there would be.
    where
        The field or file that says so.

    Raises
    ------
    InputError
        Naming the field, the size, the limit, and the variable that raises it.

    Examples
    --------
    >>> check_size("cells", 3_000_000, "rows")
    Traceback (most recent call last):
        ...
    optmatch.model.errors.InputError: rows: 3000000 cells: at most 1000000 (OPTMATCH_MAX_CELLS)
    """
    if count > largest(what):
        shown = count if count < 10**18 else "far too many"
        raise InputError(
            f"{shown} {what}: at most {largest(what)} (OPTMATCH_MAX_{what.upper()})", where=where
        )
