"""The least completion time where ports are so few that all matchings can be listed.

An integer programme: for each permutation of the ports whether there is a slot of it, and how long
it lasts. The listing needs no compiled kernels, and answers before these would be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, Limit, Limits, OnEvent, Solution, Status, uncounted
from optmatch.problems import Demand
from optmatch.solvers.demands.configuration import certify
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.scheduling import Build, CoverTask, solve_demand

MOST_PORTS = 3  # six permutations; with the 24 of four ports the programme may take seconds
_LARGEST = 10**6  # ticks of an entry: beyond, a tick is near what the programme may miss


def suits(problem: Demand) -> bool:
    """Tell whether all slots of a demand can be listed, and only slots count."""
    return (
        problem.fabric.graph is None
        and not problem.fabric.bidirectional
        and problem.fabric.n_ports <= MOST_PORTS
        and problem.planes == 1
        and problem.packet_share == 0
        and problem.switching == "all-stop"
        and problem.objective == "completion-s"
        and int(problem.ticks.max()) <= _LARGEST
        and problem.min_slot_ticks <= _LARGEST
    )


def shortest_plan(problem: Demand, clock: Clock) -> Plan | None:
    """Find the plan that ends first; None if the time does not suffice.

    A partial matching can be made a permutation, which serves no less.
    """
    with uncounted():
        from scipy.optimize import Bounds, LinearConstraint, milp

    demand, n = problem.ticks, problem.fabric.n_ports
    rows, columns = np.nonzero(demand)
    slots = np.array(list(permutations(range(n))), dtype=np.int32)
    held = (slots[:, rows] == columns).T.astype(np.float64)
    slots, held = slots[held.any(axis=0)], held[:, held.any(axis=0)]
    count, longest = len(slots), int(max(demand.max(), problem.min_slot_ticks))
    none, each = np.zeros_like(held), np.eye(count)
    found = milp(
        np.concatenate([np.ones(count), np.full(count, problem.delay_ticks)]),
        constraints=[
            LinearConstraint(np.hstack([held, none]), lb=demand[rows, columns]),
            LinearConstraint(np.hstack([each, -longest * each]), ub=0),
            LinearConstraint(np.hstack([each, -problem.min_slot_ticks * each]), lb=0),
        ],
        integrality=np.ones(2 * count),
        bounds=Bounds(0, np.repeat([longest, 1], count)),
        options={"mip_rel_gap": 0.0} | _until(clock),
    )
    if found.status != 0:
        return None
    ticks = np.rint(found.x[:count]).astype(np.int64)
    served: NDArray[np.float64] = held @ ticks
    plan = Plan(slots, ticks).take(ticks > 0)
    short = (plan.ticks < problem.min_slot_ticks).any() or (served < demand[rows, columns]).any()
    return None if short else plan


def _until(clock: Clock) -> dict[str, float]:
    return {} if np.isinf(clock.remaining_s) else {"time_limit": clock.remaining_s}


def solve_few(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent, other: Build
) -> Solution:
    """Solve by `shortest_plan`, which compares all plans; by `other` if time is too short."""
    clock = limits.start()
    listed = list[Plan]()

    def build(work: CoverTask) -> Iterator[Plan]:
        plan = shortest_plan(problem, work.clock)
        listed.extend([] if plan is None else [plan])
        yield from listed or other(work)

    solution = solve_demand(problem, limits, rng, on_event, "best", build)
    if not listed or solution.limit is not Limit.EXHAUSTED:
        return solution
    optimal = replace(
        solution,
        status=Status.OPTIMAL,
        limit=None,
        lower_bound=solution.objective,
        stats=dict(solution.stats) | {"bound_by": "search"},
    )
    return certify(optimal, clock)
