"""Permutations peeled off a matrix of few entries: bottleneck matchings over a list of them.

The sets of bits of `peeling` take time with the places of a matrix. Here the entries of each row
are listed, and time goes by entries: 2,048 ports with eight entries each take 3 ms, not 430.

A row *waits* if it is matched with no column. Only entries of at least the *threshold* may be
used. A waiting row is matched along the *widest* augmenting path, that whose smallest entry is
largest (Dijkstra's algorithm with minima in place of sums): any perfect matching has such a path
from it, so the threshold need not fall below the smallest entry of this one, and is that of a
bottleneck matching when all rows are matched.

In all kernels `space` is a `ListedWorkspace`. The entries of a row are numbered from
``space.first[row]`` to ``space.first[row + 1]``, ``space.column[entry]`` is where one stands and
``space.remaining[entry]`` what is left of it. The matching is ``space.entry_of[row]`` and
``space.row_of[column]``, -1 for none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.entries import Entries
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.kernels.heap import pop, push

_SHARE = 32
"""Matrices with an entry in at most one of so many places are listed: there both kernels take as
long at worst, 256 ports with eight entries each that are filled up. With twice as many entries
lists take 1.3 to 1.9 times as long, with half as many 0.1 to 0.7 times
(``benchmarks/decomposition.py --listed``)."""

_MUCH_LESS = 0.8
"""Rows choose anew where the threshold falls to less than this part of what it was: with 1 demands
that were filled up take twice as long and 5 % more terms, with 0 sums of permutations take half as
many terms again (``benchmarks/decomposition.py --listed``)."""

LINE_SUM, THRESHOLD, SEARCH = range(3)
"""Indices of `ListedWorkspace.state`."""


class ListedWorkspace(NamedTuple):
    """The entries that are left of a matrix, row by row, their matching, and room for searches."""

    first: NDArray[np.int64]
    """(n + 1,): the first entry of each row."""
    row: NDArray[np.int64]
    """(entries,), ascending: the row of each entry."""
    column: NDArray[np.int64]
    """(entries,): the column of each entry."""
    remaining: NDArray[np.int64]
    """(entries,): what is left of each, in the unit of the matrix, perhaps 0."""
    entry_of: NDArray[np.int64]
    """(n,): for each row the entry by which it is matched, -1 where it waits."""
    row_of: NDArray[np.int64]
    """(n,): for each column the row it is matched with, -1 for none."""
    reached_by: NDArray[np.int64]
    """(n,): for each column the entry by which a search has reached it."""
    seen: NDArray[np.int64]
    """(n,): for each column the number of the last search that has reached it, from 1 on."""
    queue: NDArray[np.int64]
    """(n,): rows that a search has reached."""
    waiting: NDArray[np.int64]
    """(n,): rows without a column."""
    heap_keys: NDArray[np.int64]
    """(entries,): minus what is left of the entries in a heap, all below the threshold."""
    heap_entries: NDArray[np.int64]
    """(entries,): the numbers of these entries, the largest in front."""
    state: NDArray[np.int64]
    """(3,): the sum that each line still has, the threshold, the searches so far."""


def is_listed(n_entries: int, n_ports: int) -> bool:
    """Tell whether a matrix has so few entries that lists are faster than sets of bits."""
    return n_entries * _SHARE <= n_ports**2


def list_matrix(entries: Entries) -> ListedWorkspace:
    """Make the arrays with which permutations are taken off listed entries, at their beginning.

    All lines of the matrix have the same sum above 0, and its `entries` come row by row. All rows
    wait at first, and ``remaining`` is a copy. The threshold is the least of the largest entries
    of all lines, as each line has an entry in any permutation: rows of (5, 1) and (1, 5) begin
    with 5.
    """
    n = entries.n_ports
    row = entries.row.astype(np.int64)
    column = entries.column.astype(np.int64)
    largest = np.zeros((2, n), dtype=np.int64)
    np.maximum.at(largest[0], row, entries.ticks)
    np.maximum.at(largest[1], column, entries.ticks)
    line_sum = int(entries.ticks[row == 0].sum())
    reached_by, seen, queue, waiting = np.zeros((4, n), dtype=np.int64)
    heap_keys, heap_entries = np.zeros((2, len(row)), dtype=np.int64)
    return ListedWorkspace(
        first=np.searchsorted(row, np.arange(n + 1)),
        row=row,
        column=column,
        remaining=entries.ticks.copy(),
        entry_of=np.full(n, -1),
        row_of=np.full(n, -1),
        reached_by=reached_by,
        seen=seen,
        queue=queue,
        waiting=waiting,
        heap_keys=heap_keys,
        heap_entries=heap_entries,
        state=np.array([line_sum, largest.min(), 0]),  # LINE_SUM, THRESHOLD, SEARCH
    )


@inner_kernel
def _reach_column(space, entry, end):
    """Reach the column of an entry in a search, and augment the matching if no row has it.

    `entry` is the number of an entry whose row the search has reached, and `end` how many rows
    ``space.queue`` has. Returns the new end of the queue, which gets the row of the column; -1
    after an augmentation. Writes ``space.reached_by[column]`` and ``space.seen[column]``. As an
    example, row 0 waits and has reached column 1, which is matched with row 1. If row 1 now
    reaches column 2, which is without a row, then row 1 gets column 2 and row 0 gets column 1.
    """
    column = space.column[entry]
    space.seen[column] = space.state[SEARCH]  # the number of this search
    space.reached_by[column] = entry
    if space.row_of[column] >= 0:
        space.queue[end] = space.row_of[column]
        return end + 1

    # Back along the path, to the row that waits: each row takes the column that it has reached by
    # `entry`, and leaves its former one to the row before.
    while True:
        entry = space.reached_by[column]
        row = space.row[entry]
        former_entry = space.entry_of[row]
        space.entry_of[row] = entry
        space.row_of[column] = row
        if former_entry < 0:
            return -1
        column = space.column[former_entry]


@inner_kernel
def _match_widest(space, start):
    """Match the waiting row `start` along the widest augmenting path; False if there is none.

    The threshold falls to the smallest entry of the path, if that is less. Entries of at least the
    threshold are followed breadth-first; all others wait in a heap, and where the search can go no
    further the largest of them leads on, and is the threshold from then on.
    """
    state = space.state
    state[SEARCH] += 1
    threshold = state[THRESHOLD]
    space.queue[0] = start
    head = 0
    end = 1  # of the queue; negative once a path ends at a column that is free
    n_in_heap = 0
    while end > 0:
        # Rows that are reached: their entries of at least the threshold lead on, at once.
        if head < end:
            row = space.queue[head]
            head += 1
            for entry in range(space.first[row], space.first[row + 1]):
                value = space.remaining[entry]
                if value == 0 or space.seen[space.column[entry]] == state[SEARCH]:
                    continue
                # The heap gives the least key first: a key is the value with a minus.
                if value < threshold:
                    n_in_heap = push(space.heap_keys, space.heap_entries, n_in_heap, -value, entry)
                    continue
                end = _reach_column(space, entry, end)
                if end < 0:
                    break

        # All are dealt with: the largest smaller entry leads on, if its column is new.
        elif n_in_heap > 0:
            entry = space.heap_entries[0]
            n_in_heap = pop(space.heap_keys, space.heap_entries, n_in_heap)
            if space.seen[space.column[entry]] != state[SEARCH]:
                threshold = min(threshold, space.remaining[entry])
                end = _reach_column(space, entry, end)
        else:
            return False
    state[THRESHOLD] = threshold
    return True


@inner_kernel
def _match_waiting(space):
    """Match all waiting rows; False if there is no perfect matching. The threshold may fall.

    Each row in turn takes the column without a row in which its entry is smallest, of those that
    may be used; the rows that find none search for paths.
    """
    threshold = space.state[THRESHOLD]
    n_waiting = 0
    for row in range(len(space.entry_of)):
        if space.entry_of[row] >= 0:
            continue
        best = -1
        for entry in range(space.first[row], space.first[row + 1]):
            if space.remaining[entry] < threshold or space.row_of[space.column[entry]] >= 0:
                continue
            if best < 0 or space.remaining[entry] < space.remaining[best]:
                best = entry

        # Without such a column the row waits on; else it is matched.
        if best < 0:
            space.waiting[n_waiting] = row
            n_waiting += 1
        else:
            space.entry_of[row] = best
            space.row_of[space.column[best]] = row
    is_perfect = True
    for k in range(n_waiting):
        is_perfect = is_perfect and _match_widest(space, space.waiting[k])
    return is_perfect


@inner_kernel
def _unmatch(space, row):
    """Take a row and its column apart: the row waits for another one."""
    space.row_of[space.column[space.entry_of[row]]] = -1
    space.entry_of[row] = -1


@kernel
def peel_listed(space, stop, permutations, weights):
    """Write a matrix as a sum of weighted permutations, one after the other.

    The matrix in `space` has equal line sums; its matching and its threshold carry over from term
    to term. Writes ``permutations[term, row]``, a column, and ``weights[term]``; returns how many
    terms there are when line sums are down to `stop` or the arrays are full, or -1 if there is no
    further permutation. With the threshold that `list_matrix` has set, each permutation is one
    whose smallest entry is as large as can be. With a threshold of 1 it is any permutation of
    entries above 0.
    """
    state = space.state
    for term in range(len(weights)):
        if state[LINE_SUM] <= stop:
            return term

        # Match the rows that wait, for which the threshold falls as far as it has to. If it falls
        # by much, the matching has entries far above it, which are of more use in later terms:
        # their rows are released, and choose anew the smallest entries that may be used. There is
        # a perfect matching at this threshold, so that this one is perfect, too.
        threshold = state[THRESHOLD]
        if not _match_waiting(space):
            return -1
        if state[THRESHOLD] < _MUCH_LESS * threshold:
            for row in range(len(space.entry_of)):
                if space.remaining[space.entry_of[row]] > state[THRESHOLD]:
                    _unmatch(space, row)
            _match_waiting(space)

        # The smallest entry of the matching is the weight of the term.
        weight = state[LINE_SUM]
        for row in range(len(space.entry_of)):
            weight = min(weight, space.remaining[space.entry_of[row]])
        weights[term] = weight
        state[LINE_SUM] -= weight

        # Rows whose entry is then below the threshold wait for another column.
        for row in range(len(space.entry_of)):
            entry = space.entry_of[row]
            permutations[term, row] = space.column[entry]
            space.remaining[entry] -= weight
            if space.remaining[entry] < state[THRESHOLD]:
                _unmatch(space, row)
    return len(weights)
