"""Matrices as users have them: nested lists, arrays, sparse ones, DataFrames, graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric
from optmatch.model import InputError, frozen


def plain_matrix(matrix: Any) -> tuple[NDArray[np.float64], tuple[str, ...] | None]:
    """Return the numbers of a matrix, and the labels of its rows: of a DataFrame or a graph."""
    if hasattr(matrix, "nodes") and hasattr(matrix, "edges"):
        dense, nodes = from_graph(matrix)
        return frozen("demand_bytes", dense, 2, np.float64), _names(nodes)
    dense = matrix.toarray() if hasattr(matrix, "toarray") else matrix
    labels = None
    if hasattr(dense, "columns"):
        columns = [str(label) for label in dense.columns]
        rows = [str(label) for label in getattr(dense, "index", columns)]
        if rows != columns:
            raise InputError(
                "matrix: its rows and its columns have different labels", where="matrix"
            )
        labels = _names(rows)
        dense = dense.to_numpy()
    if isinstance(dense, list | tuple):
        _check_rows(dense)
    return frozen("demand_bytes", dense, 2, np.float64), labels


def from_graph(graph: Any, weight: str = "weight") -> tuple[NDArray[np.float64], list[Any]]:
    """Take the demand from a graph of networkx: an edge from source to destination for each.

    An undirected edge is a demand both ways, parallel edges add up, and an edge without the
    attribute `weight` counts 1. Returns ``matrix[source, destination]``, and which node each port
    is.
    """
    nodes = list(graph.nodes)
    place = {node: k for k, node in enumerate(nodes)}
    matrix = np.zeros((len(nodes), len(nodes)))
    for source, destination, value in graph.edges(data=weight, default=1):
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            raise InputError(f"edge {source!r} - {destination!r}: {weight} = {value!r}")
        i, j = place[source], place[destination]
        matrix[i, j] += float(value)
        if not graph.is_directed() and i != j:
            matrix[j, i] += float(value)
    return matrix, nodes


def _names(labels: Sequence[Any]) -> tuple[str, ...] | None:
    """Return labels as names of ports; None where they only count from 0."""
    names = tuple(map(str, labels))
    return None if names == tuple(map(str, range(len(names)))) else names


def _check_rows(matrix: Any) -> None:
    """Refuse a row that has more or fewer numbers than the first one."""
    lengths = [len(row) if hasattr(row, "__len__") else -1 for row in matrix]
    for k, length in enumerate(lengths):
        if length != lengths[0]:
            raise InputError(
                f"demand_bytes[{k}] has {max(length, 0)} numbers, the first row {lengths[0]}",
                where=f"demand_bytes[{k}]",
            )


def check_entries(fabric: Fabric, demand: NDArray[np.float64], *, with_packets: bool) -> None:
    """Refuse entries that no circuit of this fabric could carry."""
    rows, columns = demand.shape
    if (rows, columns) != (fabric.n_ports, fabric.n_ports):
        raise InputError(
            f"demand_bytes has shape {rows} x {columns}, the fabric has {fabric.n_ports} ports",
            where="demand_bytes",
        )
    if fabric.bidirectional:
        for port in np.flatnonzero(demand.diagonal())[:1]:
            raise InputError(
                f"demand_bytes[{port}, {port}] = {demand[port, port]:g}:"
                " a bidirectional port cannot meet itself",
                where=f"demand_bytes[{port}, {port}]",
            )
    fabric.refuse_dead_ports("demand_bytes", (demand > 0).any(axis=0) | (demand > 0).any(axis=1))
    if with_packets or not demand.any():
        return
    for i, j in np.argwhere((demand > 0) & (fabric.route_cells() == UNREACHED))[:1]:
        raise InputError(
            f"demand_bytes[{i}, {j}] = {demand[i, j]:g}: no states of the cells connect"
            f" {fabric.describe_port(int(i))} to {fabric.describe_port(int(j))}",
            where=f"demand_bytes[{i}, {j}]",
        )
