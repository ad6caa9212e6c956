"""Collectives on a switch that states its losses: ranks are renumbered within their budgets.

A plan is made for ranks that are alike. Which rank plays which part is free then, unless some are
late or one is the root; so the parts are placed on ranks as hosts are placed on ports, such that
the circuits of the plan lose least.

A *part* is a rank number of the plan before it is renumbered: a role, such as the second rank on a
ring. A *block* is the data of one rank, and a *piece* an equal part of it or of the whole buffer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import IdealSwitch
from optmatch.model import IDLE, Clock, Limits, Solution, ignore, uncounted
from optmatch.problems import Collective, CollectivePlan, HostPlacement
from optmatch.solvers.collectives.plans import Laid

_LONGEST_S = 10.0
"""How long the parts of one plan are placed at most."""

_OF_BLOCKS = ("all-gather", "reduce-scatter")
"""Operations whose chunks are pieces of the block of a rank."""


class RankLosses(NamedTuple):
    """The losses of circuits between ranks, over the worst of the ports that may carry them."""

    loss_db: NDArray[np.float64]
    """``loss_db[source rank, destination rank]``"""
    is_over: NDArray[np.bool_]
    """``is_over[source rank, destination rank]``: some of these ports are over their budget."""
    is_cut: NDArray[np.bool_]
    """``is_cut[source rank, destination rank]``: all of these ports are over their budget."""


def rank_losses(problem: Collective) -> RankLosses | None:
    """Return what light loses between each two ranks, over the worst of their ports.

    Which ports of two ranks a circuit will take is not known yet. One-way circuits join ports of
    equal numbers, two-way ones any.

    The result is None if the switch does not state any losses.
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
    """
    losses = rank_losses(problem)
    if losses is None or problem.demand_bytes is not None or problem.steps is not None:
        return ""
    # reaches[source, destination]: at first over one circuit, then over any number of them.
    reaches = ~losses.is_cut
    np.fill_diagonal(reaches, True)
    for middle in range(problem.n_ranks):  # Warshall's transitive closure
        reaches |= reaches[:, middle, np.newaxis] & reaches[middle]
    if problem.operation == "broadcast":
        reaches = reaches[problem.root, np.newaxis]  # one row, whose number is no rank
    for source, destination in np.argwhere(~reaches)[:1].tolist():
        source = problem.root if problem.operation == "broadcast" else source
        return (
            f"over the link budget: no circuits lead from rank {source} to rank {destination},"
            " directly or over others"
        )
    return ""


def place_ranks(problem: Collective, laid: Laid, clock: Clock) -> tuple[Laid | None, float]:
    """Renumber the ranks of a plan so that the circuits of a real switch lose least.

    Between some ports of the switch light loses more than between others.

    The result is None if no order of ranks was found that keeps to all budgets.
    """
    # pairs[k]: source and destination of each different circuit of the plan. All epochs and lanes
    # of circuits[epoch, lane, rank] are put in one row of shape (epochs * lanes, ranks).
    losses = rank_losses(problem)
    plan = laid.plan
    lanes, sources = np.nonzero(plan.circuits.reshape(-1, problem.n_ranks) != IDLE)
    destinations = plan.circuits.reshape(-1, problem.n_ranks)[lanes, sources]
    pairs = np.unique(np.stack([sources, destinations], axis=1), axis=0)
    if losses is None or not len(pairs):
        return laid, 0.0

    placed = _place_parts(problem, losses, pairs, clock)
    if placed.answer is None:
        # Where there was no time to look for an order, the one that is there may do.
        is_over = losses.is_over[pairs[:, 0], pairs[:, 1]].any()
        return (None if is_over else laid), 0.0
    rank_of_part = placed.answer.port_of_host.astype(np.int64)
    bound_db = float(placed.lower_bound)
    return laid._replace(plan=_renumber(problem, plan, rank_of_part)), bound_db


def _place_parts(
    problem: Collective, losses: RankLosses, pairs: NDArray[np.int64], clock: Clock
) -> Solution:
    """Choose which rank of the switch plays which role of a plan, so that light loses least.

    A plan is made for ranks 0, 1, ..., but any rank can take the place of another one, if all are
    alike. The light of a circuit loses more between some ranks of the switch than between others.
    The worst circuit of the plan should lose as little as possible.

    ``loss_db[source, destination]``: what a circuit between two ranks loses; and ``is_over``, in
    the same shape, whether it loses more than its link budget allows.
    """
    with uncounted():
        from optmatch.solvers.placements.methods import solve_best

    # A pair over its budget loses more than any other one, and the budget lies between, so that
    # one number tells both.
    n_ranks = problem.n_ranks
    largest_db = float(losses.loss_db.max())
    loss_db = np.where(losses.is_over, largest_db + 2.0, losses.loss_db)
    switch = IdealSwitch(n_ranks, loss_db=loss_db, budget_db=largest_db + 1.0)

    # held[part]: the rank at which a part has to stay, IDLE if it may go anywhere.
    held = np.full(n_ranks, IDLE)
    if not _are_alike(problem):
        held[:] = np.arange(n_ranks)
    held[[int(rank) for rank in problem.late_s]] = [int(rank) for rank in problem.late_s]
    if problem.operation == "broadcast":
        held[problem.root] = problem.root

    # A ring has methods of its own, whose answer names the rank of each place on the ring; other
    # plans ask for circuits between the pairs alone, as a demand of one byte for each.
    remaining_s = min(_LONGEST_S, clock.remaining_s)
    limits = Limits(time_s=max(0.0, remaining_s))
    rng = np.random.default_rng(0)
    ring = _follow_ring(pairs, n_ranks)
    if ring is not None and (held == IDLE).all():
        placed = solve_best(HostPlacement(switch, n_ranks, pattern="ring"), limits, rng, ignore)
        if placed.answer is None:
            return placed
        rank_of_part = np.empty(n_ranks, dtype=np.int64)
        rank_of_part[ring] = placed.answer.port_of_host
        return replace(placed, answer=replace(placed.answer, port_of_host=rank_of_part))

    # Any other plan: a demand of one byte for each pair of parts that a circuit joins.
    needed = np.zeros((n_ranks, n_ranks))
    needed[pairs[:, 0], pairs[:, 1]] = 1.0
    np.fill_diagonal(needed, 0.0)
    question = HostPlacement(
        switch, n_ranks, pattern="demand", demand_bytes=needed, held=tuple(held.tolist())
    )
    return solve_best(question, limits, rng, ignore)


def _are_alike(problem: Collective) -> bool:
    """Tell whether ranks may be exchanged, but for those that are late and for the root."""
    return (
        problem.steps is None
        and problem.demand_bytes is None
        and problem.island == 1
        and isinstance(problem.start, str)
    )


def _follow_ring(pairs: NDArray[np.int64], n_ranks: int) -> NDArray[np.int64] | None:
    """Return the ranks of a ring in the order in which its circuits join them, from rank 0.

    The result is None if the circuits are not one ring through all ranks.
    """
    if len(pairs) != n_ranks or len(np.unique(pairs[:, 0])) != n_ranks:
        return None
    next_rank = dict(pairs.tolist())
    ring = [0]
    while len(ring) < n_ranks and next_rank[ring[-1]] != 0:
        ring.append(next_rank[ring[-1]])
    is_ring = len(ring) == n_ranks and next_rank[ring[-1]] == 0
    return np.array(ring) if is_ring else None


def _renumber(
    problem: Collective, plan: CollectivePlan, rank_of_part: NDArray[np.int64]
) -> CollectivePlan:
    """Give other numbers to the ranks of a plan, everywhere that they stand in it.

    The rank that was number ``part`` in the given plan is number ``rank_of_part[part]`` in the
    result. For example with ``rank_of_part = [2, 0, 1]`` a send from 0 to 1 becomes one from 2 to
    0.

    `plan`, the plan. changed in the result:

    - ``sends``, rows of round, source, destination, chunk and kind;
    - ``links``, rows of send, from and to, for sends that are forwarded;
    - ``chunk_bytes[chunk]``;
    - ``circuits[epoch, lane, rank]``, the rank to which a rank transmits, -1 for none.
    """
    # Chunks of an all-to-all are numbered source * n_ranks + destination, and those of a gather or
    # a reduce-scatter owner * pieces + piece. Those of an all-reduce or a broadcast are pieces of
    # the whole buffer, which belong to no rank and keep their numbers.
    n_ranks = problem.n_ranks
    n_chunks = len(plan.chunk_bytes)
    chunk = np.arange(n_chunks)
    new_chunk = chunk
    if problem.operation == "all-to-all":
        source, destination = np.divmod(chunk, n_ranks)
        new_chunk = rank_of_part[source] * n_ranks + rank_of_part[destination]
    elif problem.operation in _OF_BLOCKS:
        rank, piece = np.divmod(chunk, n_chunks // n_ranks)
        new_chunk = rank_of_part[rank] * (n_chunks // n_ranks) + piece

    # Columns of sends: round, source, destination, chunk, kind. Columns of links: send, from, to.
    sends = plan.sends.copy()
    sends[:, 1:3] = rank_of_part[plan.sends[:, 1:3]]
    sends[:, 3] = new_chunk[plan.sends[:, 3]]
    links = plan.links.copy()
    links[:, 1:] = rank_of_part[plan.links[:, 1:]]
    chunk_bytes = np.empty(n_chunks)
    chunk_bytes[new_chunk] = plan.chunk_bytes

    # Ranks stand in circuits[epoch, lane, rank] as index and as value. The value of an idle port
    # is -1, which picks the last entry of the table.
    rank_or_idle = np.append(rank_of_part, IDLE)
    circuits = np.full_like(plan.circuits, IDLE)
    circuits[:, :, rank_of_part] = rank_or_idle[plan.circuits]
    return replace(plan, sends=sends, links=links, chunk_bytes=chunk_bytes, circuits=circuits)
