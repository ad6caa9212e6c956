"""States of rails: any rings, none that is broken; stages in different states at once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import optmatch as om
from optmatch.problems.rails.execution.plan import RailPlan, ranks_of_rails
from optmatch.problems.rails.training.step import RECV, SEND
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


def test_a_ring_that_leaves_its_group_is_none() -> None:
    """Two groups of two that share a ring of four: each member reaches the other group."""
    job = small_job(2, 1, 2, zero_stage=0)
    plan = plan_of(job, "provisioned")
    (timeline,) = plan.rails
    matchings = np.array(timeline.matchings)
    (states,) = np.nonzero((matchings == [1, 0, 3, 2]).all(axis=1))
    matchings[states] = [1, 2, 3, 0]
    report = om.verify(job, replace(plan, rails=(replace(timeline, matchings=matchings),)))
    assert RING in {violation.rule for violation in report.violations}


def words(job: om.RailJob, plan: RailPlan) -> list[list[set[str]]]:
    """Read off the use of the ports of each stage, state by state: ``"pp"``, ``"dp"``."""
    timeline, ranks = plan.rails[0], ranks_of_rails(job.step())[0]
    stage = {
        rank: number
        for number in range(job.parallelism.pp)
        for rank in ranks[number * job.parallelism.dp :][: job.parallelism.dp]
    }
    found = []
    for matching in timeline.matchings:
        row: list[set[str]] = [set() for _ in range(job.parallelism.pp)]
        for port in np.flatnonzero(matching >= 0).tolist():
            one, two = (
                stage[ranks[p // job.network.ports_per_gpu]] for p in (port, int(matching[port]))
            )
            for each in (one, two):
                row[each].add("dp" if one == two else "pp")
        found.append(row)
    return found


@pytest.mark.parametrize("method", ["on-demand", "provisioned"])
def test_stages_are_in_different_states_at_once(method: str) -> None:
    """Four stages and a topology word of four bits: bit i says that stage i is in the pipeline.

    A message sets the bits of both its stages; an exchange of gradients clears the one of its
    stage; all others keep what they have, and what they do goes on.
    """
    job = small_job(2, 1, 4, delay_s=1e-3, port_bytes_per_s=1e6, micro_batch=1)
    step, plan = job.step(), plan_of(job, method)
    timeline, held = plan.rails[0], words(job, plan)
    for operation in np.flatnonzero((step.rail >= 0) & (step.kind != RECV)).tolist():
        begins = timeline.starts_s <= plan.start_s[operation] + 1e-12
        row = held[int(np.flatnonzero(begins)[-1])]
        here = int(step.rank[operation]) // job.parallelism.dp
        if step.kind[operation] == SEND:
            other = int(step.peer[operation]) // job.parallelism.dp
            assert (row[here], row[other]) == ({"pp"}, {"pp"})
        else:
            assert row[here] == {"dp"}
    assert any({"dp"} in row and {"pp"} in row for row in held), "never two states at once"
    assert all(len(kinds) <= 1 for row in held for kinds in row)
    changed = [
        (at, {stage for stage in range(job.parallelism.pp) if one[stage] != two[stage]})
        for at, one, two in zip(timeline.starts_s[1:], held, held[1:], strict=False)
    ]
    going_on = [
        at
        for at, stages in changed
        for operation in np.flatnonzero(step.rail >= 0).tolist()
        if plan.start_s[operation] < at - 1e-12
        and plan.end_s[operation] > at + 1e-12
        and stages
        and int(step.rank[operation]) // job.parallelism.dp not in stages
    ]
    assert going_on, "nothing goes on while others are switched"
