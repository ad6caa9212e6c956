"""The order of the slots of an all-to-all: few toggles, and short delays where cells are slow.

A slot *drives* a cell to bar or cross if light passes it; otherwise the cell is *free*, or *dark*,
and keeps the state it had. A *toggle* is a cell that is driven to its other state: what counts is
how often the sequence of its driven states changes. Routes are chosen to suit the order.

A cell takes some time to *settle* in another state. Where slots wait for their own cells, a slot
waits for the slowest cell that it drives to another state than the one the cell had before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import BAR, CROSS, FREE, Clock, OnEvent, Solution, Tick
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.planner import SlotPlanner
from optmatch.solvers.kernels.arrays import copy_into
from optmatch.solvers.kernels.decorators import kernel
from optmatch.solvers.routing.pathfinder import UNIT

_WORK_PER_S = 10**9
"""Slots squared times cells, of which a pass over the order does so many in a second."""


@kernel
def neighbours(states, order, count, last, following):
    """Write the driven states of cells before and after each place, and return the toggles.

    ``states[slot, cell]`` is -1 where free, and ``order[place]`` a slot; the first `count` places
    are looked at. A cell that a slot leaves free keeps its state. ``last[place, cell]`` receives
    the last driven state before a place, and ``following[place, cell]`` the first one from it on;
    -1 for none. Places are 0 to `count`: a slot may be put in before each slot, and after the last
    one. If a cell is in bar, free and in cross in three slots, `last` of this cell is -1, 0, 0, 1
    and `following` 0, 1, 1, -1.
    """
    cells = states.shape[1]
    toggles = 0
    last[0, :] = -1
    following[count, :] = -1

    # Forward: a cell keeps the state that it was last driven to, until another one toggles it.
    for place in range(count):
        slot = order[place]
        for cell in range(cells):
            state = states[slot, cell]
            state_before = last[place, cell]
            if state >= 0 and state_before >= 0 and state != state_before:
                toggles += 1
            last[place + 1, cell] = state if state >= 0 else state_before

    # Backward: the state that each cell is driven to next.
    for place in range(count - 1, -1, -1):
        slot = order[place]
        for cell in range(cells):
            state = states[slot, cell]
            following[place, cell] = state if state >= 0 else following[place + 1, cell]
    return toggles


@kernel
def reinsert(states, order, victims, last, following):
    """Take slots out one by one and put each back where it costs the fewest toggles.

    It is best insertion, O(slots * cells) for each slot. `victims` are the numbers of the slots
    that are taken out, and ``states[slot, cell]`` is 0, 1, or -1 where free. ``order[place]``, a
    slot, is changed. ``last[place, cell]`` and ``following[place, cell]``, the driven states
    before and from each place on, are written, at the end for the new order. Returns the toggles
    of the new order.
    """
    slots, cells = states.shape
    for pick in range(len(victims)):
        slot = victims[pick]

        # Take the slot out of the order.
        present_place = 0
        while order[present_place] != slot:
            present_place += 1
        for place in range(present_place, slots - 1):
            order[place] = order[place + 1]

        # At each place it adds a toggle to its cells if the state before or after differs; if
        # those two differ from each other, one toggle was there already.
        neighbours(states, order, slots - 1, last, following)
        best = 1 << 60
        best_place = 0
        for place in range(slots):
            extra = 0
            for cell in range(cells):
                state = states[slot, cell]
                if state < 0:
                    continue

                # A toggle before and one behind; the one that was between both is saved. A cell
                # that is driven to cross adds 2 between bar and bar, 0 between bar and cross.
                state_before = last[place, cell]
                state_after = following[place, cell]
                if state_before >= 0 and state_before != state:
                    extra += 1
                if state_after >= 0 and state_after != state:
                    extra += 1
                if state_before >= 0 and state_after >= 0 and state_before != state_after:
                    extra -= 1
            if extra < best:
                best = extra
                best_place = place

        # Put it back at the best place; all slots behind it move on by one.
        for place in range(slots - 1, best_place, -1):
            order[place] = order[place - 1]
        order[best_place] = slot
    return neighbours(states, order, slots, last, following)


class Sequence:
    """Some slots and their cell states, and the best order found so far.

    Parameters
    ----------
    states
        ``states[slot, cell]``, int8: 0 bar, 1 cross, -1 free. Not copied: a caller that changes
        rows calls `count` again.

    Attributes
    ----------
    order : int array, shape (slots,)
        ``order[place]``: the slot at a place.
    last, following : int8 array, shape (slots + 1, cells)
        The driven states before and after each place, as `neighbours` writes them.
    """

    def __init__(self, states: NDArray[np.int8]) -> None:
        """Begin with the order in which the slots are given; `states` is not copied."""
        slots, cells = states.shape
        self.states = states
        self.order = np.arange(slots)
        self.last = np.empty((slots + 1, cells), dtype=np.int8)
        self.following = np.empty((slots + 1, cells), dtype=np.int8)

    def count(self) -> int:
        """Count the toggles of the present order, and write ``last`` and ``following`` anew."""
        return int(neighbours(self.states, self.order, len(self.order), self.last, self.following))

    def improve(self, rng: np.random.Generator, clock: Clock | None = None) -> int:
        """Search for an order with fewer toggles, by best insertion; return their number.

        A pass of insertions, in an order drawn by `rng`, costs O(slots^2 * cells); none is begun
        that would not end in the remaining time.
        """
        best = self.count()
        work = len(self.order) ** 2 * self.states.shape[1]
        while clock is None or clock.remaining_s > work / _WORK_PER_S:
            victims = rng.permutation(len(self.order))
            n_toggles = int(reinsert(self.states, self.order, victims, self.last, self.following))
            if n_toggles >= best:
                return n_toggles
            best = n_toggles
        return best

    def agreement(self, place: int, unit: int) -> NDArray[np.int64]:
        """Return ``cost[cell, state]``: `unit` for each toggle more than if the cell stays dark.

        A slot at this place is about to be routed anew. A cell that it drives to a state toggles
        if the cell had another state before, and again if it has another state later. A cell that
        it leaves dark toggles once if the states before and later differ. A cell that is in bar
        before and later costs 0 in bar and 2 * `unit` in cross; one that is in bar before and in
        cross later costs 0 in either. `count` must have been called since the last change of
        states or order.
        """
        state_before = self.last[place][:, None]
        state_after = self.following[place + 1][:, None]
        states = np.array([BAR, CROSS])
        if_dark = (state_before != state_after) & (state_before != FREE) & (state_after != FREE)
        toggles_before = (state_before != FREE) & (state_before != states)
        toggles_after = (state_after != FREE) & (state_after != states)
        added: NDArray[np.int64] = toggles_before.astype(np.int64) + toggles_after - if_dark
        return added * unit


def lower_toggles(planner: SlotPlanner, sequence: Sequence) -> int:
    """Order the slots for few toggles, and choose among routes of the same length for that order.

    ``planner.plan`` receives the new routes. Returns the toggles after the slots were ordered,
    before routes changed.
    """
    planner.on_event(Tick("order", 0))
    clock = planner.clock
    ordered = sequence.improve(planner.rng, clock)

    # New routes may make another order better, and that other routes: three rounds at most.
    for _ in range(3):
        before = sequence.count()
        _reroute_for_fewer_toggles(planner, sequence)
        if sequence.improve(planner.rng, clock) >= before:
            break
    return ordered


def _reroute_for_fewer_toggles(planner: SlotPlanner, sequence: Sequence) -> None:
    """Reroute each slot in turn, in the order of the sequence, so that fewer cells toggle.

    Changes the routes in ``planner.plan`` and the rows of ``sequence.states``, both by slot.
    Routes stay as short as they are: among ways of the same number of cells those are taken whose
    cells are already in the state that they have in the slots before and after. A slot is only
    changed if the whole sequence then has fewer toggles.
    """
    # All toggles of a route together cost less than a cell.
    cell_cost = planner.router.wiring.cell_cost
    toggle_cost = UNIT // (4 * planner.router.width)
    n_toggles = sequence.count()
    for place in range(len(sequence.order)):
        if planner.clock.remaining_s <= 0:
            return

        # Shorten the routes of this slot at the price of the toggles that each state would add.
        index = int(sequence.order[place])
        slot = planner.plan[index]
        routes = slot.routes.copy()
        lengths = slot.lengths.copy()
        order = planner.sources(slot.partner)
        planner.router.shorten(
            order,
            planner.destinations(slot.partner),
            routes,
            lengths,
            cell_cost=cell_cost + sequence.agreement(place, toggle_cost),
        )

        # Keep them if that helps the sequence, or go back. Counting also brings the arrays up to
        # date that `agreement` reads for the next slot.
        former_states = sequence.states[index].copy()
        sequence.states[index] = planner.router.states(order, routes, lengths)
        new_n_toggles = sequence.count()
        if new_n_toggles < n_toggles:
            n_toggles = new_n_toggles
            planner.plan[index] = slot._replace(routes=routes, lengths=lengths)
        else:
            sequence.states[index] = former_states
            sequence.count()


N_STARTS = 4
"""Orders that the search starts from, all but the first at random."""

MOST_SLOTS_OF_RANDOM_STARTS = 64
"""With more slots only the given order is a start: a sweep grows with the cube of their number."""

SEARCH_NODES = 20_000
"""Cliques that the bound looks at, at most: about 0.1 s. A smaller clique is a bound, too."""

NO_GAIN = 1e-12
"""A sweep that shortens the sum by a smaller share was one of rounding."""


def order_slots(
    problem: AllToAll,
    solution: Solution,
    rng: np.random.Generator,
    clock: Clock,
    on_event: OnEvent,
) -> Solution:
    """Bring the slots of an answer into an order with short delays, if each waits for its cells.

    A slot waits for the slowest cell that it drives to another state than the cell had before, so
    the sum of all waits depends on the order. If ``problem.delay_s`` is not "cells", the answer
    stays; otherwise its schedule has the slots in the new order, and ``delays_s`` for each slot. A
    cell is set ahead of time: while it is dark, it takes the state that the next slot with light
    in it needs. The statistics are the sums of the waits in s, in this order, in the given one,
    and their lower bound.
    """
    schedule = solution.schedule
    device = problem.cells
    if problem.delay_s != "cells" or schedule is None or device is None:
        return replace(solution, problem=problem)

    # ``states[slot, cell]``, and how long each cell takes to settle. A cell that is stuck in a
    # state never changes, so that nobody waits for it.
    on_event(Tick("order", 0))
    graph = problem.fabric.graph
    states = schedule.cell_states
    assert graph is not None and states is not None  # as there are cells
    settling_s = np.where(graph.stuck == FREE, device.settling_s, 0.0)
    if problem.objective == "power-mw":
        # Power counts in every slot, hence a dark cell has to be in the state that takes less.
        cheapest = device.power_mw.argmin(axis=1).astype(np.int8)
        states = np.where((states == FREE) & (graph.stuck == FREE), cheapest, states)

    # The order that was found, unless the given one is no worse. A plan is the states of the slots
    # in an order, and ``delays_s[place]``, how long each waits.
    orders = [np.arange(len(states)), search_order(states, settling_s, rng, clock)]
    plans = [set_ahead(states[order], settling_s) for order in orders]
    totals_s = [float(delays_s.sum()) for _, delays_s in plans]
    best = int(np.argmin(totals_s))
    ordered_states, delays_s = plans[best]
    stats: dict[str, Any] = {
        "total_settling_s": totals_s[best],
        "total_settling_unordered_s": totals_s[0],
        "total_settling_lower_bound_s": bound_settling(states, settling_s),
    }

    # Toggles were counted in another order.
    stats |= {name: value for name, value in solution.stats.items() if "toggles" not in name}
    schedule = replace(
        schedule,
        matchings=schedule.matchings[orders[best]],
        cell_states=ordered_states,
        delay_s=float(delays_s.max(initial=0.0)),
        delays_s=delays_s,
    )
    return replace(solution, problem=problem, schedule=schedule, stats=stats)


def bound_settling(states: NDArray[np.int8], settling_s: NDArray[np.float64]) -> float:
    """Bound from below the time in s that the slots wait for their cells, summed, in any order.

    ``states[slot, cell]``, -1 where a slot does not drive a cell; ``settling_s[cell]`` is how long
    a change of the cell takes. Two slots conflict at a time t if they drive some cell that settles
    in t or more to different states. If d slots of an order wait for t or more, each of them
    begins a group that lasts until the next one. No such cell changes inside a group, hence slots
    that conflict are in different groups, and d is at least the size of any clique of the conflict
    graph. A slot that waits for w counts for all t up to w, so that the sum of all waits is the
    integral of d over t. For example, three slots conflict pairwise by cells that settle in 4 us,
    and two of them also by a cell that takes 10 us: d is at least 3 up to 4 us, and 2 from there
    up to 10 us, hence they wait 3 * 4 + 2 * 6 = 24 us in all at least.
    """
    # ``conflicts[slot]`` has a bit for each slot that the slot conflicts with.
    conflicts = [0] * len(states)
    clique_size = 0
    nodes_left = SEARCH_NODES
    total_s = 0.0
    is_driven = (states != FREE).any(axis=0)
    times_s = np.unique(np.append(settling_s[is_driven], 0.0))[::-1]

    # Times fall: with each one more slots conflict, and the largest clique can only grow.
    for time_s, next_time_s in pairwise(times_s.tolist()):
        has_grown = False
        for cell in np.flatnonzero(settling_s == time_s):
            # Slots that drive the cell to different states conflict.
            in_bar = np.flatnonzero(states[:, cell] == BAR).tolist()
            in_cross = np.flatnonzero(states[:, cell] == CROSS).tolist()
            for slots, rivals in ((in_bar, in_cross), (in_cross, in_bar)):
                bits_of_rivals = sum(1 << slot for slot in rivals)
                for slot in slots:
                    has_grown |= bool(bits_of_rivals & ~conflicts[slot])
                    conflicts[slot] |= bits_of_rivals

        # The largest clique counts until the next time.
        clique_size = max(clique_size, 1)  # some slot drives such a cell, and waits for it
        if has_grown and nodes_left > 0:
            larger_size, n_nodes = find_larger_clique(conflicts, clique_size, nodes_left)
            clique_size = max(clique_size, larger_size)
            nodes_left -= n_nodes
        total_s += clique_size * (time_s - next_time_s)
    return total_s


def find_larger_clique(neighbours: list[int], known_size: int, most_nodes: int) -> tuple[int, int]:
    """Search for a clique that is larger than a known one, by branch and bound.

    After Tomita and Seki (2003): the candidates of a clique are coloured greedily, and a branch is
    cut off where the colours of its candidates are too few for a larger clique. A set of vertices
    is a whole number with a bit for each of them: {0, 2} is ``0b101``, and so is
    ``neighbours[vertex]``. The search ends after `most_nodes` cliques. Returns the size of the
    largest one found, `known_size` if none is larger, and how many were looked at.

    Examples
    --------
    A triangle with a tail:

    >>> find_larger_clique([0b0110, 0b0101, 0b1011, 0b0100], 1, 100)[0]
    3
    """
    search = _CliqueSearch(neighbours, known_size, most_nodes)
    search.extend(0, (1 << len(neighbours)) - 1)
    return search.best_size, search.n_nodes


@dataclass
class _CliqueSearch:
    """The state of `find_larger_clique`."""

    neighbours: list[int]
    """``neighbours[vertex]``: a bit set, ``0b101`` for the vertices 0 and 2."""
    best_size: int
    """The size of the largest clique that is known."""
    most_nodes: int
    """How many cliques are looked at, at most."""
    n_nodes: int = 0
    """How many were looked at."""

    def extend(self, size: int, candidates: int) -> None:
        """Search the cliques that contain the present one, of `size` vertices, and candidates.

        `candidates` is a bit set: those vertices that are neighbours of all vertices of the
        present clique. Raises `best_size` and counts in `n_nodes`.
        """
        self.n_nodes += 1
        self.best_size = max(self.best_size, size)

        # The vertices of the highest colour come first. A clique has each colour at most once:
        # among a vertex of colour c and those before it in the list there are at most c vertices
        # of a clique. Once that is too few, it is too few for all that follow.
        for vertex, color in reversed(color_greedily(self.neighbours, candidates)):
            if size + color <= self.best_size or self.n_nodes >= self.most_nodes:
                return

            # First all cliques with this vertex: of the candidates its neighbours are left. Then
            # those without it.
            self.extend(size + 1, candidates & self.neighbours[vertex])
            candidates &= ~(1 << vertex)


def color_greedily(neighbours: list[int], vertices: int) -> list[tuple[int, int]]:
    """Colour some vertices such that neighbours differ, with the lowest colour for each.

    `vertices` and ``neighbours[vertex]`` are sets with a bit for each vertex, ``0b101`` for 0 and
    2. Returns (vertex, colour) by rising colours, from 1 on: a clique of vertices up to some place
    of the list has no more vertices than the colour at that place. A triangle of 0, 1 and 2 with a
    tail 3 at 2 gives (0, 1), (3, 1), (1, 2), (2, 3).
    """
    # Each turn gives one colour to as many vertices as it can: the lowest one, the lowest of those
    # that are not its neighbours, and so on. ``x & -x`` is the lowest bit of x.
    colored = list[tuple[int, int]]()
    color = 0
    while vertices:
        color += 1
        without_neighbour = vertices
        while without_neighbour:
            lowest_bit = without_neighbour & -without_neighbour
            vertex = lowest_bit.bit_length() - 1
            colored.append((vertex, color))
            vertices &= ~lowest_bit
            without_neighbour &= ~lowest_bit & ~neighbours[vertex]
    return colored


class SlowCells(NamedTuple):
    """The cells that decide how long slots wait, in any order."""

    states: NDArray[np.int8]
    """``states[slot, cell]``: 0 bar, 1 cross, -1 free, of the cells that may matter."""
    settling_s: NDArray[np.float64]
    """``settling_s[cell]``: how long the cell takes to change its state."""
    floor_s: float
    """Each slot after the first waits at least so long."""


@kernel
def sum_waits(cells: SlowCells, order, give_up_s, last_state):
    """Return the sum of what slots after the first wait for their cells, in s.

    A sum of `give_up_s` or more is not added up to its end. ``order[place]`` is a slot, and
    ``last_state[cell]`` scratch. A cell that is free in a slot keeps its state, hence a slot waits
    for the cells that it drives to another state than the last one they were driven to. O(slots *
    cells).
    """
    n_slots, n_cells = cells.states.shape
    total_s = (n_slots - 1) * cells.floor_s
    copy_into(last_state, cells.states[order[0]])

    # Each further slot waits for the slowest cell that it drives to another state, or the floor.
    for place in range(1, n_slots):
        slot = order[place]
        wait_s = cells.floor_s

        # The slot waits for the slowest cell whose driven state changes.
        for cell in range(n_cells):
            state = cells.states[slot, cell]
            if state >= 0:
                if last_state[cell] >= 0 and last_state[cell] != state:
                    wait_s = max(wait_s, cells.settling_s[cell])
                last_state[cell] = state
        total_s += wait_s - cells.floor_s
        if total_s >= give_up_s:
            return total_s
    return total_s


@kernel
def move_slot(cells: SlowCells, order, place, best_s, last_state, trial):
    """Move the slot at a place, or reverse the slots between it and another, if that is better.

    Local search by insertion and 2-opt: all places are tried in turn, and each improvement is kept
    in ``order[place]``, a slot, at once. `best_s` is the sum of all waits in s, as `sum_waits`
    counts it; the new one is returned. ``last_state[cell]`` and ``trial[place]`` are scratch.
    O(slots^2 * cells).
    """
    for target in range(len(order)):
        low = min(place, target)
        high = max(place, target)
        for reverses in (False, True):
            # The order 0, 1, 2, 3 and the places 0 and 2 give 1, 2, 0, 3, or 2, 1, 0, 3 if the
            # stretch is reversed. A slot that goes to a later place moves those between one place
            # forward, and the other way round.
            for position in range(len(order)):
                former_place = position
                if low <= position <= high:
                    if reverses:
                        former_place = low + high - position
                    elif position == target:
                        former_place = place
                    elif target > place:
                        former_place = position + 1
                    else:
                        former_place = position - 1
                trial[position] = order[former_place]

            # The trial order is kept if its slots wait less in all.
            trial_s = sum_waits(cells, trial, best_s, last_state)
            if trial_s < best_s:
                best_s = trial_s
                copy_into(order, trial)
    return best_s


def search_order(
    states: NDArray[np.int8],
    settling_s: NDArray[np.float64],
    rng: np.random.Generator,
    clock: Clock,
) -> NDArray[np.int64]:
    """Search for an order of the slots in which the cells settle quickly, by local search.

    ``states[slot, cell]`` is -1 where a slot does not drive a cell, and ``settling_s[cell]`` how
    long a change of the cell takes. The result is ``order[place]``, a slot. One slot at a time is
    moved to another place, or a stretch of slots is reversed, as long as the sum of all waits
    falls. The search begins with the present order, then with random ones.
    """
    n_slots = len(states)
    best_order = np.arange(n_slots)
    if n_slots <= 2:
        return best_order

    # The slowest cell that two slots drive to different states is what one waits for at least if
    # it follows the other: ``between_s[slot, other]``. A cell matters only if it is driven to both
    # states, and is slower than what any two slots wait for anyway.
    between_s = np.zeros((n_slots, n_slots))
    for slot, row in enumerate(states):
        is_changed = (row != FREE) & (states != FREE) & (row != states)
        between_s[slot] = np.where(is_changed, settling_s, 0.0).max(axis=1, initial=0.0)
    floor_s = float(between_s[~np.eye(n_slots, dtype=bool)].min(initial=np.inf))
    has_both_states = (states == BAR).any(axis=0) & (states == CROSS).any(axis=0)
    is_slow = (settling_s > floor_s) & has_both_states
    cells = SlowCells(np.ascontiguousarray(states[:, is_slow]), settling_s[is_slow], floor_s)
    last_state = np.empty(int(is_slow.sum()), dtype=np.int8)
    trial = np.arange(n_slots)

    # Local search from each start, until a pass over all slots gains next to nothing.
    best_s = np.inf
    n_starts = N_STARTS if n_slots <= MOST_SLOTS_OF_RANDOM_STARTS else 1
    for start in range(n_starts):
        order = rng.permutation(n_slots) if start else np.arange(n_slots)
        total_s = float(sum_waits(cells, order, np.inf, last_state))
        former_s = np.inf

        # Passes over all slots, until one brings nothing.
        while total_s < former_s * (1 - NO_GAIN) and clock.remaining_s > 0:
            former_s = total_s
            for place in rng.permutation(n_slots):
                if clock.remaining_s > 0:
                    total_s = float(move_slot(cells, order, place, total_s, last_state, trial))
        if total_s < best_s:
            best_s = total_s
            best_order = order
    return best_order


class LateChange(NamedTuple):
    """A cell that a slot sets anew after it was dark, and that may therefore be set earlier."""

    time_s: float
    """How long the cell takes to settle."""
    slot: int
    """The slot that drives the cell, by its place in the order."""
    dark_since: int
    """The first slot in which the cell may be set."""
    cell: int
    """The number of the cell."""


def set_ahead(
    states: NDArray[np.int8], settling_s: NDArray[np.float64]
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Set cells ahead of time while they are dark; return the states, and how long slots wait.

    ``settling_s[cell]`` is how long a change of a cell takes. ``states[slot, cell]``, 0 bar, 1
    cross, -1 where dark, is not changed: the result is a copy with more cells driven. A slot waits
    for the slowest cell that is set in it. A cell that is dark for some slots before it is needed
    in another state may be set in any of these slots, and then nobody waits for it later. It is
    set in the one that waits longest for other cells anyway.

    For example, a cell that takes 10 us is in bar in slot 0, dark in slots 1 and 2, and in cross
    in slot 3. If slot 2 waits 10 us for another cell, the cell is put in cross in slot 2, beside
    it, and slot 3 does not wait for it. If all of slots 1 to 3 wait for less, the one that waits
    longest of them now waits 10 us.
    """
    # First the changes without a choice: `delays_s` is what slots wait for those alone. The others
    # are collected. `last_driven` is the state each cell was driven to last, -1 for none.
    states = states.copy()
    n_slots, n_cells = states.shape
    last_driven = np.full(n_cells, FREE)
    dark_since = np.zeros(n_cells, dtype=np.int64)
    delays_s = np.zeros(n_slots)
    late_changes = list[LateChange]()
    for slot, row in enumerate(states):
        # A cell that the slot before also drives is changed at once; one that was dark since
        # `dark_since` may be set in any slot from there on.
        is_anew = (row != FREE) & (row != last_driven)
        is_at_once = is_anew & (dark_since == slot)
        delays_s[slot] = settling_s[is_at_once].max(initial=0.0)
        for cell in np.flatnonzero(is_anew & ~is_at_once).tolist():
            late_changes.append(
                LateChange(
                    time_s=float(settling_s[cell]),
                    slot=slot,
                    dark_since=int(dark_since[cell]),
                    cell=cell,
                )
            )
        dark_since[row != FREE] = slot + 1
        last_driven = np.where(row == FREE, last_driven, row)

    # Then the changes with a choice, the slowest cells first. The longest delay among the slots
    # from the one after their last use to this one is made as long as the cell takes, if it is
    # shorter. Faster cells that come later may then be set beside them at no cost.
    late_changes.sort(reverse=True)
    for change in late_changes:
        place = _longest_wait(delays_s, change)
        delays_s[place] = max(delays_s[place], change.time_s)

    # All delays are known now. Where the slot that drives a cell waits long enough itself, nothing
    # has to be stated: that slot states the cell anyway. Else an earlier slot has to state it,
    # again the one that waits longest.
    for change in late_changes:
        if delays_s[change.slot] < change.time_s:
            states[_longest_wait(delays_s, change), change.cell] = states[change.slot, change.cell]
    return states, delays_s


def _longest_wait(delays_s: NDArray[np.float64], change: LateChange) -> int:
    """Return the slot of the longest wait, from ``change.dark_since`` to ``change.slot``."""
    window_s = delays_s[change.dark_since : change.slot + 1]
    return change.dark_since + int(window_s.argmax())
