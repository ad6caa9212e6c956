"""States of rails: any rings, none that is broken; stages in different states at once."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import optmatch as om
from optmatch.problems.rails.execution.plan import RailPlan
from tests.helpers.rails import small_job

RING = "the circuits of a collective make one ring over its group"


def plan_of(job: om.RailJob, method: str) -> RailPlan:
    """Solve a job, and return its plan."""
    answer = om.solve(job, method, seed=0).answer
    assert isinstance(answer, RailPlan)
    return answer


def with_circuits(plan: RailPlan, matching: Any) -> RailPlan:
    """Let a rail hold the same circuits all the time."""
    (timeline,) = plan.rails
    rows = np.tile(np.asarray(matching, dtype=np.int32), (len(timeline.matchings), 1))
    return replace(plan, rails=(replace(timeline, matchings=rows),))


def join(cycles: list[list[list[int]]], members: int) -> NDArray[np.int64]:
    """Return a matching in which each port goes around its cycles; it arrives at itself."""
    matching = np.full(members * len(cycles), -1)
    for port, parts in enumerate(cycles):
        for cycle in parts:
            for one, two in zip(cycle, [*cycle[1:], *cycle[:1]], strict=True):
                matching[one * len(cycles) + port] = two * len(cycles) + port
    return matching


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 9), st.integers(1, 4), st.data())
def test_any_ring_will_do_and_no_two(members: int, ports: int, data: Any) -> None:
    """A ring in any order on each port is accepted; two on one port, which split a group, are not.

    The job is one of data parallelism alone, so the same circuits serve all of it.
    """
    job = small_job(members, 1, 1, ports_per_gpu=ports)
    plan = plan_of(job, "provisioned")
    orders = [data.draw(st.permutations(range(members))) for _ in range(ports)]
    whole = [[list(order)] for order in orders]
    report = om.verify(job, with_circuits(plan, join(whole, members)))
    assert report.ok, report.violations
    port, cut = data.draw(st.integers(0, ports - 1)), data.draw(st.integers(1, members - 1))
    broken = [*whole]
    broken[port] = [orders[port][:cut], orders[port][cut:]]
    report = om.verify(job, with_circuits(plan, join(broken, members)))
    assert {violation.rule for violation in report.violations} == {RING}
