"""The demand that a file holds, with the names of its ports, and how it is put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.contents import check_content
from optmatch.io.fields import shorten
from optmatch.io.matrices.numbers import EXACT, is_whole
from optmatch.model import FormatError, InputError
from optmatch.problems.demands.matrices import add_places, names_of_ports


class Traffic(NamedTuple):
    """The demand of a file, and what its ports are called.

    Examples
    --------
    >>> import numpy as np, optmatch as om
    >>> traffic = Traffic(np.array([[0.0, 3.0], [2.0, 0.0]]), ("Berlin", "Paris"))
    >>> om.Demand.from_matrix(traffic.demand_bytes, names=traffic.names, delay_s=0.5).lower_bound()
    3.5
    """

    demand_bytes: Any
    """``demand_bytes[source, destination]``: an array of float64, or a sparse array of SciPy where
    the file lists entries. Shape (sources, destinations), not necessarily square."""
    names: tuple[str, ...] | None = None
    """The names of the ports; None if the file has none, or they only count from 0."""


class Edges(NamedTuple):
    """A list of demands from port to port; all three have the shape (edges,)."""

    sources: NDArray[np.int64]
    destinations: NDArray[np.int64]
    demand_bytes: NDArray[np.float64]


def traffic_of_labels(
    sources: Sequence[str],
    destinations: Sequence[str],
    demand_bytes: Sequence[float],
    path: str,
) -> Traffic:
    """Make the sparse matrix of a list of demands between labels (see `number_ports`).

    Demands of one pair add up.
    """
    edges, names = number_ports(sources, destinations, demand_bytes, path)
    n_ports = len(names)
    return Traffic(sparse_matrix(edges, (n_ports, n_ports), path), names_of_ports(names))


def number_ports(
    sources: Sequence[str],
    destinations: Sequence[str],
    demand_bytes: Sequence[float],
    path: str,
) -> tuple[Edges, tuple[str, ...]]:
    """Return demands between labels with numbers of ports, and the label of each port.

    Labels that are all whole numbers are the numbers of ports, counted from 0. Otherwise ports
    come in the order in which their labels occur first.
    """
    pairs = zip(sources, destinations, strict=True)
    labels = dict.fromkeys(label for pair in pairs for label in pair)
    if all(is_whole(label) for label in labels):
        n_ports = 1 + max((int(label) for label in labels), default=-1)
        check_content("ports", n_ports, path)
        port_of = {label: int(label) for label in labels}
        names = tuple(map(str, range(n_ports)))
    else:
        check_content("ports", len(labels), path)
        port_of = {label: port for port, label in enumerate(labels)}
        names = tuple(labels)
    edges = Edges(
        np.array([port_of[label] for label in sources], dtype=np.int64),
        np.array([port_of[label] for label in destinations], dtype=np.int64),
        np.array(demand_bytes, dtype=np.float64),
    )
    return edges, names


def sparse_matrix(edges: Edges, shape: tuple[int, int], path: str) -> Any:
    """Add up a list of demands as a sparse array of SciPy, without room for the zeros.

    Whole numbers that add up to more than float64 holds exactly are refused.
    """
    from scipy.sparse import csr_array  # an import of 0.1 s, which full matrices do without

    try:
        entries = add_places(
            shape, edges.sources, edges.destinations, edges.demand_bytes, "matrix"
        )
    except InputError as exc:
        raise FormatError(exc.message, path=path) from exc
    return csr_array((entries.amounts, (entries.sources, entries.destinations)), shape=shape)


def check_order(row_labels: Sequence[str], column_labels: Sequence[str], path: str) -> None:
    """Refuse labels of rows and columns that are not the same in the same order."""
    for row, column in zip(row_labels, column_labels, strict=True):
        if row != column:
            raise FormatError(
                f"row {shorten(row)} stands where column {shorten(column)} does: one order for"
                " both is needed",
                path=path,
            )


def check_matrix(matrix: Any) -> NDArray[np.float64]:
    """Return an array as a finite matrix of float64; it may lose no digits."""
    array = np.asarray(matrix)
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        shape = "x".join(map(str, array.shape))
        raise FormatError(
            f"an array of {array.dtype}, shape {shape}: a matrix of numbers is needed"
        )
    for i, j in np.argwhere(~np.isfinite(array))[:1]:
        raise FormatError(f"matrix[{i}, {j}] = {array[i, j]}: a number is finite")
    _refuse_large(array)
    return np.ascontiguousarray(array, dtype=np.float64)


def check_sparse(matrix: Any) -> Any:
    """Return a sparse array with finite entries of float64, which may lose no digits."""
    entries = matrix.tocoo()
    wrong = ~np.isfinite(entries.data)
    for k in np.flatnonzero(wrong)[:1]:
        row, column = int(entries.coords[0][k]), int(entries.coords[1][k])
        raise FormatError(f"matrix[{row}, {column}] = {entries.data[k]}: a number is finite")
    _refuse_large(entries.data)
    return matrix.astype(np.float64).tocsr()


def _refuse_large(array: NDArray[Any]) -> None:
    """Refuse whole numbers that float64 would round."""
    if array.dtype.kind in "iu" and array.size and int(array.max()) > EXACT:
        raise FormatError(f"{int(array.max())}: whole numbers above 2**53 are not exact here")
