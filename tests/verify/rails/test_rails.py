"""The verifier of rail plans: any change of a plan that breaks a rule is refused."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.model import Solution
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline, ranks_of_rails
from optmatch.problems.rails.training.step import RECV
from optmatch.verify.rails.times import bound_step
from tests.helpers.rails import random_jobs, small_job

JOBS = {
    "one port": small_job(2, 2, 3, delay_s=1e-3),
    "two ports": small_job(2, 2, 3, delay_s=1e-3, ports_per_gpu=2),
    "cells": small_job(2, 1, 2, delay_s=1e-3, ports_per_gpu=2, fabric=om.Benes(8)),
    "weights": small_job(2, 2, 2, delay_s=1e-4, zero_stage=3),
    "rounds": small_job(4, 1, 2, delay_s=1e-3, collectives={"dp": "halving"}),
}


@cache
def solved(name: str) -> tuple[Solution, RailPlan]:
    """Solve a job of the list."""
    solution = om.solve(JOBS[name], "provisioned", seed=0)
    assert isinstance(solution.answer, RailPlan)
    return solution, solution.answer


def refused(name: str, **changes: Any) -> set[str]:
    """Return the rules that a changed plan breaks."""
    report = om.verify(JOBS[name], replace(solved(name)[1], **changes))
    assert not report.ok
    return {violation.rule for violation in report.violations}


def refused_timeline(name: str, **changes: Any) -> set[str]:
    """Return the rules that a plan with a changed timeline breaks."""
    first, *rest = solved(name)[1].rails
    return refused(name, rails=(replace(first, **changes), *rest))


def nudged(values: Any, place: int, change: float) -> Any:
    """Return an array with one entry changed."""
    copy = np.array(values)
    copy[place] += change
    return copy


names = st.sampled_from(sorted(JOBS))


@pytest.mark.parametrize("name", JOBS)
def test_the_unchanged_plan_passes(name: str) -> None:
    solution, plan = solved(name)
    assert om.verify(JOBS[name], solution).ok
    assert om.verify(JOBS[name], plan).ok


@settings(max_examples=60, deadline=None)
@given(names, st.data(), st.sampled_from(["start_s", "end_s"]), st.sampled_from([-1, 1]))
def test_any_time_of_any_operation(name: str, data: Any, field: str, sign: int) -> None:
    plan = solved(name)[1]
    place = data.draw(st.integers(0, len(plan.start_s) - 1))
    refused(name, **{field: nudged(getattr(plan, field), place, sign * 1e-6 * plan.step_s)})


@settings(max_examples=60, deadline=None)
@given(names, st.data())
def test_any_port_of_any_operation(name: str, data: Any) -> None:
    plan = solved(name)[1]
    place = data.draw(st.integers(0, len(plan.ports) - 1))
    port = data.draw(st.integers(0, 2))
    ports = np.array(plan.ports)
    ports[place] ^= 1 << port
    refused(name, ports=ports)


def circuit_in_use(name: str, data: Any) -> tuple[int, int]:
    """Draw an operation that sends, and return state and port of one of its circuits."""
    job, (_, plan) = JOBS[name], solved(name)
    step, timeline = job.step(), plan.rails[0]
    senders = np.flatnonzero((plan.ports > 0) & (step.kind != RECV) & (step.rail == 0))
    operation = int(data.draw(st.sampled_from(senders.tolist())))
    gpu = int(np.searchsorted(ranks_of_rails(step)[0], step.rank[operation]))
    port = int(plan.ports[operation]).bit_length() - 1
    state = int(np.searchsorted(timeline.starts_s, plan.start_s[operation], side="right")) - 1
    return state, gpu * job.network.ports_per_gpu + port


@settings(max_examples=60, deadline=None)
@given(names, st.data())
def test_any_circuit_that_is_taken_out_while_in_use(name: str, data: Any) -> None:
    state, port = circuit_in_use(name, data)
    matchings = np.array(solved(name)[1].rails[0].matchings)
    matchings[state, port] = -1
    refused_timeline(name, matchings=matchings)


@settings(max_examples=30, deadline=None)
@given(names, st.data())
def test_any_circuit_in_use_that_leads_elsewhere(name: str, data: Any) -> None:
    state, port = circuit_in_use(name, data)
    matchings = np.array(solved(name)[1].rails[0].matchings)
    gpus = matchings[state] // JOBS[name].network.ports_per_gpu
    others = np.flatnonzero((matchings[state] >= 0) & (gpus != gpus[port]))
    other = int(data.draw(st.sampled_from(others.tolist())))
    matchings[state, [port, other]] = matchings[state, [other, port]]
    refused_timeline(name, matchings=matchings)


@settings(max_examples=30, deadline=None)
@given(names, st.data())
def test_any_reconfiguration_that_starts_later(name: str, data: Any) -> None:
    timeline = solved(name)[1].rails[0]
    starts = np.array(timeline.starts_s)
    starts[data.draw(st.integers(1, len(starts) - 1)) :] += JOBS[name].network.delay_s / 10
    assert refused_timeline(name, starts_s=starts)


def test_cells_that_lead_elsewhere() -> None:
    timeline = solved("cells")[1].rails[0]
    assert timeline.cell_states is not None
    assert refused_timeline("cells", cell_states=None) >= {"every cell has a state"}
    for state, cell in np.argwhere(timeline.cell_states >= 0)[::5]:
        states = np.array(timeline.cell_states)
        states[state, cell] ^= 1
        refused_timeline("cells", cell_states=states)


@settings(max_examples=25, deadline=None)
@given(random_jobs())
def test_the_bound_is_that_of_the_problem(job: om.RailJob) -> None:
    assert bound_step(job) == pytest.approx(job.lower_bound(), rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"matchings": [[0, 0]]}, "share destination 0"),
        ({"asked_s": [0.0, 1.0]}, "asked_s has 2 entries, there are 1 states"),
        ({"cell_states": [[0], [1]]}, "cell_states has 2 rows"),
        ({"matchings": [[0]] * 2, "asked_s": [0.0] * 2, "starts_s": [1.0, 0.5]}, "starts_s"),
    ],
)
def test_timelines_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    plain: dict[str, Any] = {
        "rails": (0,),
        "matchings": [[0, 1]],
        "asked_s": [0.0],
        "starts_s": [0.0],
    }
    with pytest.raises(om.InputError, match=message):
        RailTimeline(**{**plain, **changes})


def test_plans_that_cannot_be() -> None:
    plan = solved("one port")[1]
    with pytest.raises(om.InputError, match="end_s has 1 entries"):
        replace(plan, end_s=np.zeros(1))
    with pytest.raises(om.InputError, match="rail 0 is there twice"):
        replace(plan, rails=plan.rails * 2)
