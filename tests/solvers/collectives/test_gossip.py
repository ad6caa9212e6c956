"""Pairs of Knoedel graphs: everybody knows all after few rounds, and plans hold."""

from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.collectives import algorithms
from optmatch.solvers.collectives.algorithms import list_algorithm_rounds, list_gossip_pairs
from optmatch.solvers.collectives.plans import lay


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
    n_rounds = n.bit_length() - 1 + 2  # two more than of the power of two below
    assert solution.objective < n_rounds - 1 + 0.01


@pytest.mark.parametrize("n", [5, 6, 9, 12, 24, 48])
@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize(
    ("operation", "name"), [("broadcast", "bruck"), ("all-reduce", "whole-buffers")]
)
def test_three_groups_send_half_a_buffer_in_one_round(
    operation: Any, name: str, n: int, two_way: bool
) -> None:
    # Before, 6 ranks took 3 buffers of a broadcast, and 4 of an all-reduce, in 4 rounds.
    problem = om.Collective(operation, n, 1e9, rate_bytes_per_s=1e9, two_way=two_way)
    plan = lay(problem, list_algorithm_rounds(problem, name)).plan
    assert om.verify(problem, plan).ok
    n_rounds = (n - 1).bit_length()
    if operation == "broadcast" or n % 6 == 0:
        assert plan.n_rounds == n_rounds
        assert plan.time_s == pytest.approx(n_rounds - 0.5)

    # Halves that have to be padded are not worth it.
    aligned = om.Collective(
        operation, n, 1e9, rate_bytes_per_s=1e9, two_way=two_way, align_bytes=7
    )
    whole = lay(aligned, list_algorithm_rounds(aligned, name)).plan
    assert om.verify(aligned, whole).ok
    assert len(whole.chunk_bytes) == 1


@pytest.mark.parametrize(
    ("n", "delay_s", "most_s"), [(6, 2.0, 12.0), (24, 2.0, 62.0), (32, 1.9, 81.0)]
)
def test_all_to_alls_of_pairs_take_the_best_number_of_rounds(
    n: int, delay_s: float, most_s: float
) -> None:
    """Blocks of 1 s: in the fewest rounds, or straight to their places, 24 ranks take 67 s."""
    problem = om.Collective(
        "all-to-all", n, n * 1e6, rate_bytes_per_s=1e6, delay_s=delay_s, two_way=True
    )
    solution = om.solve(problem, "knodel")
    assert solution.objective is not None and solution.objective <= most_s


def test_partners_of_swing_and_halving_doubling_are_the_published_ones() -> None:
    """Between single rounds both are equally fast: their times do not tell them apart."""
    ranks = np.arange(16)
    ahead = np.where(ranks % 2, -1, 1)
    partners_of = {
        "swing": [(ranks + ahead * far) % 16 for far in (1, -1, 3, -5)],
        "halving-doubling": [ranks ^ far for far in (8, 4, 2, 1)],
    }
    for name, partners in partners_of.items():
        rounds = list_algorithm_rounds(om.Collective("reduce-scatter", 16, 16.0), name)
        assert np.array_equal(list(rounds.partners(16)), partners)


def test_a_search_for_routes_that_has_no_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "find_level_routes", lambda *_: None)
    problem = om.Collective("all-to-all", 6, 6.0, two_way=True)
    stopped = om.solve(problem, "knodel", time_limit_s=1.0)
    assert (stopped.answer, stopped.limit) == (None, om.Limit.TIME)
