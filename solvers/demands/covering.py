"""Covers of the rest of a demand: by heaviest circuits, or each demand in one slot.

A slot of length a serves min(a, rest) on each of its circuits and costs a plus the delay. Which
length and which matching serve most for their time is Eclipse's question (Venkatakrishnan et al.
2016, doi 10.1145/2896377.2901479): for each of some lengths an assignment. Two terms on top of it
make covers shorter than Eclipse's: a circuit that is *finished* saves its ports a further
reconfiguration, so it earns (part of) a delay; and service to ports with much left to do counts
more than service to others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.solvers.demands.assignment import CHOICES, RANKED, assign, new_workspace
from optmatch.solvers.demands.plans import Plan, join, serve
from optmatch.solvers.kernels.decorators import inner_kernel, kernel


class Rating(NamedTuple):
    """The rating of a slot."""

    finish_bonus: float = 1.0
    """The gain of a finished circuit, in delays."""
    pressure: float = 10.0
    """How much more busy ports count: as exp(pressure * load / greatest load)."""
    choices: int = CHOICES
    """How many lengths are compared for each slot, if as many distinct demands remain."""


ECLIPSE = Rating(0.0, 0.0)
"""The rule of the paper: volume by time."""


@inner_kernel
def _greatest(rows, columns):
    most = rows[0]
    for k in range(len(rows)):
        most = max(most, max(rows[k], columns[k]))
    return most


@inner_kernel
def _weigh(space, rest, delay, pressure):
    """Set the weight of a tick of service on each circuit; return how many have a demand."""
    n = len(rest)
    rows, columns = space.row_price, space.column_price
    rows[:] = 0.0
    columns[:] = 0.0
    count = 0
    for i in range(n):
        for j in range(n):
            if rest[i, j] > 0:
                rows[i] += rest[i, j] + delay
                columns[j] += rest[i, j] + delay
                count += 1
    if count == 0:
        return 0
    most = _greatest(rows, columns)
    for k in range(n):
        rows[k] = np.exp(pressure * (rows[k] / most - 1.0))
        columns[k] = np.exp(pressure * (columns[k] / most - 1.0))
    for i in range(n):
        for j in range(n):
            space.weight[i, j] = rows[i] + columns[j] if rest[i, j] > 0 else 0.0
    return count


@inner_kernel
def _rate(space, rest, length, extra):
    """Set the worth of each circuit in a slot of this length; return a bound on all matchings."""
    n = len(rest)
    columns = space.distance
    columns[:] = 0.0
    rows_total = 0.0
    for i in range(n):
        best = 0.0
        for j in range(n):
            left = rest[i, j]
            if left > 0:
                v = space.weight[i, j] * (left + extra if left <= length else length)
                best = max(best, v)
                columns[j] = max(columns[j], v)
            else:
                v = 0.0
            space.value[i, j] = v
        rows_total += best
    columns_total = 0.0
    for j in range(n):
        columns_total += columns[j]
    return min(rows_total, columns_total)


@inner_kernel
def _lengths(rest, count, choices, sizes):
    """Pick some of the distinct remaining demands, evenly by rank; of many a part is ranked.

    Writes them to `sizes`; returns how many there are.
    """
    stride = 1 + count // RANKED
    place = 0
    for i in range(len(rest)):
        for j in range(len(rest)):
            if rest[i, j] > 0:
                place += 1
                if place % stride == 0:
                    sizes[place // stride - 1] = rest[i, j]
    count = place // stride
    step = 1
    while step < count:
        step = 3 * step + 1
    while step > 1:  # Shell's sort
        step //= 3
        for k in range(step, count):
            size, at = sizes[k], k
            while at >= step and sizes[at - step] > size:
                sizes[at] = sizes[at - step]
                at -= step
            sizes[at] = size
    distinct = 0
    for k in range(count):
        if k == 0 or sizes[k] != sizes[k - 1]:
            sizes[distinct] = sizes[k]
            distinct += 1
    if distinct <= choices:
        return distinct
    for k in range(choices):
        sizes[k] = sizes[k * (distinct - 1) // (choices - 1)]
    return choices


@inner_kernel
def _bound_all(space, rest, delay, extra, count):
    """Set the most that a slot of each length may serve by time; order the lengths by it."""
    sizes, bounds = space.sizes, space.bounds
    for k in range(count):
        size = sizes[k]
        bound = _rate(space, rest, size, extra) / (size + delay)
        at = k
        while at > 0 and bounds[at - 1] < bound:
            sizes[at], bounds[at] = sizes[at - 1], bounds[at - 1]
            at -= 1
        sizes[at], bounds[at] = size, bound


@kernel
def cover(space, rest, delay, rating, matchings, lengths, done, shortest):
    """Choose slots until `rest` is served or ``matchings`` is full; return their number.

    Each slot ends one of its circuits at least, so this ends. A length is not tried if its bound
    is below the known service of another one.
    """
    n = len(rest)
    while done < len(matchings):
        count = _weigh(space, rest, delay, rating.pressure)
        if count == 0:
            break
        extra = rating.finish_bonus * delay
        count = _lengths(rest, count, max(2, rating.choices), space.sizes)
        _bound_all(space, rest, delay, extra, count)
        best = -1.0
        for k in range(count):
            if space.bounds[k] <= best:
                break
            size = space.sizes[k]
            _rate(space, rest, size, extra)
            known = min(k, len(space.known_price) - 1)
            for j in range(n):
                space.column_price[j] = space.known_price[known, j] * (size + delay)
            rate = assign(space) / (size + delay)
            for j in range(n):
                space.known_price[known, j] = space.column_price[j] / (size + delay)
            if rate > best:
                best = rate
                lengths[done] = max(shortest, size)
                for i in range(n):
                    matchings[done, i] = space.column_of[i]
        least = 1 << 62
        for i in range(n):
            if rest[i, matchings[done, i]] > 0:
                least = min(least, rest[i, matchings[done, i]])
        lengths[done] = max(lengths[done], least)
        for i in range(n):
            j = matchings[done, i]
            rest[i, j] -= min(rest[i, j], lengths[done])
        done += 1
    return done


@kernel
def cover_busiest(space, rest, matchings, lengths):
    """Peel matchings off that hold all ports with most partners left, the heaviest such ones.

    By Konig's theorem such matchings exist, so as many are enough as the busiest port has
    partners. ``lengths`` are those of the heaviest circuits.
    """
    n = len(rest)
    rows, columns = space.row_price, space.column_price
    heaviest = 0.0
    for i in range(n):
        for j in range(n):
            heaviest = max(heaviest, float(rest[i, j]))
    for slot in range(len(matchings)):
        rows[:] = 0.0
        columns[:] = 0.0
        for i in range(n):
            for j in range(n):
                if rest[i, j] > 0:
                    rows[i] += 1.0
                    columns[j] += 1.0
        most = _greatest(rows, columns)
        for i in range(n):
            for j in range(n):
                space.value[i, j] = 0.0
                if rest[i, j] > 0:
                    busy = (1.0 if rows[i] == most else 0.0) + (1.0 if columns[j] == most else 0.0)
                    space.value[i, j] = rest[i, j] / heaviest + 2.0 * n * busy
        columns[:] = 0.0
        assign(space)
        lengths[slot] = 0
        for i in range(n):
            j = space.column_of[i]
            matchings[slot, i] = -1
            if rest[i, j] > 0:
                matchings[slot, i] = j
                lengths[slot] = max(lengths[slot], rest[i, j])
                rest[i, j] = 0


_WORD = 62  # slots in one word, whose bits are those in which a port is busy


@kernel
def _first_free(entries, row_busy, column_busy, partner, firsts):
    """Give each circuit the first slot in which both its ports are free; return the slots used."""
    used = 0
    for k in range(len(entries)):
        i, j, word = entries[k] // len(row_busy), entries[k] % len(row_busy), 0
        while row_busy[i, word] | column_busy[j, word] == (1 << _WORD) - 1:
            word += 1
        busy, slot, bit = row_busy[i, word] | column_busy[j, word], _WORD * word, 1
        while busy & bit:
            slot, bit = slot + 1, bit << 1
        row_busy[i, word] |= bit
        column_busy[j, word] |= bit
        partner[slot, i] = j
        if slot == used:  # no slot is left out
            firsts[slot] = entries[k]
            used += 1
    return used


def cover_heaviest_first(demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Put each demand, heaviest first, into the first slot that has room.

    There are at most twice as many slots, less one, as the busiest port has partners.
    """
    n, ticks = len(demand), demand.ravel()
    entries = np.flatnonzero(ticks)
    lighter = ticks.max() - ticks[entries]
    if int(ticks.max()) < 2**62 // demand.size:  # numbers are sorted faster than their places
        entries = np.sort(lighter * demand.size + entries) % demand.size
    else:
        entries = entries[np.argsort(lighter, kind="stable")]
    degree = int(max((demand > 0).sum(axis=0).max(), (demand > 0).sum(axis=1).max()))
    matchings = np.full((2 * degree, n), IDLE, dtype=np.int32)
    busy = np.zeros((2, n, 1 + 2 * degree // _WORD), dtype=np.int64)
    heaviest = np.empty(2 * degree, dtype=np.int64)  # of each slot, the first that came
    used = _first_free(entries, busy[0], busy[1], matchings, heaviest)
    return Plan(matchings[:used], np.maximum(ticks[heaviest[:used]], shortest))


def cover_by_busiest(demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Put each demand into one of as many slots as the busiest port has partners.

    Each slot is the heaviest matching that holds all ports that are busiest then.
    """
    slots = int(max((demand > 0).sum(axis=0).max(), (demand > 0).sum(axis=1).max()))
    matchings = np.full((slots, len(demand)), IDLE, dtype=np.int32)
    ticks = np.zeros(slots, dtype=np.int64)
    cover_busiest(new_workspace(len(demand)), demand.copy(), matchings, ticks)
    return Plan(matchings, np.maximum(ticks, shortest))


def complete(plan: Plan, demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Serve the rest of a demand after a plan, heaviest first."""
    rest = np.maximum(demand - serve(plan), 0)
    return join(plan, cover_heaviest_first(rest, shortest)) if rest.any() else plan
