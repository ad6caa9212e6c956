"""Regular graphs are regular, their ways are short, and gathers over them use that."""

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.collectives.topologies import find_regular_graph


def _measure_diameter(peer: np.ndarray) -> int:
    reached = np.eye(peer.shape[1], dtype=np.bool_)
    diameter = 0
    while not reached.all():
        before = reached.copy()
        for peer_of_rank in peer:
            reached |= before[peer_of_rank]
        diameter += 1
    return diameter


@pytest.mark.parametrize(
    ("n", "degree", "two_way", "diameter"),
    [(64, 4, True, 4), (32, 3, True, 4), (17, 2, False, 4), (8, 3, True, 2), (5, 2, False, 2)],
)
def test_graphs_are_regular_and_their_ways_short(
    n: int, degree: int, two_way: bool, diameter: int
) -> None:
    peer = find_regular_graph(n, degree, two_way=two_way, seed=0)
    ranks = np.arange(n)
    for peer_of_rank in peer:
        assert (np.sort(peer_of_rank) == ranks).all()
        assert (peer_of_rank != ranks).all()
        if two_way:
            assert (peer_of_rank[peer_of_rank] == ranks).all()
    assert _measure_diameter(peer) == diameter


@pytest.mark.parametrize(("n", "degree", "diameter"), [(31, 4, 3), (63, 4, 4), (9, 6, 2)])
def test_odd_numbers_of_ranks_have_cycles_onward_and_back(
    n: int, degree: int, diameter: int
) -> None:
    peer = find_regular_graph(n, degree, two_way=True, seed=0)
    ranks = np.arange(n)
    onward, back = peer.reshape(2, degree // 2, n)
    for onward_of_rank, back_of_rank in zip(onward, back, strict=True):
        assert (back_of_rank[onward_of_rank] == ranks).all()
        assert (onward_of_rank[back_of_rank] == ranks).all()
        assert (onward_of_rank != ranks).all()
    assert _measure_diameter(peer) == diameter


@pytest.mark.parametrize(
    ("n", "ports", "two_way", "rounds"),
    [(64, 4, True, 4), (17, 2, False, 4), (100, 3, True, 7), (63, 4, True, 4), (31, 5, True, 3)],
)
def test_small_gathers_take_few_rounds(n: int, ports: int, two_way: bool, rounds: int) -> None:
    problem = om.Collective(
        "all-gather", n, 1e4, alpha_s=1.7e-6, delay_s=1e-2, ports=ports, two_way=two_way
    )
    solution = om.solve(problem, seed=0)
    assert solution.answer.n_rounds <= rounds
