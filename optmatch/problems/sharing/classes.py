"""Eligibility: which resources may serve which jobs, in as few rows and columns as there are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, check_size
from optmatch.model.numbers import refuse_entries
from optmatch.problems.sharing.resources import Jobs, Resources

_FEW_LEVELS = 16
"""Up to so many levels are compared one by one."""
_MAX_TABLE = 1 << 24
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
        of_group: NDArray[np.int64] = self.sizes @ self.eligible.astype(np.int64)
        return of_group[self.group_of]

    @cached_property
    def jobs_of(self) -> NDArray[np.bool_]:
        """``jobs_of[class, job]``: whether resources of a class may serve a job."""
        return self.eligible[:, self.group_of]


def classify(resources: Resources, jobs: Jobs) -> Classes:
    """Sort resources and jobs by who may serve whom, to count them instead of looking at each.

    A resource has attributes, such as memory; a job has a lower bound for each. A resource may
    serve a job if no attribute is below its bound, and if it leaves after the job has arrived. A
    *class* is a set of resources that may serve the same jobs. A *group* is a set of jobs that the
    same resources may serve.

    Each attribute is cut at the bounds that occur, which makes a grid. Resources in the same cell
    of the grid may serve the same jobs. Cells that serve the same jobs are one class. For example,
    with bounds 0, 3 and 7 of one attribute, resources with 8 and 9 are in one cell. Each resource
    is looked at once for each attribute; all else takes time in proportion to cells x jobs.

    Parameters
    ----------
    resources
        ``attributes[attribute][resource]``; ``departure_s``, when each leaves, in seconds, or None
        if none leaves.
    jobs
        ``bounds[attribute][job]``, with as many attributes; ``arrivals_s``, when each asks.

    Returns
    -------
    Classes
        With the fields

        - ``class_of[resource]`` and ``group_of[job]``: numbers of classes and groups; groups are
          in the order of their first job;
        - ``eligible[class, group]``: whether resources of the class may serve jobs of the group;
        - ``plane[class]``: the plane of all its resources; 0 if jobs have no caps on planes;
        - ``sizes[class]``: how many resources it has.

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
    n_attributes = len(resources.public)
    n_bounds = len(jobs.public)
    if n_attributes != n_bounds:
        raise InputError(
            f"public: {n_attributes} attributes of resources, {n_bounds} of jobs", where="jobs"
        )

    # All resources are on plane 0 if no job has caps on what it gets from a plane.
    plane = np.zeros(resources.n_resources, dtype=np.int32)
    if jobs.plane_caps is not None:
        plane = resources.planes
        n_planes = jobs.plane_caps.shape[1]
        refuse_entries(
            "plane",
            plane >= n_planes,
            lambda resource: f" = {plane[resource]}: plane_caps has {n_planes} planes",
        )

    # The place of each resource along each axis of the grid, and the least that each job needs.
    places: list[NDArray[Any]] = []
    needs: list[NDArray[np.intp]] = []
    for values, bounds in zip(resources.attributes, jobs.bounds, strict=True):
        levels = np.unique(bounds)
        places.append(_count_reached(values, levels, np.greater_equal, "right"))
        needs.append(np.searchsorted(levels, bounds) + 1)
    if resources.departure_s is not None:
        levels = np.unique(jobs.arrivals_s)
        places.append(_count_reached(resources.departure_s, levels, np.greater, "left"))
        needs.append(np.searchsorted(levels, jobs.arrivals_s) + 1)
    cell_of, member = _number_cells([*places, plane])

    # Which cells serve which kinds of jobs; jobs of one kind have the same bounds.
    first_job, kind_of_job = _find_equal_rows(np.array(needs, dtype=np.int64).T)
    check_size("entries", len(member) * len(first_job), "jobs")
    served = np.ones((len(member), len(first_job)), dtype=np.bool_)  # (cells, kinds)
    for place, need in zip(places, needs, strict=True):
        served &= place[member][:, None] >= need[first_job]

    # Cells on one plane that serve the same kinds are one class; kinds that the same classes serve
    # are one group.
    packed = np.packbits(served, axis=1)
    plane_bytes = plane[member].view(np.uint8).reshape(-1, plane.itemsize)
    first_cell, class_of_cell = _find_equal_rows(np.column_stack((packed, plane_bytes)))
    served_by_class = served[first_cell]
    first_kind, group_of_kind = _find_equal_rows(np.packbits(served_by_class.T, axis=1))
    class_of = class_of_cell.astype(np.int32)[cell_of]
    return Classes(
        class_of=class_of,
        group_of=group_of_kind[kind_of_job].astype(np.int32),
        eligible=served_by_class[:, first_kind],
        plane=plane[member[first_cell]],
        sizes=np.bincount(class_of, minlength=len(first_cell)),
    )


def _count_reached(
    values: NDArray[np.float64],
    levels: NDArray[np.float64],
    compare: np.ufunc,
    side: Literal["left", "right"],
) -> NDArray[Any]:
    """Count the ascending levels that each value reaches, as small unsigned integers.

    The value 5 reaches two of the levels 3, 5 and 7 by ``>=`` (`side` is ``"right"``), and one by
    ``>`` (``"left"``). Few levels are compared one by one, which is faster than a search.
    """
    if len(levels) > _FEW_LEVELS:
        return np.searchsorted(levels, values, side).astype(np.min_scalar_type(len(levels)))
    n_reached = np.zeros(len(values), dtype=np.uint8)
    for level in levels:
        n_reached += compare(values, level)
    return n_reached


def _number_cells(places: list[NDArray[Any]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the cell of each resource in a grid, without gaps, and a member of each cell.

    ``places[axis][resource]`` is a place from 0 on. Places along all axes are packed into one
    number, which is renumbered whenever it would overflow.
    """
    cell_of = np.zeros(len(places[0]), dtype=np.int64)
    n_cells = 1
    for place in places:
        width = int(place.max(initial=0)) + 1
        if n_cells * width > 2**62:  # without this numbers of cells would overflow
            cell_of, n_cells = _renumber(cell_of, n_cells)
        cell_of *= width
        cell_of += place
        n_cells *= width

    # Numbers of cells without a resource are skipped.
    cell_of, n_cells = _renumber(cell_of, n_cells)
    member = np.empty(n_cells, dtype=np.intp)
    member[cell_of] = np.arange(len(cell_of))
    return cell_of, member


def _renumber(codes: NDArray[np.int64], n_codes: int) -> tuple[NDArray[np.int64], int]:
    """Give new numbers, from 0 without gaps, to the codes that occur, and count these.

    7, 2, 7 become 1, 0, 1. A table of all codes is faster than sorting, as long as it is not too
    large.
    """
    if n_codes > _MAX_TABLE:
        distinct, number = np.unique(codes, return_inverse=True)
        return number.astype(np.int64), len(distinct)
    occurs = np.zeros(n_codes, dtype=np.bool_)
    occurs[codes] = True
    return (np.cumsum(occurs) - 1)[codes], int(occurs.sum())


def _find_equal_rows(rows: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Sort rows into kinds of equal bytes; return the first row of each kind, and the kinds.

    Rows (5, 1), (2, 2), (5, 1) have the first rows 0 and 1, and the kinds 0, 1, 0.
    """
    zeros = np.zeros(len(rows), dtype=rows.dtype)  # a row of no width could not be compared
    padded = np.ascontiguousarray(np.column_stack((rows, zeros)))
    keys = padded.view(np.dtype((np.void, padded.shape[1] * padded.itemsize))).reshape(-1)
    _, first, kind = np.unique(keys, return_index=True, return_inverse=True)

    # Kinds come sorted by bytes; they are renumbered in the order of their first rows.
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[kind.reshape(-1)]
