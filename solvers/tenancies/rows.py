"""The rows of one job in its slots, in numbers of its own ports: each row lists partners.

``rows[slot, vertex]`` is the partner of a vertex, -1 where idle. Vertices are the ports of a job;
of ports with an input and an output first the inputs, then the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import IdealSwitch
from optmatch.model import IDLE, Limits, check_time, ignore
from optmatch.problems import Collective, CollectivePlan, Tenancy, Tenant
from optmatch.solvers.all_to_all import factors
from optmatch.solvers.collectives.methods import FINDERS, method, suits
from optmatch.solvers.collectives.plans import assemble
from optmatch.solvers.tenancies.round_robin import lay_over_tournament

PIPELINED = "pipelined"
"""The method that broadcasts in pieces, each of which is on its way in another round."""

N_PIECE_SIZES = 16
"""Sizes of pieces that are tried: for rounds of a slot, of 0.7 slots, and so on to 0.006 slots.

A broadcast of 15 slots to 3, 4 and 7 other ports takes 16, 33 and 17 slots. Without trying sizes
it took 24, 45 and 28; with every second size it takes 16, 34 and 17.
"""

TRIES = 50
"""Orders in which circuits of a demand are given slots, before a slot more is allowed."""


class JobRows(NamedTuple):
    """The rows of a job that are not idle."""

    rows: NDArray[np.int64]
    """``rows[slot, vertex]``."""
    in_order: bool
    """Whether they have to come in their order, as those of a collective."""
    plan: CollectivePlan | None
    """That of a collective, which the rows carry out."""


def plan_job(
    problem: Tenancy, tenant: Tenant, n_slots: int, rng: np.random.Generator
) -> JobRows | None:
    """Split what a job asks for into rows, each of which says who meets whom in one slot.

    Parameters
    ----------
    problem
        The tenancy, with the fabric and the length of a slot.
    tenant
        The job: a demand, an all-to-all or a collective of some ports.
    n_slots
        A demand has at most so many rows; the rows of other jobs do not depend on it.
    rng
        Draws names of ports and orders of circuits.

    Returns
    -------
    JobRows or None
        The rows, in numbers of the job's own ports; None if the circuits of a demand found no
        place in so many slots.
    """
    two_way = problem.fabric.bidirectional
    if tenant.question == "demand":
        rows = _split_demand(problem.slots_wanted(tenant), n_slots, two_way, rng)
        return None if rows is None else JobRows(rows, in_order=False, plan=None)
    if tenant.question == "all-to-all":
        rows = _draw_tournament(tenant.n_ports, two_way, rng)
        return JobRows(rows, in_order=False, plan=None)
    return _plan_collective(problem, tenant)


def _draw_tournament(n_ports: int, two_way: bool, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw a round-robin tournament: rows in which each two ports meet once.

    Parameters
    ----------
    n_ports
        The number of ports.
    two_way
        Whether a circuit connects a pair both ways; else each pair meets once in each direction.
    rng
        Draws the names of the ports.

    Returns
    -------
    int64 array, shape (rows, vertices)
        The partner of each vertex, -1 where idle. Vertices are the ports; without `two_way` the
        inputs of all ports, then their outputs.
    """
    rounds = factors.tournament(n_ports, two_way)
    if not two_way:
        # Inputs and outputs of a port get one name. The last round joins each port to itself.
        names = rng.permutation(n_ports)
        named = factors.relabel(rounds, np.concatenate([names, names + n_ports]))
        return named[: n_ports - 1]

    # An odd number of ports is made even by one that stands for idling.
    named = factors.relabel(rounds, rng.permutation(rounds.shape[1]))
    n_rounds = len(rounds) if n_ports > 1 else 0
    partners = named[:n_rounds, :n_ports]
    return np.where(partners < n_ports, partners, IDLE)


def _plan_collective(problem: Tenancy, tenant: Tenant) -> JobRows:
    """Plan a collective operation of one job, by the algorithm that needs the fewest time slots.

    In a slot circuits stay as they are. The plan of an algorithm has epochs, times in which its
    circuits stay; an epoch takes as many slots as its duration needs. Plans in which an epoch has
    no circuits are left out.

    Parameters
    ----------
    problem
        The tenancy, with the length of a slot.
    tenant
        The job that runs the collective.

    Returns
    -------
    JobRows
        The circuits of each epoch, repeated for each of its slots, and the plan.
    """
    # The plans of all algorithms, as if the job had a switch of its own.
    collective = problem.question(tenant, tuple(range(tenant.n_ports)))
    assert isinstance(collective, Collective)
    alone = replace(collective, fabric=IdealSwitch(tenant.n_ports))
    best: JobRows | None = None
    plans = chain(
        _follow_algorithms(alone), _cut_for_slots(problem, alone), _over_tournament(problem, alone)
    )

    # ``matchings[epoch, rank]`` is the rank to which the port of a rank leads, -1 for none.
    for plan, held_s in plans:
        matchings = plan.circuits[:, 0]
        if (matchings == IDLE).all(axis=1).any():
            continue
        n_slots = [problem.slots_for(seconds) for seconds in held_s.tolist()]
        if best is None or sum(n_slots) < len(best.rows):
            repeated = np.repeat(matchings, n_slots, axis=0).astype(np.int64)
            rows = _rows_of_matchings(repeated, collective.two_way)
            best = JobRows(rows, in_order=True, plan=plan)
    check_time()  # methods that are stopped have no plan
    assert best is not None
    return best


HeldPlan = tuple[CollectivePlan, NDArray[np.float64]]
"""A plan on one lane, and for each epoch the seconds that its circuits are held."""


def _follow_algorithms(alone: Collective) -> Iterator[HeldPlan]:
    """List the plans of all algorithms for a collective that has a switch for itself."""
    for name in FINDERS:
        if suits(alone, name):
            solution = method(name)(alone, Limits(), np.random.default_rng(0), ignore)
            if solution.schedule is not None and isinstance(solution.answer, CollectivePlan):
                yield solution.answer, solution.schedule.durations_s


def _cut_for_slots(problem: Tenancy, alone: Collective) -> Iterator[HeldPlan]:
    """List plans of a broadcast that cut its data into pieces of several sizes.

    The algorithm sends the data piece by piece, in rounds. The smaller the latency of a round, the
    finer it cuts. Here each round takes a whole slot at least, so that fine pieces are of no use.
    The algorithm is hence told a larger latency, some part of a slot, and its plan is timed anew
    with the true one.

    Parameters
    ----------
    problem
        The tenancy, with the length of a slot in seconds.
    alone
        The collective on an ideal switch of its own.

    Yields
    ------
    (CollectivePlan, array)
        A plan, and the seconds that the circuits of each of its epochs are held.
    """
    if not suits(alone, PIPELINED):
        return
    for halving in range(N_PIECE_SIZES):
        check_time()
        latency_s = alone.alpha_s + problem.slot_s * 2.0 ** (-halving / 2)
        coarse = replace(alone, alpha_s=latency_s)
        solution = method(PIPELINED)(coarse, Limits(), np.random.default_rng(0), ignore)
        plan = solution.answer
        if not isinstance(plan, CollectivePlan) or len(plan.parts) or len(plan.places):
            continue
        timed = assemble(
            alone,
            plan.sends.astype(np.int64),
            len(plan.chunk_bytes),
            plan.circuits.astype(np.int64),
            plan.epoch_of_round.astype(np.int64),
            links=plan.links.astype(np.int64),
        )
        if timed.held_s is not None:
            yield timed.plan, timed.held_s


def _over_tournament(problem: Tenancy, alone: Collective) -> Iterator[HeldPlan]:
    """List the plan of a broadcast over a round-robin tournament, where there is one."""
    laid = lay_over_tournament(alone, problem.slot_s)
    if laid is not None and laid.held_s is not None:
        yield laid.plan, laid.held_s


def _rows_of_matchings(matchings: NDArray[np.int64], two_way: bool) -> NDArray[np.int64]:
    """Turn matchings of ports into rows of vertices.

    Parameters
    ----------
    matchings
        ``matchings[slot, source] = destination``, -1 where idle.
    two_way
        Whether ports are the vertices. Else the vertices are all inputs, then all outputs of the
        ports, and a circuit joins an input and an output.

    Returns
    -------
    int64 array, shape (slots, vertices)
        The partner of each vertex, -1 where idle.
    """
    if two_way:
        return matchings
    n_slots, n_ports = matchings.shape
    rows = np.full((n_slots, 2 * n_ports), IDLE)
    slots, inputs = np.nonzero(matchings != IDLE)
    outputs = matchings[slots, inputs] + n_ports
    rows[slots, inputs] = outputs
    rows[slots, outputs] = inputs
    return rows


def _split_demand(
    n_slots_of_pair: NDArray[np.int64], n_slots: int, two_way: bool, rng: np.random.Generator
) -> NDArray[np.int64] | None:
    """Spread the circuits of a job over slots, so that each gets as many slots as it needs.

    In one slot a port has one partner at most. As an example, let all pairs of ports need 2 slots,
    and ports 0 and 1 need 5. The first rows are two tournaments, in each of which all pairs meet
    once. The 3 slots that ports 0 and 1 still lack are then placed one by one, where both ports
    are idle. Circuits that are left are placed in a random order, which is drawn anew if one of
    them finds no place.

    Parameters
    ----------
    n_slots_of_pair : array, shape (ports, ports)
        How many slots the circuit from a port to another one needs.
    n_slots
        How many slots there are.
    two_way
        Whether a circuit serves both directions; the numbers of slots are then symmetric.
    rng
        Draws the orders.

    Returns
    -------
    int64 array, shape (rows, vertices), or None
        The partner of each vertex in each slot, -1 where idle, without slots in which all are
        idle. If circuits serve both directions, a vertex is a port; otherwise vertex k is the
        sending side of port k, and vertex ports + k the receiving side. None if `TRIES` orders
        failed.
    """
    # As many tournaments as all pairs need, and as there is room for.
    n_ports = len(n_slots_of_pair)
    is_pair = 1 - np.eye(n_ports, dtype=np.int64)
    rounds = _draw_tournament(n_ports, two_way, rng)
    least_wanted = int(n_slots_of_pair[is_pair > 0].min(initial=n_slots))
    n_tournaments = min(least_wanted, n_slots // max(1, len(rounds)))

    # `circuits` lists each circuit as often as it still needs a slot.
    remaining = (n_slots_of_pair - n_tournaments) * is_pair
    pairs = np.argwhere(np.triu(remaining) if two_way else remaining)
    circuits = np.repeat(pairs, remaining[tuple(pairs.T)], axis=0)
    n_vertices = n_ports
    if not two_way:
        circuits[:, 1] += n_ports
        n_vertices = 2 * n_ports

    # The tournaments have the first rows; the circuits get slots in a random order.
    for _ in range(TRIES):
        rows: NDArray[np.int64] = np.full((n_slots, n_vertices), IDLE)
        rows[: n_tournaments * len(rounds)] = np.tile(rounds, (n_tournaments, 1))
        if all(_place_circuit(rows, *ends) for ends in rng.permutation(circuits).tolist()):
            is_busy = (rows != IDLE).any(axis=1)
            busy: NDArray[np.int64] = rows[is_busy]
            return busy
    return None


def _place_circuit(rows: NDArray[np.int64], vertex: int, other: int) -> bool:
    """Give a circuit a slot in which both of its ends are idle, or make room for it.

    If there is no such slot, let one end be idle in slot 3, for instance, and the other in slot 5.
    The circuits of slots 3 and 5 are exchanged along the alternating path (Kempe chain) that
    begins at the other end. It is then idle in slot 3, as well as the first end, unless the path
    leads to the first end.

    Parameters
    ----------
    rows
        ``rows[slot, vertex]``: the partner of a vertex, -1 where idle. Changed.
    vertex, other
        The two ends of the circuit.

    Returns
    -------
    bool
        Whether the circuit has a slot now; if not, `rows` are as before.
    """
    # The first slot in which both ends are idle.
    check_time()
    free = np.flatnonzero(rows[:, vertex] == IDLE)
    free_at_other = np.flatnonzero(rows[:, other] == IDLE)
    for slot in np.intersect1d(free, free_at_other)[:1]:
        rows[slot, vertex] = other
        rows[slot, other] = vertex
        return True

    # The first two slots whose path does not meet the first end.
    for slot in free:
        for other_slot in free_at_other:
            slots = np.array([slot, other_slot])
            chain = find_chain(rows[slots], other)
            if vertex in chain:
                continue
            vertices = np.array(chain)
            rows[np.ix_(slots, vertices)] = rows[np.ix_(slots[::-1], vertices)]
            rows[slot, vertex] = other
            rows[slot, other] = vertex
            return True
    return False


def find_chain(two_rows: NDArray[np.int64], vertex: int) -> list[int]:
    """List the vertices that two rows connect with one; both may be exchanged there."""
    chain = [vertex]
    for reached in chain:  # grows while it is walked
        for partner in two_rows[:, reached].tolist():
            if partner != IDLE and partner not in chain:
                chain.append(partner)
    return chain
