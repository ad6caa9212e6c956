"""Delays of slots that wait for their own cells: an order in which slow cells change seldom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FREE, Clock, OnEvent, Solution, Tick
from optmatch.problems import AllToAll
from optmatch.solvers.kernels.decorators import kernel

_STARTS, _MANY = 4, 64
"""Orders to start from, all but the first at random, of no more than so many slots."""


def order_slots(
    problem: AllToAll,
    found: Solution,
    rng: np.random.Generator,
    clock: Clock,
    on_event: OnEvent,
) -> Solution:
    """Bring the slots of an answer into an order with short delays, if cells are to say them.

    Parameters
    ----------
    problem
        Slots are put in order if its ``delay_s`` is "cells": each slot waits for its own cells.
    found
        The answer; its slots may come in any order.
    rng, clock
        For the search for an order.
    on_event
        Receives a `Tick` before the search.

    Returns
    -------
    Solution
        With `problem` as its problem. If slots were put in order: with ``delays_s`` in s for each
        slot, and with the sums in s before and after, and their bound, among the statistics.
    """
    schedule, device = found.schedule, problem.cells
    if problem.delay_s != "cells" or schedule is None or device is None:
        return replace(found, problem=problem)
    on_event(Tick("order", 0))
    graph, states = problem.fabric.graph, schedule.cell_states
    assert graph is not None and states is not None  # as there are cells
    settling_s = np.where(graph.stuck == FREE, device.settling_s, 0.0)
    if problem.objective == "power-mw":  # a dark cell is in the state that takes less
        least = device.power_mw.argmin(axis=1).astype(np.int8)
        states = np.where((states == FREE) & (graph.stuck == FREE), least, states)
    orders = [np.arange(len(states)), search_order(states, settling_s, rng, clock)]
    plans = [set_ahead(states[order], settling_s) for order in orders]
    totals = [float(delays_s.sum()) for _, delays_s in plans]
    best = int(np.argmin(totals))
    ordered, delays_s = plans[best]
    stats: dict[str, Any] = {
        "total_settling_s": totals[best],
        "total_settling_unordered_s": totals[0],
        "total_settling_lower_bound_s": bound_settling(states, settling_s),
    }
    schedule = replace(
        schedule,
        matchings=schedule.matchings[orders[best]],
        cell_states=ordered,
        delay_s=float(delays_s.max(initial=0.0)),
        delays_s=delays_s,
    )
    stats |= {name: value for name, value in found.stats.items() if "toggles" not in name}
    return replace(found, problem=problem, schedule=schedule, stats=stats)


def changes_between(
    states: NDArray[np.int8], settling_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how long the change between each two slots takes.

    Parameters
    ----------
    states
        ``states[slot, cell]``: 0 bar, 1 cross, -1 free, int8, shape (slots, cells).
    settling_s
        ``settling_s[cell]``: how long the cell takes to change its state, in s, shape (cells,).

    Returns
    -------
    float array, shape (slots, slots)
        ``change_s[k, l]``: the time, in s, of the slowest cell that the slots k and l drive to
        different states; 0 if there is none.
    """
    return np.array(
        [
            np.where((row != FREE) & (states != FREE) & (row != states), settling_s, 0.0).max(
                axis=1, initial=0.0
            )
            for row in states
        ]
    ).reshape(len(states), len(states))


def bound_settling(states: NDArray[np.int8], settling_s: NDArray[np.float64]) -> float:
    """Bound from below the time that the slots wait for their cells, summed, in any order.

    Before the first slot its slowest cell has to be set: that is at least the time of the slot
    where this takes least. Between two slots in a row, the slowest cell that they drive to
    different states has to settle. An order is a path through all slots, and a path is a spanning
    tree of them: its changes take at least as long as the minimum spanning tree (Prim's
    algorithm), with `changes_between` as lengths of edges.

    Parameters
    ----------
    states
        ``states[slot, cell]``: 0 bar, 1 cross, -1 free, int8, shape (slots, cells).
    settling_s
        ``settling_s[cell]``: how long the cell takes to change its state, in s, shape (cells,).

    Returns
    -------
    float
        The bound in s; 0 without slots.
    """
    if not len(states):
        return 0.0
    between = changes_between(states, settling_s)
    total = float(np.where(states != FREE, settling_s, 0.0).max(axis=1, initial=0.0).min())

    # Prim: the tree grows from slot 0. `nearest[slot]` is the shortest edge from the tree to a
    # slot outside of it; slots in the tree are marked by an infinite one.
    nearest = between[0].copy()
    nearest[0] = np.inf
    for _ in range(len(states) - 1):
        slot = int(nearest.argmin())
        total += nearest[slot]
        nearest = np.where(np.isinf(nearest), np.inf, np.minimum(nearest, between[slot]))
        nearest[slot] = np.inf
    return total


@kernel
def settle(states, order, settling_s, floor_s, limit_s, last):
    """Add up what slots after the first wait for their cells; stop at a limit.

    A cell that is free in a slot keeps its state, hence a slot waits for the cells that it drives
    to another state than the last one they were driven to. O(slots * cells).

    Parameters
    ----------
    states : int8 array, shape (slots, cells)
        0 bar, 1 cross, -1 free.
    order : int64 array, shape (slots,)
        The slots in their order.
    settling_s : float array, shape (cells,)
        How long each cell takes to change its state, in s.
    floor_s : float
        Each slot waits at least so long, in s.
    limit_s : float
        The sum stops once it is not less than this.
    last : int8 array, shape (cells,)
        Scratch: the state each cell was driven to last, -1 for none.

    Returns
    -------
    float
        The sum in s; some value of at least `limit_s` if the limit was reached.
    """
    slots, cells = states.shape
    total = (slots - 1) * floor_s
    for cell in range(cells):
        last[cell] = states[order[0], cell]
    for place in range(1, slots):
        slot, longest = order[place], floor_s
        for cell in range(cells):
            state = states[slot, cell]
            if state >= 0:
                if last[cell] >= 0 and last[cell] != state and settling_s[cell] > longest:
                    longest = settling_s[cell]
                last[cell] = state
        total += longest - floor_s
        if total >= limit_s:
            return total
    return total


@kernel
def move(states, order, settling_s, floor_s, best_s, at, last, tried):
    """Move one slot elsewhere, or reverse the slots between it and another, if that is better.

    Local search by insertion and 2-opt: all places are tried in turn, and each improvement is kept
    at once.

    Parameters
    ----------
    states, settling_s, floor_s, last
        As of `settle`.
    order : int64 array, shape (slots,)
        The slots in their order; changed.
    best_s : float
        The sum of `settle` for this order, in s.
    at : int
        The place of the slot in the order.
    tried : int64 array, shape (slots,)
        Scratch: the order that is tried.

    Returns
    -------
    float
        The sum for the changed order, in s.
    """
    for to in range(len(order)):
        for turn in range(2):
            low, high = min(at, to), max(at, to)
            for place in range(len(order)):
                before = place
                if low <= place <= high:
                    if turn:
                        before = low + high - place
                    elif place == to:
                        before = at
                    else:
                        before = place + (1 if to > at else -1)
                tried[place] = order[before]
            found = settle(states, tried, settling_s, floor_s, best_s, last)
            if found < best_s:
                best_s = found
                for place in range(len(order)):
                    order[place] = tried[place]
    return best_s


def search_order(
    states: NDArray[np.int8],
    settling_s: NDArray[np.float64],
    rng: np.random.Generator,
    clock: Clock,
) -> NDArray[np.int64]:
    """Search by moves and turns for an order whose changes are quick, at first from this one.

    A cell counts where it is driven to another state than before, and only if it is slower than
    what each two slots wait for anyway.

    Parameters
    ----------
    states
        ``states[slot, cell]``: 0 bar, 1 cross, -1 free, int8, shape (slots, cells).
    settling_s
        ``settling_s[cell]``: how long the cell takes to change its state, in s, shape (cells,).
    rng
        Draws further orders to start from.
    clock
        Ends the search.

    Returns
    -------
    int array, shape (slots,)
        The slots in the best order found.
    """
    slots = len(states)
    between = changes_between(states, settling_s)
    floor_s = float(between[~np.eye(slots, dtype=bool)].min(initial=np.inf))
    slow = (settling_s > floor_s) & (states == 0).any(axis=0) & (states == 1).any(axis=0)
    states, settling_s = np.ascontiguousarray(states[:, slow]), settling_s[slow]
    last, tried = np.empty(len(settling_s), dtype=np.int8), np.arange(slots)
    best_s, best = np.inf, np.arange(slots)
    for start in range(_STARTS if 2 < slots <= _MANY else slots > 2):
        order = rng.permutation(slots) if start else np.arange(slots)
        found_s, before_s = float(settle(states, order, settling_s, floor_s, np.inf, last)), np.inf
        while found_s < before_s * (1 - 1e-12) and clock.remaining_s > 0:
            before_s = found_s
            for at in rng.permutation(slots):
                if clock.remaining_s > 0:
                    given = states, order, settling_s, floor_s, found_s, at, last, tried
                    found_s = float(move(*given))
        if found_s < best_s:
            best_s, best = found_s, order
    return best


def set_ahead(
    states: NDArray[np.int8], settling_s: NDArray[np.float64]
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Return the states, and what each slot waits for the slowest cell that it sets anew.

    A cell may be set at any time while it is dark, so it is where others wait as long, if it can:
    that slot then states it.

    Parameters
    ----------
    states
        ``states[slot, cell]`` in the order of the slots: 0 bar, 1 cross, -1 free, int8, shape
        (slots, cells).
    settling_s
        ``settling_s[cell]``: how long the cell takes to change its state, in s, shape (cells,).

    Returns
    -------
    states : int8 array, shape (slots, cells)
        With the states of cells that are set ahead, in slots where they are dark.
    delays_s : float array, shape (slots,)
        How long each slot waits, in s.
    """
    states, driven = states.copy(), np.full(states.shape[1], FREE)
    free_since = np.zeros(states.shape[1], dtype=np.int64)
    delays_s = np.zeros(len(states))
    dark = list[tuple[float, int, int, int]]()
    for slot, row in enumerate(states):
        # A cell that the slot before also drives is changed at once; one that was dark since
        # `free_since` may be set in any slot from there on.
        anew = (row != FREE) & (row != driven)
        at_once = anew & (free_since == slot)
        delays_s[slot] = settling_s[at_once].max(initial=0.0)
        for cell in np.flatnonzero(anew & ~at_once).tolist():
            dark.append((float(settling_s[cell]), slot, int(free_since[cell]), cell))
        free_since[row != FREE] = slot + 1
        driven = np.where(row == FREE, driven, row)

    # The slowest cells come first: they lengthen the delay of the slot between their last use and
    # this one that waits longest already, and faster cells may then be set beside them.
    dark.sort(reverse=True)
    for time_s, slot, since, _ in dark:
        place = since + int(delays_s[since : slot + 1].argmax())
        delays_s[place] = max(delays_s[place], time_s)
    for time_s, slot, since, cell in dark:
        if delays_s[slot] < time_s:
            states[since + int(delays_s[since : slot + 1].argmax()), cell] = states[slot, cell]
    return states, delays_s
