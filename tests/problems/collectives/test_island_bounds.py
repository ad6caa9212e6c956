"""Bounds of collectives between islands, against plans that are written down by hand."""

from dataclasses import replace
from typing import Any

import pytest

import optmatch as om
from optmatch.problems.collectives.plan import COPY, REDUCE

ISLANDS, MEMBERS = 3, 2
N_RANKS = ISLANDS * MEMBERS


def gossip() -> tuple[list[tuple[int, int, int, int]], list[list[int]]]:
    """Tell all ranks of all in two rounds, each over rails and links of islands side by side.

    Returns rows of round, source, destination and whose data, and the circuits of each round.
    """
    known = {rank: {rank} for rank in range(N_RANKS)}
    sends = list[tuple[int, int, int, int]]()
    circuits = list[list[int]]()
    for round_ in range(2):
        peer_of_rank = [-1] * N_RANKS
        heard: dict[int, set[int]] = {rank: set() for rank in range(N_RANKS)}
        for rank in range(N_RANKS):
            by_rail = (rank + MEMBERS * (1 + round_)) % N_RANKS
            peer_of_rank[by_rail] = rank
            for source in (by_rail, rank ^ 1):
                new = known[source] - known[rank] - heard[rank]
                heard[rank] |= new
                sends += [(round_, source, rank, owner) for owner in sorted(new)]
        circuits.append(peer_of_rank)
        for rank, owners in heard.items():
            known[rank] |= owners
    return sends, circuits


@pytest.mark.parametrize("operation", ["all-gather", "reduce-scatter"])
@pytest.mark.parametrize("island_alpha_s", [0.5, 0.9, 1.0])
def test_no_bound_is_above_gossip_without_a_round_of_links_alone(
    operation: Any, island_alpha_s: float
) -> None:
    """Islands whose ranks all hear over rails of their own need no closing round."""
    problem = om.Collective(
        operation,
        N_RANKS,
        6.0,
        alpha_s=1.0,
        rate_bytes_per_s=1e9,
        island=MEMBERS,
        island_alpha_s=island_alpha_s,
        island_rate_bytes_per_s=1e9,
    )
    sends, circuits = gossip()
    rows = sorted([*send, COPY] for send in sends)
    lanes = [[peers] for peers in circuits]
    if operation == "reduce-scatter":
        # The same backwards, adding up.
        rows = sorted([1 - turn, to, source, owner, REDUCE] for turn, source, to, owner in sends)
        lanes = [[[peers.index(rank) for rank in range(N_RANKS)]] for peers in circuits[::-1]]
    plan = om.CollectivePlan(
        sends=rows, chunk_bytes=[1.0] * N_RANKS, circuits=lanes, epoch_of_round=[0, 1], time_s=2.0
    )
    time_s: Any = om.verify(problem, plan).figures["objective"]
    assert om.verify(problem, replace(plan, time_s=time_s)).ok
    assert problem.lower_bound() <= time_s


def test_a_round_of_links_before_the_rails_is_counted_once() -> None:
    """Seven islands of five: members tell each other, then rails carry whole islands twice.

    Each rank sends the blocks of its island to one of the five next islands; the one that is left
    sends a copy to each member, who tell each other beside what came before. That takes 8 + 4 s,
    then 23 + 5 s, then the longer of 23 + 5 s over rails and 8 + 20 s over links.
    """
    islands, members = 7, 5
    n_ranks = islands * members
    problem = om.Collective(
        "all-gather",
        n_ranks,
        float(n_ranks),
        alpha_s=23.0,
        rate_bytes_per_s=1.0,
        island=members,
        island_alpha_s=8.0,
        island_rate_bytes_per_s=1.0,
    )

    def rank_of(island: int, member: int) -> int:
        return island % islands * members + member

    sends = list[list[int]]()
    circuits = [[[0] * n_ranks], [[0] * n_ranks]]
    for island in range(islands):
        for member in range(members):
            rank = rank_of(island, member)
            onward, last = rank_of(island + member + 1, member), rank_of(island - 6, member)
            circuits[0][0][rank] = onward
            circuits[1][0][rank] = rank_of(island + 6, member)
            others = [rank_of(island, other) for other in range(members) if other != member]
            sends += [[0, rank, other, rank, COPY] for other in others]
            for block in range(members):
                sends.append([1, rank, onward, rank_of(island, block), COPY])
                sends.append([2, last, rank, rank_of(island - 6, block), COPY])
                heard = rank_of(island - member - 1, block)
                sends += [[2, rank, other, heard, COPY] for other in others]
    plan = om.CollectivePlan(
        sends=sorted(sends),
        chunk_bytes=[1.0] * n_ranks,
        circuits=circuits,
        epoch_of_round=[0, 0, 1],
        time_s=68.0,
    )
    assert om.verify(problem, plan).ok
    assert problem.lower_bound() <= 68.0
