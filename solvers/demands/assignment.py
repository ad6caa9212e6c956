"""Assignments: the perfect matching of greatest value, found again and again for similar values.

All kernels for demands that ask for an assignment share the code and the workspace that are here.

A *price* is the dual variable of a row or a column. Prices are feasible if row + column price is
at least the value everywhere; a matching whose circuits all have equality is then the best one.
The *gain* of a row at a column is value less column price. *Settled* columns are those whose
shortest distance is final, as in Dijkstra's algorithm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.entries import UNLIMITED_WORK
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

CHOICES = 16
"""The number of problems that come in turn whose column prices are kept."""

_BIDS = 3
"""The bids of a row, in the mean, before paths are searched. On demands of 128 and 256 ports, slot
after slot, 1 takes up to 30 % longer, 10 as long as 3."""

RANKED = 1024
"""The number of remaining demands from which only a part is ranked."""


class AssignmentSpace(NamedTuple):
    """The arrays of `assign` and of the covers that call it, so that kernels allocate nothing.

    ``value`` is the problem that `assign` solves; ``column_of`` is its answer. `covering`, which
    chooses the length of a slot, uses ``weight``, ``known_price``, ``sizes`` and ``bounds`` too.
    """

    value: NDArray[np.float64]  # (n, n): in, the value of a circuit from row to column
    weight: NDArray[np.float64]  # (n, n): the weight of a tick of service on this circuit
    row_price: NDArray[np.float64]  # (n,): dual of rows
    column_price: NDArray[np.float64]  # (n,): dual of columns
    known_price: NDArray[np.float64]  # (choices, n): of columns, for each length in the last slot
    distance: NDArray[np.float64]  # (n,): of columns, from the row that a search began at
    column_of: NDArray[np.int64]  # (n,): out, of rows
    row_of: NDArray[np.int64]  # (n,): of columns, -1 for none
    before: NDArray[np.int64]  # (n,): the row by which a column was reached
    open_columns: NDArray[np.int64]  # (n,): columns that are not settled come first
    rows_seen: NDArray[np.int64]  # (n,): rows of settled columns
    columns_seen: NDArray[np.int64]  # (n,): settled columns
    sizes: NDArray[np.int64]  # (ranked,): remaining demands, of which lengths are chosen
    bounds: NDArray[np.float64]  # (ranked,): the most that a slot of each length may serve
    work: NDArray[np.int64]  # (1,): places that may still be looked at


def new_workspace(n: int) -> AssignmentSpace:
    """Allocate the arrays for assignments, and for covers slot by slot, of n ports.

    Parameters
    ----------
    n
        The number of ports: rows and columns of the demand.

    Returns
    -------
    AssignmentSpace
        All arrays are zero, and the work is not limited. It serves any number of problems of this
        size, one after the other.
    """
    value, weight = np.zeros((2, n, n))
    return AssignmentSpace(
        value,
        weight,
        row_price=np.zeros(n),
        column_price=np.zeros(n),
        known_price=np.zeros((CHOICES, n)),
        distance=np.zeros(n),
        column_of=np.zeros(n, dtype=np.int64),
        row_of=np.zeros(n, dtype=np.int64),
        before=np.zeros(n, dtype=np.int64),
        open_columns=np.zeros(n, dtype=np.int64),
        rows_seen=np.zeros(n, dtype=np.int64),
        columns_seen=np.zeros(n, dtype=np.int64),
        sizes=np.zeros(RANKED, dtype=np.int64),
        bounds=np.zeros(RANKED),
        work=np.array([UNLIMITED_WORK]),
    )


@inner_kernel
def _take_best_columns(space):
    """Begin an assignment: match each row with its best column, as far as columns are free.

    An assignment pairs each row with a column of its own, for the greatest sum of values. Columns
    have prices, and the gain of a row at a column is the value less the price. The best column of
    a row is that of its greatest gain, which becomes the price of the row. Row price + column
    price is then at least the value everywhere, and equal to it in the matching.

    Where several rows have the same best column, the first one gets it. The others stay free, -1
    in ``column_of``, and are matched later by augmenting paths.

    Parameters
    ----------
    space : AssignmentSpace
        In: ``value[row, column]``, shape (n, n), and ``column_price``. Out: ``row_price``, and the
        matching: ``column_of[row]`` and ``row_of[column]``, -1 for those that are free. From
        ``work[0]`` the number of places that are looked at, n * n, is taken off.
    """
    n = len(space.value)
    space.row_of[:] = -1
    for row in range(n):
        best = 0
        most = space.value[row, 0] - space.column_price[0]
        for column in range(1, n):
            gain = space.value[row, column] - space.column_price[column]
            if gain > most:
                best = column
                most = gain
        space.row_price[row] = most
        space.column_of[row] = -1
        if space.row_of[best] < 0:
            space.row_of[best] = row
            space.column_of[row] = best
    space.work[0] -= n * n


@inner_kernel
def _find_free_column(space, start):
    """Find the best chain of exchanges that gives a free row a column, by Dijkstra's algorithm.

    The matching pairs rows with columns for the greatest sum of values. The free row takes a
    column, the row that had it takes another one, and so on, until a free column is reached: an
    augmenting path. The chain is found here; the caller applies it to the matching.

    Each row and each column has a price (a dual variable). For all places, row price + column
    price - value >= 0; this reduced cost is the length of a step, and is 0 in the matching. The
    best chain is the shortest one. Prices are updated such that the same holds afterwards, with
    steps of length 0 all along the chain.

    Parameters
    ----------
    space : AssignmentSpace
        In: ``value[row, column]``; ``row_of[column]``, the matching, -1 for a free column, of
        which there is one at least.
        In and out: ``row_price`` and ``column_price``; ``work[0]``, from which the places looked
        at are taken off.
        Out: ``before[column]``, the row that takes the column, for each column of the chain.
        Scratch: ``distance`` of each column from `start`; ``open_columns``, those not yet final;
        ``rows_seen`` and ``columns_seen``, final columns and the rows that have them.
    start : int
        The row without a column from which the path begins.

    Returns
    -------
    int
        The free column at the end of the path.
    """
    n = len(space.value)
    for k in range(n):
        space.distance[k] = np.inf
        space.open_columns[k] = k
    n_open = n
    n_seen = 0
    row = start
    row_distance = 0.0
    end = -1
    while end < 0:
        # Relax the row, and find the nearest column; of equally near ones a free one.
        nearest = np.inf
        place = -1
        for k in range(n_open):
            column = space.open_columns[k]
            reduced_cost = (
                space.row_price[row] + space.column_price[column] - space.value[row, column]
            )
            if row_distance + reduced_cost < space.distance[column]:
                space.distance[column] = row_distance + reduced_cost
                space.before[column] = row
            distance = space.distance[column]
            if distance < nearest or (distance == nearest and space.row_of[column] < 0):
                nearest = distance
                place = k
        space.work[0] -= n_open

        # The nearest column is settled. If it is taken, the path may go on from its row.
        row_distance = nearest
        column = space.open_columns[place]
        n_open -= 1
        space.open_columns[place] = space.open_columns[n_open]
        if space.row_of[column] < 0:
            end = column
        else:
            row = space.row_of[column]
            space.rows_seen[n_seen] = row
            space.columns_seen[n_seen] = column
            n_seen += 1

    # Each final column becomes dearer, and its row cheaper, by how much nearer than the end of
    # the chain it is. Now all steps of the chain have length 0.
    space.row_price[start] -= row_distance
    for k in range(n_seen):
        nearer = row_distance - space.distance[space.columns_seen[k]]
        space.row_price[space.rows_seen[k]] -= nearer
        space.column_price[space.columns_seen[k]] += nearer
    return end


@inner_kernel
def _bid_for_columns(space):
    """Match most rows quickly by an auction (Bertsekas), from any column prices.

    The gain of a row at a column is the value less the column's price. A row takes the column of
    its greatest gain, and raises the price until its second best column is as good. As an example,
    a row gains 5 at column x and 3 at column y: it takes x and raises its price by 2. The row that
    had x is free again, and bids next.

    A row stays free if its best column is taken, and either

    - the price would not rise, since its two best gains are equal: two rows could then displace
      each other for ever;
    - or more than `_BIDS` * n bids were made.

    Rows that stay free are matched later, by augmenting paths.

    Parameters
    ----------
    space : AssignmentSpace
        The fields that are used:

        - ``value[row, column]``, shape (n, n), in;
        - ``column_price``, in and out: any numbers to start with;
        - ``row_price``, out: such that row + column price >= value everywhere, with equality in
          the matching;
        - ``column_of[row]``, ``row_of[column]``, out: the matching, -1 for those that are free;
        - ``work[0]``, in and out: the places that are looked at are taken off.
    """
    n = len(space.value)
    for port in range(n):
        space.row_of[port] = -1
        space.column_of[port] = -1
    bids = _BIDS * n
    for start in range(n):
        row = start
        while row >= 0:
            # The best column, and what the second best one would gain.
            best = 0
            best_gain = space.value[row, 0] - space.column_price[0]
            second_gain = -np.inf
            for column in range(1, n):
                gain = space.value[row, column] - space.column_price[column]
                if gain > best_gain:
                    second_gain = best_gain
                    best_gain = gain
                    best = column
                elif gain > second_gain:
                    second_gain = gain
            space.work[0] -= n

            # This price is feasible also where the row stays free.
            space.row_price[row] = best_gain
            bids -= 1
            loser = space.row_of[best]
            if loser >= 0 and (best_gain == second_gain or bids < 0):
                break

            # At the new price the column is worth as much to the row as its second best one.
            if n > 1:
                space.column_price[best] += best_gain - second_gain
                space.row_price[row] = second_gain
            space.row_of[best] = row
            space.column_of[row] = best
            if loser >= 0:
                space.column_of[loser] = -1
            row = loser


@inner_kernel
def _augment_free_rows(space):
    """Give each free row a column by a shortest augmenting path, which leaves no row free.

    Parameters
    ----------
    space : AssignmentSpace
        In: ``value``, shape (n, n). In and out: the matching in ``column_of`` and ``row_of``, -1
        for free lines, which is perfect afterwards; ``row_price`` and ``column_price``, with
        row + column price >= value everywhere and equality in the matching; ``work[0]``, the
        places that may still be looked at. Other arrays are scratch.

    Returns
    -------
    float
        The value of the matching; -inf if ``work`` was used up before it was perfect.
    """
    n = len(space.value)
    for start in range(n):
        if space.column_of[start] >= 0:
            continue
        if space.work[0] < 0:
            return -np.inf
        column = _find_free_column(space, start)

        # ``before[column]`` is the row that takes this column; the column that it had goes to
        # the row before it, until `start` is reached, which had none.
        while True:  # exchange columns along the path
            row = space.before[column]
            space.row_of[column] = row
            next_column = space.column_of[row]
            space.column_of[row] = column
            if row == start:
                break
            column = next_column

    # The prices were moved many times, so the value is added up from the matching itself.
    total = 0.0
    for row in range(n):
        total += space.value[row, space.column_of[row]]
    return total


@kernel
def assign(space):
    """Find the perfect matching of greatest ``space.value``: the linear assignment problem.

    Each row gets a column of its own, for the greatest sum of ``value[row, column]``. The method
    is that of shortest augmenting paths, O(n**3). Rows and columns have prices (dual variables)
    with row + column price >= value throughout. Any column prices will do to start from; those of
    a similar problem make the paths few and short.

    Parameters
    ----------
    space : AssignmentSpace
        In: ``value``, shape (n, n). In and out: ``column_price``, from which it starts, and
        ``work[0]``, the places that may still be looked at. Out: ``column_of``, the column of each
        row; ``row_of`` and ``row_price``. Other arrays are scratch.

    Returns
    -------
    float
        The value of the matching; -inf if ``work`` was used up before it was found.
    """
    _take_best_columns(space)
    return _augment_free_rows(space)


@kernel
def assign_by_auction(space):
    """Find the perfect matching of greatest value by an auction, then by augmenting paths.

    This is the linear assignment problem: each row gets a column of its own, for the greatest sum
    of ``value[row, column]``. Rows first bid for columns, which matches most of them; the others
    get a column by shortest augmenting paths. The kernel `assign` begins with one choice for each
    row instead; this one is up to two fifths faster where values differ. If several matchings
    are equally good, the two may find different ones.

    Parameters
    ----------
    space : AssignmentSpace
        The fields that are used; all others are scratch:

        - ``value``, shape (n, n), in;
        - ``column_price``, in and out: any numbers to start from. Those of a similar problem save
          time;
        - ``work[0]``, in and out: the places that may still be looked at;
        - ``column_of[row]``, ``row_of[column]``, ``row_price``, out.

    Returns
    -------
    float
        The value of the matching; -inf if ``work`` was used up before it was found.
    """
    _bid_for_columns(space)
    return _augment_free_rows(space)


def assign_afresh(space: AssignmentSpace, value: NDArray[Any]) -> float:
    """Find the perfect matching of greatest value from prices of zero, as `assign` does.

    With prices of an earlier problem, ties between equally good matchings could fall otherwise.

    Parameters
    ----------
    space
        The workspace for n ports; ``space.column_of`` receives the column of each row.
    value
        ``value[row, column]``, shape (n, n): numbers or booleans.

    Returns
    -------
    float
        The value of the matching.
    """
    space.value[:] = value
    space.column_price[:] = 0.0
    total: float = assign(space)
    return total
