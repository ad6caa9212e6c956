"""Covers of a demand, slot by slot, over the full matrix of what is left of it.

Four rules of `entry_covers` choose the next slot as a matching of greatest value: ``CRITICAL``,
``LARGEST``, ``MEDIAN`` and ``LEAST``. From one slot to the next few values change, so each
assignment starts from the column prices (dual variables) of the one before, as in the Hungarian
method for values that change (Mills-Tettey, Stentz and Dias 2007). Where most places of the matrix
have a demand this takes a tenth of the time of assignments that start anew over a list of entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.assignment import (
    AssignmentSpace,
    assign_by_auction,
    new_workspace,
)
from optmatch.solvers.demands.entries import LineSums
from optmatch.solvers.demands.entry_covers import (
    CRITICAL,
    LARGEST,
    LEAST,
    MEDIAN,
    CoverTerms,
    SlotTable,
)
from optmatch.solvers.demands.sorting import sort_first
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

MATRIX_RULES = (CRITICAL, LARGEST, MEDIAN, LEAST)
"""The rules for which there are such covers."""


class MatrixLeft(NamedTuple):
    """What is left of a demand, and which of its lines are critical.

    A line (a row or a column) is critical if it has as many entries left as any line has. A slot
    that misses one of them is one slot more than is needed.
    """

    ticks: NDArray[np.int64]  # (n, n): by source and destination, what is left
    entries_of_row: NDArray[np.int64]  # (n,): places of the row with ticks left
    entries_of_column: NDArray[np.int64]  # (n,)
    is_critical_row: NDArray[np.bool_]  # (n,): all False for rules that do not ask for it
    is_critical_column: NDArray[np.bool_]  # (n,)
    penalty: float
    """What a matching loses for each critical line that it misses: more than all it can serve."""


@inner_kernel
def _mark_critical_lines(space, left):
    """Find the rows and columns that the next matching must serve, and lower all other values.

    A cover serves a matrix of demands by slots; a slot is a matching that serves at most one entry
    of each row and column (a *line*). A line with as many entries left as any line has is
    *critical*: every further slot must serve one of them, or there is one slot more in the end.

    The next matching is an assignment of greatest value, which gives each row one column. It can
    also give it a column in which the row has no demand. Such a place serves neither its row nor
    its column. To keep the assignment away from it, its value falls by the penalty for each of its
    two lines that becomes critical here. Places with a demand keep their value.

    A critical line stays critical: each slot takes one of its entries, and at most one of others.

    Parameters
    ----------
    space : AssignmentSpace
        In and out: ``value[row, column]``, shape (n, n): what a place is worth; places without a
        demand change.
    left : MatrixLeft
        The fields that are used:

        - ``ticks``, in: what is left of the demand, shape (n, n), 0 where there is none;
        - ``entries_of_row``, ``entries_of_column``, in: how many entries each line has left;
        - ``penalty``, in: more than the values of any whole matching;
        - ``is_critical_row``, ``is_critical_column``, in and out: lines that became critical
          before, and now.
    """
    # The most entries that any line has left.
    n = len(left.ticks)
    most = np.int64(0)
    for port in range(n):
        most = max(most, max(left.entries_of_row[port], left.entries_of_column[port]))

    # A place without a demand loses the penalty once for each of its lines: twice if both its row
    # and its column are critical.
    for line in range(n):
        if left.entries_of_row[line] == most and not left.is_critical_row[line]:
            left.is_critical_row[line] = True
            for column in range(n):
                if left.ticks[line, column] == 0:
                    space.value[line, column] -= left.penalty
        if left.entries_of_column[line] == most and not left.is_critical_column[line]:
            left.is_critical_column[line] = True
            for row in range(n):
                if left.ticks[row, line] == 0:
                    space.value[row, line] -= left.penalty


@inner_kernel
def _held_ticks(space, left, rule):
    """Return how long a matching is held: as long as its least, median or largest entry needs.

    Parameters
    ----------
    space : AssignmentSpace
        In: ``column_of``, the column of each row in the matching; ``distance`` is scratch.
    left : MatrixLeft
        In: ``ticks``; the matching has one place at least where they are above 0.
    rule : int
        ``LEAST`` or ``MEDIAN`` for the least or median entry of the matching; else the largest.

    Returns
    -------
    int
        Ticks without the delay.
    """
    # The first `n_matched` places of the scratch array get the entries that are served.
    matched = space.distance
    n_matched = 0
    least = np.int64(1) << 62
    largest = np.int64(0)
    for row in range(len(left.ticks)):
        ticks = left.ticks[row, space.column_of[row]]
        if ticks > 0:
            matched[n_matched] = ticks
            n_matched += 1
            least = min(least, ticks)
            largest = max(largest, ticks)
    if rule == MEDIAN:
        sort_first(matched, n_matched)
        return max(least, np.int64(matched[n_matched // 2]))
    return least if rule == LEAST else largest


@inner_kernel
def _serve_slot(space, left, length, matching):
    """Write the matching of a slot, take its service off the demand, and update values.

    A slot is a matching of rows (sources) with columns (destinations) that is held for some ticks.
    The next matching is the one of greatest value, so each place that was served gets a new value:
    the ticks that are left of it. If none are left, a matching should not use the place again: the
    value is 0 less the penalty for each critical line, row or column, that the place is in. A
    line is critical if it has the most entries left of all.

    Parameters
    ----------
    space : AssignmentSpace
        In: ``column_of``, the column of each row. In and out: ``value[row, column]``.
    left : MatrixLeft
        In and out: ``ticks[row, column]``, what is left, and ``entries_of_row`` and
        ``entries_of_column``, how many entries each line has left. In: ``is_critical_row``,
        ``is_critical_column`` and ``penalty``.
    length : int
        How long the slot lasts, in ticks.
    matching : int array, shape (n,)
        Out: the destination of each source, -1 where the place has no demand.

    Returns
    -------
    int
        How many entries are finished.
    """
    n_finished = 0
    for row in range(len(matching)):
        # The assignment gives each row a column, also one for which it has no demand.
        column = space.column_of[row]
        ticks = left.ticks[row, column]
        if ticks == 0:
            matching[row] = -1
            continue
        matching[row] = column
        ticks -= min(ticks, length)
        left.ticks[row, column] = ticks
        space.value[row, column] = ticks
        if ticks == 0:
            n_finished += 1
            left.entries_of_row[row] -= 1
            left.entries_of_column[column] -= 1
            n_critical = np.int64(left.is_critical_row[row])
            n_critical += np.int64(left.is_critical_column[column])
            space.value[row, column] = -left.penalty * n_critical
    return n_finished


@kernel
def cover_matrix(space, left, count, terms, slots):
    """Serve a demand by slots, one after the other, until all is served or there is no room.

    A slot is a matching of rows (sources) with columns (destinations) that is held for some
    ticks. An entry is a place of the matrix with a demand, and the weight of a matching is the sum
    of what is left of its entries, in ticks. The rule says how each slot is made:

    - ``CRITICAL``: the heaviest matching that covers all rows and columns with the most
      entries left, held until its largest entry is served;
    - ``LARGEST``, ``MEDIAN``, ``LEAST``: the heaviest matching, held until its largest, median or
      least entry is served.

    Each matching is found by the auction algorithm, which starts from the column prices (dual
    variables) of the matching before. A next call goes on where this one ended.

    Parameters
    ----------
    space : AssignmentSpace
        The fields that change:

        - ``value[row, column]``, in and out: the ticks that are left; for the rule ``CRITICAL``
          less than 0 at places without a demand that a matching should avoid;
        - ``column_price``, in and out: the prices with which an assignment starts;
        - ``work[0]``, in and out: how many places of the matrix may still be looked at; negative
          afterwards if the kernel had to end early;
        - ``column_of``, and all others: scratch.
    left : MatrixLeft
        In and out: what is left of the demand, ``ticks[row, column]``, and how many entries of
        each row and column.
    count : int
        How many entries are left in all.
    terms : CoverTerms
        ``shortest``, the ticks of the shortest slot, and ``rule``; the delay has no effect.
    slots : SlotTable
        Out: ``matchings[slot, row]``, the column or -1 for none, and ``ticks[slot]``, in the order
        in which slots are chosen. Its length limits their number.

    Returns
    -------
    (int, int)
        How many slots were written, and how many entries are left.
    """
    done = 0
    while count > 0 and done < len(slots.ticks):
        if terms.rule == CRITICAL:
            _mark_critical_lines(space, left)
        assign_by_auction(space)
        if space.work[0] < 0:
            break

        # A slot ends one of its entries at least, and with it the loop.
        length = max(_held_ticks(space, left, terms.rule), terms.shortest)
        slots.ticks[done] = length
        count -= _serve_slot(space, left, length, slots.matchings[done])
        done += 1
    return done, count


class MatrixCover:
    """A cover by one of the four rules that is made some slots at a time."""

    def __init__(self, demand: NDArray[np.int64], terms: CoverTerms) -> None:
        """Begin a cover of a demand, without any slot yet.

        Parameters
        ----------
        demand
            ``demand[source, destination]`` in ticks, shape (n, n); it is copied.
        terms
            The delay and the shortest slot in ticks, and the rule by which slots are chosen.
        """
        # At first the whole demand is left, and a place is worth its ticks. No line is critical
        # yet. The penalty is twice what any matching can serve, n entries of the largest size.
        n = len(demand)
        lines = LineSums.of_matrix(demand)
        self.n_ports = n
        self.n_left = int(lines.n_entries[:n].sum())
        """The entries that are not served yet."""
        self.terms = terms
        self._space: AssignmentSpace = new_workspace(n)
        self._space.value[:] = demand
        self._left = MatrixLeft(
            demand.copy(),
            lines.n_entries[:n].copy(),
            lines.n_entries[n:].copy(),
            np.zeros(n, dtype=np.bool_),
            np.zeros(n, dtype=np.bool_),
            2.0 * n * float(demand.max(initial=0)),
        )

    def choose_slots(self, slots: SlotTable, work: int) -> tuple[int, bool]:
        """Choose the next slots, as many as there is room for, unless the work is used up.

        Parameters
        ----------
        slots
            Out: ``matchings[slot, source]``, the destination or -1, and ``ticks[slot]``. Its
            length is the number of slots that there is room for.
        work
            How many places of matrices may be looked at, the unit of work of the search.

        Returns
        -------
        n_slots : int
            The number of slots that were written. ``self.n_left`` entries are left then.
        is_within_work : bool
            Whether the work sufficed for them.
        """
        self._space.work[0] = work
        n_slots, self.n_left = cover_matrix(
            self._space, self._left, self.n_left, self.terms, slots
        )
        return n_slots, bool(self._space.work[0] >= 0)

    def bound(self) -> int:
        """Return a lower bound on the ticks of all slots to come, each with its delay."""
        return LineSums.of_matrix(self._left.ticks).bound(self.terms.delay)
