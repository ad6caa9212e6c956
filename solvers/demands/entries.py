"""The entries that are left of a demand, and their maximum-weight matching.

A demand of few entries is a list of them, row by row: all kernels here take time for entries, not
for places of a matrix. They match the `UnservedEntries`, `unserved`, by ``unserved.value[entry]``.
The matching is written to the `PortVectors`, `ports`: ``ports.column_of[row]`` and
``ports.row_of[column]``, -1 for none. Its prices are the dual variables, and the entries of a row
are those from ``ports.first[row]`` to ``ports.first[row + 1]``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.arrays import make_read_only
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.kernels.heap import pop, push

UNLIMITED_WORK = 1 << 62
"""Work that no kernel can do."""

_BIDS = 20
"""Bids of a row, in the mean, before paths are searched. An auction finds most of a matching
quickly and the last rows slowly; with 5 or 80 bids, Solstice's demands of 64 to 256 ports take
15 to 40 % longer (``benchmarks/demand_constants.py entries._BIDS 5 80 --kind planted``)."""

_WORK_OF_A_COLUMN = 16
"""Taking a column out of a heap counts as so many entries that are looked at."""


@kernel
def _list_entries(matrix, row, column, ticks):
    """List the places of a matrix that are not zero, row by row.

    Writes ``row[entry]``, ``column[entry]`` and ``ticks[entry]``, which have a place for each of
    them.
    """
    entry = 0
    for source in range(len(matrix)):
        for destination in range(matrix.shape[1]):
            if matrix[source, destination] != 0:
                row[entry] = source
                column[entry] = destination
                ticks[entry] = matrix[source, destination]
                entry += 1


class Entries(NamedTuple):
    """The entries of a demand, row by row."""

    n_ports: int
    row: NDArray[np.int32]
    """(entries,), ascending: the source."""
    column: NDArray[np.int32]
    """(entries,): the destination."""
    ticks: NDArray[np.int64]
    """(entries,): how long the circuit is needed, > 0."""

    @classmethod
    def of_matrix(cls, demand: NDArray[np.int64]) -> Entries:
        """List the entries of a full matrix that are not zero, row by row."""
        n_entries = np.count_nonzero(demand)
        row, column = np.empty((2, n_entries), dtype=np.int32)
        ticks = np.empty(n_entries, dtype=np.int64)
        matrix = demand.view()
        make_read_only(matrix)
        _list_entries(matrix, row, column, ticks)
        return cls(len(demand), row, column, ticks)

    def to_matrix(self) -> NDArray[np.int64]:
        """Return ``demand[source, destination]``."""
        demand = np.zeros((self.n_ports, self.n_ports), dtype=np.int64)
        demand[self.row, self.column] = self.ticks
        return demand


@kernel
def _add_lines(entries, row_sums, column_sums):
    """Add the ticks of each entry, and 1 for the entry, to the sums of its row and its column.

    ``row_sums[0, row]`` and ``column_sums[0, column]`` grow by ticks, ``[1, ...]`` by the number
    of entries.
    """
    for entry in range(len(entries.ticks)):
        row_sums[0, entries.row[entry]] += entries.ticks[entry]
        row_sums[1, entries.row[entry]] += 1
        column_sums[0, entries.column[entry]] += entries.ticks[entry]
        column_sums[1, entries.column[entry]] += 1


class LineSums(NamedTuple):
    """How much each row and each column has to serve."""

    ticks: NDArray[np.int64]
    """(2 n,): the sum of each row, then of each column."""
    n_entries: NDArray[np.int64]
    """(2 n,): how many entries each has."""

    @classmethod
    def of(cls, entries: Entries) -> LineSums:
        """Add up the entries of all lines."""
        sums = np.zeros((2, 2, entries.n_ports), dtype=np.int64)
        _add_lines(entries, sums[0], sums[1])
        return cls(sums[:, 0].reshape(-1), sums[:, 1].reshape(-1))

    @classmethod
    def of_matrix(cls, demand: NDArray[np.int64]) -> LineSums:
        """Add up all lines of ``demand[source, destination]``, in ticks."""
        is_entry = demand != 0
        ticks = np.concatenate([demand.sum(axis=1), demand.sum(axis=0)])
        return cls(ticks, np.concatenate([is_entry.sum(axis=1), is_entry.sum(axis=0)]))

    @property
    def most_entries(self) -> int:
        """The entries of the line with most of them."""
        return int(self.n_entries.max(initial=0))

    def bound(self, delay: int) -> int:
        """Return a lower bound on the time of all plans, in ticks.

        All slots together last as long as the line with most to serve, and there are as many as
        the line with most entries has; before each is a delay.
        """
        return int(self.ticks.max(initial=0)) + delay * self.most_entries


class UnservedEntries(NamedTuple):
    """The entries that are left of a demand, row by row; the first `count` of them count."""

    row: NDArray[np.int64]
    """(entries,), ascending: the source."""
    column: NDArray[np.int64]
    """(entries,): the destination."""
    ticks: NDArray[np.int64]
    """(entries,): what is left, > 0."""
    worth: NDArray[np.float64]
    """(entries,): scratch, the value of a tick of service."""
    value: NDArray[np.float64]
    """(entries,): in, what a matching gains by the entry, >= 0."""
    lengths: NDArray[np.float64]
    """(choices,): scratch, the lengths in ticks that are compared for a slot."""
    most_served: NDArray[np.float64]
    """(choices,): scratch, for each length the sum over all rows of their best values."""
    rate: NDArray[np.float64]
    """(choices,): scratch, an upper bound on what a slot of each length serves for its time; -1
    once the length was tried."""
    best_of_row: NDArray[np.float64]
    """(choices,): scratch, for each length the best value of the row that is added up."""
    sizes: NDArray[np.int64]
    """(ranked,): scratch, the different ticks of entries, ascending."""


class PortVectors(NamedTuple):
    """Vectors of all ports, so that kernels allocate nothing."""

    row_price: NDArray[np.float64]
    """(n,): the dual variable of each row."""
    column_price: NDArray[np.float64]
    """(n,): the dual variable of each column."""
    distance: NDArray[np.float64]
    """(n,): of each column, from the row that a search began at."""
    column_of: NDArray[np.int64]
    """(n + 1,): out, the column that each row is matched with, -1 for none."""
    row_of: NDArray[np.int64]
    """(n + 1,): the row that each column is matched with, -1 for none."""
    first: NDArray[np.int64]
    """(n + 1,): the first entry of each row."""
    before: NDArray[np.int64]
    """(n + 1,): the row by which a column was reached."""
    settled: NDArray[np.int64]
    """(n + 1,): columns whose distance is final, in their order."""
    seen: NDArray[np.int64]
    """(n + 1,): by column: 0 not reached, 1 in the heap, 2 settled."""
    heap_distances: NDArray[np.float64]
    """(entries,): the distances of the columns in the heap."""
    heap_columns: NDArray[np.int64]
    """(entries,): columns that were reached, the nearest in front; one that came nearer later is
    there several times."""
    work: NDArray[np.int64]
    """(1,): entries that may still be looked at; kernels end soon after it is negative."""


def port_vectors(n_ports: int, n_entries: int) -> PortVectors:
    """Make room for the kernels of a demand."""
    row_price, column_price, distance = np.zeros((3, n_ports))
    indices = np.zeros((6, n_ports + 1), dtype=np.int64)
    column_of, row_of, first, before, settled, seen = indices
    return PortVectors(
        row_price=row_price,
        column_price=column_price,
        distance=distance,
        column_of=column_of,
        row_of=row_of,
        first=first,
        before=before,
        settled=settled,
        seen=seen,
        heap_distances=np.empty(n_entries),
        heap_columns=np.empty(n_entries, dtype=np.int64),
        work=np.array([UNLIMITED_WORK]),
    )


@inner_kernel
def _match_by_auction(ports, unserved):
    """Match most rows with columns quickly by an auction (Bertsekas); some rows may stay free.

    Writes the matching and both prices; ``ports.work[0]`` falls by the entries that were looked
    at. The matching of the greatest total value is wanted. Each column has a price, 0 at first.
    The gain of a row by a column is the value of the entry less this price; to stay free has gain
    0. A row bids for the column of its greatest gain, and raises the price until the second best
    choice is as good. As an example, a row gains 5 by column x and 3 by column y: it takes x and
    raises its price by 2. The row that had x is free again, and bids next.

    The price of a row is what it gains. For each entry, row price + column price >= value.

    A row stays free in three cases:

    - it gains by no column;
    - its best column is taken, and its two best gains are equal: the price would not rise, and
      two rows could displace each other for ever;
    - its best column is taken, and more than `_BIDS` * n bids were made.
    """
    row_price = ports.row_price
    column_price = ports.column_price
    n = len(row_price)
    bids = _BIDS * n
    for start in range(n):
        row = start
        while row >= 0:
            # The best column, and what the second best one would gain.
            best = -1
            best_gain = 0.0
            second_gain = 0.0
            for entry in range(ports.first[row], ports.first[row + 1]):
                column = unserved.column[entry]
                gain = unserved.value[entry] - column_price[column]
                smaller = gain if gain < best_gain else best_gain
                second_gain = smaller if smaller > second_gain else second_gain
                best = column if gain > best_gain else best
                best_gain = gain if gain > best_gain else best_gain
            ports.work[0] -= ports.first[row + 1] - ports.first[row]

            # This price is feasible also where the row stays free.
            row_price[row] = best_gain
            bids -= 1
            if best < 0:
                break
            loser = ports.row_of[best]
            if loser >= 0 and (best_gain == second_gain or bids < 0):
                break

            # At the new price the column is worth as much to the row as its second best choice.
            column_price[best] += best_gain - second_gain
            row_price[row] = second_gain
            ports.row_of[best] = row
            ports.column_of[row] = best
            if loser >= 0:
                ports.column_of[loser] = -1
            row = loser


@inner_kernel
def _reach_columns(ports, unserved, row, row_distance, limit, size):
    """Relax the entries of a row, a step of Dijkstra's algorithm: its columns may come nearer.

    The search looks for the shortest way from a row without a column to a column without a row. A
    step from a row to a column is an entry. Its length is the reduced cost, row price + column
    price - value, which is never negative. Here `row` is at the distance `row_distance`. Columns
    that are reached, but whose distance is not final, are in the heap, the nearest in front;
    ``ports.seen[column]`` is 0 before, 1 in the heap, and 2 when the distance is final.

    Writes ``ports.distance[column]`` and ``ports.before[column]``, the row before on the way, and
    puts columns into the heap, which has `size` places taken before; a column that comes nearer is
    put there again. Columns farther than `limit` are of no use. Returns the limit, which falls to
    the distance of a free column, and the size of the heap.
    """
    for entry in range(ports.first[row], ports.first[row + 1]):
        column = unserved.column[entry]
        reduced_cost = ports.row_price[row] + ports.column_price[column] - unserved.value[entry]
        distance = row_distance + reduced_cost
        if distance > limit or ports.seen[column] == 2:
            continue
        if ports.seen[column] == 1 and distance >= ports.distance[column]:
            continue

        # A column that is new or comes nearer; its former places in the heap are passed over.
        ports.seen[column] = 1
        ports.distance[column] = distance
        ports.before[column] = row
        size = push(ports.heap_distances, ports.heap_columns, size, distance, column)
        if ports.row_of[column] < 0:
            limit = min(limit, distance)
    ports.work[0] -= ports.first[row + 1] - ports.first[row]
    return limit, size


@inner_kernel
def _match_row(ports, unserved, start):
    """Find a column for a free row, where other rows may change theirs, for the greatest value.

    Changes the matching along that chain, and the prices of the rows and columns that the search
    has settled. The row `start` takes a column, the row that had it takes another one, and so on.
    Such a chain is an augmenting path. The best one, after which the sum of the values of the
    matching is greatest, is found as a shortest path (Dijkstra).

    As an example, row A has column x, of value 5, and could have y, of value 4. The free row B can
    have x alone, of value 3. In the best chain B takes x and A takes y: the sum rises from 5 to 7.

    A chain ends in one of two ways:

    - at a column that no row has;
    - at a row that gives its column up and stays free. This may be `start` itself: then nothing
      is gained by matching it.
    """
    # `best_length` is the length of the best chain so far that leaves a row without a column, and
    # `freed_row` is that row. The first such chain leaves `start` free, which costs its price.
    row = start
    row_distance = 0.0
    n_settled = 0
    size = 0
    best_length = ports.row_price[start]
    freed_row = start
    free_column = -1

    # The search settles columns in the order of their distances. It ends at a free column, or when
    # no column is nearer than the cost of leaving the best row so far without one. `limit` is that
    # cost, or the distance of the nearest free column that is reached if that is less.
    limit = best_length
    while True:
        limit, size = _reach_columns(ports, unserved, row, row_distance, limit, size)

        # Columns that are settled are still in the heap where they came nearer on the way.
        while size > 0 and ports.seen[ports.heap_columns[0]] == 2:
            size = pop(ports.heap_distances, ports.heap_columns, size)
        if size == 0 or ports.heap_distances[0] > best_length:
            break

        # The nearest column has its final distance.
        column = ports.heap_columns[0]
        ports.settled[n_settled] = column
        ports.seen[column] = 2  # final, whatever rounding does to the path back
        n_settled += 1
        ports.work[0] -= _WORK_OF_A_COLUMN
        row_distance = ports.distance[column]

        # A free column ends the chain; else the row that has it may look for another one, or give
        # it up and stay free.
        if ports.row_of[column] < 0:
            best_length = row_distance
            free_column = column
            break
        row = ports.row_of[column]
        if row_distance + ports.row_price[row] < best_length:
            best_length = row_distance + ports.row_price[row]
            freed_row = row
            limit = min(limit, best_length)

    # Now `best_length` is the length of the best chain. Each final column gets dearer, and its row
    # cheaper, by how much nearer than the end of the chain it is: entries on the chain then have
    # a reduced cost of 0, and no entry one below 0.
    ports.row_price[start] -= best_length
    for k in range(n_settled):
        column = ports.settled[k]

        # A free column at the end of the path has no row whose price would move.
        if ports.row_of[column] >= 0:
            ports.row_price[ports.row_of[column]] -= best_length - ports.distance[column]
        ports.column_price[column] += best_length - ports.distance[column]
    for k in range(n_settled):
        ports.seen[ports.settled[k]] = 0
    for k in range(size):
        ports.seen[ports.heap_columns[k]] = 0

    # Exchange columns along the chain, from its end to `start`: each column goes to the row by
    # which it was reached, whose former column goes on to the row before. A chain without a free
    # column begins with the column that its last row gives up; if that row is `start`, there is
    # none.
    column = free_column
    if column < 0:
        column = ports.column_of[freed_row]
        ports.column_of[freed_row] = -1
    while column >= 0:
        row = ports.before[column]
        ports.row_of[column] = row
        next_column = ports.column_of[row]
        ports.column_of[row] = column
        column = next_column


@kernel
def assign_entries(ports, unserved, count):
    """Find the matching of entries with the greatest sum of values (maximum-weight matching).

    An entry is a pair of a row and a column with a value. The matching has at most one entry of
    each row and column, and need not be perfect: rows whose entries are worth nothing, or less
    than what they displace, stay free. An auction matches most rows; the rest are matched by
    shortest augmenting paths over the entries alone (Jonker and Volgenant 1987). At worst this
    takes O(n (entries + n**2)), with similar prices it is nearly linear.

    The first `count` entries of `unserved` are matched. False if the work ran out,
    ``ports.work[0]`` below 0; the matching is incomplete then.
    """
    # Where the entries of each row begin; all rows and columns are free. Prices of rows need no
    # reset, as each bid sets that of its row.
    n = len(ports.row_price)
    entry = 0
    for row in range(n):
        ports.first[row] = entry
        while entry < count and unserved.row[entry] == row:
            entry += 1
    ports.first[n] = count
    for k in range(n):
        ports.column_price[k] = 0.0
        ports.column_of[k] = -1
        ports.row_of[k] = -1
        ports.seen[k] = 0

    # An auction matches most rows, and shortest augmenting paths the others.
    _match_by_auction(ports, unserved)
    for start in range(n):
        if ports.work[0] < 0:
            return False
        if ports.column_of[start] < 0 and ports.row_price[start] > 0.0:
            _match_row(ports, unserved, start)
    return True
