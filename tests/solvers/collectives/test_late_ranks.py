"""All-reduces with several late ranks."""

import pytest

import optmatch as om
from tests.helpers.collectives import compute


@pytest.mark.parametrize(("n", "late"), [(3, [1]), (5, [0, 3]), (9, [8, 2, 5]), (16, [3, 7, 9])])
def test_sums_are_right_and_the_late_ranks_wait_for_nobody(n: int, late: list[int]) -> None:
    """The buffer is 2 ms long; a ring takes almost twice as long once all have come."""
    late_s = {str(rank): 1e-2 for rank in late}
    problem = om.Collective("all-reduce", n, 1e8, alpha_s=2.7e-6, delay_s=1e-6, late_s=late_s)
    solution = om.solve(problem, "late-ranks", seed=0)
    assert om.verify(problem, solution).ok and compute(problem, solution.answer)
    ring_s = om.solve(problem, "ring", seed=0).objective
    assert solution.objective is not None and ring_s is not None
    if n > 9:
        assert solution.objective - 1e-2 <= 0.75 * (ring_s - 1e-2)
        assert om.solve(problem, seed=0).objective == solution.objective
