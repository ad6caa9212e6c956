"""Planes, circuits that go on, and packets: `ilp` and the default against all plans there are."""

import os
from typing import Any

import numpy as np
import pytest

import optmatch as om
from tests.helpers.planes import draw_small, earliest

TIMES = int(os.environ.get("OPTMATCH_EXAMPLES", "1"))
CASES = 8 if TIMES == 1 else 30 * TIMES  # 300 of `make soak`
WORST = 1.01
"""How much later than the first possible end the default may be; all 300 were equal."""


@pytest.mark.parametrize(
    ("matrix", "options", "end_s"),
    [
        ([[9, 3], [5, 7]], {"delay_s": 2.0, "packet_bytes_per_s": 1.0}, 8.0),
        ([[2, 4], [2, 4]], {"delay_s": 1.0, "packet_bytes_per_s": 0.5, "planes": 2}, 4.0),
    ],
)
def test_a_slot_is_shortened_to_leave_part_of_a_flow_to_packets(
    matrix: list[list[int]], options: dict[str, Any], end_s: float
) -> None:
    problem = om.Demand.from_matrix(matrix, **options)
    solution = om.solve(problem, seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert solution.objective == end_s


def test_ilp_and_the_default_find_the_best_there_is() -> None:
    for number in range(CASES):
        problem = draw_small(np.random.default_rng(number))
        exact, quick = om.solve(problem, "ilp", seed=0), om.solve(problem, seed=0)
        least = earliest(problem, int(np.ceil(quick.objective)))
        assert exact.status is om.Status.OPTIMAL, number
        assert exact.objective == pytest.approx(least, rel=1e-12), number
        assert least * (1 - 1e-12) <= quick.objective <= WORST * least, number
        assert om.verify(problem, exact).valid
        assert om.verify(problem, quick).valid
