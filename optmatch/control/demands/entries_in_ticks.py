"""A demand as `schedule` takes it: its entries in whole ticks, without a full matrix if sparse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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
    return _EntriesInTicks(entries, scaled.delay, scaled.tick_s, names)


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
