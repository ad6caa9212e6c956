"""Eligibility: which resources may serve which jobs, in as few rows and columns as there are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, check_size
from optmatch.problems.sharing.resources import Jobs, Resources

_FEW = 16
_TABLE = 1 << 24
"""Up to so many cells are counted in a table of all of them, empty ones included."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Resources that may serve the same jobs, and jobs that the same resources may serve.

    Attributes
    ----------
    class_of
        ``class_of[resource]``.
    group_of
        ``group_of[job]``.
    eligible
        ``eligible[class, group]``.
    plane
        ``plane[class]``: with plane caps the resources of a class are on one plane; else 0.
    sizes
        ``sizes[class]``: how many resources.
    """

    class_of: NDArray[np.int32]
    group_of: NDArray[np.int32]
    eligible: NDArray[np.bool_]
    plane: NDArray[np.int32]
    sizes: NDArray[np.int64]

    @cached_property
    def supply(self) -> NDArray[np.int64]:
        """``supply[job]``: how many resources may serve it."""
        found: NDArray[np.int64] = (self.sizes @ self.eligible.astype(np.int64))[self.group_of]
        return found

    @cached_property
    def jobs_of(self) -> NDArray[np.bool_]:
        """``jobs_of[class, job]``: whether resources of a class may serve a job."""
        return self.eligible[:, self.group_of]


def classify(resources: Resources, jobs: Jobs) -> Classes:
    """Find the classes of resources and the groups of jobs.

    A resource may serve a job if no attribute is below the bound of the job, and if it leaves
    after the job has asked: its departure is one more attribute, the arrival of the job its bound.
    Each attribute is cut at the distinct bounds; a resource lies in one cell of that grid, and the
    cells in which the same jobs are served are one class. So each resource is looked at once for
    each attribute, and all else costs cells x jobs.

    Parameters
    ----------
    resources, jobs
        With the same attributes.

    Returns
    -------
    Classes
        Classes in the order of the grid, groups in that of their first job.

    Raises
    ------
    InputError
        If they do not have the same attributes.

    Examples
    --------
    >>> phones = Resources([[2.0, 4.0, 8.0, 9.0]])
    >>> found = classify(phones, Jobs([1, 1, 1], [[3.0, 0.0, 7.0]]))
    >>> found.class_of.tolist(), found.jobs_of.astype(int).tolist()
    ([0, 1, 2, 2], [[0, 1, 0], [1, 1, 0], [1, 1, 1]])
    """
    columns, bounds = resources.attributes, jobs.bounds
    if len(resources.public) != len(jobs.public) or len(columns) != len(bounds):
        counts = [
            f"{len(side.public)} and {0 if side.private is None else len(side.private)}"
            for side in (resources, jobs)
        ]
        raise InputError(
            f"public and private attributes: {counts[0]} of resources, {counts[1]} of jobs",
            where="jobs",
        )
    digits, needed = [], []
    for values, least in zip(columns, bounds, strict=True):
        levels = np.unique(least)
        digits.append(_count_below(values, levels, np.greater_equal, "right"))
        needed.append(np.searchsorted(levels, least) + 1)
    if resources.departure_s is not None:
        asked_s = np.unique(jobs.arrivals_s)
        digits.append(_count_below(resources.departure_s, asked_s, np.greater, "left"))
        needed.append(np.searchsorted(asked_s, jobs.arrivals_s) + 1)
    plane = np.zeros(resources.n_resources, dtype=np.int32)
    if jobs.plane_caps is not None:
        plane = resources.planes
        for k in np.flatnonzero(plane >= jobs.plane_caps.shape[1])[:1]:
            told = f"plane[{k}] = {plane[k]}: plane_caps has {jobs.plane_caps.shape[1]} planes"
            raise InputError(told, where="plane")
    cell_of, member = _cells([*digits, plane])
    kinds, request_of = _alike(np.array(needed, dtype=np.int64).T)
    check_size("entries", len(member) * len(kinds), "jobs")
    served = np.ones((len(member), len(kinds)), dtype=np.bool_)
    for digit, rank in zip(digits, needed, strict=True):
        served &= digit[member][:, None] >= rank[kinds]
    packed = np.packbits(served, axis=1)
    where = plane[member].view(np.uint8).reshape(-1, plane.itemsize)
    first, kind = _alike(np.column_stack((packed, where)))
    groups, merged = _alike(np.packbits(served[first].T, axis=1))
    class_of = kind.astype(np.int32)[cell_of]
    return Classes(
        class_of=class_of,
        group_of=merged[request_of].astype(np.int32),
        eligible=served[first][:, groups],
        plane=plane[member[first]],
        sizes=np.bincount(class_of, minlength=len(first)),
    )


def _count_below(
    values: NDArray[np.float64],
    levels: NDArray[np.float64],
    compare: np.ufunc,
    side: Literal["left", "right"],
) -> NDArray[Any]:
    """Count the levels that each value reaches; a few are quicker compared than searched."""
    if len(levels) > _FEW:
        return np.searchsorted(levels, values, side).astype(np.min_scalar_type(len(levels)))
    count = np.zeros(len(values), dtype=np.uint8)
    for level in levels:
        count += compare(values, level)
    return count


def _cells(digits: list[NDArray[Any]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Give a number to each combination of digits that occurs, and name a column of each."""
    code, count = np.zeros(len(digits[0]), dtype=np.int64), 1
    for digit in digits:
        width = int(digit.max(initial=0)) + 1
        if count * width > 2**62:
            code, count = _dense(code, count)
        code *= width
        code += digit
        count *= width
    code, count = _dense(code, count)
    member = np.empty(count, dtype=np.intp)
    member[code] = np.arange(len(code))
    return code, member


def _dense(code: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], int]:
    """Give new numbers to the codes below `count` that occur; a table is quicker than sorting."""
    if count > _TABLE:
        found, place = np.unique(code, return_inverse=True)
        return place.astype(np.int64), len(found)
    there = np.zeros(count, dtype=np.bool_)
    there[code] = True
    return (np.cumsum(there) - 1)[code], int(there.sum())


def _alike(rows: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the first of each kind of rows, and the kind of each row, in order of first rows."""
    zeros = np.zeros(len(rows), dtype=rows.dtype)  # never without width
    padded = np.ascontiguousarray(np.column_stack((rows, zeros)))
    keys = padded.view(np.dtype((np.void, padded.shape[1] * padded.itemsize))).reshape(-1)
    _, first, kind = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], place[kind.reshape(-1)]
