"""The view of a scheduler: demand matrices in, matchings and durations out, in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics import IdealSwitch
from optmatch.model import InputError, counted_time, frozen, number
from optmatch.model.declarations import form_of
from optmatch.model.schedule import check_matchings
from optmatch.problems import Demand
from optmatch.problems.demands.matrices import AnyMatrix, plain_matrix

if TYPE_CHECKING:
    from optmatch.solvers.demands.birkhoff import Rule


_EQUAL = 1e-12
"""Line sums of floats that differ by less of their size are the same."""


class Permutations(NamedTuple):
    """A matrix as a weighted sum of permutations."""

    permutations: NDArray[np.int32]
    """``permutations[term, row] = column``."""
    weights: NDArray[np.int64] | NDArray[np.float64]
    """``weights[term]`` > 0, of the type of the matrix."""


class Slots(NamedTuple):
    """A schedule as arrays."""

    matchings: NDArray[np.int32]
    """``matchings[slot, source] = destination``, -1 where idle."""
    durations_s: NDArray[np.float64]
    """``durations_s[slot]``: how long it is held, after the delay."""
    completion_s: float
    """When all is served, with a delay before each slot."""
    lower_bound_s: float
    """No schedule is complete earlier."""
    names: tuple[str, ...] | None = None
    """What the ports are called: the labels of a DataFrame or a graph; None if they have none."""


def decompose(matrix: ArrayLike, rule: Rule = "bottleneck", *, fill: bool = False) -> Permutations:
    """Write a matrix as a weighted sum of permutations, exactly, after Birkhoff and von Neumann.

    Parameters
    ----------
    matrix
        Whole numbers >= 0 of at most 64 bits, shape (n, n); all lines have the same sum. Or
        floats whose lines have the same sum up to 1e-12 of it: then weights are floats, and no
        entry of the sum differs from the matrix by more than 1e-12 of a line, for 500 ports.
        Sparse matrices of SciPy are taken, too.
    rule
        Which permutation comes next. ``"bottleneck"``: one whose smallest entry is as large as can
        be, for few terms, the heaviest first. ``"first"``: the first permutation that is found,
        for the shortest time.
    fill
        Whether lines of less than the largest sum are filled up first; then the sum is not the
        matrix but at least it, in each entry.

    Raises
    ------
    InputError
        If `matrix` is no such matrix, naming the entry or the line, or `rule` is unknown.

    See Also
    --------
    schedule : Where changing the matching takes time.

    Examples
    --------
    >>> import optmatch as om
    >>> permutations, weights = om.decompose([[5, 1], [1, 5]])
    >>> permutations.tolist(), weights.tolist()
    ([[0, 1], [1, 0]], [5, 1])
    """
    from optmatch.solvers.demands import birkhoff
    from optmatch.solvers.demands.birkhoff import stuff

    to_array = getattr(matrix, "toarray", None)
    entries: ArrayLike = matrix if to_array is None else to_array()
    unit, rest = _unit_of(entries), 0
    if unit is not None:
        entries = np.rint(np.asarray(entries) / unit)
        rest = 4 * len(entries)  # ticks of a line that rounding may have made
    even = stuff(entries) if fill or unit is not None else entries
    terms = birkhoff.decompose(even, rule, stop_ticks=rest)
    if terms.residual.sum(axis=1).max(initial=0) > rest:
        raise KeyboardInterrupt  # `decompose` returned a part
    weights: NDArray[Any] = terms.weights if unit is None else terms.weights * unit
    return Permutations(terms.permutations, weights)


def _unit_of(matrix: ArrayLike) -> float | None:
    """Return the unit of floats of nearly equal line sums, up to rounding; or None."""
    try:
        array = np.asarray(matrix)
    except ValueError:  # rows of different lengths, which whoever takes the matrix tells by name
        return None
    if array.dtype.kind != "f" or array.ndim != 2 or (array == np.rint(array)).all():
        return None
    sums = np.concatenate([array.sum(axis=0), array.sum(axis=1)])
    near = np.ptp(sums) <= _EQUAL * sums.max() and (array >= 0).all() and np.isfinite(sums).all()
    return float(sums.max() / 2**51) if near else None


def schedule(
    matrix: AnyMatrix,
    delay_s: float,
    *,
    rate_bytes_per_s: float = 1.0,
    time_limit_s: float | None = 0.005,
    previous: Slots | None = None,
) -> Slots:
    """Serve a demand by matchings that take time to change, and be complete early.

    The same as a `Demand` on an `IdealSwitch`, without its objects: what it returns is a schedule
    of that problem.

    Parameters
    ----------
    matrix
        ``matrix[source, destination]`` >= 0 in bytes; with the rate 1 in seconds. Shape (n, n).
        Or a DataFrame, or a graph of networkx; labels become ``names`` of the answer.
    delay_s
        How long nothing is carried before each slot.
    rate_bytes_per_s
        What one circuit carries.
    time_limit_s
        When to stop; the longer, the better. A first plan is made in any case: within two
        milliseconds for 64 ports, in half a second for 1,024 with demand for each other. None for
        fifty steps, which gives the same answer each time.
    previous
        An answer for a demand like this one, to start from.

    Raises
    ------
    InputError
        If an entry, a time or `previous` is out of range.

    See Also
    --------
    Demand : The same with planes, packet networks, cells, exact methods and proofs.
    RollingSchedule : Where demand arrives while slots run.

    Examples
    --------
    >>> import optmatch as om
    >>> slots = om.schedule([[0, 3], [2, 1]], delay_s=0.5, time_limit_s=None)
    >>> slots.matchings.tolist(), slots.durations_s.tolist()
    ([[1, 0], [-1, 1]], [3.0, 1.0])
    >>> slots.completion_s, slots.lower_bound_s
    (5.0, 5.0)
    """
    started = counted_time()
    from optmatch.solvers.demands.plans import Plan
    from optmatch.solvers.demands.quick_cover import plan_quickly

    limit_s = np.inf if time_limit_s is None else number("time_limit_s", time_limit_s)
    demand, names = plain_matrix(matrix, "matrix")
    n = len(demand)
    if demand.shape != (n, n) or n == 0:
        raise InputError(f"matrix has shape {demand.shape}: must be square, and not empty")
    problem = Demand(
        IdealSwitch(n, names), demand, rate_bytes_per_s=rate_bytes_per_s, delay_s=delay_s
    )
    before = None
    if previous is not None:
        form_of(Slots).check("previous", previous)
        rows = frozen("previous", previous[0], 2, np.int32)
        held_s = frozen("previous", previous[1], 1, np.float64)
        if len(held_s) != len(rows) or (len(rows) and rows.shape[1] != n):
            raise InputError(
                f"previous: no matchings of {n} ports with durations", where="previous"
            )
        check_matchings(rows)
        ticks = np.rint(np.clip(held_s / problem.tick_s, 1, 2**50)).astype(np.int64)
        before = Plan(rows, ticks) if len(rows) else None
    bound_s = problem.lower_bound()
    plan = plan_quickly(problem.ticks, problem.delay_ticks, started + limit_s, before)
    return Slots(
        plan.matchings,
        np.asarray(plan.ticks * problem.tick_s, dtype=np.float64),
        plan.cost(problem.delay_ticks) * problem.tick_s,
        bound_s,
        names,
    )
