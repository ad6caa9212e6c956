"""Greedy covers of a demand: slot by slot, a matching of greatest weight among what is left.

A choice, a number that kernels compare, says what an entry weighs and how long the slot is held:

- ``RATED``: the length at which a slot is estimated to serve most for its time, then the heaviest
  matching for this length. The question is that of Eclipse (Venkatakrishnan et al. 2016, doi
  10.1145/2896377.2901479), with two terms more: an entry that is finished saves its ports a
  delay, and busy ports count more.
- ``COMPARED``: the same with the heaviest matchings of eight lengths; without both terms, Eclipse.
- ``CRITICAL``: the heaviest matching that covers all lines with the most entries left, held for
  its largest entry: as many slots as the busiest line has entries, which is the fewest (SPECTRA,
  Liang et al. 2026, arXiv 2603.07373; Konig's theorem).
- ``MEDIAN``: the heaviest matching, held until its median entry is served.

The *worth* of an entry is the value of one tick of its service; its *value* is that of its service
in a slot of the length that is looked at. An entry is *finished* by a slot that serves all that is
left of it.

Kernels serve an `UnservedEntries`, `unserved`, of which the first `count` entries are left, row by
row: ``row``, ``column`` and ``ticks``, with ``worth`` and ``value`` of each. A matching is in the
`PortVectors`, `ports`: ``column_of[row]`` and ``row_of[column]``, -1 for none. Kernels have no
clock: ``ports.work[0]`` says how many entries they may still look at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from optmatch.model import TimeUp, counted_time
from optmatch.solvers.demands.entries import (
    UNLIMITED_WORK,
    Entries,
    LineSums,
    UnservedEntries,
    assign_entries,
    port_vectors,
)
from optmatch.solvers.demands.first_fit import complete
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.tasks import CoverTask
from optmatch.solvers.kernels.arrays import largest_of, sort_first
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

RATED, COMPARED, CRITICAL, MEDIAN = range(4)
_WORK_PER_S = 4e8
"""Entries that kernels look at in a second; on two machines 2 to 6e8."""
_SLICE_S = 0.0003
"""A kernel runs about so long between two looks at the clock."""
_MOST_AT_ONCE = 128
"""It makes at most so many slots in between."""
_WORTH_FORESEEING_S = 0.01
"""Rules that have less time than this do not end early."""
CHOICES = 8
"""Lengths that are compared for a slot: as many entries that are left, evenly spread."""

RANKED = 1024
"""At most so many entries are ranked by size; of more that are left, evenly spread ones are."""


class CoverTerms(NamedTuple):
    """The task of a cover."""

    delay: int
    """Ticks before each slot."""
    shortest: int
    """No slot is shorter, in ticks."""
    rule: int
    """How slots are chosen: RATED, COMPARED, CRITICAL or MEDIAN."""
    pressure: float = 3.0
    """Ports count as exp(pressure * load / greatest load): how much more busy ports count."""
    bonus: float = 1.0
    """An entry that ends in a slot counts as if it were served for so many delays more."""


@inner_kernel
def _set_worths(ports, unserved, count, delay, pressure):
    """Set the worth of each entry: the more, the busier its ports.

    Writes ``unserved.worth[entry]``; the prices of `ports` are scratch. The load of a port is the
    ticks that its entries lack, and `delay` ticks for each of them. An entry is worth the sum of
    exp(pressure * (load / greatest load - 1)) of both its ports: with a `pressure` of 3 a port of
    the greatest load counts 1, and one of half of it 0.22.
    """
    row_load = ports.row_price
    column_load = ports.column_price
    n = len(row_load)
    for port in range(n):
        row_load[port] = 0.0
        column_load[port] = 0.0
    for entry in range(count):
        row_load[unserved.row[entry]] += unserved.ticks[entry] + delay
        column_load[unserved.column[entry]] += unserved.ticks[entry] + delay

    # The greatest load of a line, to which all others are compared.
    greatest_load = max(largest_of(row_load, n), largest_of(column_load, n))
    for port in range(n):
        row_load[port] = np.exp(pressure * (row_load[port] / greatest_load - 1.0))
        column_load[port] = np.exp(pressure * (column_load[port] / greatest_load - 1.0))
    for entry in range(count):
        unserved.worth[entry] = row_load[unserved.row[entry]] + column_load[unserved.column[entry]]


@inner_kernel
def _served_ticks(ticks, length, bonus):
    """Return the ticks that a slot of a length serves of an entry; `bonus` more if it is finished.

    An entry of 5 ticks with a bonus of 2 counts 3 in a slot of 3 ticks, and 7 in one of 9.
    """
    return ticks + bonus if ticks <= length else length


@inner_kernel
def _add_best_values(unserved, count, bonus, n_lengths):
    """Bound what a slot of each length can serve: add up the best value of each row.

    Writes ``unserved.most_served[k]`` for a slot of ``unserved.lengths[k]`` ticks, for all k below
    `n_lengths`. No matching serves more, as it has at most one entry of each row; two rows may
    count the same column.
    """
    lengths = unserved.lengths
    most_served = unserved.most_served
    best_of_row = unserved.best_of_row
    for k in range(n_lengths):
        most_served[k] = 0.0
        best_of_row[k] = 0.0

    # Entries come row by row: the best values of a row are added where the next one begins, and
    # those of the last row at the end.
    row = -1
    for entry in range(count):
        if unserved.row[entry] != row:
            row = unserved.row[entry]
            for k in range(n_lengths):
                most_served[k] += best_of_row[k]
                best_of_row[k] = 0.0
        worth = unserved.worth[entry]
        ticks = float(unserved.ticks[entry])
        for k in range(n_lengths):
            value = worth * _served_ticks(ticks, lengths[k], bonus)
            best_of_row[k] = value if value > best_of_row[k] else best_of_row[k]
    for k in range(n_lengths):
        most_served[k] += best_of_row[k]


@inner_kernel
def _choose_length(unserved, count, delay, bonus, is_ranked):
    """Choose how long the next slot lasts: the length that promises most service for its time.

    The lengths are ticks of entries, as many as ``unserved.lengths`` has room for. With
    `is_ranked` they are spread evenly over the different sizes of entries, which are sorted into
    ``unserved.sizes``, and else over the list of entries. For each length:

    1. an entry has its value, with `bonus` ticks more if it is finished: usually one delay, which
       it saves;
    2. each row counts with its best entry: no matching is sought yet;
    3. the sum over all rows is divided by length + delay: the rate of the length.

    Returns the length of the greatest rate in ticks, and leaves lengths and rates in
    ``unserved.lengths[k]`` and ``unserved.rate[k]``. `delay` and `bonus` are in ticks.
    """
    sizes = unserved.ticks
    n_sizes = count

    # With `is_ranked` lengths are spread over the different sizes, ascending. Of more entries than
    # there is room for, every so many count.
    if is_ranked:
        sizes = unserved.sizes
        n_ranked = 0
        for entry in range(0, count, 1 + (count - 1) // len(sizes)):
            sizes[n_ranked] = unserved.ticks[entry]
            n_ranked += 1
        sort_first(sizes, n_ranked)
        n_sizes = 1
        for k in range(1, n_ranked):
            if sizes[k] != sizes[n_sizes - 1]:
                sizes[n_sizes] = sizes[k]
                n_sizes += 1

    # Some sizes become lengths, evenly spread: from the first to the last one, both included.
    n_lengths = len(unserved.lengths)
    last_length = max(1, n_lengths - 1)
    for k in range(n_lengths):
        # For example, 3 lengths of 9 sizes are those at 0, 4 and 8, and of 2 sizes 0, 0 and 1.
        unserved.lengths[k] = sizes[k * (n_sizes - 1) // last_length]
    if n_lengths == CHOICES:
        # A fixed number of lengths is compiled to comparisons side by side.
        _add_best_values(unserved, count, bonus, CHOICES)
    else:
        _add_best_values(unserved, count, bonus, n_lengths)

    # What each length can serve for its time; of equal rates the first one counts.
    best = 0
    for k in range(n_lengths):
        unserved.rate[k] = unserved.most_served[k] / (unserved.lengths[k] + delay)
        if unserved.rate[k] > unserved.rate[best]:
            best = k
    return sizes[best * (n_sizes - 1) // last_length]


@inner_kernel
def _value_critical_lines(ports, unserved, count):
    """Value entries such that the heaviest matching serves all ports with the most entries left.

    Writes ``unserved.value[entry]``, and uses the prices of `ports` for counts. A slot serves at
    most one entry of a line, that is, of a row or a column. A line is *critical* if it has as many
    entries left as any line has: a slot that misses it is one slot more than is needed. There
    always is a matching that serves all critical lines.

    The value of an entry is the sum of two parts:

    - its ticks, divided by those of the heaviest entry: at most 1, so at most n in a matching;
    - 2 n for each of its two lines that is critical.

    The greatest value therefore serves all critical lines first, and then as many ticks as it can.
    """
    # How many entries each row and each column has, and the ticks of the heaviest entry.
    row_entries = ports.row_price
    column_entries = ports.column_price
    n = len(row_entries)
    for port in range(n):
        row_entries[port] = 0.0
        column_entries[port] = 0.0
    for entry in range(count):
        row_entries[unserved.row[entry]] += 1.0
        column_entries[unserved.column[entry]] += 1.0
    heaviest = float(largest_of(unserved.ticks, count))

    # The most entries that any line has left: lines with as many are critical.
    most_entries = max(largest_of(row_entries, n), largest_of(column_entries, n))

    # A critical line counts more than the ticks of all ports together.
    for entry in range(count):
        value = unserved.ticks[entry] / heaviest
        if row_entries[unserved.row[entry]] == most_entries:
            value += 2.0 * n
        if column_entries[unserved.column[entry]] == most_entries:
            value += 2.0 * n
        unserved.value[entry] = value


@inner_kernel
def _held_ticks(ports, unserved, count, rule):
    """Return how long a matching is held: as long as its least, median or largest entry needs.

    By the rule MEDIAN it is the median entry, by CRITICAL the largest one, and by all others the
    least one, below which their length may not fall: entries of 2, 3 and 9 ticks give 3, 9 or 2.
    ``unserved.worth`` is overwritten as scratch.
    """
    matched = unserved.worth
    n_matched = 0
    least = np.int64(1) << 62
    for entry in range(count):
        if ports.column_of[unserved.row[entry]] == unserved.column[entry]:
            matched[n_matched] = unserved.ticks[entry]
            least = min(least, unserved.ticks[entry])
            n_matched += 1

    # The rule says which of them counts.
    if rule == MEDIAN:
        sort_first(matched, n_matched)
        return np.int64(matched[n_matched // 2])
    if rule == CRITICAL:
        return np.int64(largest_of(matched, n_matched))
    return least


@inner_kernel
def _serve_slot(ports, unserved, count, length, matching):
    """Write the matching of a slot, and take its service off the entries that are left.

    Writes ``matching[row]``, the column that is matched in `ports` or -1, and takes `length` ticks
    off ``unserved.ticks`` of each entry in it; returns how many entries are left, in front.
    Entries that are served to their end are taken out of the list. For example, of the entries
    with 5, 2 and 7 ticks, all of whose circuits are up for 3 ticks, those with 2 and 4 stay.
    """
    # Entries that are not finished close the gaps of those that are, so that rows stay ascending.
    matching[:] = -1
    n_left = 0
    for entry in range(count):
        row = unserved.row[entry]
        column = unserved.column[entry]
        ticks = unserved.ticks[entry]
        if ports.column_of[row] == column:
            matching[row] = column
            ticks -= min(ticks, length)

        # What is left of an entry moves to the front.
        if ticks > 0:
            unserved.row[n_left] = row
            unserved.column[n_left] = column
            unserved.ticks[n_left] = ticks
            n_left += 1
    return n_left


@inner_kernel
def _value_service(unserved, count, length, bonus):
    """Set the value of each entry in a slot of a length, with `bonus` ticks if it is finished."""
    for entry in range(count):
        unserved.value[entry] = unserved.worth[entry] * _served_ticks(
            unserved.ticks[entry], length, bonus
        )


@inner_kernel
def _match_best_length(ports, unserved, count, delay, bonus):
    """Match entries at the length whose heaviest matching serves most for its time; return it.

    `_choose_length` has left an upper bound on the rate of each length in ``unserved.rate``:
    lengths are tried in the order of their bounds, until no bound exceeds the best rate or the
    work runs out, ``ports.work[0]`` below 0. `delay` and `bonus` are in ticks.

    The matching of that length is in `ports` afterwards, and the values of its service are in
    ``unserved.value``.
    """
    best_rate = -1.0
    best_length = 0.0
    length = 0.0
    while True:
        # The length of the greatest bound of those that have not been tried.
        promising = 0
        for k in range(len(unserved.rate)):
            if unserved.rate[k] > unserved.rate[promising]:
                promising = k
        if unserved.rate[promising] <= best_rate or ports.work[0] < 0:
            break

        # This length has been tried then; equal ones need not be.
        length = unserved.lengths[promising]
        for k in range(len(unserved.rate)):
            if unserved.lengths[k] == length:
                unserved.rate[k] = -1.0
        _value_service(unserved, count, length, bonus)
        assign_entries(ports, unserved, count)

        # What the heaviest matching really serves, by the time that the slot takes.
        served = 0.0
        for entry in range(count):
            if ports.column_of[unserved.row[entry]] == unserved.column[entry]:
                served += unserved.value[entry]
        if served / (length + delay) > best_rate:
            best_rate = served / (length + delay)
            best_length = length

    # The arrays hold the last length that was tried: the best one is matched again.
    if length != best_length:
        _value_service(unserved, count, best_length, bonus)
        assign_entries(ports, unserved, count)
    return np.int64(best_length)


@kernel
def cover_entries(ports, unserved, count, terms, slots):
    """Serve a demand by slots, one after the other, until all is served or there is no room.

    The first `count` entries of `unserved` are served in place; `terms` are `CoverTerms`, and
    `slots`, a `Plan`, receives the slots. Returns how many of them were written and how many
    entries are left. ``ports.work[0]`` is how many entries may still be looked at; it is negative
    if the kernel had to end early.
    """
    n_slots = 0
    bonus = terms.bonus * terms.delay
    while count > 0 and n_slots < len(slots.ticks):
        # The value of each entry, in which the rules differ, and the matching for these values.
        # All that is done beside matching counts as eight looks at each entry.
        length = np.int64(0)
        ports.work[0] -= 8 * count
        if terms.rule == CRITICAL or terms.rule == MEDIAN:
            if terms.rule == CRITICAL:
                _value_critical_lines(ports, unserved, count)
            else:
                for entry in range(count):
                    unserved.value[entry] = unserved.ticks[entry]
            assign_entries(ports, unserved, count)
        else:
            # Other rules choose a length first, by upper bounds on the rates of some lengths, and
            # then match for the service within it. COMPARED matches at several of these lengths,
            # and takes the one whose matching really has the highest rate.
            _set_worths(ports, unserved, count, terms.delay, terms.pressure)
            length = _choose_length(unserved, count, terms.delay, bonus, terms.rule == COMPARED)
            if terms.rule == COMPARED:
                length = _match_best_length(ports, unserved, count, terms.delay, bonus)
            else:
                _value_service(unserved, count, length, bonus)
                assign_entries(ports, unserved, count)
        if ports.work[0] < 0:
            break

        # A slot ends one of its entries at least, and with it the loop.
        length = max(length, _held_ticks(ports, unserved, count, terms.rule), terms.shortest)
        slots.ticks[n_slots] = length
        count = _serve_slot(ports, unserved, count, length, slots.matchings[n_slots])
        n_slots += 1
    return n_slots, count


def copy_entries(entries: Entries, n_lengths: int = CHOICES) -> UnservedEntries:
    """Copy entries for a kernel that serves them in place, beside scratch that is not filled."""
    worth, value = np.empty((2, len(entries.ticks)))
    lengths, most_served, rate, best_of_row = np.empty((4, n_lengths))
    return UnservedEntries(
        row=entries.row.astype(np.int64),
        column=entries.column.astype(np.int64),
        ticks=entries.ticks.copy(),
        worth=worth,
        value=value,
        lengths=lengths,
        most_served=most_served,
        rate=rate,
        best_of_row=best_of_row,
        sizes=np.empty(RANKED, dtype=np.int64),
    )


def yield_cover(
    task: CoverTask,
    choice: int,
    pressure: float = 3.0,
    bonus: float = 1.0,
    n_lengths: int = CHOICES,
) -> Iterator[Plan]:
    """Cover a demand slot by slot; give up when the plan is seen to be too long or too late.

    `choice` is the rule for slots: RATED, COMPARED (which compares `n_lengths` lengths for each
    slot), CRITICAL or MEDIAN. `pressure` says how much more busy ports count, and `bonus` how many
    delays an entry earns by ending in a slot. No plan is yielded where it would take more than
    the useful ticks, or where it would be late by far. At the deadline `TimeUp` is raised if a
    plan is known, which finite useful ticks tell; else a first fit serves what is left.
    """
    n_entries = len(task.entries.ticks)
    n_left = n_entries
    terms = CoverTerms(
        delay=task.delay,
        shortest=task.shortest,
        rule=choice,
        pressure=pressure,
        bonus=bonus,
    )
    ports = port_vectors(task.entries.n_ports, n_entries)
    unserved = copy_entries(task.entries, n_lengths)
    plans = [Plan.of([], [], task.entries.n_ports)]
    began_s = counted_time()
    cost = 0
    next_check = 0.0
    slots_at_once = 1
    while n_left > 0:
        # The kernel has no clock: it gets as many looks at entries as fit in the time, and as many
        # slots as take about `_SLICE_S`.
        call_s = counted_time()
        ports.work[0] = int(min(UNLIMITED_WORK, max(0.0, task.deadline - call_s) * _WORK_PER_S))
        room = Plan(
            np.empty((slots_at_once, task.entries.n_ports), np.int32),
            np.empty(slots_at_once, np.int64),
        )
        n_slots, n_left = cover_entries(ports, unserved, n_left, terms, room)
        slots = Plan(room.matchings[:n_slots], room.ticks[:n_slots])
        plans.append(slots)
        if ports.work[0] < 0:
            break
        took_s = max(counted_time() - call_s, 1e-6)
        slots_at_once = int(np.clip(n_slots * _SLICE_S / took_s, 1, _MOST_AT_ONCE))

        # Twenty times at most it is asked whether the plan can still be of use: whether the slots
        # so far and the bound for the others are too long, and whether the time suffices. As a
        # slot takes time for each entry that is left, the work that is left falls with the square
        # of their number: with half of the entries left, three quarters of the time may be over.
        cost += slots.cost(task.delay)
        if cost >= next_check and task.useful_ticks < np.inf:
            next_check = cost + task.useful_ticks / 20
            unserved_entries = Entries(
                n_ports=task.entries.n_ports,
                row=unserved.row[:n_left].astype(np.int32),
                column=unserved.column[:n_left].astype(np.int32),
                ticks=unserved.ticks[:n_left],
            )
            available_s = task.deadline - began_s
            now_s = counted_time()

            # It is late if less has been served than the time that is over would allow, and long
            # if even the bound of the rest is too much.
            is_foreseen = available_s > _WORTH_FORESEEING_S and now_s - began_s > available_s / 20
            is_late = now_s - began_s > available_s * (1 - (n_left / n_entries) ** 2)
            is_long = cost + LineSums.of(unserved_entries).bound(task.delay) > task.useful_ticks
            if is_long or (is_foreseen and is_late):
                return
    plan = Plan(
        np.concatenate([plan.matchings for plan in plans]),
        np.concatenate([plan.ticks for plan in plans]),
    )
    if n_left > 0:
        if task.useful_ticks < np.inf:
            raise TimeUp
        plan = complete(plan, task)
    yield plan
