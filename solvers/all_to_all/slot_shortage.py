"""All-to-all of a fabric with faults: solved on the live ports; and which faults cost slots.

The *fewest slots* are those that counting allows, `AllToAll.min_slots`. A fabric has a *shortage*
of slots where it is proved that no schedule has so few.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, Faulty, SelectedPorts
from optmatch.model import (
    IDLE,
    Clock,
    Limits,
    OnEvent,
    Schedule,
    Solution,
    Status,
    ignore,
    uncounted,
)
from optmatch.problems import AllToAll, RoutingProof
from optmatch.solvers.all_to_all import factors as combinatorics
from optmatch.solvers.all_to_all.conclusion import FEWEST_SLOTS, without_routes
from optmatch.solvers.all_to_all.planner import FAILED, RoutedSlot, SlotPlanner, exchange_pairs
from optmatch.solvers.frame import stoppable
from optmatch.solvers.routing.causes import Refuted, add_causes, find_causes, refuse_dead_pairs
from optmatch.solvers.routing.router import CellRouter

Solve = Callable[..., Solution]


def live_part(fabric: Fabric) -> SelectedPorts:
    """Return the live ports of a fabric as one of their own."""
    return SelectedPorts(fabric, tuple(fabric.live_ports.tolist()))


def on_live_ports(solve: Solve) -> Solve:
    """Decorate a method for all-to-alls, so that it also takes fabrics with dead ports.

    A port is dead if it has failed; all others are live. The method itself sees a fabric of the
    live ports alone, numbered anew from 0. The schedule that it returns gets all ports again, of
    which the dead ones are idle in each slot. A schedule to start from is narrowed to the live
    ports before.

    Parameters
    ----------
    solve
        The method, which knows nothing of dead ports.

    Returns
    -------
    Solve
        The method for fabrics with and without dead ports, of the same arguments.
    """

    @wraps(solve)
    def solve_all(
        problem: AllToAll,
        limits: Limits,
        rng: np.random.Generator,
        on_event: OnEvent,
        start: Solution | None = None,
        **options: Any,
    ) -> Solution:
        """Solve the problem of the live ports; give the solution all ports again.

        `solve` is the decorated method. A port is live unless it has failed.

        Parameters
        ----------
        problem
            The all-to-all, on a fabric that may have dead ports.
        limits, rng, on_event
            The limits of the search, its random numbers, and a function that is called with
            events; passed on to `solve`.
        start
            A solution to start from, with all ports; None for none.
        **options
            Passed on to `solve`.

        Returns
        -------
        Solution
            The solution of `solve`, with dead ports idle in all slots. Without any live port, a
            schedule of no slots; INFEASIBLE with the pair named where nothing connects two live
            ports.
        """
        # Without dead ports `solve` alone answers; without live ones there is nothing to connect.
        fabric = problem.fabric
        if not len(fabric.dead_ports):
            return solve(problem, limits, rng, on_event, start, **options)
        if not len(fabric.live_ports):
            nothing = np.empty((0, fabric.n_ports), dtype=np.int32)
            return without_routes(problem, nothing, solve.__module__.rpartition(".")[2])
        if start is not None and start.schedule is not None:
            start = replace(start, schedule=narrow(start.schedule, fabric))

        # `part` is the problem of the live ports. A proof that it has no solution names a pair of
        # its own ports, so the pair is looked up again by the numbers of the whole fabric.
        part = replace(problem, fabric=live_part(fabric))
        solution = solve(part, limits, rng, on_event, start, **options)
        if solution.status is Status.INFEASIBLE:
            refused = refuse_dead_pairs(problem, fabric.dead_pairs(), solution.method)
            if refused is not None:
                return refused
        schedule = solution.schedule and widen(solution.schedule, fabric)
        return replace(solution, problem=problem, schedule=schedule)

    return solve_all


def widen(schedule: Schedule, fabric: Fabric) -> Schedule:
    """Turn a schedule of the live ports into one of all ports, in which dead ones are idle.

    With 4 ports of which port 1 is dead, the live ports 0, 2 and 3 have the numbers 0, 1 and 2 in
    the schedule. Its matching ``[1, 0, -1]`` becomes ``[2, -1, 0, -1]``.

    Parameters
    ----------
    schedule
        ``schedule.matchings[slot, live port]``: the live port that it sends to, -1 for none.
    fabric
        The fabric with all ports.

    Returns
    -------
    Schedule
        The same slots, with ``matchings[slot, port]``.
    """
    live = fabric.live_ports
    port_of_live_port = np.append(live, IDLE)  # index IDLE = -1 is the last entry: idle stays idle
    matchings = np.full((schedule.n_slots, fabric.n_ports), IDLE, dtype=np.int32)
    matchings[:, live] = port_of_live_port[schedule.matchings]
    return replace(schedule, matchings=matchings)


def narrow(schedule: Schedule, fabric: Fabric) -> Schedule | None:
    """Turn a schedule of all ports into one of the live ports; dead ports are left out.

    Live ports are numbered anew from 0, in their order: the inverse of `widen`.

    Parameters
    ----------
    schedule
        ``schedule.matchings[slot, port]``: the port that it sends to, -1 for none.
    fabric
        The fabric with all ports.

    Returns
    -------
    Schedule or None
        The same slots, with ``matchings[slot, live port]``; None if the schedule is one of another
        number of ports.
    """
    if schedule.matchings.shape[1] != fabric.n_ports:
        return None
    live = fabric.live_ports
    # Index IDLE = -1 is the last entry: idle stays idle.
    live_port_of_port = np.full(fabric.n_ports + 1, IDLE, dtype=np.int32)
    live_port_of_port[live] = np.arange(len(live))
    return replace(schedule, matchings=live_port_of_port[schedule.matchings[:, live]])


Decide = Callable[[AllToAll, Clock, np.random.Generator], "list[RoutedSlot] | bool"]
"""Searches for a schedule in the fewest slots.

Returns its slots; True if it is proved that there is none; False if neither was found.
"""

_FEW_LITERALS = 5_000  # a mesh of some 40 cells with 6 ports: a second at most
"""Larger models are not built by `decide_small`."""
_FEW_CONFLICTS = 20_000
"""Conflicts after which `decide_small` gives up."""


def decide_small(
    problem: AllToAll, clock: Clock, rng: np.random.Generator, slots: int | None = None
) -> list[RoutedSlot] | bool:
    """Decide by CP-SAT whether there is a schedule in the fewest slots, where a second is enough.

    Parameters
    ----------
    problem
        The all-to-all: each two ports have to meet in some slot.
    clock
        Ends the search.
    rng
        Draws the seed of CP-SAT.
    slots
        The number of slots to decide about; None for the fewest by counting pairs and ports.

    Returns
    -------
    list of RoutedSlot, or bool
        The slots of a schedule; True if there is none; False if the model has more than
        `_FEW_LITERALS` literals, or the search ended before it knew.
    """
    with uncounted():
        from optmatch.solvers.all_to_all.joint_model import (
            decide_fewest,  # CP-SAT is slow to import
        )

    few = replace(clock.limits, iterations=_FEW_CONFLICTS)
    return decide_fewest(problem, replace(clock, limits=few), rng, _FEW_LITERALS, slots)


def ask_shortage(
    solution: Solution, clock: Clock, rng: np.random.Generator, decide: Decide
) -> Refuted:
    """Make a test that tells whether a fabric with fewer faults still needs more slots.

    An all-to-all with n ports needs at least as many slots as counting pairs and ports says. On
    the fabric of `solution` it is proved that this number is not enough. To find the faults that
    are to blame, faults are mended and the test is asked again (`find_causes`).

    The test tries these in turn, until one of them answers:

    1. *prices of links* that proved a shortage on another fabric. A link is a way between two
       cells, which one circuit can use in a slot. If all pairs together pay more than the links of
       all slots cost, there are too few slots;
    2. a quick search for a schedule;
    3. new prices, by a linear programme;
    4. the exact test `decide`.

    Parameters
    ----------
    solution
        A schedule in more slots than `AllToAll.min_slots`, with the proof that the fewest slots
        are not enough (``solution.certificate``: prices of links, or None).
    clock
        Limits the searches.
    rng
        Draws the schedules that are tried.
    decide
        Is asked last, where neither routes nor prices decide: `decide_fewest` or `decide_small`.

    Returns
    -------
    function
        Takes a fabric with the same ports and fewer faults. It returns True if it is proved that
        no schedule there has the fewest slots, False if it found such a schedule, and None if
        neither.
    """
    with uncounted():
        from optmatch.solvers.all_to_all.joint_bound import bound_jointly, refute_again  # OR-tools

    whole: Any = solution.problem
    refuting_prices: list[NDArray[np.int64]] = []
    """``prices[terminal]``: link prices that proved a shortage on one of the fabrics so far."""

    def keep_prices(proof: RoutingProof, router: CellRouter) -> None:
        """Keep the link prices of a proof by terminal: links are numbered anew by each fabric.

        A terminal is a corner of a cell, at which a link begins; it has the same number on each
        fabric. `proof` has the price of each link of the fabric of `router`.
        """
        price_of_link = proof.prices[0]
        refuting_prices.append(price_of_link[router.wiring.link])

    def needs_more_slots(fabric: Fabric) -> bool | None:
        """Tell whether a fabric needs more than the fewest slots; None if that stays open.

        The fewest slots are those that counting pairs and ports asks for. The clock, `rng`, the
        last test `decide` and the prices that proved it before are those of `ask_shortage`.

        Parameters
        ----------
        fabric
            The same ports as of the problem, with fewer faults.

        Returns
        -------
        bool or None
            True if it is proved that more slots are needed; False if a schedule in the fewest
            slots was found.
        """
        live = live_part(fabric) if len(fabric.dead_ports) else fabric
        problem = replace(whole, fabric=live)
        router = CellRouter(live)

        # The quick tests come first: prices that proved it elsewhere, and any schedule.
        if any(refute_again(problem, router, prices) for prices in refuting_prices):
            return True
        if _route_fewest(problem, router, clock, rng):
            return False

        # An infinite bound is the proof by new prices that the fewest slots are not enough.
        bound, proof = bound_jointly(problem, router, np.inf, clock)
        if bound == np.inf and proof is not None:
            keep_prices(proof, router)
            return True

        # The exact test returns a schedule, or whether it has proved that there is none.
        decision = decide(problem, clock, rng)
        if isinstance(decision, list):
            return False  # a schedule in the fewest slots
        return True if decision else None

    # The prices that proved it on the whole fabric are the first to be tried elsewhere.
    if solution.certificate is not None:
        keep_prices(solution.certificate, CellRouter(whole.fabric))
    return needs_more_slots


def _route_fewest(
    problem: AllToAll, router: CellRouter, clock: Clock, rng: np.random.Generator
) -> bool:
    """Return whether a heuristic search finds some schedule in the fewest slots.

    The pairs are those of a round-robin tournament whose players are drawn by `rng`. Slots are
    routed one by one; where some fail, pairs are exchanged between slots until all circuits have
    routes. False proves nothing.

    Parameters
    ----------
    problem
        The all-to-all, without dead ports.
    router
        The router of its fabric; its workspace is overwritten.
    clock
        Ends the search.
    rng
        Draws the players and the exchanges.

    Returns
    -------
    bool
        Whether all circuits of all slots have routes.
    """
    planner = SlotPlanner(problem, router, clock, rng, ignore)
    factors = combinatorics.tournament(problem.fabric.n_ports, problem.fabric.bidirectional)
    names = planner.random_names(factors.shape[1])
    limit = planner.route_all(combinatorics.relabel(factors, names))
    if limit is None:
        planner.insist()
        exchange_pairs(planner, tolerated=FAILED - 1)
    is_routed = [slot.excess < FAILED for slot in planner.plan]
    return len(is_routed) == len(factors) and all(is_routed)


def names_faults(decide: Decide = decide_small) -> Callable[[Solve], Solve]:
    """Make the decorator that lets a method for all-to-all name the faults that cost it slots.

    Where a method proves that the fewest slots are not enough, the statistics of its solution get
    ``causes`` and ``causes_minimal``, as those of an infeasible problem do (`name_causes`).

    Parameters
    ----------
    decide
        The exact test of last resort, for fabrics where neither routes nor prices of links decide:
        it returns the slots of a schedule, True if it is proved that there is none, else False.

    Returns
    -------
    callable
        The decorator: of a method for all-to-all it makes one of the same arguments.
    """

    def decorate(solve: Solve) -> Solve:
        """Return the method that also names the faults.

        Parameters
        ----------
        solve
            A method for all-to-all: of a problem, limits, random numbers, a listener and a
            solution to start from it makes a solution.
        """

        @wraps(solve)
        def solve_and_name(
            problem: AllToAll,
            limits: Limits,
            rng: np.random.Generator,
            on_event: OnEvent,
            start: Solution | None = None,
            **options: Any,
        ) -> Solution:
            """Solve, and if the fewest slots are refuted, find the faults that cause it.

            `solve` is the decorated method, and `decide` the exact test of last resort.

            Parameters
            ----------
            problem
                The all-to-all, on a fabric that may have faults.
            limits, rng, on_event, start
                The limits, the random numbers, the listener and the solution to start from, which
                are passed on to `solve`. What is left of the time is for the faults.
            **options
                Passed on to `solve`.

            Returns
            -------
            Solution
                The solution of `solve`; its statistics may name faults, too.
            """
            clock = limits.start()
            solution = solve(problem, limits, rng, on_event, start, **options)
            refuted = str(solution.stats.get(FEWEST_SLOTS, "")).startswith("refuted")
            if not refuted or not isinstance(problem.fabric, Faulty):
                return solution

            # A fault is a cause if with it the fewest slots do not suffice. An interrupt keeps the
            # solution, and names what is known.
            with stoppable():
                needs_more_slots = ask_shortage(solution, clock, rng, decide)
                causes, is_minimal = find_causes(problem.fabric, needs_more_slots, clock)
                solution = add_causes(solution, FEWEST_SLOTS, causes, is_minimal)
            return solution

        return solve_and_name

    return decorate
