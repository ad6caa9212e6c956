"""Collectives on a switch that states its losses: ranks are renumbered within their budgets.

A plan is made for ranks that are alike. Which rank plays which role is free then, unless some are
late or one is the root; so each role is given to a rank such that the worst circuit of the plan
loses least.

A *role* is a rank number of the plan before it is renumbered, such as the second rank on a ring. A
*block* is the data of one rank, and a *piece* an equal part of it or of the whole buffer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from optmatch.model import IDLE, Clock, Limits, ignore, uncounted
from optmatch.problems import Collective, CollectivePlan
from optmatch.solvers.collectives.plans import Laid
from optmatch.solvers.collectives.rounds import (
    CHUNK,
    DESTINATION,
    SOURCE,
    BoolArray,
    FloatArray,
    IntArray,
    unroll_circuits,
)

_LONGEST_S = 10.0
"""How long ranks are looked for that play the roles of one plan, at most."""

_RING_WORK_S = 5.0
"""The most work of CP-SAT for each threshold of a ring, in seconds as it counts them."""

_MOST_MOVES = 5_000
"""The most exchanges of the tabu search for each threshold."""

_TENURE_SHARE = 0.6
_TENURE_DRAW = 10
"""A move back is tabu for 0.6 times the roles with a circuit above the threshold, and up to ten
moves more."""


class RankLosses(NamedTuple):
    """The losses of circuits between ranks, over the worst of the ports that may carry them."""

    loss_db: FloatArray
    """``loss_db[source rank, destination rank]``"""
    is_over: BoolArray
    """``is_over[source rank, destination rank]``: some of these ports are over their budget."""
    is_cut: BoolArray
    """``is_cut[source rank, destination rank]``: all of these ports are over their budget."""


def rank_losses(problem: Collective) -> RankLosses | None:
    """Return what light loses between each two ranks, over the worst of their ports.

    Which ports of two ranks a circuit will take is not known yet. One-way circuits join ports of
    equal numbers, two-way ones any. Port p of rank r is the port ``r * ports + p`` of the switch.
    The result is None if the switch does not state any losses.

    Example: with two ports, port 1 of rank 3 is port 7 of the switch.
    """
    loss_of_ports: Any = problem.fabric.circuit_loss_db
    if loss_of_ports is None:
        return None
    over_budget = problem.fabric.over_budget
    if over_budget is None:
        over_budget = np.zeros(loss_of_ports.shape, dtype=np.bool_)
    # The switch may have more ports than the ranks use. Ports of both ends become two axes each:
    # source rank, its port, destination rank, its port.
    n_ranks = problem.n_ranks
    n_used = n_ranks * problem.ports
    shape = (n_ranks, problem.ports, n_ranks, problem.ports)
    loss_db = loss_of_ports[:n_used, :n_used].reshape(shape)
    is_over: Any = over_budget[:n_used, :n_used].reshape(shape)
    if problem.two_way:
        return RankLosses(
            loss_db.max(axis=(1, 3)), is_over.any(axis=(1, 3)), is_over.all(axis=(1, 3))
        )

    # One-way circuits: only entries with the same port at both ends count.
    ports = np.arange(problem.ports)
    same_port_db = loss_db[:, ports, :, ports]  # (ports, ranks, ranks)
    same_port_is_over = is_over[:, ports, :, ports]
    return RankLosses(
        same_port_db.max(axis=0), same_port_is_over.any(axis=0), same_port_is_over.all(axis=0)
    )


def explain_unreachable(problem: Collective) -> str:
    """Say which rank cannot reach which, over circuits within their budgets; empty if all can.

    All operations but an uneven all-to-all and a broadcast need that every rank reaches every
    other one, directly or over others; in a broadcast the root has to reach all.

    Example: of three ranks whose circuits 0 -> 1 and 1 -> 0 alone keep to their budgets, rank 0
    does not reach rank 2.
    """
    losses = rank_losses(problem)
    if losses is None or problem.demand_bytes is not None or problem.steps is not None:
        return ""
    # reaches[source, destination]: at first over one circuit or inside an island, then over any
    # number of these.
    island = np.arange(problem.n_ranks) // problem.island
    reaches = ~losses.is_cut | (island[:, np.newaxis] == island)
    for middle in range(problem.n_ranks):  # Warshall's transitive closure
        reaches |= reaches[:, middle, np.newaxis] & reaches[middle]
    if problem.flow.from_root:
        reaches = reaches[problem.root, np.newaxis]  # one row, whose number is no rank

    # The first pair of ranks of which the first one does not reach the second, if there is any.
    for source, destination in np.argwhere(~reaches)[:1].tolist():
        source = problem.root if problem.flow.from_root else source
        return (
            f"over the link budget: no circuits lead from rank {source} to rank {destination},"
            " directly or over others"
        )
    return ""


def place_ranks(problem: Collective, laid: Laid, clock: Clock) -> tuple[Laid | None, float]:
    """Renumber the ranks of a plan so that the circuits of a real switch lose least.

    Returns the plan, and a proved lower bound of the worst loss of any order of ranks, in dB. The
    plan is None if no order was found that keeps to all budgets. It is `laid` itself, with the
    bound 0, if the switch states no losses, or if there was no time to look for an order and the
    one that is there keeps to the budgets.
    """
    # pairs[k]: source and destination of each different circuit of the plan. The lanes of all
    # epochs are put one behind the other: peer[epoch * lanes + lane, rank].
    losses = rank_losses(problem)
    plan = laid.plan
    peer = plan.circuits.reshape(-1, problem.n_ranks)
    lanes, sources = np.nonzero(peer != IDLE)
    destinations = peer[lanes, sources]
    pairs = np.unique(np.stack([sources, destinations], axis=1), axis=0)
    if losses is None or not len(pairs):
        return laid, 0.0

    placed = _assign_roles(problem, losses, pairs, clock)
    if placed.rank_of_role is None:
        # Where there was no time to look for an order, the one that is there may do.
        is_over = losses.is_over[pairs[:, 0], pairs[:, 1]].any()
        return (None if is_over else laid), 0.0
    return laid._replace(plan=_renumber(problem, plan, placed.rank_of_role)), placed.bound_db


class _Order(NamedTuple):
    """Which rank plays each role of a plan, and how little its worst circuit can lose."""

    rank_of_role: IntArray | None
    """``rank_of_role[role]``; None if no order was found whose circuits all keep to budgets."""
    bound_db: float
    """No order has a worst circuit that loses less, in dB; infinite if none keeps to budgets."""


def _assign_roles(
    problem: Collective, losses: RankLosses, pairs: IntArray, clock: Clock
) -> _Order:
    """Choose which rank of the switch plays which role, so that the worst circuit loses least.

    Parts of a ring are ordered by CP-SAT. Other plans, and rings for which it takes too long, are
    improved by a tabu search. A rank that differs from others (the root, a late rank) keeps its
    role, and all ranks do if they want different data. ``pairs[k]`` is a circuit between roles:
    source and destination.
    """
    # Circuits over their budget lose infinitely much. A role is free if any rank may play it. That
    # asks for ranks that are alike: with equal data, without islands, and without circuits at the
    # start that belong to certain ranks.
    n_ranks = problem.n_ranks
    loss_db = np.where(losses.is_over, np.inf, losses.loss_db)
    are_alike = (
        problem.steps is None
        and problem.demand_bytes is None
        and problem.island == 1
        and isinstance(problem.start, str)
    )
    is_free = np.full(n_ranks, are_alike)
    is_free[[int(rank) for rank in problem.late_s]] = False
    if problem.flow.from_root:
        is_free[problem.root] = False

    # The ring gives an order, or a proof that there is none (an infinite bound); else its bound
    # may still be a higher one, and the tabu search goes on from there.
    limits = Limits(time_s=max(0.0, min(_LONGEST_S, clock.remaining_s)))
    bound_db = _bound_worst_loss(loss_db, pairs, is_free)
    ring = _follow_ring(pairs, n_ranks)
    if ring is not None and is_free.all():
        placed = _order_ring(ring, loss_db, bound_db, limits.start())
        if placed.rank_of_role is not None or placed.bound_db == np.inf:
            return placed
        bound_db = placed.bound_db
    needed = np.zeros((n_ranks, n_ranks), dtype=np.int64)  # [source role, destination role]
    needed[pairs[:, 0], pairs[:, 1]] = 1
    np.fill_diagonal(needed, 0)
    return _exchange_ranks(needed, loss_db, is_free, bound_db, limits.start())


def _bound_worst_loss(loss_db: FloatArray, pairs: IntArray, is_free: BoolArray) -> float:
    """Return a lower bound of the worst loss of a plan, in dB, from what each role needs.

    ``loss_db[rank, rank]`` is infinite over the budget, rows of `pairs` are circuits (role, role),
    and roles without ``is_free[role]`` keep the rank of their number. A role with d circuits out
    loses at least the d-th least of the losses out of its rank, and likewise in. This holds for
    each rank that a role may be on. If m free roles need as many circuits as a role or more, they
    are on m different ranks: one of them loses at least what the role would on its m-th best rank.

    Example: 4 free roles with one circuit each, and ranks on which such a role loses 1, 1, 2 and 3
    dB. All four ranks are taken, so that some circuit loses 3 dB.
    """
    # Column d of the sorted losses is the d-th least one of a rank, and column 0 that of a role
    # without circuits.
    n_ranks = len(loss_db)
    between_db = loss_db.copy()
    np.fill_diagonal(between_db, np.inf)
    # Example: a rank that loses 3, 1 and 2 dB to others has the row -inf, 1, 2, 3, inf (itself). A
    # role with two circuits loses 2 dB at least there.
    no_circuit_db = np.full((n_ranks, 1), -np.inf)
    out_db = np.hstack([no_circuit_db, np.sort(between_db, axis=1)])
    in_db = np.hstack([no_circuit_db, np.sort(between_db.T, axis=1)])
    n_out = np.bincount(pairs[:, 0], minlength=n_ranks)
    n_in = np.bincount(pairs[:, 1], minlength=n_ranks)

    # For each role the loss on its own rank, or, if it is free, on its m-th best free rank, where
    # m counts the free roles with as many circuits or more, itself among them (`needs_as_many`).
    bound_db = 0.0
    for role in range(n_ranks):
        cost_db = np.maximum(out_db[:, n_out[role]], in_db[:, n_in[role]])  # by its rank
        if is_free[role]:
            needs_as_many = is_free & (n_out >= n_out[role]) & (n_in >= n_in[role])
            least_db = np.sort(cost_db[is_free])[np.count_nonzero(needs_as_many) - 1]
        else:
            least_db = cost_db[role]
        bound_db = max(bound_db, float(least_db))
    return bound_db


def _order_ring(ring: IntArray, loss_db: FloatArray, bound_db: float, clock: Clock) -> _Order:
    """Order ranks on a ring so that its worst circuit loses least: a bottleneck tour, by CP-SAT.

    ``loss_db[source rank, destination rank]`` is infinite where no circuit may be, ``ring[k]`` the
    k-th role on the ring, and `bound_db` a lower bound of its worst loss. For one threshold of
    loss after the other CP-SAT finds a ring of circuits that lose no more, or proves that there is
    none. Thresholds go up the sorted list of all losses from the bound on, in steps that double,
    as low ones leave few circuits and small models. After the first ring it is a binary search.

    The bound of the result is raised by thresholds without a ring: it is infinite if there is none
    at all. The search ends early without time, or when CP-SAT finds neither a ring nor a proof.

    Example: losses of 1, 2, 3 and 4 dB, and a bound of 1 dB. With the threshold of 3 dB there is a
    ring, with 2 dB there is none: the worst circuit loses 3 dB.
    """
    with uncounted():
        from ortools.sat.python import cp_model

        from optmatch.solvers.cpsat import minimise

    # Invariant: no threshold before number `low` has a ring, and number `high` has one, or is the
    # end of the list. The next one is in the middle, but at most `step` after `low`.
    thresholds_db = np.unique(loss_db[np.isfinite(loss_db)])
    low = int(np.searchsorted(thresholds_db, bound_db))
    high = len(thresholds_db)
    step = len(ring)
    rank_of_role = None
    while low < high and clock.remaining_s > 0:
        middle = min((low + high) // 2, low + step)
        step *= 2

        # A circuit through all ranks over pairs that lose no more than this threshold.
        model = cp_model.CpModel()
        arcs = [
            (source, destination, model.new_bool_var(""))
            for source, destination in np.argwhere(loss_db <= thresholds_db[middle]).tolist()
            if source != destination
        ]
        model.add_circuit(arcs)
        outcome = minimise(model, clock, ignore, seed=0, work=_RING_WORK_S, tell=False)

        # A ring lowers the threshold, a refutation raises it; else the time was up.
        if outcome.found:
            # The circuit of ranks is followed from rank 0, which plays the first role of the ring,
            # as any rank may.
            next_rank = {source: end for source, end, literal in arcs if outcome.holds(literal)}
            rank_of_role = np.zeros(len(ring), dtype=np.int64)
            for place in range(1, len(ring)):
                rank_of_role[ring[place]] = next_rank[int(rank_of_role[ring[place - 1]])]
            high = middle
        elif outcome.infeasible:
            low = middle + 1
        else:
            break
    bound_db = float(thresholds_db[low]) if low < len(thresholds_db) else np.inf
    return _Order(rank_of_role, bound_db)


def _exchange_ranks(
    needed: IntArray,
    loss_db: FloatArray,
    is_free: BoolArray,
    bound_db: float,
    clock: Clock,
) -> _Order:
    """Lower the worst loss of a plan by tabu search, one threshold after the other.

    Each threshold is the next loss below the worst one so far, and is reached when no circuit of
    the plan is above it. The search ends with a threshold that is not reached in `_MOST_MOVES`
    moves, or at the lower bound `bound_db`. ``needed[source role, destination role]`` is 1
    where the plan has a circuit, ``loss_db[source rank, destination rank]`` is infinite over the
    budget, and ``is_free[role]`` tells whether another rank may play the role. The result has the
    best order, None if each had a circuit over its budget, and `bound_db` as it was given.
    """
    # ``order[role]`` is the rank that plays it, at first the one of the same number.
    # `_reach_threshold` changes it, also where it fails: `best` is the order before.
    sources, destinations = np.nonzero(needed)
    order = np.arange(len(needed))
    best: IntArray | None = None
    worst_db = float(loss_db[sources, destinations].max())

    # The next threshold is the largest loss below the worst one of the order so far.
    while True:
        if worst_db < np.inf:
            best = order.copy()
        below_db = loss_db[loss_db < worst_db]
        if worst_db <= bound_db or not len(below_db):
            return _Order(best, bound_db)
        if not _reach_threshold(needed, loss_db > below_db.max(), order, is_free, clock):
            return _Order(best, bound_db)
        worst_db = float(loss_db[order[sources], order[destinations]].max())


def _reach_threshold(
    needed: IntArray,
    is_above: BoolArray,
    order: IntArray,
    is_free: BoolArray,
    clock: Clock,
) -> bool:
    """Exchange the ranks of two roles at a time until no circuit is above the threshold.

    ``needed[source role, destination role]`` is 1 for a circuit, and ``is_above[source rank,
    destination rank]`` tells between which ranks it loses too much. Only roles with
    ``is_free[role]`` move. Robust tabu search for quadratic assignment (Taillard 1991, doi
    10.1016/S0167-8191(05)80147-4), restricted to roles with a circuit above the threshold
    (min-conflicts).

    Changes `order`, the rank of each role, in place. Returns whether the threshold is reached;
    False after `_MOST_MOVES` moves, or without time.
    """
    above = is_above.astype(np.int64)
    np.fill_diagonal(above, 0)
    joined = needed + needed.T  # [role, role]: the circuits between two roles, 0 to 2
    # conflicts[role, rank]: how many circuits of the role would be above the threshold if it alone
    # moved to the rank. Its circuits out come first, then those that lead to it.
    conflicts = needed @ above[:, order].T + needed.T @ above[order]
    tabu_until = np.zeros_like(conflicts)  # [role, rank]: until which move it may not go there
    rng = np.random.default_rng(0)
    roles = np.arange(len(order))
    total = int(conflicts[roles, order].sum()) // 2  # circuits above; each counts at both ends
    fewest = total
    for move in range(_MOST_MOVES):
        if total == 0:
            return True
        if clock.remaining_s <= 0:
            return False

        # increase[x, y]: circuits above the threshold that an exchange of x and y adds, where
        # moved[x, y] has those of role x on the rank of role y. Circuits between the two are wrong
        # in the first four terms: `conflicts_now` takes them off at both ends, and `moved` has the
        # other role stay, which makes them circuits from a rank to itself. The last term adds what
        # is missing: those that are above now, once, and those that are above after the exchange.
        moved = conflicts[:, order]
        conflicts_now = moved.diagonal()
        between = above[np.ix_(order, order)]
        increase = (
            moved
            + moved.T
            - conflicts_now
            - conflicts_now[:, np.newaxis]
            + joined * (between + between.T)
        )

        # A tabu exchange is allowed if fewer circuits than ever are above the threshold after it
        # (aspiration). In every exchange one of the roles has such a circuit now.
        is_tabu = tabu_until[:, order] > move
        is_allowed = ~(is_tabu | is_tabu.T) | (increase < fewest - total)
        is_allowed &= np.outer(is_free & (conflicts_now > 0), is_free)
        np.fill_diagonal(is_allowed, False)
        choices = np.flatnonzero(is_allowed)
        # If all exchanges are tabu, some are no longer so in later moves.
        if not len(choices):
            continue
        # Of the exchanges that add the fewest, one is drawn: of the roles `first` and `second`.
        least = increase.ravel()[choices]
        first, second = divmod(int(rng.choice(choices[least == least.min()])), len(order))

        # The role `first` goes from the rank `old` to the rank `new`, and `second` the other way:
        # the conflicts of the roles that have circuits to or from them change. Neither goes back
        # for a while.
        old, new = order[first], order[second]
        conflicts += np.outer(needed[:, first] - needed[:, second], above[:, new] - above[:, old])
        conflicts += np.outer(needed[first] - needed[second], above[new] - above[old])
        order[[first, second]] = new, old
        total += int(increase[first, second])
        fewest = min(fewest, total)
        tenure = move + 1 + int(_TENURE_SHARE * np.count_nonzero(conflicts_now))
        tabu_until[[first, second], [old, new]] = tenure + rng.integers(_TENURE_DRAW, size=2)
    return False


def _follow_ring(pairs: IntArray, n_ranks: int) -> IntArray | None:
    """Return the ranks of a ring in the order in which its circuits join them, from rank 0.

    Rows of `pairs` are circuits (source, destination): with (0, 2), (1, 0) and (2, 1) the
    result is 0, 2, 1. It is None if the circuits are not one ring through all ranks, but several
    rings, or no rings at all.
    """
    # On a ring each rank sends to one other.
    if len(pairs) != n_ranks or len(np.unique(pairs[:, 0])) != n_ranks:
        return None

    # The destinations by source. ``lines.place[rank]`` counts along the ring, and its inverse is
    # the rank at each place.
    lines = unroll_circuits(pairs[np.argsort(pairs[:, 0]), 1])
    if lines.ring_length[0] != n_ranks:
        return None
    return np.argsort(lines.place)


def _renumber(problem: Collective, plan: CollectivePlan, rank_of_role: IntArray) -> CollectivePlan:
    """Give other numbers to the ranks of a plan, everywhere that they stand in it.

    The rank that is number ``role`` in the given plan is number ``rank_of_role[role]`` in the
    result, a copy. For example with ``rank_of_role = [2, 0, 1]`` a send from 0 to 1 becomes one
    from 2 to 0. Ranks stand in the columns source, destination and chunk of ``sends``, in the
    columns from and to of ``links``, and in ``circuits[epoch, lane, rank]`` as index and as value;
    the entries of ``chunk_bytes[chunk]`` change their places.
    """
    # Chunks of an all-to-all are numbered source * n_ranks + destination, and those of a gather or
    # a reduce-scatter owner * pieces + piece. Those of an all-reduce or a broadcast are pieces of
    # the whole buffer, which belong to no rank and keep their numbers.
    n_ranks = problem.n_ranks
    n_chunks = len(plan.chunk_bytes)
    chunk = np.arange(n_chunks)
    new_chunk = chunk
    if problem.flow.has_pairs:
        source, destination = np.divmod(chunk, n_ranks)
        new_chunk = rank_of_role[source] * n_ranks + rank_of_role[destination]
    elif problem.flow.has_owners:
        rank, piece = np.divmod(chunk, n_chunks // n_ranks)
        new_chunk = rank_of_role[rank] * (n_chunks // n_ranks) + piece

    # Both ends of sends, and of links, whose rows are send, from and to.
    sends = plan.sends.copy()
    sends[:, [SOURCE, DESTINATION]] = rank_of_role[plan.sends[:, [SOURCE, DESTINATION]]]
    sends[:, CHUNK] = new_chunk[plan.sends[:, CHUNK]]
    links = plan.links.copy()
    links[:, 1:] = rank_of_role[plan.links[:, 1:]]
    chunk_bytes = np.empty(n_chunks)
    chunk_bytes[new_chunk] = plan.chunk_bytes

    # The value of an idle port is -1, which picks the last entry of the table.
    rank_or_idle = np.append(rank_of_role, IDLE)
    circuits = np.full_like(plan.circuits, IDLE)
    circuits[:, :, rank_of_role] = rank_or_idle[plan.circuits]
    return replace(plan, sends=sends, links=links, chunk_bytes=chunk_bytes, circuits=circuits)
