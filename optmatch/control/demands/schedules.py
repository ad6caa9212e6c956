"""The view of a scheduler: demand matrices in, matchings and durations out, in milliseconds.

A *line* is a row or a column of a matrix. To *fill* lines is to raise entries until all lines have
the sum of the largest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import IdealSwitch
from optmatch.model import InputError, brief_tuple, check_size, counted_time, frozen, number
from optmatch.model.declarations import Range, form_of
from optmatch.model.schedule import check_matchings
from optmatch.problems import Demand
from optmatch.problems.demands.matrices import (
    AnyMatrix,
    SparseEntries,
    exact_matrix,
    fill_matrix,
    is_graph,
    is_sparse,
    plain_matrix,
    sparse_entries,
)
from optmatch.problems.demands.ticks import PlacedAmounts, scale_amounts

if TYPE_CHECKING:
    from optmatch.solvers.demands.birkhoff import Rule
    from optmatch.solvers.demands.entries import Entries
    from optmatch.solvers.demands.plans import Plan


_LINE_TOLERANCE = 1e-12
"""Line sums of floats that differ by less of their size are the same, unless told otherwise."""

_UNIT_BITS = 52
"""Floats are counted in units of 2**-52 of the least power of two above the largest sum of a line:
all sums are below 2**52 units, which floats tell exactly."""


@brief_tuple
class Permutations(NamedTuple):
    """A matrix as a weighted sum of permutations."""

    permutations: NDArray[np.int32]
    """``permutations[term, row] = column``."""
    weights: NDArray[np.int64] | NDArray[np.float64]
    """``weights[term]`` > 0, int64 or float64 as the type of the matrix."""

    def rest_of(self, matrix: AnyMatrix) -> NDArray[np.float64]:
        """Return what is left of a matrix over the sum of these terms; < 0 where the sum is more.

        Parameters
        ----------
        matrix
            Numbers, shape (n, n), such as the matrix that was decomposed.

        Returns
        -------
        ndarray, shape (n, n)
            The matrix less all terms, each as often as its weight.

        Examples
        --------
        >>> import optmatch as om
        >>> terms = om.decompose([[5, 1], [1, 5]], tolerance=0.2)
        >>> terms.rest_of([[5, 1], [1, 5]]).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
        """
        unserved = np.array(plain_matrix(matrix, "matrix").entries)
        rows = np.arange(unserved.shape[1])
        for columns, weight in zip(self.permutations, self.weights, strict=True):
            unserved[rows, columns] -= weight
        return unserved


@brief_tuple
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


def decompose(
    matrix: AnyMatrix,
    rule: Rule = "bottleneck",
    *,
    fill: bool = False,
    tolerance: float | None = None,
) -> Permutations:
    """Write a matrix as a weighted sum of permutations, exactly, after Birkhoff and von Neumann.

    Here a line is a row or a column of the matrix. All lines have to have the same sum, or are
    filled up to it.

    Parameters
    ----------
    matrix
        A square matrix, full or sparse of SciPy, of one of two kinds. A sparse one with an entry
        in at most one of 32 places is never made full: 8,192 ports with eight entries each take
        10 ms if their terms are few.

        - whole numbers >= 0 of at most 64 bits: the sum of the terms is exactly the matrix;
        - floats >= 0, whose lines have the same sum up to 1e-12 of it: weights are floats, too.
          For 500 ports no entry of the sum is wrong by more than 1e-12 of a line.
    rule
        Which permutation comes next. ``"bottleneck"``: one whose smallest entry is as large as can
        be, for few terms, the heaviest first. ``"first"``: the first permutation that is found,
        for the shortest time.
    fill
        Whether lines of less than the largest sum are filled up first. The sum of the terms is
        then at least the matrix in each entry.
    tolerance
        How much may be left out, as a part of the largest line: sums of lines may differ by it,
        and the sum of the terms may miss a line by it. Few terms are enough for most of a matrix.
        None: nothing of whole numbers, 1e-12 of floats.

    Returns
    -------
    Permutations
        ``permutations[term, row] = column``, and the weight of each term, in the unit of the
        matrix: int64 if it has a type of whole numbers, float64 if of floats, or if it is a graph.

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
    from optmatch.solvers.demands.entries import Entries
    from optmatch.solvers.demands.plans import Plan

    # `table` is the full matrix, or the amounts of the entries of a sparse one that has few.
    form_of(bool).check("fill", fill)
    part = None if tolerance is None else number("tolerance", tolerance)
    listed = _list_few_entries(matrix)
    table = exact_matrix(matrix) if listed is None else listed.amounts
    typed: Any = table if listed is None else matrix
    is_float = typed.dtype.kind == "f"
    unit = _unit_of(table, listed, fill=fill, tolerance=_LINE_TOLERANCE if part is None else part)

    # A unit (None for whole numbers) turns floats into whole numbers. `largest_residual` is how
    # many units of a line may be left when no more terms are made.
    largest_residual = 0
    if unit is not None:
        # Filled lines are at least the matrix, so floats are rounded up; otherwise to the nearest.
        in_units = np.asarray(table, dtype=np.float64) / unit
        table = np.ceil(in_units) if fill else np.rint(in_units)

        # Rounding changes a line of n entries by n / 2 units at most. A rest of some times as
        # much may be nothing but rounding, and is not decomposed.
        n_ports = len(table) if listed is None else listed.shape[0]
        largest_residual = 0 if fill else 4 * n_ports
    if part is not None:
        if listed is None:
            table = birkhoff.whole_square(table)
        largest_residual = _allowed_residual(_sums_of_lines(table, listed), part, largest_residual)

    # Lines are made equal, and the matrix is written as a sum until at most that is left.
    is_evened = fill or unit is not None or part is not None
    try:
        if listed is None:
            evened = birkhoff.stuff(table) if is_evened else table
            terms = birkhoff.decompose(evened, rule, stop_ticks=largest_residual)

            # It returns the terms so far after Ctrl-C. A sum that lacks a part is no answer here,
            # so that the interrupt is passed on.
            if terms.residual.sum(axis=1).max(initial=0) > largest_residual:
                raise KeyboardInterrupt
            plan = Plan(terms.permutations, terms.weights)
        else:
            sources = listed.sources.astype(np.int32)
            destinations = listed.destinations.astype(np.int32)
            entries = Entries(listed.shape[0], sources, destinations, table.astype(np.int64))
            if is_evened:
                entries = birkhoff.stuff_entries(entries)
            plan = birkhoff.decompose_entries(entries, rule, largest_residual)
    except InputError as error:
        if error.message.endswith("must be equal"):
            error.message += "; fill=True raises entries until they are"
        raise
    weights: NDArray[Any] = plan.ticks * (unit or 1.0) if is_float else plan.ticks
    return Permutations(plan.matchings, weights)


def _list_few_entries(matrix: Any) -> SparseEntries | None:
    """Return the entries of a sparse matrix that has few; None if it is to be made full.

    None also for what is no square matrix of numbers >= 0 whose sums fit int64: the full matrix
    is refused with a message.
    """
    from optmatch.solvers.demands.listed_peeling import is_listed

    if not is_sparse(matrix) or matrix.dtype.kind not in "iuf" or len(matrix.shape) != 2:
        return None
    n_rows, n_columns = matrix.shape
    if n_rows != n_columns or not is_listed(matrix.nnz, n_rows):
        return None
    try:
        listed = sparse_entries(matrix, "matrix")
    except InputError:
        return None  # an entry that no float is equal to
    is_valid = (listed.amounts >= 0).all() and listed.amounts.sum() < 2.0**62
    return listed if is_valid else None


def _sums_of_lines(table: NDArray[Any], listed: SparseEntries | None) -> NDArray[np.float64]:
    """Add up the lines of a full matrix, or of the amounts of listed entries: rows come first."""
    if listed is None:
        return np.concatenate([table.sum(axis=1), table.sum(axis=0)]).astype(np.float64)
    n_ports = listed.shape[0]
    return np.concatenate(
        [np.bincount(ports, table, n_ports) for ports in (listed.sources, listed.destinations)]
    )


def _allowed_residual(sums: NDArray[np.float64], tolerance: float, least: int) -> int:
    """Return the part `tolerance` of the largest sum of a line, or `least` if that is more.

    All are in units of the matrix, whose entries are whole numbers; so much may be left of a line.
    An InputError names the line of the least sum, if a sum is below the largest by more than that.
    """
    allowed = max(least, int(tolerance * float(sums.max(initial=0.0))))
    if len(sums) and np.ptp(sums) > allowed:
        line = int(sums.argmin())
        raise InputError(
            f"matrix: {_name_of_line(line, len(sums) // 2)} sums to"
            f" {sums[line] / sums.max():.17g} of the largest line, which is less than the"
            " tolerance allows; fill=True raises it",
            where="matrix",
        )
    return allowed


def _name_of_line(line: int, n: int) -> str:
    """Name a line of a square matrix: rows first, then columns."""
    return f"row {line}" if line < n else f"column {line - n}"


def _unit_of(
    table: Any, listed: SparseEntries | None, *, fill: bool, tolerance: float
) -> float | None:
    """Choose the unit in which the floats of a matrix are counted as whole numbers.

    `table` is the full matrix or, of entries that are `listed`, their amounts.

    The unit is the least power of two above the largest sum of a line, divided by
    ``2**_UNIT_BITS``: if that sum is 5, it is 8 / 2**52. None is returned for whole numbers, which
    need no unit, and for what later checks refuse. If lines are not filled afterwards (`fill`), no
    two of their sums may differ by more than `tolerance` times the largest one; else an InputError
    names one that is off.
    """
    # Whole numbers are exact as they are; only real floats need a unit. What is no square matrix
    # of finite numbers >= 0 is refused by others.
    if not isinstance(table, np.ndarray) or table.dtype.kind != "f" or table.size == 0:
        return None
    if not np.isfinite(table).all() or (table < 0).any() or (table == np.rint(table)).all():
        return None
    if listed is None and (table.ndim != 2 or table.shape[0] != table.shape[1]):
        return None

    # Lines that are not filled have to have equal sums, up to the tolerance.
    sums = _sums_of_lines(table, listed)
    largest = float(sums.max())
    if not fill and np.ptp(sums) > tolerance * largest:
        line = int(np.abs(sums - sums[0]).argmax())
        raise InputError(
            f"matrix: {_name_of_line(line, len(sums) // 2)} sums to {sums[line]:.17g}, row 0 to"
            f" {sums[0]:.17g}: sums of floats are equal up to {tolerance:g} of them, sums of whole"
            " numbers exactly; fill=True raises entries, tolerance= allows more",
            where="matrix",
        )
    return float(2.0 ** (np.frexp(largest)[1] - _UNIT_BITS))


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
        Or a DataFrame, or a graph of networkx; labels become ``names`` of the answer. Sparse
        matrices and graphs of more than 4,096 ports are never made full: 20,000 ports with some
        partners each are planned in a fraction of a second.
    delay_s
        How long nothing is carried before each slot.
    rate_bytes_per_s
        The rate of one circuit.
    time_limit_s
        When to stop; the longer, the better. A first plan is made in any case, however short the
        limit is: about 10 ns for each place of the matrix and 50 ns for each demand, and one
        millisecond. That is 2 ms for 256 ports with some partners each, 50 ms for 1,024 and 220 ms
        for 2,048 ports with demand for each other. None for fifty steps, which gives the same
        answer each time.
    previous
        An answer for a demand like this one, to start from; not used beyond 4,096 ports.

    Returns
    -------
    Slots
        Matchings and durations in seconds, the time at which all is served, a lower bound on it,
        and the names of the ports.

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
    started_s = counted_time()
    from optmatch.solvers.demands.entries import LineSums
    from optmatch.solvers.demands.portfolio import plan_entries, plan_matrix

    # The time counts from the call, so reading the demand is part of it.
    limit_s = np.inf if time_limit_s is None else number("time_limit_s", time_limit_s)
    demand = read_entries(matrix, delay_s, rate_bytes_per_s)
    deadline = started_s + limit_s

    # The demand is a full matrix now or, if it was sparse and has many ports, a list of entries;
    # each form has a planner of its own. A previous answer is brought to the ticks of this demand.
    former = None
    if previous is not None:
        former = _former_plan(previous, demand.n_ports, demand.tick_s)
    if isinstance(demand.entries, np.ndarray):
        lines = LineSums.of_matrix(demand.entries)
        plan = plan_matrix(demand.entries, demand.delay_ticks, deadline, former, lines)
    else:
        lines = LineSums.of(demand.entries)
        plan = plan_entries(demand.entries, demand.delay_ticks, deadline, former)
    bound_s = lines.bound(demand.delay_ticks) * demand.tick_s
    return Slots(
        plan.matchings,
        np.asarray(plan.ticks * demand.tick_s, dtype=np.float64),
        plan.cost(demand.delay_ticks) * demand.tick_s,
        bound_s,
        demand.names,
    )


def _former_plan(previous: Slots, n_ports: int, tick_s: float) -> Plan | None:
    """Check a former answer, and return it in ticks, no slot below one; None without slots.

    An InputError says that it is no answer for so many ports.
    """
    from optmatch.solvers.demands.plans import Plan

    form_of(Slots).check("previous", previous)
    matchings = frozen("previous", previous.matchings, 2, np.int32)
    durations_s = frozen("previous", previous.durations_s, 1, np.float64)
    is_of_these_ports = not len(matchings) or matchings.shape[1] == n_ports
    if len(durations_s) != len(matchings) or not is_of_these_ports:
        raise InputError(
            f"previous: no matchings of {n_ports} ports with durations", where="previous"
        )
    check_matchings(matchings)
    ticks = np.rint(np.clip(durations_s / tick_s, 1, 2**50)).astype(np.int64)
    return Plan(matchings, ticks) if len(matchings) else None


_FILLED_PORTS = 4096
"""Sparse matrices of so many ports are filled: then their ticks are to the last bit those of the
same full matrix."""


class _EntriesInTicks(NamedTuple):
    """A demand of an ideal switch, counted in ticks."""

    n_ports: int
    entries: Entries | NDArray[np.int64]
    """Those that are not zero, row by row; or the whole matrix, ``demand[source, destination]``,
    shape (n, n), if most places have a demand."""
    delay_ticks: int
    """The reconfiguration delay."""
    tick_s: float
    """The length of a tick in seconds."""
    names: tuple[str, ...] | None
    """The labels of the ports, if the matrix has any."""


def read_entries(matrix: AnyMatrix, delay_s: float, rate_bytes_per_s: float) -> _EntriesInTicks:
    """Check a demand in bytes as `Demand` does, and count its entries and the delay in ticks.

    Entries of large or mostly empty demands are listed, and the others stay a full matrix; a tick
    is chosen by `scale_amounts` so that bytes become whole numbers.
    """
    # Rate and delay alone are checked here, as the options of a problem without demand.
    Demand(IdealSwitch(1), [[0.0]], rate_bytes_per_s=rate_bytes_per_s, delay_s=delay_s)

    names: tuple[str, ...] | None = None
    if is_sparse(matrix) or is_graph(matrix):
        listed = sparse_entries(matrix, "matrix")
        _check_shape(listed.shape)
        names = listed.labels
        if listed.shape[0] <= _FILLED_PORTS:
            placed = PlacedAmounts.of_matrix(fill_matrix(listed, "matrix"))
        else:
            placed = _place_entries(listed)
    else:
        # Nobody keeps the matrix, so that a copy of a plain one would be of no use.
        full: Any = matrix
        if not _is_plain(matrix):
            full, names = plain_matrix(matrix, "matrix")
        _check_shape(full.shape)
        placed = PlacedAmounts.of_matrix(full)

    # Too many ports, names that are not different, and the first negative entry are refused.
    n_ports = placed.n_ports
    IdealSwitch(n_ports, names)
    for entry in np.flatnonzero(placed.amounts < 0)[:1].tolist():
        place = entry
        if placed.sources is not None and placed.destinations is not None:
            place = int(placed.sources[entry]) * n_ports + int(placed.destinations[entry])
        source, destination = divmod(place, n_ports)
        Range(0).refuse(f"demand_bytes[{source}, {destination}]", placed.amounts[entry])

    # Without places the amounts are those of the whole matrix, row by row.
    scaled = scale_amounts(placed, float(rate_bytes_per_s), float(delay_s))
    entries: Entries | NDArray[np.int64]
    if placed.sources is None or placed.destinations is None:
        entries = scaled.demand.reshape(n_ports, n_ports)
    else:
        from optmatch.solvers.demands.entries import Entries

        sources = placed.sources.astype(np.int32)
        destinations = placed.destinations.astype(np.int32)
        entries = Entries(n_ports, sources, destinations, scaled.demand)
    return _EntriesInTicks(n_ports, entries, scaled.delay, scaled.tick_s, names)


def _is_plain(matrix: object) -> bool:
    """Tell whether a value is a finite float64 matrix, stored row by row and not empty."""
    return (
        type(matrix) is np.ndarray
        and matrix.dtype == np.float64
        and matrix.ndim == 2
        and matrix.size > 0
        and matrix.flags.c_contiguous
        and bool(np.isfinite(matrix.min()) and np.isfinite(matrix.max()))
    )


def _check_shape(shape: tuple[int, ...]) -> None:
    """Refuse a matrix that is not square, or empty."""
    if shape[0] != shape[1] or shape[0] == 0:
        raise InputError(f"matrix has shape {shape}: must be square, and not empty")


def _place_entries(listed: SparseEntries) -> PlacedAmounts:
    """Return the amounts of a sparse matrix by place, without memory for its zeros.

    An InputError says that a plan would need too much room.
    """
    # The plan is what takes room. Each of its slots has a row of all ports, and there are at least
    # as many slots as the busiest port, as source or as destination, has partners.
    n_ports = listed.shape[0]
    lines = (listed.sources, listed.destinations)
    partners = [np.bincount(ports, minlength=1).max() for ports in lines]
    check_size("entries", int(max(partners)) * n_ports, "matrix")

    # The bytes of the busiest line decide how fine a tick may be.
    sums = [np.bincount(ports, listed.amounts, minlength=1).max() for ports in lines]
    return PlacedAmounts(
        n_ports, listed.amounts, listed.sources, listed.destinations, float(max(sums))
    )
