"""Routes of all-to-alls within capacities: the right data, and no circuit carries too much."""

from collections import Counter

import numpy as np
import pytest

import optmatch as om
from optmatch.model import Limits
from optmatch.solvers.collectives.level_routes import (
    LevelRoutes,
    find_fewest_blocks,
    find_routes_within_capacity,
)
from optmatch.solvers.collectives.topologies import find_regular_graph


def measure_hops(peer: np.ndarray) -> np.ndarray:
    """Return the fewest hops from each rank to each destination, shape (destinations, ranks)."""
    n = peer.shape[1]
    is_joined = np.eye(n, dtype=bool)
    is_joined[peer, np.arange(n)] = True
    hops = np.full((n, n), n)
    reached = np.eye(n, dtype=bool)
    for count in range(n):
        hops[reached & (hops == n)] = count
        reached = reached @ is_joined
    return hops


def count_blocks(peer: np.ndarray, routes: LevelRoutes) -> list[int]:
    """Replay routes hop by hop; return by round the most blocks on the circuits of one pair."""
    n = peer.shape[1]
    holder = {source * n + target: source for source in range(n) for target in range(n)}
    busiest = []
    for senders, receivers, chunks in routes.sends:
        on_pair = Counter[tuple[int, int]]()
        for sender, receiver, chunk in zip(senders, receivers, chunks, strict=True):
            assert holder[int(chunk)] == sender
            assert receiver in peer[:, sender]
            holder[int(chunk)] = int(receiver)
            on_pair[int(sender), int(receiver)] += 1
        busiest.append(max(on_pair.values(), default=0))
    assert all(rank == chunk % n for chunk, rank in holder.items())
    return busiest


def test_around_a_two_way_ring_capacities_are_met_exactly() -> None:
    """4 ranks: 8 neighbours and 4 opposite blocks of two hops are 16 hops on 8 circuits."""
    problem = om.Collective("all-to-all", 4, 4.0, ports=2, two_way=True, rate_bytes_per_s=1.0)
    peer = np.array([[1, 0, 3, 2], [3, 2, 1, 0]])
    clock = Limits().start()
    tight = np.array([1, 1])
    found = find_routes_within_capacity(problem, peer, measure_hops(peer), tight, clock)
    assert found.routes is not None
    assert count_blocks(peer, found.routes) == [1, 1]
    assert found.routes.busiest_bytes == 2.0
    # One block less is fewer hops than the blocks need.
    less = np.array([1, 0])
    assert (
        find_routes_within_capacity(problem, peer, measure_hops(peer), less, clock).routes is None
    )


@pytest.mark.parametrize(
    ("n", "two_way", "n_blocks"), [(16, True, 7), (17, True, 8), (16, False, 7)]
)
def test_busiest_circuits_carry_as_few_whole_blocks_as_counting_allows(
    n: int, two_way: bool, n_blocks: int
) -> None:
    """Level loads leave one or two blocks more than the mean, rounded up, on four ports."""
    problem = om.Collective("all-to-all", n, 1e9, ports=4, two_way=two_way, alpha_s=1e-6)
    peer = find_regular_graph(n, 4, two_way=two_way, seed=0)
    hops = measure_hops(peer)
    assert n_blocks == np.ceil(hops.sum() / peer.size)
    routes = find_fewest_blocks(problem, peer, hops, 1.0, Limits().start())
    assert routes is not None
    assert sum(count_blocks(peer, routes)) == n_blocks
    assert routes.busiest_bytes == pytest.approx(n_blocks * 1e9 / n)
    # A plan that is known to be as fast ends the search before it begins.
    known_s = n_blocks * 1e9 / n / problem.rate_bytes_per_s
    assert find_fewest_blocks(problem, peer, hops, known_s, Limits().start()) is None


def test_between_few_ranks_with_many_ports_each_hop_has_a_round() -> None:
    """A circuit has a third of a block in the mean, and 2 blocks to opposite ranks go 2 hops."""
    problem = om.Collective("all-to-all", 4, 4.0, ports=12, rate_bytes_per_s=1.0)
    peer = np.tile([[1, 2, 3, 0], [1, 0, 3, 2], [3, 0, 1, 2]], (4, 1))
    routes = find_fewest_blocks(problem, peer, measure_hops(peer), np.inf, Limits().start())
    assert routes is not None
    assert len(count_blocks(peer, routes)) == 2
    assert routes.busiest_bytes == 2.0


def test_blocks_of_ranks_with_more_ports_than_partners_arrive() -> None:
    """Routes of one round for blocks of two hops named no rank: ``sends[1, 2] = -1``."""
    problem = om.Collective(
        "all-to-all",
        4,
        1e8,
        alpha_s=2.7e-6,
        delay_s=1e-3,
        ports=8,
        planes=2,
        start="dark",
    )
    solution = om.solve(problem, "topologies", seed=0)
    assert om.verify(problem, solution).valid


def test_circuits_that_are_uneven_by_nature_are_given_up() -> None:
    """Data to rank 0 all come over one circuit, so mean loads are out of reach."""
    n = 12
    peer = np.array([(np.arange(n) + 1) % n, (np.arange(n) - 1) % n])
    peer[:, 0] = 1  # two circuits to the same rank
    problem = om.Collective("all-to-all", n, 1e9, ports=2, alpha_s=1e-6)
    hops = measure_hops(peer)
    mean = int(np.ceil(hops.sum() / peer.size))
    capacity = np.full(2 * hops.max(), -(-mean // (2 * hops.max())))
    found = find_routes_within_capacity(problem, peer, hops, capacity, Limits().start())
    assert found.routes is None
    assert found.is_hopeless


@pytest.mark.parametrize("ranks", [16, 17])
def test_plans_of_large_blocks_are_within_a_sixth_of_the_bound(ranks: int) -> None:
    """With loads that are level alone, these plans were 23 and 29 % above the bound."""
    problem = om.Collective("all-to-all", ranks, 1e9, ports=4, two_way=True, delay_s=1e-2)
    solution = om.solve(problem, "topologies", seed=0)
    bound_s = problem.lower_bound()
    assert bound_s <= solution.objective <= 7 / 6 * bound_s
