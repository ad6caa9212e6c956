"""The fewest slots, heaviest entries first: an edge colouring by alternating paths.

A demand is a bipartite graph of sources and destinations, and slots are the colours of its edges.
As many as the busiest port has entries are enough (Konig 1916). Entries come in descending order,
each into the first slot in which both its ports are free. If there is none, one slot is free at
the source and another one at the destination: the entries of both slots along the alternating path
from the destination change places, which frees the first slot there.

The slots that are exchanged are the last that are free, and near to each other: these are short
ones of similar lengths, so that the exchange makes slots little longer. With the first slots that
are free, all slots of 256 ports and heavy tails are together 8 % longer, and with gravity 40 %.

Then two slots at a time are made as short as they can be: their entries form paths and cycles,
each of which may be exchanged as a whole. The heavier side of each goes to the one slot.

An entry is known by its *rank* in descending order, 0 for the most ticks: kernels get the
`Entries` sorted. A *slot* is a colour. A *word* has a bit for each of 62 slots, 1 where a
port is busy: bit k of ``busy[port, word]`` is slot 62 word + k. A *component* is a path or a cycle
that the entries of two slots form. Kernels keep in a `Colouring`, `colouring`, the rank of the
entry that a port has in a slot, ``entry_of_row[slot, source]`` and ``entry_of_column[slot,
destination]``, -1 for none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, TimeUp, counted_time
from optmatch.solvers.demands.entries import UNLIMITED_WORK, Entries, LineSums
from optmatch.solvers.demands.first_fit import (
    FULL,
    WORD,
    sort_heaviest_first,
)
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.tasks import CoverTask
from optmatch.solvers.kernels.arrays import number_of_bit
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

_WORK_PER_S = 3e7
"""Entries that are placed or moved in a second; 2 to 7e7 were measured
(``benchmarks/demand_rules.py --all`` has the times of the rule)."""

_NONE = -1


class Colouring(NamedTuple):
    """Which entries are in each slot, by their ranks; in: none."""

    row_busy: NDArray[np.int64]
    """(n, words): in which slots each source is busy; bit k of word w is slot 62 w + k."""
    column_busy: NDArray[np.int64]
    """(n, words): the same for destinations."""
    entry_of_row: NDArray[np.int32]
    """(slots, n): the rank of the entry of each source, -1 for none."""
    entry_of_column: NDArray[np.int32]
    """(slots, n): the same for destinations."""
    path: NDArray[np.int64]
    """(2 n,): scratch, the ranks of the entries on an alternating path."""
    work: NDArray[np.int64]
    """(1,): steps that are left; negative if the kernel had to end."""


@inner_kernel
def _set_busy(busy, port, slot):
    """Make a port busy in a slot."""
    busy[port, slot // WORD] |= np.int64(1) << (slot % WORD)


@inner_kernel
def _set_free(busy, port, slot):
    """Make a port free in a slot."""
    busy[port, slot // WORD] &= ~(np.int64(1) << (slot % WORD))


@inner_kernel
def _is_free(busy, port, slot):
    """Tell whether a port is free in a slot."""
    return (busy[port, slot // WORD] >> (slot % WORD)) & 1 == 0


@inner_kernel
def _first_common_slot(colouring, source, destination):
    """Return the first slot in which both ports are free, -1 if there is none."""
    for word in range(colouring.row_busy.shape[1]):
        taken = colouring.row_busy[source, word] | colouring.column_busy[destination, word]
        if taken != FULL:
            # ``~taken & (taken + 1)`` is the lowest bit that is 0: 0b1011 gives 0b0100.
            return WORD * word + number_of_bit(~taken & (taken + 1))
    return _NONE


@inner_kernel
def _last_free_slot(busy, port, n_slots):
    """Return the last slot in which a port is free, by ``busy[port, word]``; one has to be."""
    slot = n_slots - 1
    while not _is_free(busy, port, slot):
        if slot % WORD == WORD - 1 and busy[port, slot // WORD] == FULL:
            # A full word is passed over as a whole, if the search is at its last bit.
            slot -= WORD
        else:
            slot -= 1
    return slot


@inner_kernel
def _nearest_free_slot(busy, port, slot, n_slots):
    """Return the slot nearest to `slot`, but not `slot` itself, in which a port is free."""
    for distance in range(1, n_slots):
        if slot + distance < n_slots and _is_free(busy, port, slot + distance):
            return slot + distance
        if slot >= distance and _is_free(busy, port, slot - distance):
            return slot - distance
    return _NONE


@inner_kernel
def _exchange_path(entries, colouring, destination, freed, other):
    """Free a destination in one slot: its entry moves to another slot, and others make room.

    Changes ``entry_of_row`` and ``entry_of_column`` of `colouring`, by slot and port, and which
    slots are busy at both ends of the path. The destination is busy in slot `freed` and free in
    slot `other`; afterwards it is the other way round.

    Its entry can move to `other` only if that entry's source is free there. If the source has an
    entry in `other`, this one moves to `freed`; and so on, along an alternating path (a Kempe
    chain). With F for `freed` and O for `other`::

        before:  destination -F- source -O- destination 2 -F- source 2
        after:   destination -O- source -F- destination 2 -O- source 2

    The path ends at a port without an entry in the slot that comes next. It cannot return to its
    beginning, because sources and destinations alternate and each port has one entry in a slot at
    most.
    """
    # Follow the path until a port has no entry in the slot that comes next.
    length = 0
    port = destination
    at_column = True
    slot = freed
    next_slot = other
    while True:
        if at_column:
            entry = colouring.entry_of_column[slot, port]
        else:
            entry = colouring.entry_of_row[slot, port]
        if entry < 0:
            break

        # Note the entry, and go on at its other port in the other slot.
        colouring.path[length] = entry
        length += 1
        port = entries.row[entry] if at_column else entries.column[entry]
        at_column = not at_column
        slot, next_slot = next_slot, slot
    colouring.work[0] -= length

    # The port at the end is free in `slot`, and busy in the slot that it was reached by, which is
    # `next_slot`, because both change after each step. Ports within the path are busy in both
    # slots, before and after: their sets stay as they are.
    end_busy = colouring.column_busy if at_column else colouring.row_busy
    _set_free(end_busy, port, next_slot)
    _set_busy(end_busy, port, slot)
    _set_free(colouring.column_busy, destination, freed)
    _set_busy(colouring.column_busy, destination, other)

    # Move each entry of the path to the other slot.
    slot = freed
    next_slot = other
    for step in range(length):
        entry = colouring.path[step]
        source = entries.row[entry]
        column = entries.column[entry]
        # The entry before may have come to its place already.
        if colouring.entry_of_row[slot, source] == entry:
            colouring.entry_of_row[slot, source] = _NONE
        if colouring.entry_of_column[slot, column] == entry:
            colouring.entry_of_column[slot, column] = _NONE
        colouring.entry_of_row[next_slot, source] = entry
        colouring.entry_of_column[next_slot, column] = entry
        slot, next_slot = next_slot, slot


@kernel
def _colour_edges(entries, colouring):
    """Put each entry of a demand into one of a fixed number of slots, heaviest first.

    Writes ``colouring.entry_of_row[slot, source]`` and ``entry_of_column[slot, destination]``;
    ends early when ``colouring.work[0]`` falls below 0. A slot holds entries such that no port has
    two of them. As many slots as the busiest port has entries are enough (Konig), and there have
    to be that many: ``entry_of_row`` has a row for each.
    """
    n_slots = len(colouring.entry_of_row)
    for entry in range(len(entries.ticks)):
        source = entries.row[entry]
        destination = entries.column[entry]
        slot = _first_common_slot(colouring, source, destination)
        # Without a slot that is free at both ports, one that is free at the source is freed at the
        # destination.
        if slot < 0:
            slot = _last_free_slot(colouring.row_busy, source, n_slots)
            other = _nearest_free_slot(colouring.column_busy, destination, slot, n_slots)
            _exchange_path(entries, colouring, destination, slot, other)
        _set_busy(colouring.row_busy, source, slot)
        _set_busy(colouring.column_busy, destination, slot)
        colouring.entry_of_row[slot, source] = entry
        colouring.entry_of_column[slot, destination] = entry
        colouring.work[0] -= 1
        if colouring.work[0] < 0:
            break


@inner_kernel
def _list_component(entries, colouring, slots, start, sources, pair_of):
    """List the sources whose entries must change slots together, if two slots are exchanged.

    Writes ``sources[position]``, and returns how many they are, with the ranks of the heaviest
    entry that they have in the long and in the short slot, the least of them; where they have
    none, that is the number of all entries, behind every rank. `slots` are the long slot, the
    short slot and the number of this pair, by which ``pair_of[source]`` marks what was looked at.

    If the entry of one source moves from the first slot to the second, the entry that its
    destination has there must move back, and so on. The entries of two slots thus fall into
    separate paths and cycles, the components. This lists the component of the source `start`.
    """
    long_slot, short_slot, pair = slots
    sources[0] = start
    pair_of[start] = pair
    n_sources = 1
    heaviest_long = len(entries.ticks)
    heaviest_short = len(entries.ticks)

    # A breadth-first search: the list of sources is the queue, too.
    position = 0
    while position < n_sources:
        source = sources[position]
        position += 1
        long_entry = colouring.entry_of_row[long_slot, source]
        short_entry = colouring.entry_of_row[short_slot, source]
        if long_entry >= 0:
            heaviest_long = min(heaviest_long, long_entry)
        if short_entry >= 0:
            heaviest_short = min(heaviest_short, short_entry)

        # The neighbours are the sources that share a destination, in the other slot.
        for entry, other_slot in ((long_entry, short_slot), (short_entry, long_slot)):
            if entry < 0:
                continue
            other = colouring.entry_of_column[other_slot, entries.column[entry]]
            if other >= 0:
                neighbour = entries.row[other]
                if pair_of[neighbour] != pair:
                    pair_of[neighbour] = pair
                    sources[n_sources] = neighbour
                    n_sources += 1
    return n_sources, heaviest_long, heaviest_short


@inner_kernel
def _exchange_component(entries, colouring, slots, sources, n_sources):
    """Exchange the entries of two slots at all sources that are listed.

    Changes ``colouring.entry_of_row[slot, source]`` and ``entry_of_column[slot, destination]``;
    the sources are ``sources[:n_sources]``, a component as a whole, and `slots` begins with
    the two slots.
    """
    long_slot, short_slot, _ = slots
    # All destinations are cleared first, because entries of two sources meet at each of them.
    for position in range(n_sources):
        source = sources[position]
        for slot in (long_slot, short_slot):
            entry = colouring.entry_of_row[slot, source]
            if entry >= 0:
                colouring.entry_of_column[long_slot, entries.column[entry]] = _NONE
                colouring.entry_of_column[short_slot, entries.column[entry]] = _NONE

    # Then each source exchanges its two entries, and these are noted at their destinations.
    for position in range(n_sources):
        source = sources[position]
        long_entry = colouring.entry_of_row[long_slot, source]
        short_entry = colouring.entry_of_row[short_slot, source]
        colouring.entry_of_row[long_slot, source] = short_entry
        colouring.entry_of_row[short_slot, source] = long_entry
        for entry, slot in ((long_entry, short_slot), (short_entry, long_slot)):
            if entry >= 0:
                colouring.entry_of_column[slot, entries.column[entry]] = entry


@kernel
def _shorten_pairs(entries, colouring, n_sweeps, sources, pair_of):
    """Exchange entries between slots, two slots at a time, so that all slots together are shorter.

    Changes `colouring` in place, in at most `n_sweeps` sweeps over all pairs. Scratch are
    ``sources[position]``, and ``pair_of[source]``, the last pair for which a source was listed, -1
    before.

    A slot lasts as long as its heaviest entry. The entries of two slots fall into separate paths
    and cycles, the components; within each, the two slots can be exchanged.

    The heaviest entry of both decides the length of one slot, the long one. The other becomes as
    short as it can be if it gets, in each component, the side whose heaviest entry is lighter. As
    an example, one component has 9 ticks in the long slot and 2 in the short one, and another has
    3 and 8. After an exchange in the second they last 9 and 3 ticks, not 9 and 8.

    The kernel ends early if a sweep over all pairs changes nothing, or when ``colouring.work[0]``
    is negative.
    """
    # `pair` numbers the pairs of slots in all sweeps, so that a source that was marked for an
    # earlier pair counts as not looked at. A pair costs about n / 2 of the steps that are left.
    n_slots, n_ports = colouring.entry_of_row.shape
    pair = 0
    for _ in range(n_sweeps):
        is_changed = False
        for long_slot in range(n_slots):
            for short_slot in range(long_slot + 1, n_slots):
                slots = (long_slot, short_slot, pair)

                # Each component of both slots is looked at once. Where the short slot has its
                # heavier entry, both sides are exchanged.
                for start in range(n_ports):
                    if pair_of[start] == pair:
                        continue
                    n_sources, heaviest_long, heaviest_short = _list_component(
                        entries, colouring, slots, start, sources, pair_of
                    )
                    if heaviest_short < heaviest_long:
                        _exchange_component(entries, colouring, slots, sources, n_sources)
                        is_changed = True

                # The next pair, unless the time is up.
                pair += 1
                colouring.work[0] -= n_ports // 2
                if colouring.work[0] < 0:
                    return
        if not is_changed:
            return


def _all_free(n_ports: int, n_slots: int) -> NDArray[np.int64]:
    """Return sets of busy slots in which each port is free in each slot.

    Bits beyond the last slot are set, so that no search finds such a slot.
    """
    busy = np.zeros((n_ports, n_slots // WORD + 1), dtype=np.int64)
    busy[:, -1] = FULL & ~((1 << (n_slots % WORD)) - 1)
    return busy


def cover_fewest_slots(
    entries: Entries,
    lines: LineSums,
    shortest: int = 1,
    deadline: float = np.inf,
    n_sweeps: int = 0,
) -> Plan:
    """Make a schedule with the fewest slots: as many as the busiest port has partners.

    Each entry is in one slot, which lasts as long as its heaviest entry, and `shortest` ticks at
    least. `lines` are the sums of these entries. Entries come heaviest first. Where no slot is
    free at both ports, entries of two slots change places along a path, which frees one.

    Then at most `n_sweeps` sweeps over all pairs of slots exchange entries between them, so that
    slots get shorter. `deadline` is a time of `counted_time`: TimeUp is raised if some entry has
    no slot by then, and sweeps just end. The longest slots come first in the plan.
    """
    if not len(entries.ticks):
        return Plan.of([], [], entries.n_ports)
    n_ports = entries.n_ports
    n_slots = lines.most_entries
    order = sort_heaviest_first(entries)

    # The kernel cannot read a clock: the time that is left becomes a number of steps.
    work = min(UNLIMITED_WORK, max(0.0, deadline - counted_time()) * _WORK_PER_S)
    colouring = Colouring(
        row_busy=_all_free(n_ports, n_slots),
        column_busy=_all_free(n_ports, n_slots),
        entry_of_row=np.full((n_slots, n_ports), _NONE, dtype=np.int32),
        entry_of_column=np.full((n_slots, n_ports), _NONE, dtype=np.int32),
        path=np.empty(2 * n_ports, dtype=np.int64),
        work=np.array([int(work)]),
    )
    _colour_edges(order, colouring)
    if colouring.work[0] < 0:
        raise TimeUp

    # Sweeps are of use only if slots take longer than the busiest line, the bound.
    plan = _read_slots(order, colouring.entry_of_row, shortest)
    if n_sweeps and plan.ticks.sum() > lines.ticks.max():
        sources = np.empty(n_ports, dtype=np.int64)
        _shorten_pairs(order, colouring, n_sweeps, sources, np.full(n_ports, -1))
        plan = _read_slots(order, colouring.entry_of_row, shortest)
    return plan.take(np.argsort(-plan.ticks, kind="stable"))


def _read_slots(entries: Entries, entry_of_row: NDArray[np.int32], shortest: int) -> Plan:
    """Return the plan of ``entry_of_row[slot, source]``: each slot serves its heaviest entry."""
    matchings = np.where(entry_of_row == _NONE, IDLE, entries.column[entry_of_row])
    ticks = np.where(entry_of_row == _NONE, shortest, entries.ticks[entry_of_row])
    return Plan(matchings.astype(np.int32), np.maximum(ticks.max(axis=1), shortest))


def yield_fewest_slots(task: CoverTask, n_sweeps: int) -> Iterator[Plan]:
    """Make a plan with the fewest slots, all pairs of which are made short in so many sweeps."""
    yield cover_fewest_slots(task.entries, task.lines, task.shortest, task.deadline, n_sweeps)
