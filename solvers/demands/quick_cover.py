"""A cover within milliseconds: of the rule of `covering`, one length for each slot.

`covering` asks by an assignment how much each of some lengths serves. Here a bound on it decides
which length is asked, and one assignment follows, or only a stable matching: what no row and
column would leave for each other, with at least half of the value of an assignment.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import counted_time
from optmatch.solvers.demands.assignment import assign, new_workspace
from optmatch.solvers.demands.plans import Plan, join, only_demanded, serve, tidy, trim
from optmatch.solvers.kernels.decorators import kernel

CHOICES = 8
"""Lengths that are compared for a slot: as many entries that are left, evenly spread."""

_PRESSURE = 3.0  # how much more busy ports count


class Left(NamedTuple):
    """The entries that are left of a demand, in any order, and room to work in."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    ticks: NDArray[np.int64]
    worth: NDArray[np.float64]  # of a tick
    lengths: NDArray[np.int64]  # (choices)


@kernel
def _weigh(space, left, count, delay):
    """Set what a tick of each entry counts: the more, the busier its ports."""
    rows, columns = space.row_price, space.column_price
    for k in range(len(rows)):
        rows[k] = columns[k] = 0.0
    for k in range(count):
        rows[left.row[k]] += left.ticks[k] + delay
        columns[left.column[k]] += left.ticks[k] + delay
    most = 0.0
    for k in range(len(rows)):
        most = max(most, max(rows[k], columns[k]))
    for k in range(len(rows)):
        rows[k] = np.exp(_PRESSURE * (rows[k] / most - 1.0))
        columns[k] = np.exp(_PRESSURE * (columns[k] / most - 1.0))
    for k in range(count):
        left.worth[k] = rows[left.row[k]] + columns[left.column[k]]


@kernel
def _serves(ticks, length, delay):
    """Return what a slot of this length does for an entry; to finish it saves a delay."""
    return ticks + delay if ticks <= length else length


@kernel
def _choose_length(left, count, delay):
    """Return the length at which the best entries of all rows serve most in its time."""
    lengths = left.lengths
    choices = min(len(lengths), count)
    for k in range(choices):
        length = left.ticks[k * (count - 1) // max(1, choices - 1)]
        lengths[k] = length
    best, chosen = -1.0, np.int64(1)
    for k in range(choices):
        known = False
        for other in range(k):
            known = known or lengths[other] == lengths[k]
        if known:
            continue
        total = most = 0.0
        row = -1
        for entry in range(count):  # they are in order of rows
            value = left.worth[entry] * _serves(left.ticks[entry], lengths[k], delay)
            if left.row[entry] != row:
                total += most
                row, most = left.row[entry], value
            elif value > most:
                most = value
        rate = (total + most) / (lengths[k] + delay)
        if rate > best:
            best, chosen = rate, lengths[k]
    return chosen


@kernel
def _match(space, left, count, length, delay):
    """Write a stable matching to ``space.column_of``, -1 for none (Manne and Halappanavar 2014).

    Each row asks the best column that would take it; who is sent away asks again.
    """
    offer, column_of, row_of, first = (
        space.column_price,
        space.column_of,
        space.row_of,
        space.before,
    )
    n = len(offer)
    for k in range(n):
        offer[k], column_of[k], row_of[k], first[k] = 0.0, -1, -1, 0
    for entry in range(count - 1, -1, -1):
        first[left.row[entry]] = entry
    for start in range(count):
        if start > 0 and left.row[start] == left.row[start - 1]:
            continue
        row = left.row[start]
        while row >= 0:
            best, most, entry = -1, 0.0, first[row]
            while entry < count and left.row[entry] == row:
                value = left.worth[entry] * _serves(left.ticks[entry], length, delay)
                column = left.column[entry]
                if value > most and value > offer[column]:
                    best, most = column, value
                entry += 1
            if best < 0:
                break
            sent_away = row_of[best]
            row_of[best], column_of[row], offer[best] = row, best, most
            if sent_away >= 0:
                column_of[sent_away] = -1
            row = sent_away


@kernel
def _assign(space, left, count, length, delay):
    """Write the best matching to ``space.column_of``, from the prices of the last slot."""
    n = len(space.value)
    for i in range(n):
        for j in range(n):
            space.value[i, j] = 0.0
    for k in range(count):
        value = left.worth[k] * _serves(left.ticks[k], length, delay)
        space.value[left.row[k], left.column[k]] = value
    for j in range(n):  # prices by the tick
        space.column_price[j] = space.known_price[0, j] * length
    assign(space)
    for j in range(n):
        space.known_price[0, j] = space.column_price[j] / length


@kernel
def cover(space, left, count, delay, shortest, exact, matchings, lengths):
    """Choose slots until nothing is left or there is no room; return slots and entries left."""
    n, done = len(space.value), 0
    while count > 0 and done < len(matchings):
        _weigh(space, left, count, delay)
        length = _choose_length(left, count, delay)
        if exact:
            _assign(space, left, count, length, delay)
        else:
            _match(space, left, count, length, delay)
        least = 1 << 62
        for k in range(count):
            if space.column_of[left.row[k]] == left.column[k]:
                least = min(least, left.ticks[k])
        length = max(length, shortest, least)  # one circuit is done, so this ends soon
        lengths[done] = length
        for i in range(n):
            matchings[done, i] = -1
        kept = 0
        for k in range(count):
            i, j, ticks = left.row[k], left.column[k], left.ticks[k]
            if space.column_of[i] == j:
                matchings[done, i] = j
                ticks -= min(ticks, length)
            if ticks > 0:
                left.row[kept], left.column[kept], left.ticks[kept] = i, j, ticks
                kept += 1
        count = kept
        done += 1
    return done, count


def cover_quickly(
    demand: NDArray[np.int64],
    delay: int,
    shortest: int = 1,
    *,
    exact: bool = True,
) -> Plan:
    """Cover a demand by slots that serve much for their time.

    Each slot holds the best matching for its length, or, unless `exact`, a stable one.
    """
    space = new_workspace(len(demand))
    row, column = np.nonzero(demand)
    ticks = demand[row, column]
    left = Left(row, column, ticks, np.empty(len(ticks)), np.empty(CHOICES, dtype=np.int64))
    count, done, rows, lengths = len(ticks), 0, [], []
    while count:
        part = np.empty((128, len(demand)), dtype=np.int32), np.empty(128, dtype=np.int64)
        found, count = cover(space, left, count, delay, shortest, exact, *part)
        rows.append(part[0][:found])
        lengths.append(part[1][:found])
        done += found
    if not done:
        return Plan.of([], [], len(demand))
    return Plan(np.concatenate(rows), np.concatenate(lengths))


_NS_PER_ENTRY = 25  # of a slot times ports squared: what `cover_quickly` takes, about
_MOVES = 50


def plan_quickly(
    demand: NDArray[np.int64], delay: int, deadline: float, previous: Plan | None = None
) -> Plan:
    """Cover a demand as well as time allows.

    `demand` and `delay` are in ticks. The search stops at `deadline`, by `counted_time`, or, if
    that is infinite, after a number of moves; a first plan is made in any case. It starts from
    `previous`, slots of a demand like this one.
    """
    if not demand.any():
        return Plan.of([], [], len(demand))
    slots = int(max((demand > 0).sum(axis=0).max(), (demand > 0).sum(axis=1).max()))
    takes_s = 1e-9 * _NS_PER_ENTRY * slots * demand.size
    started = counted_time()
    left_s = deadline - started
    found = [
        cover_quickly(demand, delay, exact=left_s > 1.5 * takes_s)
        if previous is None
        else _patch(previous, demand, delay)
    ]
    if previous is not None and deadline - counted_time() > 1.5 * takes_s:
        found.append(cover_quickly(demand, delay))
    best = min((_finish(plan, demand) for plan in found), key=lambda p: p.cost(delay))
    rng, moves, took_s = np.random.default_rng(0), 0, (counted_time() - started) / 2
    lines = np.concatenate([demand, demand.T])
    bound = int((lines.sum(axis=1) + delay * np.count_nonzero(lines, axis=1)).max())
    while (
        best.cost(delay) > bound and len(best.ticks) > 1 and (moves < _MOVES or deadline < np.inf)
    ):
        began = counted_time()
        if began + took_s > deadline:
            break
        n_slots = len(best.ticks)
        stay = best.ticks / best.ticks.max() + rng.random(n_slots)  # long ones rather than short
        out = int(rng.integers(min(2, n_slots - 1), n_slots))
        kept = best.take(np.argsort(stay, kind="stable")[out:])
        plan = _finish(_patch(kept, demand, delay), demand)
        best = plan if plan.cost(delay) <= best.cost(delay) else best
        took_s, moves = counted_time() - began, moves + 1
    return best


def _patch(plan: Plan, demand: NDArray[np.int64], delay: int) -> Plan:
    """Cover what some slots leave."""
    return join(plan, cover_quickly(np.maximum(demand - serve(plan), 0), delay))


def _finish(plan: Plan, demand: NDArray[np.int64]) -> Plan:
    """Put equal slots together, and take out what nobody needs."""
    return only_demanded(trim(tidy(plan), demand), demand)
