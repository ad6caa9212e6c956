"""Traffic matrices as users have them: arrays, DataFrames, sparse matrices, graphs.

A *place* is a row and a column. *Labels* are what a DataFrame or a graph calls its ports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics import IdealSwitch
from optmatch.model import InputError, check_size, frozen, number, read_only
from optmatch.model.numbers import plain_array

_LARGEST_EXACT = 2**53  # whole numbers up to this are all floats

_ENDS_OF_EDGES = ({"source", "destination"}, {"source", "target"}, {"src", "dst"}, {"from", "to"})
"""What columns of a DataFrame are called that lists edges and is no matrix."""


class SparseMatrix(Protocol):
    """A sparse matrix, as SciPy has them."""

    def toarray(self) -> Any:
        """Return the same matrix as an array."""


class GraphOfDemand(Protocol):
    """A graph of networkx whose edges have the demand as their weight."""

    def is_directed(self) -> bool:
        """Tell whether an edge leads one way only."""


AnyMatrix: TypeAlias = ArrayLike | SparseMatrix | GraphOfDemand
"""What `plain_matrix` takes, for type checkers; a DataFrame of pandas is `ArrayLike`."""


class LabelledMatrix(NamedTuple):
    """A matrix, and the labels that its rows and columns have in common."""

    entries: NDArray[np.float64]
    """``entries[source, destination]``, shape (sources, destinations)."""
    labels: tuple[str, ...] | None
    """Of a DataFrame or a graph, a label for each port; None where they only count from 0."""


class SparseEntries(NamedTuple):
    """The entries of a sparse matrix that are not zero, row by row, each place once."""

    shape: tuple[int, int]
    """Sources and destinations."""
    sources: NDArray[np.int64]
    """Shape (entries,), ascending."""
    destinations: NDArray[np.int64]
    """Shape (entries,)."""
    amounts: NDArray[np.float64]
    """Shape (entries,): finite, not 0."""
    labels: tuple[str, ...] | None
    """A label for each port; None where they only count from 0."""


def plain_matrix(matrix: Any, name: str = "demand_bytes") -> LabelledMatrix:
    """Return the numbers of a matrix in any form, and the labels of its rows.

    Parameters
    ----------
    matrix
        Numbers, nested sequences, a sparse matrix of SciPy, a DataFrame whose rows and columns
        have the same labels in the same order, or a graph of networkx.
    name
        How messages call it.

    Returns
    -------
    LabelledMatrix
        The entries as a read-only matrix of float64, shape (rows, columns); and the labels as
        names of ports, None if there are none or they only count from 0.

    Raises
    ------
    InputError
        If it is no matrix of finite numbers that float64 holds exactly, has more entries than
        `optmatch.model.SIZES` allows, or its rows have other labels than its columns.
    """
    if is_sparse(matrix) or is_graph(matrix):
        entries = sparse_entries(matrix, name)
        return LabelledMatrix(fill_matrix(entries, name), entries.labels)
    labels = None
    if hasattr(matrix, "columns"):
        _check_labels(matrix)
        labels = names_of_ports(list(matrix.columns)) if hasattr(matrix, "index") else None
    return LabelledMatrix(frozen(name, matrix, 2, np.float64), labels)


def name_first_ports(switch: IdealSwitch, names: tuple[str, ...]) -> IdealSwitch:
    """Give names to the first ports of a switch without any; further ports keep their numbers.

    A name may be the number of a further port: names have to differ, and the switch stays as it
    is. So does one that has names, or too few ports.
    """
    further_names = [str(port) for port in range(len(names), switch.n)]
    fits = len(names) <= switch.n and set(names).isdisjoint(further_names)
    if switch.names is None and fits:
        return replace(switch, names=(*names, *further_names))
    return switch


def order_by_names(
    entries: NDArray[np.float64], labels: tuple[str, ...], port_names: tuple[str, ...]
) -> NDArray[np.float64]:
    """Return a matrix by port, of ports with names; ports without a row have no demand.

    With labels b and a, and ports a, b and c, the entry of the first row and the second column is
    that from port 1 to port 0.

    Raises
    ------
    InputError
        Naming a label that is no name of a port.
    """
    for label in labels:
        if label not in port_names:
            raise InputError(
                f"demand_bytes: no port of the fabric is called {label[:40]!r}; of a DataFrame"
                " whose rows are ports by number give the values, matrix.to_numpy()",
                where="demand_bytes",
            )
    ports = [port_names.index(label) for label in labels]
    ordered = np.zeros((len(port_names), len(port_names)))
    ordered[np.ix_(ports, ports)] = entries
    return ordered


def exact_matrix(matrix: Any, name: str = "matrix") -> NDArray[Any]:
    """Return a matrix in any form of `plain_matrix`, whole numbers as such, others as float64."""
    if is_graph(matrix):
        return fill_matrix(_graph_entries(matrix), name)
    if hasattr(matrix, "columns"):
        _check_labels(matrix)
    array = plain_array(name, matrix)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def is_sparse(matrix: Any) -> bool:
    """Tell whether it is a sparse matrix or array of SciPy."""
    return hasattr(matrix, "toarray") and hasattr(matrix, "nnz")


def is_graph(matrix: Any) -> bool:
    """Tell whether it is a graph of networkx."""
    return hasattr(matrix, "nodes") and hasattr(matrix, "edges")


def sparse_entries(matrix: Any, name: str = "demand_bytes") -> SparseEntries:
    """Return the entries of a sparse matrix or a graph, without room for the zeros.

    Entries of one place add up.

    Parameters
    ----------
    matrix
        A sparse matrix or array of SciPy, or a graph of networkx.
    name
        How messages call it.

    Returns
    -------
    SparseEntries
        The entries that are not zero; those of a graph with the names of its nodes.

    Raises
    ------
    InputError
        If an entry is not finite, or float64 does not hold it exactly.
    """
    if is_graph(matrix):
        return _graph_entries(matrix)
    listed = matrix.tocoo()
    if len(listed.shape) != 2:
        raise InputError(f"{name} has {len(listed.shape)} dimensions, not 2")
    rows = np.asarray(listed.row, dtype=np.int64)
    columns = np.asarray(listed.col, dtype=np.int64)
    try:
        amounts = frozen(name, listed.data, 1, np.float64)
    except InputError as exc:
        raise InputError(f"an entry of {exc.message}", where=name) from exc
    shape = (int(listed.shape[0]), int(listed.shape[1]))
    return add_places(shape, rows, columns, amounts, name)


def add_places(
    shape: tuple[int, int],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    amounts: NDArray[np.float64],
    name: str,
) -> SparseEntries:
    """Make a sparse matrix of a list of entries, of which several may be at one place.

    Entries at the same row and column are added up: 2 at (0, 1), 5 at (3, 0) and 4 at (0, 1)
    become 6 at (0, 1) and 5 at (3, 0).

    Parameters
    ----------
    shape
        The numbers of rows and of columns.
    rows, columns
        The place of each entry, shape (entries,), in any order; places may come several times.
    amounts
        The entries, shape (entries,).
    name
        How messages call the matrix.

    Returns
    -------
    SparseEntries
        Each place once, row by row, without those whose sum is 0, and without labels.

    Raises
    ------
    InputError
        If whole numbers add up to more than floats count in ones.
    """
    # The number of a place, row by row; for each entry the position of its place in `places`.
    places, entry_of = np.unique(rows * shape[1] + columns, return_inverse=True)
    sums = np.bincount(entry_of, amounts, minlength=len(places))

    # Ones could be lost in a sum of several whole numbers that reaches 2**53.
    has_several = np.bincount(entry_of, minlength=len(places)) > 1
    rounded = has_several & (np.abs(sums) >= _LARGEST_EXACT)
    if rounded.any() and (amounts == np.rint(amounts)).all():
        place = int(np.flatnonzero(rounded)[0])
        row, column = divmod(int(places[place]), shape[1])
        raise InputError(
            f"{name}[{row}, {column}]: entries add up to {sums[place]:.0f}, and whole numbers"
            " above 2**53 are not exact here",
            where=f"{name}[{row}, {column}]",
        )
    is_positive = sums != 0
    sources, destinations = np.divmod(places[is_positive], shape[1])
    return SparseEntries(shape, sources, destinations, sums[is_positive], None)


def fill_matrix(entries: SparseEntries, name: str) -> NDArray[np.float64]:
    """Write entries into a full matrix, if one of this shape is allowed.

    Parameters
    ----------
    entries
        The shape, the places that are not zero, and their amounts.
    name
        How messages call the matrix.

    Returns
    -------
    ndarray, shape (rows, columns)
        Read-only float64.

    Raises
    ------
    InputError
        If it would have more entries than `optmatch.model.SIZES` allows.
    """
    rows, columns = entries.shape
    try:
        check_size("entries", rows * columns, name)
    except InputError as exc:
        raise InputError(
            f"{name} of {rows} x {columns}: {exc.message}",
            where=name,
        ) from exc
    matrix = np.zeros(entries.shape)
    matrix[entries.sources, entries.destinations] = entries.amounts
    return read_only(matrix)


def from_graph(graph: Any, weight: str = "weight") -> tuple[NDArray[np.float64], list[Any]]:
    """Take the demand from a graph of networkx: an edge from source to destination for each.

    An undirected edge is a demand both ways, parallel edges add up, and an edge without any
    attribute counts 1.

    Parameters
    ----------
    graph
        A graph of networkx, directed or not.
    weight
        The attribute of edges that has the demand.

    Returns
    -------
    matrix : ndarray, shape (nodes, nodes)
        ``matrix[source, destination]``, float64.
    nodes : list
        Which node each port is.

    Raises
    ------
    InputError
        If an edge has attributes but no weight, or a weight is no number, or a whole number, or a
        sum of them, that float64 would round.
    """
    entries = _graph_entries(graph, weight)
    return fill_matrix(entries, "matrix").copy(), list(graph.nodes)


def _graph_entries(graph: Any, weight: str = "weight") -> SparseEntries:
    """Turn a graph whose edges are demands into a sparse matrix, see `add_places`.

    Nodes become ports, in their order in the graph. An edge becomes an entry, an undirected edge
    one for each direction; without any attribute it counts 1.
    """
    nodes = list(graph.nodes)
    port_of = {node: port for port, node in enumerate(nodes)}
    places: list[tuple[int, int]] = []
    amounts: list[float] = []
    for source, destination, attributes in graph.edges(data=True):
        edge = f"edge {source!r} - {destination!r}"
        if attributes and weight not in attributes:
            raise InputError(
                f"{edge}: it has {', '.join(map(str, attributes))}, and its demand is expected as"
                f" {weight}; optmatch.io.from_graph(graph, weight=...) takes another attribute"
            )
        amount = number(f"{edge}: {weight}", attributes.get(weight, 1), at_least=-math.inf)

        # An undirected edge counts both ways, but one from a node to itself once.
        place = (port_of[source], port_of[destination])
        places.append(place)
        amounts.append(amount)
        if not graph.is_directed() and source != destination:
            places.append(place[::-1])
            amounts.append(amount)
    rows, columns = np.array(places, dtype=np.int64).reshape(-1, 2).T
    entries = add_places((len(nodes), len(nodes)), rows, columns, np.array(amounts), "matrix")
    return entries._replace(labels=names_of_ports(nodes))


def names_of_ports(labels: Sequence[Any]) -> tuple[str, ...] | None:
    """Return labels as names of ports; None where they only count from 0."""
    names = tuple(map(str, labels))
    return None if names == tuple(map(str, range(len(names)))) else names


def _check_labels(frame: Any) -> None:
    """Refuse a DataFrame of which row k and column k are not the same port.

    Frames whose rows only count from 0, as pandas numbers them, take the labels of their columns.
    """
    columns = [str(label) for label in frame.columns]
    rows = [str(label) for label in getattr(frame, "index", columns)]
    if len(set(columns)) < len(columns):
        repeated_label = next(label for label in columns if columns.count(label) > 1)
        raise InputError(
            f"matrix: {repeated_label[:40]!r} is the label of several columns", where="matrix"
        )
    if rows != columns and any(ends.issubset(columns) for ends in _ENDS_OF_EDGES):
        raise InputError(
            "matrix: its columns are those of a list of edges; optmatch.io.read_traffic reads one"
            " from a file, as matrix.to_csv('traffic.csv', index=False) writes it",
            where="matrix",
        )

    # Rows that pandas has numbered by itself say nothing about ports.
    only_count = rows == list(map(str, range(len(columns)))) and set(rows) != set(columns)
    if rows == columns or only_count:
        return
    only_one = sorted(set(rows) ^ set(columns))
    if only_one:
        rule = f"different labels, only one of them has {only_one[0]!r}"
    else:
        rule = "the same labels in another order; give matrix[matrix.index]"
    raise InputError(f"matrix: its rows and its columns have {rule}", where="matrix")
