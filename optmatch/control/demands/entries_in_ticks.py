"""A demand as `schedule` takes it: its entries in whole ticks, without a full matrix if sparse."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import IdealSwitch
from optmatch.model import InputError, check_size
from optmatch.model.declarations import Range
from optmatch.problems import Demand
from optmatch.problems.demands.matrices import (
    AnyMatrix,
    SparseEntries,
    fill_matrix,
    is_graph,
    is_sparse,
    plain_matrix,
    sparse_entries,
)
from optmatch.problems.demands.ticks import PlacedAmounts, scale_amounts

if TYPE_CHECKING:
    from optmatch.solvers.demands.entries import Entries

_FILLED_PORTS = 4096
"""Sparse matrices of so many ports are filled: then their ticks are to the last bit those of the
same full matrix."""


class _EntriesInTicks(NamedTuple):
    """A demand of an ideal switch, counted in ticks."""

    entries: Entries | NDArray[np.int64]
    """Those that are not zero, row by row; or the whole matrix, ``demand[source, destination]``,
    shape (n, n), if most places have a demand."""
    delay_ticks: int  # the reconfiguration delay
    tick_s: float  # the length of a tick in seconds
    names: tuple[str, ...] | None
    """The labels of the ports, if the matrix has any."""


def read_entries(matrix: AnyMatrix, delay_s: float, rate_bytes_per_s: float) -> _EntriesInTicks:
    """Check a demand in bytes as `Demand` does, and count its entries and the delay in ticks.

    Entries of large or mostly empty demands are listed, and the others stay a full matrix; a tick
    is chosen by `scale_amounts` so that bytes become whole numbers.
    """
    # Rate and delay alone are checked here, as the options of a problem without demand.
    Demand(IdealSwitch(1), [[0.0]], rate_bytes_per_s=rate_bytes_per_s, delay_s=delay_s)
    is_listed = is_sparse(matrix) or is_graph(matrix)
    if _is_plain(matrix):
        # Nobody keeps the matrix, so that a copy of it would be of no use.
        return _count_full(matrix, None, float(rate_bytes_per_s), float(delay_s))
    if not is_listed:
        return _count_full(
            *plain_matrix(matrix, "matrix"), float(rate_bytes_per_s), float(delay_s)
        )
    listed = sparse_entries(matrix, "matrix")
    _check_shape(listed.shape)
    if listed.shape[0] <= _FILLED_PORTS:
        full = fill_matrix(listed, "matrix")
        return _count_full(full, listed.labels, float(rate_bytes_per_s), float(delay_s))
    return _count_listed(listed, float(rate_bytes_per_s), float(delay_s))


def _is_plain(matrix: object) -> TypeGuard[NDArray[np.float64]]:
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


def _refuse_negative(source: int, destination: int, amount: float) -> None:
    """Raise the error of a negative entry."""
    Range(0).refuse(f"demand_bytes[{source}, {destination}]", amount)


def _count_full(
    matrix: NDArray[np.float64],
    names: tuple[str, ...] | None,
    rate_bytes_per_s: float,
    delay_s: float,
) -> _EntriesInTicks:
    """Convert a full matrix from bytes to ticks, and list its entries unless most are positive.

    ``matrix[source, destination]`` is in bytes, `names` are those of the ports, and rate and delay
    are in bytes per second and seconds. A negative entry is refused by its place.
    """
    _check_shape(matrix.shape)
    IdealSwitch(len(matrix), names)  # refuses too many ports, and names that are not different
    if matrix.min() < 0:
        source, destination = np.argwhere(matrix < 0)[0].tolist()
        _refuse_negative(source, destination, matrix[source, destination])
    placed = PlacedAmounts.of_matrix(matrix)
    scaled = scale_amounts(placed, rate_bytes_per_s, delay_s)

    # Without places the amounts are those of the whole matrix, row by row.
    if placed.sources is None or placed.destinations is None:
        full = scaled.ticks.reshape(matrix.shape)
        return _EntriesInTicks(full, scaled.delay, scaled.tick_s, names)
    entries = _entries_of(placed, scaled.ticks)
    return _EntriesInTicks(entries, scaled.delay, scaled.tick_s, names)


def _entries_of(placed: PlacedAmounts, ticks: NDArray[np.int64]) -> Entries:
    """Return listed amounts, all of them positive, as entries with 32-bit ports."""
    from optmatch.solvers.demands.entries import Entries

    assert placed.sources is not None
    assert placed.destinations is not None
    sources = placed.sources.astype(np.int32)
    return Entries(placed.n_ports, sources, placed.destinations.astype(np.int32), ticks)


def _count_listed(
    listed: SparseEntries, rate_bytes_per_s: float, delay_s: float
) -> _EntriesInTicks:
    """Convert a sparse matrix from bytes to ticks of time, without memory for its zeros.

    The tick is as fine as the busiest port allows: sums of its entries stay whole numbers that
    floats hold exactly. An InputError also says that a plan would need too much room.
    """
    n_ports = listed.shape[0]
    IdealSwitch(n_ports, listed.labels)  # refuses too many ports, and names that are not different
    # The error names the first negative entry, if there is one.
    for entry in np.flatnonzero(listed.amounts < 0)[:1]:
        _refuse_negative(
            int(listed.sources[entry]), int(listed.destinations[entry]), listed.amounts[entry]
        )

    # The plan is what takes room. Each of its slots has a row of all ports, and there are at least
    # as many slots as the busiest port, as source or as destination, has partners.
    partners = [
        np.bincount(ports, minlength=1).max() for ports in (listed.sources, listed.destinations)
    ]
    check_size("entries", int(max(partners)) * n_ports, "matrix")
    # The bytes of the busiest line decide how fine a tick may be.
    sums = [
        np.bincount(ports, listed.amounts, minlength=1).max()
        for ports in (listed.sources, listed.destinations)
    ]
    placed = PlacedAmounts(
        n_ports, listed.amounts, listed.sources, listed.destinations, float(max(sums))
    )
    scaled = scale_amounts(placed, rate_bytes_per_s, delay_s)
    entries = _entries_of(placed, scaled.ticks)
    return _EntriesInTicks(entries, scaled.delay, scaled.tick_s, listed.labels)
