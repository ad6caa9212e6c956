"""Every problem of the library within a second, against the best bound that is known."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Measure

import optmatch as om
from optmatch.sweeps.library import Library

LIBRARY = Library()
LIMIT_S = 1.0


@pytest.mark.parametrize("name", [entry.name for entry in LIBRARY])
def test_library(measure: Measure, name: str) -> None:
    """The default method; `om.solve` verifies what it returns."""
    problem, best = LIBRARY.problem(name), LIBRARY.entry(name).best

    def tell(solution: om.Solution) -> dict[str, Any]:
        told: dict[str, Any] = {"status": solution.status.value, "objective": solution.objective}
        bound = best and best.lower_bound
        if isinstance(bound, float) and bound > 0 and isinstance(solution.objective, float):
            told["over_bound"] = solution.objective / bound
        return told

    measure(name, lambda: om.solve(problem, seed=0, time_limit_s=LIMIT_S), tell, rounds=1)
