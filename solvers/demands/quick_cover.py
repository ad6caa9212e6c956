"""A cover within milliseconds: of the rule of `covering`, one length for each slot.

`covering` asks by an assignment how much each of some lengths serves. Here a bound on it decides
which length is asked, and one assignment follows, or only a stable matching: what no row and
column would leave for each other, with at least half of the value of an assignment.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
from numpy.typing import NDArray

from optmatch.model import TimeUp, counted_time
from optmatch.solvers.demands.covering import cover_by_busiest, cover_heaviest_first
from optmatch.solvers.demands.entries import Left, PortVectors, assign_entries
from optmatch.solvers.demands.plans import Plan, join, only_demanded, serve, tidy, trim
from optmatch.solvers.kernels.decorators import kernel

CHOICES = 8
"""Lengths that are compared for a slot: as many entries that are left, evenly spread."""

_PRESSURE = 3.0  # the factor by which busy ports count more


@kernel
def _weigh(space, left, count, delay):
    """Set the weight of a tick of each entry: the more, the busier its ports."""
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
    """Return the value of a slot of this length for an entry; a finished entry saves a delay."""
    return ticks + delay if ticks <= length else length


@kernel
def _choose_length(left, count, delay):
    """Return the length at which the best entries of all rows serve most in its time."""
    lengths, total, most = left.lengths, left.total, left.most
    choices = min(CHOICES, count)
    for k in range(CHOICES):  # a fixed number, so that they are compared side by side
        place = min(k, choices - 1) * (count - 1) // max(1, choices - 1)
        lengths[k], total[k], most[k] = left.ticks[place], 0.0, 0.0
    row = -1
    for entry in range(count):  # they are in order of rows
        if left.row[entry] != row:
            row = left.row[entry]
            for k in range(CHOICES):
                total[k] += most[k]
                most[k] = 0.0
        worth, ticks = left.worth[entry], float(left.ticks[entry])
        for k in range(CHOICES):
            value = worth * _serves(ticks, lengths[k], delay)
            most[k] = value if value > most[k] else most[k]
    best, chosen = -1.0, 0
    for k in range(choices):
        rate = (total[k] + most[k]) / (lengths[k] + delay)
        if rate > best:
            best, chosen = rate, k
    return left.ticks[chosen * (count - 1) // max(1, choices - 1)]


@kernel
def _match(space, left, count, length, delay):
    """Write a stable matching to ``space.column_of``, -1 for none (Manne and Halappanavar 2014).

    Each row asks the best column that would take it; a row that is sent away asks again.
    """
    offer, column_of = space.column_price, space.column_of
    row_of, first = space.row_of, space.first
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
def cover(space, left, count, delay, shortest, exact, matchings, lengths):
    """Choose slots until no entries are left or there is no room; return slots and entries."""
    n, done = len(space.row_price), 0
    while count > 0 and done < len(matchings):
        _weigh(space, left, count, delay)
        length = _choose_length(left, count, delay)
        if exact:
            for k in range(count):
                left.value[k] = left.worth[k] * _serves(left.ticks[k], length, delay)
            assign_entries(space, left, count)
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


_NS_PER_ENTRY = 25  # of a slot with a stable matching, at least: 1 ns for each partner of a row
_LOOK_S = 0.0003  # between two looks at the clock
_MOST_NS = 1e11  # of a stable cover: each slot serves an entry of a row at best
_FEW = 32  # ports: up to here the fewest slots are found within a millisecond
_SMALL = 20_000  # entries times partners of a port: best matchings take about a millisecond
_THIN = 64_000  # entries times partners: best matchings take little longer than stable ones
_EXACT = 256  # ports: beyond, assignments take too long
_GRACE_S = 0.0008  # by which a former plan may prolong the work
_MOVES = 50


def cover_quickly(
    demand: NDArray[np.int64], delay: int, shortest: int = 1, *, exact: bool = True
) -> Plan:
    """Cover a demand by slots that serve much for their time.

    Each slot holds the best matching for its length, or, unless `exact`, a stable one.
    """
    return _Rest(demand, delay, shortest).cover(exact)


class _Rest:
    """What is left of a demand, to be covered until a deadline."""

    def __init__(
        self, demand: NDArray[np.int64], delay: int, shortest: int = 1, deadline: float = np.inf
    ) -> None:
        self._n, self._delay, self._shortest = len(demand), delay, shortest
        self._deadline = deadline
        row, column = np.nonzero(demand)
        self.count = len(row)
        worth, value = np.empty((2, self.count))
        self._left = Left(row, column, demand[row, column], worth, value, *np.empty((3, CHOICES)))
        self._space = PortVectors(
            *np.zeros((3, self._n)), *np.zeros((6, self._n + 1), dtype=np.int64)
        )

    def cover(self, exact: bool) -> Plan:
        """Cover all of it by the best matchings, or by stable ones."""
        copies = {name: getattr(self._left, name).copy() for name in ("row", "column", "ticks")}
        left, count, parts = self._left._replace(**copies), self.count, [Plan.of([], [], self._n)]
        while count > 0:
            each_ns = _NS_PER_ENTRY * 2 if exact else max(_NS_PER_ENTRY, count / self._n)
            takes_s = 1e-9 * each_ns * count
            if counted_time() > self._deadline - (0.0 if exact else takes_s):
                raise TimeUp
            # The number of slots after which the clock is looked at.
            room = int(np.clip(_LOOK_S / takes_s, 1, 128))
            rows, lengths = np.empty((room, self._n), np.int32), np.empty(room, np.int64)
            found, count = cover(
                self._space, left, count, self._delay, self._shortest, exact, rows, lengths
            )
            parts.append(Plan(rows[:found], lengths[:found]))
        return Plan(*map(np.concatenate, zip(*parts, strict=True)))


def plan_quickly(
    demand: NDArray[np.int64], delay: int, deadline: float, previous: Plan | None = None
) -> Plan:
    """Cover a demand as well as time allows.

    The steps and their order do not depend on the time there is, so more of it is never worse:
    heaviest first, and the best matchings if these take about a millisecond, in any case; stable
    matchings, before or after the best ones, whichever are quicker for what they reach; the
    fewest slots, for few ports; then parts of the best plan are covered anew. `previous` patched
    is one more plan; no step follows from it.

    Parameters
    ----------
    demand, delay
        In ticks.
    deadline
        When to stop, by `counted_time`; infinite for a number of moves.
    previous
        Slots of a demand like this one, to start from.
    """
    if not demand.any():
        return Plan.of([], [], len(demand))
    partners = [np.count_nonzero(demand, axis=axis) for axis in (0, 1)]
    bound = max(int((demand.sum(axis=k) + delay * partners[k]).max()) for k in (0, 1))
    work = int(partners[0].sum()) * int(max(each.max() for each in partners))
    small = work < _SMALL
    found = cover_heaviest_first(demand)
    began = counted_time()
    best = _finish(found, demand)
    takes_s = counted_time() - began  # which every other plan takes in the end, too
    if small:
        found = _finish(_Rest(demand, delay).cover(True), demand)
        best = min(best, found, key=lambda plan: plan.cost(delay))
    known = best
    late = deadline - takes_s
    try:
        began = counted_time()
        if previous is not None and (small or began + takes_s < late):
            patched = _finish(_patch(previous, demand, delay, np.inf if small else late), demand)
            known = min(best, patched, key=lambda plan: plan.cost(delay))
            late += min(_GRACE_S, counted_time() - began)  # so that the rest misses nothing
        early = None if small or len(demand) > _EXACT else work < _THIN
        steps = yield_plans(best, demand, delay, late, early, endless=deadline < np.inf)
        while known.cost(delay) > bound and counted_time() + takes_s < late:
            plan = next(steps, None)
            if plan is None:
                break
            known = plan if plan.cost(delay) <= known.cost(delay) else known
    except TimeUp:
        pass
    return known


def yield_plans(
    best: Plan,
    demand: NDArray[np.int64],
    delay: int,
    deadline: float,
    early: bool | None,
    *,
    endless: bool,
) -> Iterator[Plan]:
    """Yield whole covers, then rebuilds of parts of the best.

    The best matchings come before stable ones if `early`, or after; None for without them.
    """
    rest, rng = _Rest(demand, delay, deadline=deadline), np.random.default_rng(0)

    def covers() -> Iterator[Plan]:
        if early:
            yield rest.cover(True)
        if rest.count * (rest.count / len(demand)) ** 2 <= _MOST_NS:
            yield rest.cover(False)
        if early is False:
            yield rest.cover(True)
        if len(demand) <= _FEW:
            yield cover_by_busiest(demand)
        for _ in count() if endless else range(_MOVES):
            if len(best.ticks) < 2:
                return
            yield _patch(_take_some(best, rng), demand, delay, deadline)

    for found in covers():
        plan = _finish(found, demand)
        best = plan if plan.cost(delay) <= best.cost(delay) else best
        yield plan


def _take_some(plan: Plan, rng: np.random.Generator) -> Plan:
    """Take out some slots, short ones rather than long ones."""
    n_slots = len(plan.ticks)
    stay = plan.ticks / plan.ticks.max() + rng.random(n_slots)
    out = int(rng.integers(min(2, n_slots - 1), n_slots))
    return plan.take(np.argsort(stay, kind="stable")[out:])


def _patch(plan: Plan, demand: NDArray[np.int64], delay: int, deadline: float) -> Plan:
    """Cover the rest that some slots leave."""
    rest = _Rest(np.maximum(demand - serve(plan), 0), delay, deadline=deadline)
    return join(plan, rest.cover(len(demand) <= _EXACT))


def _finish(plan: Plan, demand: NDArray[np.int64]) -> Plan:
    """Put equal slots together, and take out circuits that no demand needs."""
    return only_demanded(trim(tidy(plan), demand), demand)
