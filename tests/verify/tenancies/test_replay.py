"""The verifier of tenancies refuses what is wrong, by the rule that it breaks."""

from dataclasses import replace
from functools import cache

import numpy as np

import optmatch as om
from optmatch.problems import Tenancy, Tenant


@cache
def solution() -> om.Solution:
    """Three jobs of three kinds on a small mesh; the demand has a slot to spare."""
    demand = np.array([[0, 2.0], [0, 0]])
    tenants = (
        Tenant("pairs", 4),
        Tenant("phase", 2, "demand", demand_bytes=demand, held=(6, 7)),
        Tenant("sum", 2, "all-reduce", size_bytes=2.0),
    )
    return om.solve(Tenancy(om.HexMesh(4, 4, ports=8), tenants, delay_s=0.5), seed=0)


def test_the_answer_is_verified() -> None:
    report = om.verify(solution().problem, solution())
    assert report.ok and report.proof == "counting"
    assert report.figures["slots"] == report.figures["slots_lower_bound"] == 3
    assert report.figures["objective"] == 4.5
    assert report.figures["total_cells"] >= report.figures["shortest_cells"] > 0


def test_light_of_two_jobs_on_one_link_is_seen() -> None:
    schedule = solution().schedule
    assert schedule is not None and schedule.cell_states is not None
    mixed = replace(schedule, cell_states=np.roll(schedule.cell_states, 1, axis=0))
    report = om.verify(solution().problem, replace(solution(), schedule=mixed))
    assert any("light" in violation.rule for violation in report.violations)
