"""Covers of a demand: matchings chosen one by one for what they serve in the time that they take.

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

from optmatch.solvers.demands.assignment import CHOICES, assign
from optmatch.solvers.kernel import kernel

_SAMPLE = 1024  # of so many remaining demands and more only a part is ranked


class Rating(NamedTuple):
    """What a slot is chosen for."""

    finish_bonus: float = 1.0
    """What a finished circuit earns, in delays."""
    pressure: float = 10.0
    """How much more busy ports count: as exp(pressure * load / greatest load)."""
    choices: int = CHOICES
    """How many lengths are compared for each slot, if as many distinct demands remain."""


ECLIPSE = Rating(0.0, 0.0)
"""The rule of the paper: volume by time."""


@kernel
def _weigh(desk, rest, delay, pressure):
    """Set what a tick of service counts on each circuit; return how many have a demand."""
    n = len(rest)
    rows, columns = desk.row_price, desk.column_price
    rows[:] = 0.0
    columns[:] = 0.0
    count = 0
    for i in range(n):
        for j in range(n):
            if rest[i, j] > 0:
                rows[i] += rest[i, j] + delay
                columns[j] += rest[i, j] + delay
                count += 1
    most = max(rows.max(), columns.max())
    if count == 0:
        return 0
    for k in range(n):
        rows[k] = np.exp(pressure * (rows[k] / most - 1.0))
        columns[k] = np.exp(pressure * (columns[k] / most - 1.0))
    for i in range(n):
        for j in range(n):
            desk.weight[i, j] = rows[i] + columns[j] if rest[i, j] > 0 else 0.0
    return count


@kernel
def _rate(desk, rest, length, extra):
    """Set what each circuit is worth in a slot of this length; return a bound on all matchings."""
    n = len(rest)
    columns = desk.distance
    columns[:] = 0.0
    rows_total = 0.0
    for i in range(n):
        best = 0.0
        for j in range(n):
            left = rest[i, j]
            if left > 0:
                v = desk.weight[i, j] * (left + extra if left <= length else length)
                best = max(best, v)
                columns[j] = max(columns[j], v)
            else:
                v = 0.0
            desk.value[i, j] = v
        rows_total += best
    return min(rows_total, columns.sum())


@kernel
def _lengths(rest, count, choices):
    """Pick some of the distinct remaining demands, evenly by rank; of many a part is ranked."""
    stride = 1 + count // _SAMPLE
    sizes = np.empty(count // stride, dtype=np.int64)
    place = 0
    for i in range(len(rest)):
        for j in range(len(rest)):
            if rest[i, j] > 0:
                place += 1
                if place % stride == 0:
                    sizes[place // stride - 1] = rest[i, j]
    count = len(sizes)
    sizes.sort()
    distinct = 0
    for k in range(count):
        if k == 0 or sizes[k] != sizes[k - 1]:
            sizes[distinct] = sizes[k]
            distinct += 1
    if distinct <= choices:
        return sizes[:distinct].copy()
    picked = np.empty(choices, dtype=np.int64)
    for k in range(choices):
        picked[k] = sizes[k * (distinct - 1) // (choices - 1)]
    return picked


@kernel
def cover(desk, rest, delay, rating, matchings, lengths, done, shortest):
    """Choose slots until `rest` is served or ``matchings`` is full; return how many there are.

    Each slot serves at least one tick, so this ends. A length whose bound is below what another
    one is known to serve is not tried.
    """
    n = len(rest)
    while done < len(matchings):
        count = _weigh(desk, rest, delay, rating.pressure)
        if count == 0:
            break
        extra = rating.finish_bonus * delay
        sizes = _lengths(rest, count, max(2, rating.choices))
        bounds = np.empty(len(sizes))
        for k in range(len(sizes)):
            bounds[k] = _rate(desk, rest, sizes[k], extra) / (sizes[k] + delay)
        best = -1.0
        order = np.argsort(-bounds)
        for k in order:
            if bounds[k] <= best:
                break
            _rate(desk, rest, sizes[k], extra)
            known = desk.known_price[min(k, len(desk.known_price) - 1)]
            desk.column_price[:] = known * (sizes[k] + delay)
            rate = assign(desk) / (sizes[k] + delay)
            known[:] = desk.column_price / (sizes[k] + delay)
            if rate > best:
                best = rate
                lengths[done] = max(shortest, sizes[k])
                for i in range(n):
                    matchings[done, i] = desk.column_of[i]
        for i in range(n):
            j = matchings[done, i]
            rest[i, j] -= min(rest[i, j], lengths[done])
        done += 1
    return done


@kernel
def cover_busiest(desk, rest, matchings, lengths):
    """Peel matchings off that hold all ports with most partners left, the heaviest such ones.

    By Konig's theorem they exist, so as many matchings are enough as the busiest port has
    partners. ``lengths`` are those of the heaviest circuits.
    """
    n = len(rest)
    rows, columns = desk.row_price, desk.column_price
    heaviest = float(rest.max())
    for slot in range(len(matchings)):
        rows[:] = 0.0
        columns[:] = 0.0
        for i in range(n):
            for j in range(n):
                if rest[i, j] > 0:
                    rows[i] += 1.0
                    columns[j] += 1.0
        most = max(rows.max(), columns.max())
        for i in range(n):
            for j in range(n):
                desk.value[i, j] = 0.0
                if rest[i, j] > 0:
                    busy = (1.0 if rows[i] == most else 0.0) + (1.0 if columns[j] == most else 0.0)
                    desk.value[i, j] = rest[i, j] / heaviest + 2.0 * n * busy
        columns[:] = 0.0
        assign(desk)
        lengths[slot] = 0
        for i in range(n):
            j = desk.column_of[i]
            matchings[slot, i] = -1
            if rest[i, j] > 0:
                matchings[slot, i] = j
                lengths[slot] = max(lengths[slot], rest[i, j])
                rest[i, j] = 0
