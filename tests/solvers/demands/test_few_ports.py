"""Demands of so few ports that all slots are listed."""

import subprocess
import sys

import numpy as np
import pytest

import optmatch as om
from optmatch.testing import brute_force


@pytest.mark.parametrize("seed", range(8))
def test_the_default_is_as_good_as_brute_force_on_three_ports(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 5, (3, 3)) * (rng.random((3, 3)) < 0.8)
    least = float(rng.integers(0, 3))
    problem = om.Demand.from_matrix(matrix, delay_s=float(rng.integers(0, 4)), min_slot_s=least)
    solution = om.solve(problem, seed=0, time_limit_s=60)
    assert solution.objective == brute_force(problem)
    assert om.verify(problem, solution).valid


def test_it_is_proved_by_prices_where_lines_do_not_suffice() -> None:
    problem = om.Demand.from_matrix([[0, 9, 2], [4, 0, 6], [5, 1, 0]], delay_s=0.5)
    solution = om.solve(problem, seed=0)
    assert problem.lower_bound() < 12.5
    assert (solution.status, solution.objective) == (om.Status.OPTIMAL, 12.5)
    assert solution.proof == "certificate"
    assert om.verify(problem, solution).ok


def test_what_prices_do_not_prove_is_the_word_of_a_search() -> None:
    problem = om.Demand.from_matrix(np.random.default_rng(4).integers(0, 20, (3, 3)), delay_s=5.0)
    found = {om.solve(problem, method, seed=0).proof for method in ("best", "ilp")}
    assert found == {"search"}


def test_a_limit_that_is_too_short_for_the_programme_gives_no_wrong_answer() -> None:
    problem = om.Demand.from_matrix([[0, 9, 2], [4, 0, 6], [5, 1, 0]], delay_s=0.5)
    assert om.solve(problem, seed=0, time_limit_s=0).status is om.Status.UNKNOWN


def test_a_first_call_loads_neither_numba_nor_or_tools() -> None:
    script = """
import sys
import optmatch as om
om.solve(om.Demand.from_matrix([[0, 9, 2], [4, 0, 6], [5, 1, 0]], delay_s=0.5), seed=0)
print([name for name in ("numba", "ortools", "matplotlib") if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout == "[]\n", run.stderr
