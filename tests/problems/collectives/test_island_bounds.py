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
