"""Moves of a large neighbourhood search over plans of a demand, as a kernel.

A *move* takes some slots out, short ones rather than long ones, and covers what they served anew;
the new plan is kept if it is no longer. For few ports a move takes some microseconds, of which the
same steps by arrays of NumPy take two hundred.

Kernels share three records. A `MoveTask`, `task`, has ``demand[source, destination]`` in ticks,
the delay and the shortest slot. A `SlotList` is a plan with room for more slots: ``n_slots[0]`` of
them count, ``matchings[slot, source]`` is a destination or -1, and ``ticks[slot]`` is the length
without the delay. `current` is the plan that is improved. A `MoveScratch`, `scratch`, is the
memory of one move: ``scratch.trial`` is the plan that it makes, and all other arrays are
overwritten, but for the state of the random numbers. New slots come from a cover, slot by slot a
heavy matching of the entries that are unserved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import counted_time
from optmatch.solvers.demands.entries import UNLIMITED_WORK, PortVectors, port_vectors
from optmatch.solvers.demands.entry_covers import (
    COMPARED,
    CRITICAL,
    MEDIAN,
    RATED,
    CoverTerms,
    copy_entries,
    cover_entries,
)
from optmatch.solvers.demands.plans import Plan, add_service, shorten_slots
from optmatch.solvers.demands.tasks import CoverTask, Size
from optmatch.solvers.kernels.arrays import copy_into, largest_of, sort_first
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

_MULTIPLIER = 48_271
_MODULUS = 2_147_483_647
"""The random numbers of Park and Miller (1993): products fit 64 bits, so that the kernel as plain
Python draws the same ones."""

_LEAST_ROOM = 32
"""There is room for plans of so many slots, and for more when a longer plan comes."""

_WORK_PER_S = 4e8
"""Entries that a cover looks at in a second, until a round has been measured; 2 to 6e8."""

_LEAST_WORK_PER_S = 1e8
"""Slower rounds were slowed down by something else. With the rate of such a round as measured, the
next one seemed not to fit, and the search ended long before its time."""

_LONG_ENOUGH_S = 0.005
"""Rounds that take longer than this are measured."""

_ROUND_S = 0.0005
"""A round of moves is estimated to take so long, if it has more than one."""
_MOST_MOVES = 50
"""The most moves of a round: for five ports these take a tenth of a millisecond."""
_RULES = (
    (RATED, 3.0),
    (RATED, 3.0),
    (CRITICAL, 0.0),
    (MEDIAN, 0.0),
    (COMPARED, 10.0),
)
"""The rules of moves, and by how much busy ports count more."""


class MoveTask(NamedTuple):
    """The demand that plans serve, and how parts of it are covered anew."""

    demand: NDArray[np.int64]
    """``demand[source, destination]`` in ticks, shape (n, n)."""
    delay: int
    """Ticks before each slot."""
    shortest: int
    """No slot is shorter, in ticks."""
    choices: NDArray[np.int64]
    """(rules,): RATED, CRITICAL, ...; each move draws one of them."""
    pressures: NDArray[np.float64]
    """(rules,): how much more busy ports count by each rule."""


class SlotList(NamedTuple):
    """Slots of a plan in arrays that have room for more."""

    matchings: NDArray[np.int32]
    """(room, n): the destination of each source, -1 for none."""
    ticks: NDArray[np.int64]
    """(room,): how long each slot lasts."""
    n_slots: NDArray[np.int64]
    """(1,): how many slots there are."""


class MoveScratch(NamedTuple):
    """The memory of a move."""

    trial: SlotList
    """The plan that the move makes."""
    unserved_ticks: NDArray[np.int64]
    """(n, n): what the slots that stay leave of the demand, in ticks; below 0 where they serve
    more."""
    served: NDArray[np.int64]
    """(n, n): how long each circuit is up, in ticks."""
    key: NDArray[np.float64]
    """(room,): by slot; those of the lowest keys are taken out."""
    sorted_key: NDArray[np.float64]
    """(room,): these keys, ascending."""
    order: NDArray[np.int64]
    """(room,): numbers of slots, the shortest first."""
    seed: NDArray[np.int64]
    """(1,): the state of the random numbers, 1 to `_MODULUS` - 1."""


@inner_kernel
def _draw(seed):
    """Return the next random number, above 0 and below 1; ``seed`` is an int array, shape (1,)."""
    seed[0] = seed[0] * _MULTIPLIER % _MODULUS
    return seed[0] / _MODULUS


@inner_kernel
def _draw_below(seed, limit):
    """Return a random whole number from 0 to `limit` - 1; ``seed`` is an int array, shape (1,)."""
    return int(_draw(seed) * limit)


@inner_kernel
def _copy_slot(source, slot, target, place):
    """Copy a slot of one `SlotList` to a place of another one, or of the same one.

    Writes ``target.matchings[place]`` and ``target.ticks[place]``.
    """
    copy_into(target.matchings[place], source.matchings[slot])
    target.ticks[place] = source.ticks[slot]


@inner_kernel
def _keep_some_slots(current, scratch):
    """Choose at random which slots of a plan stay, long ones rather than short ones.

    Each slot gets a key: its length as a part of the longest one's, plus a random number from 0 to
    1. A random number of slots, those of the lowest keys, are left out: two at least (one of two
    slots), and never all of them. The others are copied to ``scratch.trial``, in their order;
    `current` stays as it is.
    """
    n_slots = current.n_slots[0]
    longest = max(1, largest_of(current.ticks, n_slots))
    for slot in range(n_slots):
        scratch.key[slot] = current.ticks[slot] / longest + _draw(scratch.seed)
        scratch.sorted_key[slot] = scratch.key[slot]

    # As many slots go as have a key below that of the first one that stays.
    fewest = min(2, n_slots - 1)
    n_out = fewest + _draw_below(scratch.seed, n_slots - fewest)
    sort_first(scratch.sorted_key, n_slots)
    least_key = scratch.sorted_key[n_out]
    n_kept = 0
    for slot in range(n_slots):
        if scratch.key[slot] >= least_key:
            _copy_slot(current, slot, scratch.trial, n_kept)
            n_kept += 1
    scratch.trial.n_slots[0] = n_kept


@inner_kernel
def _list_unserved(demand, trial, unserved_ticks, unserved):
    """List, row by row, the entries that some slots leave of a demand.

    Writes ``unserved.row``, ``unserved.column`` and ``unserved.ticks`` by entry, and returns how
    many entries they have; ``unserved_ticks[source, destination]`` is scratch, in ticks.
    """
    for source in range(len(demand)):
        for destination in range(len(demand)):
            unserved_ticks[source, destination] = demand[source, destination]
    for slot in range(trial.n_slots[0]):
        for source in range(len(demand)):
            destination = trial.matchings[slot, source]
            if destination >= 0:
                unserved_ticks[source, destination] -= trial.ticks[slot]

    # What is left above 0, row by row.
    count = 0
    for source in range(len(demand)):
        for destination in range(len(demand)):
            if unserved_ticks[source, destination] > 0:
                unserved.row[count] = source
                unserved.column[count] = destination
                unserved.ticks[count] = unserved_ticks[source, destination]
                count += 1
    return count


@inner_kernel
def _merge_equal_slots(trial):
    """Put slots of the same matching together: the first one lasts as long as all of them.

    Changes `trial` in place: different matchings move to the front, in their order, and
    ``trial.n_slots[0]`` counts them. O(slots^2 ports).
    """
    n = trial.matchings.shape[1]
    n_different = 0
    for slot in range(trial.n_slots[0]):
        twin = -1
        for earlier in range(n_different):
            source = 0
            while source < n and trial.matchings[earlier, source] == trial.matchings[slot, source]:
                source += 1
            if source == n:
                twin = earlier
                break

        # A matching that is new moves up to the end of the different ones.
        if twin >= 0:
            trial.ticks[twin] += trial.ticks[slot]
        else:
            _copy_slot(trial, slot, trial, n_different)
            n_different += 1
    trial.n_slots[0] = n_different


@inner_kernel
def _drop_needless(demand, trial, shortest):
    """Take out circuits without demand and slots of no use; lengthen slots that are too short.

    Changes the plan `trial` in place, slots of use in front, and returns the ticks of them all. No
    slot is shorter than `shortest` ticks afterwards.
    """
    # Slots that are left move to the front; `n_used` counts them. A slot is of use if any of its
    # circuits has a demand.
    total = 0
    n_used = 0
    for slot in range(trial.n_slots[0]):
        if trial.ticks[slot] <= 0:
            continue
        is_used = False
        for source in range(len(demand)):
            destination = trial.matchings[slot, source]
            if destination >= 0 and demand[source, destination] == 0:
                destination = -1
            trial.matchings[n_used, source] = destination
            is_used = is_used or destination >= 0

        # It closes the gap that slots of no use have left.
        if is_used:
            trial.ticks[n_used] = max(trial.ticks[slot], shortest)
            total += trial.ticks[n_used]
            n_used += 1
    trial.n_slots[0] = n_used
    return total


@inner_kernel
def _end_move(task, current, scratch, cost):
    """Finish the new plan of a move, and keep it in place of the old one if it is no longer.

    The new plan is ``scratch.trial``: the slots that stayed and those that were added, which serve
    the demand together. The old one is `current`, which is overwritten if the new one is kept.
    `cost` is that of the old plan, and the cost of the plan that is kept is returned, both in
    ticks with a delay for each slot. The new plan is first made as short as its matchings allow:

    - slots of the same matching are put together;
    - each slot is shortened to what the demand needs of it, though not below the shortest slot;
    - circuits without demand and slots of no use are taken out.
    """
    demand = task.demand
    trial = scratch.trial

    # Each slot lasts no longer than the demand needs it. The shortest ones come first, since a
    # slot that comes down to nothing, which the last argument allows, saves a delay too.
    _merge_equal_slots(trial)
    n_slots = trial.n_slots[0]
    ticks = trial.ticks[:n_slots]
    matchings = trial.matchings[:n_slots]
    scratch.served[:, :] = 0
    add_service(matchings, ticks, scratch.served)

    # Their order is made by insertion (Knuth, volume 3); equal ones stay in theirs.
    order = scratch.order[:n_slots]
    for slot in range(n_slots):
        place = slot
        while place > 0 and ticks[order[place - 1]] > ticks[slot]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = slot
    shorten_slots(demand, scratch.served, matchings, ticks, order, task.shortest, True)

    # Useless circuits and slots go. The new plan is kept if it is no longer than the old one, so
    # that moves among plans of the same length are possible, too.
    new_cost = _drop_needless(demand, trial, task.shortest) + task.delay * trial.n_slots[0]
    if new_cost <= cost:
        cost = new_cost
        for slot in range(trial.n_slots[0]):
            _copy_slot(trial, slot, current, slot)
        current.n_slots[0] = trial.n_slots[0]
    return cost


@kernel
def _make_moves(task, current, scratch, ports, unserved, n_moves):
    """Try to shorten a plan of slots by random changes, one after the other.

    Changes `current` in place, and returns how many moves were made: fewer than `n_moves` if one
    slot alone is left, or when ``ports.work[0]``, the entries that may still be looked at, falls
    below 0. `ports` and `unserved` are the memory of `cover_entries`. Each change (a move) does
    three things:

    1. it takes some slots out, at random, short ones rather than long ones;
    2. it covers the demand that they served by new slots, by a rule that is drawn at random;
    3. it keeps the new plan if that takes no more time, delays included.
    """
    trial = scratch.trial
    room = len(trial.ticks)
    cost = task.delay * current.n_slots[0]
    for slot in range(current.n_slots[0]):
        cost += current.ticks[slot]
    for move in range(n_moves):
        if current.n_slots[0] < 2 or ports.work[0] < 0:
            return move

        # Slots that stay, and a cover of what they leave by a rule that is drawn.
        _keep_some_slots(current, scratch)
        count = _list_unserved(task.demand, trial, scratch.unserved_ticks, unserved)
        rule = _draw_below(scratch.seed, len(task.choices))
        terms = CoverTerms(
            task.delay, task.shortest, task.choices[rule], task.pressures[rule], 1.0
        )
        n_kept = trial.n_slots[0]
        new_slots = Plan(trial.matchings[n_kept:room], trial.ticks[n_kept:room])
        n_new, n_unserved = cover_entries(ports, unserved, count, terms, new_slots)
        ports.work[0] -= task.demand.size

        # A cover that had to end, or that needs too many slots, comes to nothing.
        if n_unserved == 0:
            trial.n_slots[0] = n_kept + n_new
            cost = _end_move(task, current, scratch, cost)
    return n_moves


class MoveSearch:
    """Rounds of moves, each from a plan that is given, with random numbers of its own.

    A move takes some slots of a plan out and covers what they served anew; a round is a number of
    moves that take about a millisecond, or one move that takes longer. The random numbers go on
    from round to round, and no clock has a part in the results.

    ``_current`` is the `SlotList` of the plan and ``_scratch`` the memory of a move, both with the
    same room; ``_ports`` and ``_unserved`` are the memory of `cover_entries`.
    """

    def __init__(self, task: CoverTask, size: Size) -> None:
        """Lay out the memory of a search that shortens plans for one demand by random moves."""
        n_ports = size.n_ports
        self._task = MoveTask(
            task.demand,
            task.delay,
            task.shortest,
            choices=np.array([choice for choice, _ in _RULES]),
            pressures=np.array([pressure for _, pressure in _RULES]),
        )

        # A move is estimated to take a quarter of a cover of the whole demand.
        self.moves_per_round = int(np.clip(4 * _ROUND_S / size.best_slots_s, 1, _MOST_MOVES))
        self._work_per_s = _WORK_PER_S
        """The entries that a round looks at in a second, as the last long one was measured."""
        self._unserved_ticks, self._served = np.empty((2, n_ports, n_ports), dtype=np.int64)
        self._seed = np.array([1], dtype=np.int64)
        self._ports: PortVectors = port_vectors(n_ports, size.n_entries)
        self._unserved = copy_entries(task.entries)
        self._make_room(_LEAST_ROOM)

    def _make_room(self, n_slots: int) -> None:
        """Lay out room for plans of so many slots, and for as many slots that a move adds.

        ``self._current``, the plan that is being shortened, and ``self._scratch``, the memory of a
        move, are replaced by empty ones; the random numbers go on.
        """
        # Two lists of slots: the plan, and the one in which a move changes it.
        room = 2 * n_slots
        n_ports = len(self._task.demand)
        slot_lists = [
            SlotList(
                np.empty((room, n_ports), dtype=np.int32),
                np.empty(room, dtype=np.int64),
                np.zeros(1, dtype=np.int64),
            )
            for _ in range(2)
        ]
        self._current, trial = slot_lists
        self._scratch = MoveScratch(
            trial=trial,
            unserved_ticks=self._unserved_ticks,
            served=self._served,
            key=np.empty(room),
            sorted_key=np.empty(room),
            order=np.empty(room, dtype=np.int64),
            seed=self._seed,
        )

    def play_round(self, plan: Plan, remaining_s: float) -> Plan | None:
        """Try to shorten a plan by ``self.moves_per_round`` random changes.

        Returns a plan that is no longer; None if the time does not suffice for the whole round.
        """
        n_slots = len(plan.ticks)
        if 2 * n_slots > len(self._current.ticks):
            self._make_room(n_slots)
        self._current.matchings[:n_slots] = plan.matchings
        self._current.ticks[:n_slots] = plan.ticks
        self._current.n_slots[0] = n_slots

        # The kernel reads no clock. It gets a budget instead: how many entries it can look at in
        # the seconds that are left. It counts ``work[0]`` down, and ends soon after that is < 0.
        work = int(min(UNLIMITED_WORK, remaining_s * self._work_per_s))
        self._ports.work[0] = work
        began_s = counted_time()
        n_made = _make_moves(
            self._task,
            self._current,
            self._scratch,
            self._ports,
            self._unserved,
            self.moves_per_round,
        )
        took_s = counted_time() - began_s

        # Moves are left out for two reasons: the budget is used up, or there is one slot alone.
        n_slots = int(self._current.n_slots[0])
        if n_made < self.moves_per_round and n_slots > 1:
            return None

        # The rate of this call gives the budget of the next one. A call that takes a few
        # milliseconds or less is too short to measure.
        if took_s > _LONG_ENOUGH_S:
            measured = (work - int(self._ports.work[0])) / took_s
            self._work_per_s = max(_LEAST_WORK_PER_S, measured)
        return Plan(self._current.matchings[:n_slots].copy(), self._current.ticks[:n_slots].copy())
