"""First fit, heaviest first: the cover of a demand that takes time for entries alone.

Each entry, in descending order, comes into the first slot in which both its ports are free. A slot
lasts as long as its heaviest entry, which came first. No slot can therefore be shortened, each
entry is served in one slot, and there are at most twice as many slots, less one, as the busiest
line has entries.

The entries are sorted by radix sort, and the slots in which a port is busy are bits of words: 40
ns for an entry of 2,048 x 2,048, of which sorting takes 24.

Three words are used throughout. An *open* slot of a port is one in which the port is still free.
A *word* is an integer of 64 bits that stands for 62 consecutive slots, one bit each; it is *full*
if the port is busy in all 62. A *place* is an entry's source and destination packed into one
integer, the source in the upper bits (`place_of`, `ports_of`). Kernels write the sets of busy
slots of sources to one `BusySlots`, `rows`, and those of destinations to another one, `columns`:
``words[port, word]``, and ``first_open[port]``, the first word that is not full.

As an example, the demand ``[[0, 5, 2], [4, 0, 5], [1, 0, 0]]`` has five entries. Both entries of 5
share slot 0. The 4 of port 1 finds its source busy there and opens slot 1. The 2 finds source 0
and destination 2 busy in slot 0, but both are free in slot 1. The 1 of port 2 goes to slot 0, for
its destination 0 is busy in slot 1 alone. Slots last 5 and 4 ticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.entries import Entries, LineSums
from optmatch.solvers.demands.plans import Plan, join, serve
from optmatch.solvers.demands.tasks import CoverTask
from optmatch.solvers.kernels.arrays import number_of_bit
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

_KEY_BITS = 16
"""Listed entries are sorted by so many bits, for which NumPy has a radix sort: those that differ
by less than 0.05 %, where ticks range over a factor of a million, may come in their order."""

_BUCKETS = 1 << 14
"""Buckets of the sort of a full matrix: their ends, and the lines of the cache in which they are
filled, take about a megabyte."""

WORD = 62
"""Slots in one word of the sets of slots in which a port is busy."""

FULL = (1 << WORD) - 1


class BusySlots(NamedTuple):
    """In which slots each port is busy, as sets of bits: bit k of word w is slot 62 w + k.

    There is one record for sources (rows) and one for destinations (columns).
    """

    words: NDArray[np.int64]
    """(n, words): a bit is 1 where the port is busy in that slot."""
    first_open: NDArray[np.int64]
    """(n,): the first word that is not full."""


@inner_kernel
def place_of(source, destination, bits):
    """Return both ports of an entry in one number; ports are below ``2**bits``.

    With 4 bits, source 2 and destination 5 are 2 * 16 + 5 = 37.
    """
    return (source << bits) | destination


@inner_kernel
def ports_of(place, bits):
    """Return source and destination of a place: both ports of an entry in one number.

    With 4 bits, the place 37 = 2 * 16 + 5 is source 2 and destination 5.
    """
    return place >> bits, place & ((1 << bits) - 1)


@inner_kernel
def _occupy_slot(busy, port, word, bit):
    """Make a port busy in the slot of one bit of a word; pass over words that are full then."""
    busy.words[port, word] |= bit
    while busy.words[port, busy.first_open[port]] == FULL:
        busy.first_open[port] += 1


@inner_kernel
def _occupy_first_open_slot(rows, columns, source, destination):
    """Find the first slot in which both ports of an entry are free, and make them busy there.

    Changes the words of both ports, and returns the number of the slot. The union of both ports'
    words has a 1 for each slot that is closed, so the lowest 0 of the first word that is not full
    is the slot.
    """
    # All words before the later of both first open words are full for one of the ports.
    word = max(rows.first_open[source], columns.first_open[destination])
    taken = rows.words[source, word] | columns.words[destination, word]
    while taken == FULL:
        word += 1
        taken = rows.words[source, word] | columns.words[destination, word]

    # Adding 1 carries through the ones at the end up to the lowest 0, the only bit that is 0 in
    # the word and 1 in the sum: 0b1011 + 1 = 0b1100, and 0b0100 is free.
    lowest_free = ~taken & (taken + 1)
    _occupy_slot(rows, source, word, lowest_free)
    _occupy_slot(columns, destination, word, lowest_free)
    return WORD * word + number_of_bit(lowest_free)


@kernel
def _first_fit(entries, rows, columns, slots):
    """Serve a demand quickly: put each entry into the first slot with room for it (first fit).

    Writes ``slots.matchings[slot, source]`` and ``slots.ticks[slot]``, 0 before; returns the
    number of slots. `entries` come heaviest first; `rows` and `columns` are the `BusySlots` of
    sources and of destinations, all free before. A slot has room for an entry if neither of its
    ports has another circuit in the slot. If no slot has room, a new one is opened. A slot lasts
    as long as its heaviest entry.
    """
    n_slots = 0
    for entry in range(len(entries.ticks)):
        source = entries.row[entry]
        slot = _occupy_first_open_slot(rows, columns, source, entries.column[entry])

        # Slots are opened one after the other, so one that is not known yet is the next number.
        if slot == n_slots:
            slots.matchings[slot, :] = -1
            n_slots += 1
        slots.matchings[slot, source] = entries.column[entry]

        # The first entry of a slot is the heaviest one but for the rounding of the sort.
        slots.ticks[slot] = max(slots.ticks[slot], entries.ticks[entry])
    return n_slots


@inner_kernel
def _bits_of_float(ticks):
    """Return the bits of a number of ticks >= 1 as a 32-bit float, which grow with it."""
    return np.int64(np.float32(ticks).view(np.int32))


@kernel
def _sort_places(demand, lightest, heaviest, bits_of_port, places, bucket_ends):
    """Sort the entries of a full matrix by ticks, nearly and quickly, the heaviest first.

    Writes ``places[rank]``, source and destination of an entry in one number, of which each takes
    `bits_of_port`; and ``bucket_ends[bucket]``, the rank behind the last entry of each bucket, 0
    before. `lightest` and `heaviest` are the ticks of such entries.

    This is a distribution sort into buckets. The bits of a 32-bit float, read as an integer, are
    about the logarithm of the number. The range of these integers, from the heaviest entry down to
    the lightest, is cut into even parts: one bucket each. Within a bucket entries stay in the
    order of the matrix. With 2**14 buckets their ticks differ by 0.1 % for each factor of a
    million between the heaviest and the lightest entry.
    """
    # Bucket 0 has the heaviest entry. The shift is the least with which all buckets suffice.
    n = len(demand)
    last_bucket = len(bucket_ends) - 1
    top_bits = _bits_of_float(heaviest)
    shift = 0
    while (top_bits - _bits_of_float(lightest)) >> shift > last_bucket:
        shift += 1

    # Count the entries of each bucket; the sums of earlier ones are where buckets begin.
    for source in range(n):
        for destination in range(n):
            if demand[source, destination] > 0:
                bits = _bits_of_float(demand[source, destination])
                bucket_ends[(top_bits - bits) >> shift] += 1
    begin = 0
    for bucket in range(len(bucket_ends)):
        n_entries = bucket_ends[bucket]
        bucket_ends[bucket] = begin
        begin += n_entries

    # Each entry takes the next rank of its bucket: afterwards that is the end of the bucket.
    for source in range(n):
        for destination in range(n):
            if demand[source, destination] > 0:
                bucket = (top_bits - _bits_of_float(demand[source, destination])) >> shift
                places[bucket_ends[bucket]] = place_of(source, destination, bits_of_port)
                bucket_ends[bucket] += 1


@kernel
def _first_fit_of_matrix(demand, bits_of_port, places, bucket_ends, rows, columns, slots):
    """Serve a demand of many entries quickly: each goes into the first slot with room (first fit).

    Writes ``slots.matchings[slot, source]`` and ``slots.ticks[slot]``, 0 before, and returns how
    many slots there are. ``places[rank]`` are the entries, of whose ports each takes
    `bits_of_port`; those of a bucket come before the rank ``bucket_ends[bucket]``, heavier buckets
    first (`_sort_places`). Their ticks are looked up in ``demand[source, destination]``. This
    takes time, and is needed only for slots that entries of the same bucket have opened: those of
    earlier buckets have a heavier entry already.
    """
    n_slots = 0
    first_slot_of_bucket = 0
    bucket = 0
    for rank in range(len(places)):
        # Slots from `first_slot_of_bucket` on were opened by entries of this bucket.
        while rank >= bucket_ends[bucket]:
            bucket += 1
            first_slot_of_bucket = n_slots
        source, destination = ports_of(np.int64(places[rank]), bits_of_port)
        slot = _occupy_first_open_slot(rows, columns, source, destination)
        if slot == n_slots:
            slots.matchings[slot, :] = -1
            n_slots += 1
        slots.matchings[slot, source] = destination
        if slot >= first_slot_of_bucket:
            slots.ticks[slot] = max(slots.ticks[slot], demand[source, destination])
    return n_slots


def cover_matrix_first_fit(demand: NDArray[np.int64], lines: LineSums) -> Plan:
    """Put each entry of a full matrix, heaviest first, into the first slot that has room.

    It does for matrices of many entries what `cover_first_fit` does for lists, in a fourth of the
    memory: a process that allocates it for the first time waits longer for memory than for the
    sort. Entries are sorted into buckets (`_sort_places`): those of nearly the same ticks may
    come in another order than there. ``demand[source, destination]`` is in ticks, and `lines` has
    the sums of its n rows first, then of its n columns.
    """
    # Entries as numbers of a source and a destination, each of which takes `bits_of_port` bits,
    # sorted by buckets. Each entry is in one row, so the rows count all of them.
    n_ports = len(demand)
    places = np.empty(int(lines.n_entries[:n_ports].sum()), np.int32)
    bucket_ends = np.zeros(_BUCKETS, np.int64)
    bits_of_port = max(1, (n_ports - 1).bit_length())

    # The range of ticks above 0, which the buckets divide.
    heaviest = int(demand.max())
    lightest = int(demand.min())
    if lightest == 0:
        lightest = int(demand.min(where=demand > 0, initial=heaviest))
    _sort_places(demand, lightest, heaviest, bits_of_port, places, bucket_ends)

    # `slots` has room for more slots than are opened; first fit fills the first `n_slots`.
    rows, columns, slots = _lay_out_slots(lines, n_ports)
    n_slots = _first_fit_of_matrix(demand, bits_of_port, places, bucket_ends, rows, columns, slots)
    return Plan(slots.matchings[:n_slots], slots.ticks[:n_slots])


def _lay_out_slots(lines: LineSums, n_ports: int) -> tuple[BusySlots, BusySlots, Plan]:
    """Make room for the slots of first fit, and for the sets of slots in which ports are busy.

    Returns the sets of sources, those of destinations, and the slots.
    """
    # With d entries in the fullest line, an entry finds at most d - 1 slots closed by its source
    # and d - 1 by its destination. The second extra word keeps `first_open` inside the array.
    most_slots = 2 * lines.most_entries
    n_words = 2 + most_slots // WORD
    rows = BusySlots(np.zeros((n_ports, n_words), np.int64), np.zeros(n_ports, np.int64))
    columns = BusySlots(np.zeros((n_ports, n_words), np.int64), np.zeros(n_ports, np.int64))
    slots = Plan(np.empty((most_slots, n_ports), np.int32), np.zeros(most_slots, dtype=np.int64))
    return rows, columns, slots


def sort_heaviest_first(entries: Entries) -> Entries:
    """Sort entries, of which there are some, by descending ticks, nearly and quickly.

    The bits of a 32-bit float, read as an integer, grow with the number. Their distance from those
    of the heaviest entry is cut to `_KEY_BITS`, and entries with the same key keep their order.
    """
    float_bits = entries.ticks.astype(np.float32).view(np.int32)
    distance = float_bits.max() - float_bits
    shift = max(0, int(distance.max()).bit_length() - _KEY_BITS)
    order = np.argsort((distance >> shift).astype(np.uint16), kind="stable")
    row = entries.row[order]
    return Entries(
        n_ports=entries.n_ports,
        row=row,
        column=entries.column[order],
        ticks=entries.ticks[order],
    )


def cover_first_fit(entries: Entries, lines: LineSums, shortest: int = 1) -> Plan:
    """Put each entry, heaviest first, into the first slot that has room."""
    if not len(entries.ticks):
        return Plan.of([], [], entries.n_ports)
    order = sort_heaviest_first(entries)
    rows, columns, slots = _lay_out_slots(lines, entries.n_ports)
    n_slots = _first_fit(order, rows, columns, slots)
    return Plan(slots.matchings[:n_slots], np.maximum(slots.ticks[:n_slots], shortest))


def cover_heaviest_first(demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Put each entry of a matrix, heaviest first, into the first slot that has room."""
    entries = Entries.of_matrix(demand)
    return cover_first_fit(entries, LineSums.of(entries), shortest)


def complete(plan: Plan, task: CoverTask) -> Plan:
    """Serve what a plan leaves of a demand, heaviest first."""
    unserved = np.maximum(task.demand - serve(plan), 0)
    return join(plan, cover_heaviest_first(unserved, task.shortest)) if unserved.any() else plan


def yield_heaviest_first(task: CoverTask) -> Iterator[Plan]:
    """Put each entry, heaviest first, into the first slot in which both its ports are free."""
    yield cover_first_fit(task.entries, task.lines, task.shortest)
