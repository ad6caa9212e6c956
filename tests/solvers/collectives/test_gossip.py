"""Pairs of Knoedel graphs: everybody knows all after few rounds, and plans hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.collectives.algorithms import list_gossip_pairs


@pytest.mark.parametrize("n", [*range(2, 70), 100, 127, 256, 1000, 1023])
def test_everybody_knows_all_after_few_rounds(n: int) -> None:
    pairs = list_gossip_pairs(n)
    knows = np.eye(n, dtype=np.bool_)
    for partner in pairs:
        has_partner = np.flatnonzero(partner >= 0)
        assert (partner[partner[has_partner]] == has_partner).all()
        assert (partner != np.arange(n)).all()
        knows[has_partner] |= knows[partner[has_partner]]
    assert knows.all()

    # Gossip takes ceil(log2 n) rounds for even n, and one more for odd n (Knoedel 1975).
    fewest = (n - 1).bit_length() + n % 2
    assert len(pairs) == fewest if n % 2 == 0 else len(pairs) <= fewest + 1


@pytest.mark.parametrize("n", [3, 5, 6, 7, 12, 17, 31])
@pytest.mark.parametrize("operation", ["all-gather", "reduce-scatter", "all-reduce", "all-to-all"])
def test_plans_of_pairs_hold(operation: Any, n: int) -> None:
    problem = om.Collective(operation, n, 1e6, alpha_s=1e-6, delay_s=1e-3, two_way=True)
    solution = om.solve(problem, "knodel")
    assert om.verify(problem, solution).valid


@pytest.mark.parametrize("n", [3, 6, 7, 12, 31])
@pytest.mark.parametrize("two_way", [False, True])
def test_whole_buffers_of_any_number_of_ranks_are_added_up(n: int, two_way: bool) -> None:
    problem = om.Collective("all-reduce", n, 1e3, delay_s=1.0, two_way=two_way)
    solution = om.solve(problem, "best", seed=0)
    assert om.verify(problem, solution).valid
    n_rounds = n.bit_length() - 1 + 2  # two more than of the power of two below
    assert solution.objective is not None
    assert solution.objective < n_rounds - 1 + 0.01
