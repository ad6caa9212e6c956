"""The least completion time where ports are so few that all matchings can be listed.

An integer programme: for each permutation of the ports whether there is a slot of it, and how long
it lasts. The listing needs no compiled kernels, and answers before these would be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

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
    """Tell whether all slots of a demand can be listed, and only slots count.

    That is so for `MOST_PORTS` inputs and outputs of an ideal switch on one plane with all-stop
    switching, without packets, if completion is minimised and entries are not too long for floats.

    Parameters
    ----------
    problem
        The demand.

    Returns
    -------
    bool
        Whether `shortest_plan` may be asked.
    """
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


class _ListedSlots(NamedTuple):
    """All matchings that may be slots, and which entries each of them serves."""

    matchings: NDArray[np.int32]  # (slots, ports): permutations
    serves: NDArray[np.float64]  # (entries, slots): 1 where a slot has the circuit of an entry
    entry_ticks: NDArray[np.int64]  # (entries,)


def _list_slots(demand: NDArray[np.int64]) -> _ListedSlots:
    """List the permutations of ports that serve any entry of a demand.

    A partial matching can be made a permutation, which serves no less.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, shape (n, n).

    Returns
    -------
    _ListedSlots
        The permutations, the entries that each of them serves, and the ticks of entries.
    """
    sources, destinations = np.nonzero(demand)
    matchings = np.array(list(permutations(range(len(demand)))), dtype=np.int32)
    serves = (matchings[:, sources] == destinations).T.astype(np.float64)
    is_useful = serves.any(axis=0)
    return _ListedSlots(matchings[is_useful], serves[:, is_useful], demand[sources, destinations])


def shortest_plan(problem: Demand, clock: Clock) -> Plan | None:
    """Find the plan that ends first, by an integer programme over all permutations.

    A plan is a list of slots; a slot is a permutation of the ports that is held for some ticks,
    after a delay. There are so few ports that all permutations can be listed.

    With S permutations there are 2 S whole variables. The first S are the ticks that the slot of
    each permutation lasts; the other S are 1 if there is such a slot, else 0. The sum of the
    ticks, and a delay for each slot, is minimised.

    Parameters
    ----------
    problem
        A demand for which `suits` is true.
    clock
        Its time limit ends the search.

    Returns
    -------
    Plan or None
        The optimal plan; None if the time did not suffice, or if rounding in the programme has
        made an answer that does not hold in whole ticks.
    """
    with uncounted():
        from scipy.optimize import Bounds, LinearConstraint, milp

    # Three kinds of rows, with t for the ticks of a permutation and b for whether it has a slot:
    # the t of all permutations that serve an entry add up to its demand at least;
    # t - longest * b <= 0, no ticks without a slot; t - shortest * b >= 0, no slot too short.
    # No slot needs to be longer than the largest entry, or than the shortest slot.
    slots = _list_slots(problem.ticks)
    n_slots = len(slots.matchings)
    longest = int(max(problem.ticks.max(), problem.min_slot_ticks))
    of_each_slot = np.eye(n_slots)
    all_are_served = LinearConstraint(
        np.hstack([slots.serves, np.zeros_like(slots.serves)]), lb=slots.entry_ticks
    )
    no_ticks_without_slot = LinearConstraint(
        np.hstack([of_each_slot, -longest * of_each_slot]), ub=0
    )
    no_slot_too_short = LinearConstraint(
        np.hstack([of_each_slot, -problem.min_slot_ticks * of_each_slot]), lb=0
    )
    programme = milp(
        np.concatenate([np.ones(n_slots), np.full(n_slots, problem.delay_ticks)]),
        constraints=[all_are_served, no_ticks_without_slot, no_slot_too_short],
        integrality=np.ones(2 * n_slots),
        bounds=Bounds(0, np.repeat([longest, 1], n_slots)),
        options={"mip_rel_gap": 0.0} | _time_limit(clock),
    )
    if programme.status != 0:
        return None

    # The programme computes in floats: its answer counts if it holds in whole ticks.
    ticks = np.rint(programme.x[:n_slots]).astype(np.int64)
    plan = Plan(slots.matchings, ticks).take(ticks > 0)
    is_served = (slots.serves @ ticks >= slots.entry_ticks).all()
    is_long_enough = (plan.ticks >= problem.min_slot_ticks).all()
    return plan if is_served and is_long_enough else None


def _time_limit(clock: Clock) -> dict[str, float]:
    """Return the option of the programme for the time that is left."""
    return {} if np.isinf(clock.remaining_s) else {"time_limit": clock.remaining_s}


def solve_few(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    build_otherwise: Build,
) -> Solution:
    """Solve a demand of few ports by an integer programme, or otherwise if time is too short.

    Ports are so few that all matchings can be listed, and a programme over all of them finds the
    plan that ends first (`shortest_plan`). If it does not end in time, plans of another method are
    taken.

    Parameters
    ----------
    problem
        A demand for which `suits` is true.
    limits
        The limits of time, gap and iterations.
    rng
        The random numbers of the other method.
    on_event
        Called with better objectives and bounds.
    build_otherwise
        The other method: given the demand and the clock, it yields plans.

    Returns
    -------
    Solution
        If the programme's plan was taken, it is optimal, with a certificate where there is one.
        Otherwise the best plan of the other method.
    """
    clock = limits.start()

    # The programme's plan is noted here, if it is found.
    shortest: list[Plan] = []

    def build(work: CoverTask) -> Iterator[Plan]:
        """Yield the optimal plan if there is time, or else those of the other method.

        Parameters
        ----------
        work
            The demand in ticks, and the clock.
        """
        plan = shortest_plan(problem, work.clock)
        if plan is None:
            yield from build_otherwise(work)
        else:
            shortest.append(plan)
            yield plan

    solution = solve_demand(problem, limits, rng, on_event, "best", build)
    if not shortest or solution.limit is not Limit.EXHAUSTED:
        return solution

    # The only plan was taken and the iterator ended: the search over all plans is the proof, until
    # `certify` finds one that can be checked.
    optimal = replace(
        solution,
        status=Status.OPTIMAL,
        limit=None,
        lower_bound=solution.objective,
        stats=dict(solution.stats) | {"bound_by": "search"},
    )
    return certify(optimal, clock)
