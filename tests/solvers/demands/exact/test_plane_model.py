"""Planes, circuits that go on, and packets: the exact model against all schedules there are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import optmatch as om


def plane_plans(n: int, delay: int, most: int, *, goes_on: bool) -> dict[bytes, int]:
    """List what one plane can hold of each pair by a time, and the earliest end with it."""
    rows = list(itertools.permutations(range(n)))
    ends = {np.zeros((n, n), dtype=np.int64).tobytes(): 0}
    waiting: list[tuple[int, tuple[int, ...], Any]] = [(0, (), np.zeros((n, n), dtype=np.int64))]
    while waiting:
        end, before, held = waiting.pop()
        for row in rows:
            for duration in range(1, most - end - delay + 1):
                more = held.copy()
                for source, destination in enumerate(row):
                    stays = goes_on and before and before[source] == destination
                    more[source, destination] += duration + (delay if stays else 0)
                later, key = end + delay + duration, more.tobytes()
                ends[key] = min(ends.get(key, later), later)
                waiting.append((later, row if goes_on else (), more))
    return ends


def earliest(problem: om.Demand, most: int) -> float:
    """Try all plans of all planes; circuits that nobody needs do no harm."""
    n = problem.fabric.n_ports
    per_circuit = problem.switching == "per-circuit"
    plans = plane_plans(n, problem.delay_ticks, most, goes_on=per_circuit)
    found = [(np.frombuffer(key, dtype=np.int64).reshape(n, n), end) for key, end in plans.items()]
    best = np.inf
    for chosen in itertools.combinations_with_replacement(found, problem.planes):
        left = np.maximum(problem.directed_ticks - sum(held for held, _ in chosen), 0)
        line = int(max(left.sum(axis=0).max(), left.sum(axis=1).max()))
        if line and not problem.packet_share:
            continue
        packets = line / problem.packet_share if line else 0.0
        best = min(best, max(packets, *(end for _, end in chosen)))
    return best


def test_a_slot_is_shortened_to_leave_part_of_a_flow_to_packets() -> None:
    """Six of nine and six of seven by circuits; the default, whose slots were whole, needed 11."""
    problem = om.Demand.from_matrix([[9, 3], [5, 7]], delay_s=2.0, packet_bytes_per_s=1.0)
    solution = om.solve(problem, seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert solution.objective == 8.0
    assert om.verify(problem, solution).ok


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (2, {"delay_s": 2.0, "packet_bytes_per_s": 1.0}),
        (2, {"delay_s": 1.0, "packet_bytes_per_s": 0.25, "planes": 2}),
        (2, {"delay_s": 1.0, "planes": 2, "switching": "per-circuit"}),
        (3, {"delay_s": 2.0, "packet_bytes_per_s": 0.5}),
        (3, {"delay_s": 1.0, "switching": "per-circuit"}),
        (3, {"delay_s": 2.0, "switching": "per-circuit", "packet_bytes_per_s": 0.5}),
    ],
)
def test_the_model_finds_the_best_there_is(n: int, options: dict[str, Any]) -> None:
    """And proves it; heuristics are not far."""
    rng = np.random.default_rng(n)
    for _ in range(3):
        matrix = rng.integers(0, 5 if n == 2 else 3, (n, n))
        problem = om.Demand.from_matrix(matrix, quantum_s=1.0, **{"delay_s": 0.0, **options})
        solution = om.solve(problem, "ilp", seed=0)
        assert solution.status is om.Status.OPTIMAL
        assert solution.objective is not None
        assert solution.objective == pytest.approx(earliest(problem, int(solution.objective)))
        assert om.verify(problem, solution).valid
        quick = om.solve(problem, seed=0)
        assert quick.objective is not None
        assert solution.objective <= quick.objective <= 1.3 * solution.objective
