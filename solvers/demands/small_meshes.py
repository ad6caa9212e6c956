"""What a small mesh holds: a list of matchings, and bounds and plans of demands by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric
from optmatch.model import FREE, IDLE, Clock, Limits, Status, check_time, ignore, uncounted
from optmatch.problems import ConfigurationProof, Demand, Routing
from optmatch.solvers.demands.configuration import bound_by_prices
from optmatch.solvers.demands.plans import Plan

_PORTS = 6  # 76 matchings of so many bidirectional ports
_CELLS = 28  # so few that the verifier tries all ways of light within a second or two
_WORK = 1.0  # of CP-SAT, about in seconds
_CASES = 1000  # of the proof that a matching has no routes

Pairs = tuple[tuple[int, int], ...]


def suits(problem: Demand) -> bool:
    """Tell whether the matchings of a fabric can be listed, and slots stop as a whole on a plane.

    Packets are no part of it.
    """
    fabric, alone = problem.fabric, problem.planes == 1 and problem.packet_share == 0
    small = fabric.bidirectional and fabric.n_ports <= _PORTS and fabric.n_cells <= _CELLS
    return small and fabric.graph is not None and alone and problem.switching == "all-stop"


class Held(NamedTuple):
    """Matchings that a mesh holds, those that are parts of others left out."""

    matchings: NDArray[np.int32]  # (matchings, ports)
    states: NDArray[np.int8]  # (matchings, cells): all free where it is open whether there are any


def bound_on_mesh(problem: Demand, clock: Clock) -> ConfigurationProof | None:
    """Find prices that no slot earns which the mesh holds."""
    return bound_by_prices(problem, clock, list_matchings(problem.fabric).matchings)


def plan_on_mesh(problem: Demand, clock: Clock) -> tuple[Plan, Callable[[Plan], NDArray[np.int8]]]:
    """Find how long to hold which of the listed matchings: the best, or what a second finds.

    Returns what gives the states of the cells for a part of the plan, too.
    """
    with uncounted():
        from ortools.sat.python import cp_model

        from optmatch.solvers.cpsat import minimise

    listed = list_matchings(problem.fabric)
    sure = (listed.states != FREE).any(axis=1)
    matchings, model = listed.matchings[sure], cp_model.CpModel()
    most = max(int(problem.ticks.max()), problem.min_slot_ticks)
    held = [model.new_bool_var("") for _ in matchings]
    ticks = [model.new_int_var(0, most, "") for _ in matchings]
    for use, length in zip(held, ticks, strict=True):
        model.add(length <= most * use)
        model.add(length >= problem.min_slot_ticks * use)
    for i, j in np.argwhere(np.triu(problem.ticks)).tolist():
        holding = np.flatnonzero(matchings[:, i] == j).tolist()
        model.add(sum(ticks[k] for k in holding) >= int(problem.ticks[i, j]))
    model.minimize(sum(ticks) + problem.delay_ticks * sum(held))
    clock = replace(clock, limits=replace(clock.limits, iterations=None))
    found = minimise(model, clock, ignore, seed=0, workers=1, work=_WORK, tell=False)
    lengths = np.array([found.value(length) if found.found else 0 for length in ticks])
    plan = Plan(matchings, lengths.astype(np.int64)).take(lengths > 0)
    states = dict(zip(map(bytes, matchings), listed.states[sure], strict=True))
    return plan, lambda part: np.stack([states[bytes(row)] for row in part.matchings])


@lru_cache(maxsize=16)
def list_matchings(fabric: Fabric) -> Held:
    """List what a fabric with bidirectional ports holds; what is open is listed."""
    held, known = list[Pairs](), list[NDArray[np.int8]]()
    dead = fabric.route_cells() == UNREACHED
    for pairs in sorted(_pair_up(tuple(fabric.live_ports.tolist())), key=len, reverse=True):
        check_time()
        part_of_another = any(set(pairs) <= set(larger) for larger in held)
        if part_of_another or any(dead[pair] for pair in pairs):
            continue
        states = _route(fabric, _match(pairs, fabric.n_ports))
        if states is not None:
            held.append(pairs)
            known.append(states)
    matchings = [_match(pairs, fabric.n_ports) for pairs in held]
    return Held(
        np.array(matchings, dtype=np.int32).reshape(-1, fabric.n_ports),
        np.array(known, dtype=np.int8).reshape(-1, fabric.n_cells),
    )


def _pair_up(ports: tuple[int, ...]) -> Iterator[Pairs]:
    """Yield all ways to connect some ports in pairs."""
    if not ports:
        yield ()
        return
    first, rest = ports[0], ports[1:]
    yield from _pair_up(rest)
    for k, partner in enumerate(rest):
        for others in _pair_up(rest[:k] + rest[k + 1 :]):
            yield ((first, partner), *others)


def _match(pairs: Pairs, n_ports: int) -> NDArray[np.int32]:
    matching = np.full(n_ports, IDLE, dtype=np.int32)
    for i, j in pairs:
        matching[i], matching[j] = j, i
    return matching


def _route(fabric: Fabric, matching: NDArray[np.int32]) -> NDArray[np.int8] | None:
    """Return states of the cells; None if it is proved that there are none, free cells if not."""
    with uncounted():
        from optmatch.solvers.routing.branch_and_price import search  # loads OR-tools

    limits = Limits(iterations=_CASES, gap=1.0)
    found = search(Routing(fabric, matching), limits, np.random.default_rng(0), ignore)
    if found.status is Status.INFEASIBLE:
        return None
    states = None if found.schedule is None else found.schedule.cell_states
    if states is None:
        states = np.full((1, fabric.n_cells), FREE, dtype=np.int8)
    row: NDArray[np.int8] = states[0]
    return row
