"""The matchings that a small bidirectional switch holds, and bounds and plans of demands by them.

A small mesh holds some matchings of its ports; an ideal switch holds all of them.

To *hold* a matching is to have routes for all its circuits at once. It is *open* whether a
matching is held if the search for routes ended at its limit: bounds count it as held, plans do not
use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric
from optmatch.model import FREE, Clock, Limits, Status, check_time, ignore, uncounted
from optmatch.problems import Demand, Routing
from optmatch.solvers.demands.plans import Plan, matching_of

_PORTS = 6  # 76 matchings of so many bidirectional ports
_IDEAL_PORTS = 8  # 105 ways to join all of so many ports in pairs
_CELLS = 28  # so few that the verifier tries all ways of light within a second or two
_WORK = 1.0  # of CP-SAT, about in seconds
_CASES = 1000  # of the proof that a matching has no routes

Pairs = tuple[tuple[int, int], ...]


def suits(problem: Demand) -> bool:
    """Tell whether the matchings of a fabric can be listed, and one plane stops as a whole."""
    fabric = problem.fabric
    most_ports = _IDEAL_PORTS if fabric.graph is None else _PORTS
    is_small = fabric.n_ports <= most_ports and fabric.n_cells <= _CELLS
    is_alone = problem.planes == 1 and problem.packet_share == 0
    return fabric.bidirectional and is_small and is_alone and problem.switching == "all-stop"


class Held(NamedTuple):
    """Matchings that a mesh holds, those that are parts of others left out."""

    matchings: NDArray[np.int32]
    """(matchings, ports): each port's partner, -1 (IDLE) if none."""
    states: NDArray[np.int8]
    """(matchings, cells): 0 bar, 1 cross or FREE; all FREE where no states are known."""
    has_states: NDArray[np.bool_]
    """(matchings,): whether states are known. They are on an ideal switch, which has no cells to
    set; where they are not, it is open whether the mesh holds the matching."""


def plan_on_mesh(
    problem: Demand, clock: Clock
) -> tuple[Plan, Callable[[Plan], NDArray[np.int8]] | None]:
    """Find the shortest plan on a small mesh: which matchings to hold, and for how long.

    All matchings for which the mesh has routes are listed. CP-SAT then chooses the ticks of each,
    0 if it is not used. The plan is the best one, or the best that it finds within about a second.
    With it comes a function that returns ``cell_states[slot, cell]`` of a part of the plan; None
    for an ideal switch, which has no cells.
    """
    with uncounted():
        from optmatch.solvers.demands.holding_model import HoldingModel  # loads OR-tools

    # Matchings of which it is open whether there are routes are left out. A plan without an
    # answer has no ticks, and with them no slots.
    listed = list_matchings(problem.fabric)
    matchings = listed.matchings[listed.has_states]
    model = HoldingModel(problem, matchings)
    without_iterations = replace(clock, limits=replace(clock.limits, iterations=None))
    outcome = model.solve(without_iterations, ignore, seed=0, work=_WORK)
    lengths = np.zeros(len(matchings), dtype=np.int64)
    if outcome.found:
        lengths = model.read(outcome)
    plan = Plan(matchings, lengths).take(lengths > 0)
    if problem.fabric.graph is None:
        return plan, None
    states = listed.states[listed.has_states]

    # States are looked up by the bytes of a matching, as a part of the plan has its own order.
    states_by_matching = dict(zip(map(bytes, matchings), states, strict=True))
    return plan, lambda part: np.stack([states_by_matching[bytes(row)] for row in part.matchings])


@lru_cache(maxsize=16)
def list_matchings(fabric: Fabric) -> Held:
    """List all ways in which a switch can join its ports in pairs, without parts of others.

    A matching is a set of pairs of ports that are joined at the same time; it may leave ports
    idle. A fabric holds it if its cells (2x2 switches) have states in which all these circuits
    have light. A matching all of whose pairs are in a larger one is left out, since slots may
    leave circuits unused. Matchings of which it is open whether they are held are listed, too, so
    that bounds can count them. An ideal switch of four ports has three: 01 23, 02 13 and 03 12.
    """
    held: list[Pairs] = []
    states_of_held: list[NDArray[np.int8]] = []
    is_dead = fabric.route_cells() == UNREACHED
    live_ports = tuple(fabric.live_ports.tolist())
    # The largest come first, so that those that are parts of others are found when they come. A
    # mesh may hold a small matching, but none of the larger ones that contain it: hence matchings
    # that leave ports idle are tried as well.
    for pairs in sorted(pair_up(live_ports), key=len, reverse=True):
        check_time()

        # A slot may leave circuits of a matching unused, so parts of a matching need no row.
        is_part_of_another = any(set(pairs) <= set(larger) for larger in held)
        if is_part_of_another or any(is_dead[pair] for pair in pairs):
            continue

        # An ideal switch holds every matching, and has no cells to set. `_find_states` gives None
        # for a matching that the mesh cannot hold, and all cells free for one that stays open.
        states: NDArray[np.int8] | None = np.zeros(0, dtype=np.int8)
        if fabric.graph is not None:
            states = _find_states(fabric, matching_of(pairs, fabric.n_ports, is_mutual=True))
        if states is not None:
            held.append(pairs)
            states_of_held.append(states)

    # All cells free is the sign of `_find_states` for states that are not known.
    matchings = [matching_of(pairs, fabric.n_ports, is_mutual=True) for pairs in held]
    states_of_cells = np.array(states_of_held, dtype=np.int8).reshape(len(held), fabric.n_cells)
    has_states = (states_of_cells != FREE).any(axis=1) | (fabric.graph is None)
    return Held(
        np.array(matchings, dtype=np.int32).reshape(-1, fabric.n_ports),
        states_of_cells,
        has_states,
    )


def pair_up(ports: tuple[int, ...]) -> Iterator[Pairs]:
    """Yield all ways to connect some ports in pairs, also those that leave ports out.

    Ports 0, 1 and 2 give four: no pair, (1, 2), (0, 1) and (0, 2).
    """
    if not ports:
        yield ()
        return
    first = ports[0]
    later_ports = ports[1:]
    yield from pair_up(later_ports)
    for position, partner in enumerate(later_ports):
        remaining = later_ports[:position] + later_ports[position + 1 :]
        for pairs in pair_up(remaining):
            yield ((first, partner), *pairs)


def _find_states(fabric: Fabric, matching: NDArray[np.int32]) -> NDArray[np.int8] | None:
    """Find ``states[cell]`` that hold a matching; None if it is proved that there are none.

    All cells are FREE if the search ended at its limit, so that it is open.
    """
    with uncounted():
        from optmatch.solvers.routing.branch_and_price import search  # loads OR-tools

    limits = Limits(iterations=_CASES, gap=1.0)
    routed = search(Routing(fabric, matching), limits, np.random.default_rng(0), ignore)
    if routed.status is Status.INFEASIBLE:
        return None
    if routed.schedule is None or routed.schedule.cell_states is None:
        return np.full(fabric.n_cells, FREE, dtype=np.int8)
    states: NDArray[np.int8] = routed.schedule.cell_states[0]
    return states
