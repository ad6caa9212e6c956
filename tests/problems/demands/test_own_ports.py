"""Models of traffic send nothing from a port to itself, unless they are asked to."""

import numpy as np
import pytest

from optmatch.problems.demands.traffic import MODELS, permutations, solstice


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("name", list(MODELS))
def test_the_diagonal_is_empty(name: str, n: int) -> None:
    options = {"top": 1} if name == "zipf-moe" else {}
    for seed in range(20):
        demand = MODELS[name](n, np.random.default_rng(seed), **options)
        assert not demand.diagonal().any()


@pytest.mark.parametrize("n", [2, 3, 8])
def test_lines_keep_their_sum_and_all_pairs_occur(n: int) -> None:
    total = np.zeros((n, n))
    for seed in range(50):
        demand = permutations(n, np.random.default_rng(seed))
        sums = {*demand.sum(axis=0), *demand.sum(axis=1)}
        assert len(sums) == 1
        total += demand
    assert (total > 0).sum() == n * (n - 1)


def test_own_ports_are_served_when_asked_for() -> None:
    rng = np.random.default_rng(0)
    assert permutations(4, rng, own_ports=True).diagonal().any()
    assert solstice(4, rng, own_ports=True).diagonal().any()
    assert not solstice(4, rng, own_ports=True, mutual=True).diagonal().any()
