"""Covers of a demand, slot by slot, over the list of its entries.

Six rules choose the next slot:

- ``STABLE`` and ``RATED``: the length at which a slot serves most for its time, then a matching
  for this length: a stable one, with at least half of the greatest value, or the best one. The
  question is that of Eclipse (Venkatakrishnan et al. 2016, doi 10.1145/2896377.2901479), with two
  terms more: an entry that is finished saves its ports a delay, and busy ports count more.
- ``CRITICAL``: the heaviest matching that covers all lines with the most entries left, held for
  its largest entry: as many slots as the busiest line has entries, which is the fewest (SPECTRA,
  Liang et al. 2026, arXiv 2603.07373; Konig's theorem).
- ``LARGEST``, ``MEDIAN``, ``LEAST``: the heaviest matching, held until its largest, median or
  least entry is served.

The *worth* of an entry is the value of one tick of its service; its *value* is that of its service
in a slot of the length that is looked at. An entry is *finished* by a slot that serves all that is
left of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.entries import (
    Entries,
    Left,
    LineSums,
    PortVectors,
    assign_entries,
    port_vectors,
)
from optmatch.solvers.demands.sorting import sort_first
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

STABLE, RATED, CRITICAL, LARGEST, MEDIAN, LEAST = range(6)

CHOICES = 8
"""Lengths that are compared for a slot: as many entries that are left, evenly spread."""

_PRESSURE = 3.0
"""Ports count as exp(pressure * load / greatest load): how much more busy ports count.
`portfolio` has ratings with 3 and with 10, neither of which is the best everywhere."""


class CoverTerms(NamedTuple):
    """The task of a cover."""

    delay: int  # ticks before each slot
    shortest: int  # no slot is shorter, in ticks
    rule: int  # how slots are chosen: STABLE, RATED, CRITICAL, LARGEST, MEDIAN or LEAST


class SlotTable(NamedTuple):
    """Room for the slots that a kernel finds."""

    matchings: NDArray[np.int32]  # (slots, n): out, the destination of each source, -1 for none
    ticks: NDArray[np.int64]  # (slots,): out, how long each slot lasts


@inner_kernel
def _weigh(ports, left, count, delay):
    """Set the value of a tick of service of each entry: the more, the busier its ports.

    A cover serves a demand by slots, each a matching that is held for some ticks. Its slots are
    chosen by what they serve, where busy ports count more.

    The load of a port is what its entries that are left take, with a delay for each. An entry is
    worth the sum of exp(_PRESSURE * (load / greatest load - 1)) of both its ports.

    Parameters
    ----------
    ports : PortVectors
        Scratch: ``row_price`` and ``column_price`` hold the loads here, not prices.
    left : Left
        In: ``row``, ``column`` and ``ticks``; out: ``worth``.
    count : int
        The number of entries that count.
    delay : int
        Ticks before each slot.
    """
    row_load = ports.row_price
    column_load = ports.column_price
    n = len(row_load)
    for port in range(n):
        row_load[port] = 0.0
        column_load[port] = 0.0
    for entry in range(count):
        row_load[left.row[entry]] += left.ticks[entry] + delay
        column_load[left.column[entry]] += left.ticks[entry] + delay

    # The greatest load of a line, to which all others are compared.
    most = 0.0
    for port in range(n):
        most = max(most, max(row_load[port], column_load[port]))
    for port in range(n):
        row_load[port] = np.exp(_PRESSURE * (row_load[port] / most - 1.0))
        column_load[port] = np.exp(_PRESSURE * (column_load[port] / most - 1.0))
    for entry in range(count):
        left.worth[entry] = row_load[left.row[entry]] + column_load[left.column[entry]]


@inner_kernel
def _serves(ticks, length, delay):
    """Return what a slot of a length serves of an entry; a finished entry saves a delay."""
    return ticks + delay if ticks <= length else length


@inner_kernel
def _choose_length(left, count, delay):
    """Choose how long the next slot lasts: the length that promises most service for its time.

    A slot is a matching of rows (sources) with columns (destinations) that is held for some
    ticks, after a delay. An entry is a demand of a row for a column, in ticks.

    `CHOICES` lengths are compared, those of entries evenly spread over the list. For each length:

    1. an entry has the value worth * (ticks served), where an entry that the slot finishes counts
       a delay more as served;
    2. each row counts with its best entry. No matching is sought: two rows may count the same
       column;
    3. the sum over all rows is divided by length + delay.

    Parameters
    ----------
    left : Left
        In: ``row`` (ascending), ``ticks`` and ``worth`` (the value of a tick of service) of each
        entry. Scratch, by length: ``lengths`` in ticks; ``total``, the sum over the rows so far;
        ``most``, the best value of the present row.
    count : int
        The number of entries that count, > 0.
    delay : int
        Ticks before each slot.

    Returns
    -------
    int
        The length in ticks, one of those that are left of entries.
    """
    lengths = left.lengths
    total = left.total
    most = left.most
    choices = min(CHOICES, count)
    # The loops over choices have a fixed length, so that they are compared side by side.
    for k in range(CHOICES):
        # For example, with 9 entries and 3 choices those at 0, 4 and 8; further places repeat 8.
        entry = min(k, choices - 1) * (count - 1) // max(1, choices - 1)
        lengths[k] = left.ticks[entry]
        total[k] = 0.0
        most[k] = 0.0

    row = -1
    # Entries come row by row: the best values of a row are added up where the next one begins.
    for entry in range(count):
        if left.row[entry] != row:
            row = left.row[entry]
            for k in range(CHOICES):
                total[k] += most[k]
                most[k] = 0.0
        worth = left.worth[entry]
        ticks = float(left.ticks[entry])
        for k in range(CHOICES):
            value = worth * _serves(ticks, lengths[k], delay)
            most[k] = value if value > most[k] else most[k]

    # The sum of the last row is not in the total yet.
    best_rate = -1.0
    best = 0
    for k in range(choices):
        rate = (total[k] + most[k]) / (lengths[k] + delay)
        if rate > best_rate:
            best_rate = rate
            best = k
    return left.ticks[best * (count - 1) // max(1, choices - 1)]


@inner_kernel
def _match_stably(ports, left, count, length, delay):
    """Find a good matching of rows with columns quickly: a stable one (Gale and Shapley).

    An entry is a demand of a row (a source) for a column (a destination). Its value in the slot
    is its worth times the ticks that the slot serves of it; an entry that the slot finishes
    counts a delay more as served.

    Each row asks for the column of its best entry. A column takes the row if it is of more value
    than the one that the column has. A row that loses its column asks for its next best one. The
    result has at least half of the greatest possible value (Manne and Halappanavar 2014).

    Parameters
    ----------
    ports : PortVectors
        Out: ``column_of[row]`` and ``row_of[column]``, the matching, -1 for none.
        In and out: ``work[0]``, from which the entries that are looked at are taken off.
        Scratch: ``first[row]``, the first entry of each row; ``column_price[column]``, the value
        of the row that the column has, 0 for none.
    left : Left
        In, by entry, row by row: ``row``, ``column``, ``ticks`` (left to serve) and ``worth``
        (the value of a tick of service).
    count : int
        The number of entries that count.
    length, delay : int
        How long the slot is, and the delay before it, in ticks; they give an entry its value.
    """
    offer = ports.column_price
    n = len(offer)
    for port in range(n):
        offer[port] = 0.0
        ports.column_of[port] = -1
        ports.row_of[port] = -1
        ports.first[port] = 0

    # Backwards, so that the first entry of each row is the one that stays.
    for entry in range(count - 1, -1, -1):
        ports.first[left.row[entry]] = entry

    # Each row, at its first entry, asks for a column. The row that loses its column asks next.
    for start in range(count):
        if start > 0 and left.row[start] == left.row[start - 1]:
            continue

        # The best entry of the row among columns whose offer it exceeds.
        row = left.row[start]
        while row >= 0:
            best = -1
            most = 0.0
            entry = ports.first[row]
            while entry < count and left.row[entry] == row:
                value = left.worth[entry] * _serves(left.ticks[entry], length, delay)
                column = left.column[entry]
                if value > most and value > offer[column]:
                    best = column
                    most = value
                entry += 1
            ports.work[0] -= entry - ports.first[row]
            if best < 0:
                break

            # The column takes the row, whose offer is higher than that of the one it had.
            loser = ports.row_of[best]
            ports.row_of[best] = row
            ports.column_of[row] = best
            offer[best] = most
            if loser >= 0:
                ports.column_of[loser] = -1
            row = loser


@inner_kernel
def _value_critical_lines(ports, left, count):
    """Value entries such that the heaviest matching serves all ports with the most entries left.

    A cover serves a demand by slots, each a matching that serves at most one entry of a row
    (source) and one of a column (destination). A line, that is, a row or a column, is *critical*
    if it has as many entries left as any line has: a slot that misses it is one slot more than is
    needed. There always is a matching that serves all critical lines.

    The value of an entry is the sum of two parts:

    - its ticks, divided by those of the heaviest entry: at most 1, so at most n in a matching;
    - 2 n for each of its two lines that is critical.

    The greatest value therefore serves all critical lines first, and then as many ticks as it can.

    Parameters
    ----------
    ports : PortVectors
        Scratch: ``row_price`` and ``column_price`` hold numbers of entries here, not prices.
    left : Left
        In: ``row``, ``column`` and ``ticks`` of each entry; out: ``value``.
    count : int
        The number of entries that count; those after them in the arrays are served already.
    """
    # How many entries each row and each column has, and the ticks of the heaviest entry.
    row_entries = ports.row_price
    column_entries = ports.column_price
    n = len(row_entries)
    for port in range(n):
        row_entries[port] = 0.0
        column_entries[port] = 0.0
    heaviest = 0.0
    for entry in range(count):
        row_entries[left.row[entry]] += 1.0
        column_entries[left.column[entry]] += 1.0
        heaviest = max(heaviest, float(left.ticks[entry]))

    # The most entries that any line has left: lines with as many are critical.
    most = 0.0
    for port in range(n):
        most = max(most, max(row_entries[port], column_entries[port]))

    # A critical line counts more than the ticks of all ports together.
    for entry in range(count):
        value = left.ticks[entry] / heaviest
        if row_entries[left.row[entry]] == most:
            value += 2.0 * n
        if column_entries[left.column[entry]] == most:
            value += 2.0 * n
        left.value[entry] = value


@inner_kernel
def _held_ticks(ports, left, count, rule):
    """Return how long a matching is held: as long as its least, median or largest entry needs.

    Parameters
    ----------
    ports : PortVectors
        In: ``column_of[row]``, the matching, -1 for none; it serves one entry at least.
    left : Left
        In: ``row``, ``column`` and ``ticks`` of each entry; ``worth`` is scratch.
    count : int
        The number of entries that count; those after them in the arrays are served already.
    rule : int
        ``LEAST`` or ``MEDIAN`` for the least or median entry of the matching; else the largest.

    Returns
    -------
    int
        Ticks without the delay.
    """
    # The entries of the matching: the least, the largest, and all of them for the median.
    matched = left.worth
    n_matched = 0
    least = np.int64(1) << 62
    largest = np.int64(0)
    for entry in range(count):
        if ports.column_of[left.row[entry]] == left.column[entry]:
            ticks = left.ticks[entry]
            matched[n_matched] = ticks
            n_matched += 1
            least = min(least, ticks)
            largest = max(largest, ticks)
    if rule == MEDIAN:
        sort_first(matched, n_matched)
        return max(least, np.int64(matched[n_matched // 2]))
    return least if rule == LEAST else largest


@inner_kernel
def _serve_slot(ports, left, count, length, matching):
    """Write the matching of a slot, and take its service off the entries that are left.

    A slot is a matching of rows (sources) with columns (destinations) that is held for some ticks.
    Entries that are served to their end are taken out of the list. For example, of the entries
    with 5, 2 and 7 ticks, all of whose circuits are up for 3 ticks, those with 2 and 4 stay.

    Parameters
    ----------
    ports : PortVectors
        In: ``column_of[row]``, the matching, -1 for none.
    left : Left
        In and out: ``row``, ``column`` and ``ticks`` of each entry, row by row. Entries that are
        not finished move to the front, in their order.
    count : int
        The number of entries before the slot.
    length : int
        How long the slot lasts, in ticks.
    matching : int array, shape (n,)
        Out: the destination of each source, -1 for none.

    Returns
    -------
    int
        How many entries are left.
    """
    for port in range(len(matching)):
        matching[port] = -1

    # Entries that are not finished close the gaps of those that are, so that rows stay ascending.
    n_left = 0
    for entry in range(count):
        row = left.row[entry]
        column = left.column[entry]
        ticks = left.ticks[entry]
        if ports.column_of[row] == column:
            matching[row] = column
            ticks -= min(ticks, length)
        if ticks > 0:
            left.row[n_left] = row
            left.column[n_left] = column
            left.ticks[n_left] = ticks
            n_left += 1
    return n_left


@kernel
def cover_entries(ports, left, count, terms, slots):
    """Serve a demand by slots, one after the other, until all is served or there is no room.

    A slot is a matching of rows (sources) with columns (destinations) that is held for some
    ticks. An entry is the demand of a row for a column, in ticks. The rule says how each slot is
    made:

    - ``STABLE``, ``RATED``: the length first, at which most is served for its time; then a stable
      matching (quick, not the best) or the heaviest one for this length;
    - ``CRITICAL``: the heaviest matching that covers all rows and columns with the most
      entries left, held until its largest entry is served;
    - ``LARGEST``, ``MEDIAN``, ``LEAST``: the heaviest matching, held until its largest, median or
      least entry is served.

    Parameters
    ----------
    ports : PortVectors
        Scratch, but for ``work[0]``, in and out: how many entries may still be looked at. It is
        negative after the kernel if the kernel had to end early.
    left : Left
        In and out: the entries that are left, row by row, as ``row``, ``column`` and ``ticks``.
        ``worth`` and ``value`` are scratch.
    count : int
        The number of these entries.
    terms : CoverTerms
        The delay, the shortest slot and the rule.
    slots : SlotTable
        Out: the slots in the order in which they are chosen; its length limits their number.

    Returns
    -------
    (int, int)
        How many slots were written, and how many entries are left.
    """
    done = 0
    while count > 0 and done < len(slots.ticks):
        # The value of each entry, in which the rules differ.
        length = np.int64(0)
        is_rated = terms.rule in (STABLE, RATED)
        if is_rated:
            _weigh(ports, left, count, terms.delay)
            length = _choose_length(left, count, terms.delay)
            for entry in range(count):
                served = _serves(left.ticks[entry], length, terms.delay)
                left.value[entry] = left.worth[entry] * served
        elif terms.rule == CRITICAL:
            _value_critical_lines(ports, left, count)
        else:
            for entry in range(count):
                left.value[entry] = left.ticks[entry]
        ports.work[0] -= 8 * count

        # The matching for these values.
        if terms.rule == STABLE:
            _match_stably(ports, left, count, length, terms.delay)
        else:
            assign_entries(ports, left, count)
        if ports.work[0] < 0:
            break

        # A slot ends one of its entries at least, and with it the loop.
        if is_rated:
            length = max(length, _held_ticks(ports, left, count, LEAST))
        else:
            length = _held_ticks(ports, left, count, terms.rule)
        length = max(length, terms.shortest)
        slots.ticks[done] = length
        count = _serve_slot(ports, left, count, length, slots.matchings[done])
        done += 1
    return done, count


def left_of(entries: Entries) -> Left:
    """Copy entries for a kernel that takes them off, with the scratch that it needs.

    Parameters
    ----------
    entries
        The row, the column and the ticks of each entry that is not zero. They are not changed.

    Returns
    -------
    Left
        The same entries, of which the kernel takes off what its slots serve.
    """
    scratch = np.empty((2, len(entries.ticks)))
    choices = np.empty((3, CHOICES))
    row = entries.row.astype(np.int64)
    column = entries.column.astype(np.int64)
    return Left(row, column, entries.ticks.copy(), *scratch, *choices)


class ListedCover:
    """A cover of the entries of a demand by one of the six rules, made some slots at a time."""

    def __init__(self, entries: Entries, terms: CoverTerms) -> None:
        """Begin a cover of a demand, without any slot yet.

        Parameters
        ----------
        entries
            The demand, a list of entries (source, destination, ticks > 0).
        terms
            The delay and the shortest slot in ticks, and the rule by which slots are chosen.
        """
        self.n_ports = entries.n_ports
        self.n_left = len(entries.ticks)
        """The entries that are not served yet."""
        self.terms = terms
        self._ports = port_vectors(entries.n_ports)
        self._left = left_of(entries)

    def choose_slots(self, slots: SlotTable, work: int) -> tuple[int, bool]:
        """Choose the next slots, as many as there is room for, unless the work is used up.

        Parameters
        ----------
        slots
            Out: ``matchings[slot, source]``, the destination or -1, and ``ticks[slot]``. Its
            length is the number of slots that there is room for.
        work
            How many entries may be looked at, the unit of work of the search.

        Returns
        -------
        n_slots : int
            The number of slots that were written. ``self.n_left`` entries are left then.
        is_within_work : bool
            Whether the work sufficed for them.
        """
        self._ports.work[0] = work
        n_slots, self.n_left = cover_entries(
            self._ports, self._left, self.n_left, self.terms, slots
        )
        return n_slots, bool(self._ports.work[0] >= 0)

    def bound(self) -> int:
        """Return a lower bound on the ticks of all slots to come, each with its delay."""
        row = self._left.row[: self.n_left].astype(np.int32)
        column = self._left.column[: self.n_left].astype(np.int32)
        unserved = Entries(self.n_ports, row, column, self._left.ticks[: self.n_left])
        return LineSums.of(unserved).bound(self.terms.delay)


__all__ = [
    "CHOICES", "CRITICAL", "LARGEST", "LEAST", "MEDIAN", "RATED", "STABLE", "CoverTerms", "Left",
    "ListedCover", "PortVectors", "SlotTable", "cover_entries", "left_of",
]  # fmt: skip
