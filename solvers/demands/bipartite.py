"""Largest matchings in sparse bipartite graphs, from scratch or from a matching that is there."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import IDLE, InputError
from optmatch.solvers.kernel import kernel


@kernel
def _layer(start, columns, column_of, row_of, depth, queue):
    """Set for each row how far it is from one without a column; True if a free one is in reach."""
    size = 0
    for row in range(len(column_of)):
        depth[row] = -1
        if column_of[row] < 0:
            depth[row] = 0
            queue[size] = row
            size += 1
    found = False
    head = 0
    while head < size:
        row = queue[head]
        head += 1
        for edge in range(start[row], start[row + 1]):
            following = row_of[columns[edge]]
            if following < 0:
                found = True
            elif depth[following] < 0:
                depth[following] = depth[row] + 1
                queue[size] = following
                size += 1
    return found


@kernel
def _augment(start, columns, column_of, row_of, depth, cursor, path):
    """Augment along disjoint paths down the layers; a row that leads nowhere is entered once."""
    for row in range(len(column_of)):
        cursor[row] = start[row]
    for root in range(len(column_of)):
        if column_of[root] >= 0:
            continue
        size = 1
        path[0] = root
        while size:
            row = path[size - 1]
            if cursor[row] == start[row + 1]:
                depth[row] = -1
                size -= 1
                continue
            column = columns[cursor[row]]
            cursor[row] += 1
            following = row_of[column]
            if following < 0:
                for k in range(size):  # each row of the path takes the column it was left by
                    used = columns[cursor[path[k]] - 1]
                    column_of[path[k]] = used
                    row_of[used] = path[k]
                    depth[path[k]] = -1
                break
            if depth[following] == depth[row] + 1:
                path[size] = following
                size += 1


@kernel
def grow_matching(start, columns, column_of, row_of, depth, queue, cursor):
    """Make a matching as large as it can be, by phases of shortest augmenting paths."""
    for row in range(len(column_of)):
        if column_of[row] >= 0:
            continue
        for edge in range(start[row], start[row + 1]):
            if row_of[columns[edge]] < 0:
                column_of[row] = columns[edge]
                row_of[columns[edge]] = row
                break
    while _layer(start, columns, column_of, row_of, depth, queue):
        _augment(start, columns, column_of, row_of, depth, cursor, queue)


def match(
    start: ArrayLike,
    columns: ArrayLike,
    n_columns: int,
    column_of: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    r"""Find a largest matching of a bipartite graph.

    Parameters
    ----------
    start, columns
        The graph by rows, as in a compressed sparse row matrix: row r is joined to
        ``columns[start[r] : start[r + 1]]``. An edge may be there more than once.
    n_columns
        The number of columns.
    column_of
        A matching to start from, whose rows keep some column; not changed. None: from nothing.

    Returns
    -------
    ndarray
        ``column_of[row]``, int64, -1 where the row stays without.

    Raises
    ------
    InputError
        If the arrays do not describe a graph.

    Notes
    -----
    After Hopcroft and Karp (1973, doi 10.1137/0202019): time :math:`O(m \sqrt{n})` for m edges,
    in every case, since within a phase no edge is looked at twice. The result is a function of
    the input alone.

    Examples
    --------
    >>> match([0, 2, 3], [0, 1, 0], 2).tolist()
    [1, 0]
    """
    start = np.ascontiguousarray(start, dtype=np.int64)
    columns = np.ascontiguousarray(columns, dtype=np.int64)
    if len(start) == 0 or start[0] != 0 or start[-1] != len(columns) or (np.diff(start) < 0).any():
        raise InputError("start has to rise from 0 to the number of edges", where="start")
    for edge in np.flatnonzero((columns < 0) | (columns >= n_columns)):
        raise InputError(
            f"columns[{edge}] = {columns[edge]}: columns are 0 .. {n_columns - 1}", where="columns"
        )
    n = len(start) - 1
    row_of = np.full(n_columns, IDLE, dtype=np.int64)
    if column_of is None:
        column_of = np.full(n, IDLE, dtype=np.int64)
    else:
        column_of = np.array(column_of, dtype=np.int64)
        held = np.flatnonzero(column_of >= 0)
        row_of[column_of[held]] = held
    room = np.empty((3, n), dtype=np.int64)
    grow_matching(start, columns, column_of, row_of, room[0], room[1], room[2])
    return column_of
