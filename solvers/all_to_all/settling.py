"""Delays of slots that wait for their own cells: an order in which slow cells change seldom.

A slot *drives* a cell to bar or cross if light passes it; otherwise the cell is *free*, or *dark*,
and keeps its state. A cell takes some time to *settle* in another state. A slot *waits* for the
slowest cell that it drives to another state than the one the cell had before.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import BAR, CROSS, FREE, Clock, OnEvent, Solution, Tick
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.cliques import find_larger_clique
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

N_STARTS = 4
"""Orders that the search starts from, all but the first at random."""

MOST_SLOTS_OF_RANDOM_STARTS = 64
"""Of more slots only the given order is a start: a sweep grows with the cube of their number."""

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
    stays; otherwise it gets ``delays_s`` for each slot, and the sums before and after with their
    bound as statistics.
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
        least = device.power_mw.argmin(axis=1).astype(np.int8)
        states = np.where((states == FREE) & (graph.stuck == FREE), least, states)

    # The order that was found, unless the given one is no worse.
    given_order = np.arange(len(states))
    orders = [given_order, search_order(states, settling_s, rng, clock)]
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
    in t or more to different states. Let d slots of an order wait for t or more. From one of them
    to the next no such cell changes, hence the slots are divided into d groups without conflicts:
    d is at least the chromatic number of the conflict graph, and that is at least the size of a
    clique. The sum of all waits is the integral of d over t, as each slot counts for all t up to
    its own wait.
    """
    # ``conflicts[slot]`` has a bit for each slot that the slot conflicts with. Times fall, so
    # that conflicts are added, and a clique stays one.
    conflicts = [0] * len(states)
    clique_size = 0
    nodes_left = SEARCH_NODES
    total_s = 0.0
    is_driven = (states != FREE).any(axis=0)
    times_s = np.unique(np.append(settling_s[is_driven], 0.0))[::-1]

    # Times fall: with each one more slots conflict, and the largest clique can only grow. It
    # counts for all t between this time and the next one.
    for time_s, next_time_s in pairwise(times_s.tolist()):
        has_grown = False
        for cell in np.flatnonzero(settling_s == time_s):
            has_grown |= _add_conflicts(conflicts, states[:, cell])
        clique_size = max(clique_size, 1)  # some slot drives such a cell, and waits for it
        if has_grown and nodes_left > 0:
            larger_size, n_nodes = find_larger_clique(conflicts, clique_size, nodes_left)
            clique_size = max(clique_size, larger_size)
            nodes_left -= n_nodes
        total_s += clique_size * (time_s - next_time_s)
    return total_s


def _add_conflicts(conflicts: list[int], states_of_cell: NDArray[np.int8]) -> bool:
    """Let slots conflict that drive a cell to different states; tell whether any is new.

    ``conflicts[slot]`` has a bit for each slot that it conflicts with.
    """
    in_bar = np.flatnonzero(states_of_cell == BAR).tolist()
    in_cross = np.flatnonzero(states_of_cell == CROSS).tolist()
    has_grown = False
    for some, others in ((in_bar, in_cross), (in_cross, in_bar)):
        bits_of_others = sum(1 << slot for slot in others)
        for slot in some:
            has_grown |= bool(bits_of_others & ~conflicts[slot])
            conflicts[slot] |= bits_of_others
    return has_grown


class SlowCells(NamedTuple):
    """What decides how long slots wait, in any order."""

    states: NDArray[np.int8]
    """``states[slot, cell]``: 0 bar, 1 cross, -1 free, of the cells that may matter."""
    settling_s: NDArray[np.float64]
    """``settling_s[cell]``: how long the cell takes to change its state."""
    floor_s: float
    """Each slot after the first waits at least so long."""


class OrderScratch(NamedTuple):
    """Arrays that are overwritten while orders are tried."""

    last_state: NDArray[np.int8]  # (cells,): that each cell was driven to last, -1 for none
    trial: NDArray[np.int64]  # (slots,): the order that is tried


@kernel
def sum_waits(cells, order, give_up_s, last_state):
    """Add up what slots after the first wait for their cells, in s; stop at `give_up_s`.

    ``order[place]`` is a slot; ``last_state[cell]`` is scratch. A cell that is free in a slot
    keeps its state, hence a slot waits for the cells that it drives to another state than the last
    one they were driven to. O(slots * cells).
    """
    n_slots, n_cells = cells.states.shape
    total_s = (n_slots - 1) * cells.floor_s
    for cell in range(n_cells):
        last_state[cell] = cells.states[order[0], cell]

    # Each further slot waits for the slowest cell that it drives to another state, or the floor.
    for place in range(1, n_slots):
        slot = order[place]
        wait_s = cells.floor_s
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


@inner_kernel
def lay_out_move(order, places, reverses, trial):
    """Write to `trial` an order with one slot moved elsewhere, or the stretch reversed.

    `places` are where the move begins and where it ends, ``order[place]`` and ``trial[place]``
    slots. The order 0, 1, 2, 3 and the places 0 and 2 give 1, 2, 0, 3, or 2, 1, 0, 3 if the
    stretch is reversed.
    """
    start, target = places
    low = min(start, target)
    high = max(start, target)

    # A slot that goes to a later place moves those between one place forward, and the other way
    # round; a reversal exchanges places that are equally far from both ends of the stretch.
    for place in range(len(order)):
        former_place = place
        if low <= place <= high:
            if reverses:
                former_place = low + high - place
            elif place == target:
                former_place = start
            elif target > start:
                former_place = place + 1
            else:
                former_place = place - 1
        trial[place] = order[former_place]


@kernel
def move_slot(cells, order, place, best_s, scratch):
    """Move one slot elsewhere, or reverse the slots between it and another, if that is better.

    Local search by insertion and 2-opt: all places are tried in turn, and each improvement is kept
    in `order` at once. `best_s` is the sum of `sum_waits`; the new one is returned. O(slots^2 *
    cells).
    """
    for target in range(len(order)):
        for reverses in (False, True):
            lay_out_move(order, (place, target), reverses, scratch.trial)
            trial_s = sum_waits(cells, scratch.trial, best_s, scratch.last_state)
            if trial_s < best_s:
                best_s = trial_s
                for position in range(len(order)):
                    order[position] = scratch.trial[position]
    return best_s


def search_order(
    states: NDArray[np.int8],
    settling_s: NDArray[np.float64],
    rng: np.random.Generator,
    clock: Clock,
) -> NDArray[np.int64]:
    """Search for an order of the slots in which the cells settle quickly, by local search.

    ``states[slot, cell]``, -1 where a slot does not drive a cell; ``settling_s[cell]``. The result
    has a slot by place. One slot at a time is moved to another place, or a stretch of slots is
    reversed, as long as the sum of all waits falls. The search begins with the present order, then
    with random ones.
    """
    n_slots = len(states)
    best_order = np.arange(n_slots)
    if n_slots <= 2:
        return best_order

    # A cell counts where it is driven to another state than before, and only if it is slower than
    # what each two slots wait for anyway.
    between_s = changes_between(states, settling_s)
    floor_s = float(between_s[~np.eye(n_slots, dtype=bool)].min(initial=np.inf))
    has_both_states = (states == BAR).any(axis=0) & (states == CROSS).any(axis=0)
    is_slow = (settling_s > floor_s) & has_both_states
    cells = SlowCells(np.ascontiguousarray(states[:, is_slow]), settling_s[is_slow], floor_s)
    scratch = OrderScratch(np.empty(int(is_slow.sum()), dtype=np.int8), np.arange(n_slots))

    # Local search from each start, until a pass over all slots gains next to nothing.
    best_s = np.inf
    n_starts = N_STARTS if n_slots <= MOST_SLOTS_OF_RANDOM_STARTS else 1
    for start in range(n_starts):
        order = rng.permutation(n_slots) if start else np.arange(n_slots)
        total_s = float(sum_waits(cells, order, np.inf, scratch.last_state))
        former_s = np.inf

        # Passes over all slots, until one brings nothing.
        while total_s < former_s * (1 - NO_GAIN) and clock.remaining_s > 0:
            former_s = total_s
            for place in rng.permutation(n_slots):
                if clock.remaining_s > 0:
                    total_s = float(move_slot(cells, order, place, total_s, scratch))
        if total_s < best_s:
            best_s = total_s
            best_order = order
    return best_order


def changes_between(
    states: NDArray[np.int8], settling_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return ``change_s[slot, other]``: the slowest cell that both drive, to different states."""
    change_s = np.zeros((len(states), len(states)))
    for slot, row in enumerate(states):
        is_changed = (row != FREE) & (states != FREE) & (row != states)
        change_s[slot] = np.where(is_changed, settling_s, 0.0).max(axis=1, initial=0.0)
    return change_s


class LateChange(NamedTuple):
    """A cell that a slot sets anew after it was dark, and that may therefore be set earlier."""

    time_s: float  # how long the cell takes to settle
    slot: int  # the slot that drives the cell, by its place in the order
    dark_since: int
    """The first slot in which the cell may be set."""
    cell: int  # its number


def set_ahead(
    states: NDArray[np.int8], settling_s: NDArray[np.float64]
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Set cells ahead of time while they are dark; return the states, and how long slots wait.

    ``settling_s[cell]`` is how long a change of a cell takes. `states` is not changed: the result
    is a copy with more cells driven. A slot waits for the slowest cell that is set in it. A cell
    that is dark for some slots before it is needed in another state may be set in any of these
    slots, and then nobody waits for it later. It is set in the one that waits longest for other
    cells anyway.

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
                LateChange(float(settling_s[cell]), slot, int(dark_since[cell]), cell)
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
