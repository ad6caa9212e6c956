"""Plans over chords, and plans whose data change rail inside a server, are refused if spoilt."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems.rails.training.step import ALL_TO_ALL
from optmatch.verify.rails import replay as rules
from optmatch.verify.rails.bounds import bound_changes
from tests.solvers.rails.test_chords import expert_job
from tests.verify.rules import claim, forge
from tests.verify.rules.rails import in_servers, line, pooled


@cache
def solve_job(*, pools: bool) -> tuple[om.RailJob, om.RailPlan]:
    """Return a job and a plan of it: over chords of one rail, or with rails that are pooled."""
    job = expert_job(ports_per_gpu=4, delay_s=1.0)
    if pools:
        job = expert_job(pp=2, gpus_per_server=4, change_rail_s=1e-6, delay_s=1.0)
    return job, om.solve(job, seed=0, limits=om.Limits(iterations=60)).answer


def change_routes(plan: om.RailPlan, **columns: Any) -> om.RailPlan:
    """Return the plan with other columns of its first routes."""
    return replace(plan, chords=(replace(plan.chords[0], **columns), *plan.chords[1:]))


def shorten_exchange(job: om.RailJob, plan: om.RailPlan) -> om.RailPlan:
    """Let the first all-to-all on rails end a little earlier than its busiest port needs."""
    step = job.step()
    first = np.flatnonzero((step.kind == ALL_TO_ALL) & (step.rail >= 0))[0]
    ends = plan.end_s.copy()
    together = (step.kind == ALL_TO_ALL) & (plan.start_s == plan.start_s[first])
    ends[together & (step.rail >= 0)] -= 1e-6
    return replace(plan, end_s=ends)


def change_late(job: om.RailJob, plan: om.RailPlan) -> om.RailPlan:
    """Let all circuits of the first rail go dark in the middle of the step, and come back."""
    timeline = plan.rails[0]
    dark = np.full_like(timeline.matchings[0], -1)
    rows = np.stack([timeline.matchings[0], dark, timeline.matchings[0]])
    middle = plan.step_s / 2
    times = np.array([0.0, middle, middle])
    changed = replace(timeline, matchings=rows, asked_s=times, starts_s=times)
    return replace(plan, rails=(changed, *plan.rails[1:]))


def rename_chord(job: om.RailJob, plan: om.RailPlan) -> om.RailPlan:
    """Let one member swap two of its ports, which then have strides of their own."""
    step = job.step()
    groups = [group for group in step.groups if group.dimension == "ep" and group.rail >= 0]
    number = sorted({rank for group in groups for rank in group.ranks}).index(groups[0].ranks[0])
    timeline = plan.rails[0]
    rows = timeline.matchings.copy()
    ports = 4 * number + np.array([0, 1])
    rows[:, ports] = rows[:, ports[::-1]]
    return replace(plan, rails=(replace(timeline, matchings=rows), *plan.rails[1:]))


SPOILT: list[tuple[str, Callable[[om.RailJob, om.RailPlan], om.RailPlan]]] = [
    (
        "routes over chords bring each part to its place",
        lambda _, plan: change_routes(plan, hops=np.roll(plan.chords[0].hops, 1, axis=1)),
    ),
    (
        "routes over chords carry the whole of each part",
        lambda _, plan: change_routes(plan, share=plan.chords[0].share * 0.5),
    ),
    ("an all-to-all over chords lasts as long as its busiest port needs", shorten_exchange),
    ("circuits of chords are there from start to end", change_late),
    ("in an all-to-all over chords all members use the same strides", rename_chord),
]


@pytest.mark.parametrize(("rule", "spoil"), SPOILT, ids=[rule for rule, _ in SPOILT])
def test_a_spoilt_plan_over_chords_is_refused(
    rule: str, spoil: Callable[[om.RailJob, om.RailPlan], om.RailPlan]
) -> None:
    job, plan = solve_job(pools=False)
    assert plan.chords and om.verify(job, plan).valid
    broken = {violation.rule for violation in om.verify(job, spoil(job, plan)).violations}
    assert rule in broken


def test_without_their_routes_all_to_alls_over_chords_are_refused() -> None:
    job, plan = solve_job(pools=False)
    assert not om.verify(job, replace(plan, chords=())).valid


@pytest.mark.parametrize("share", [1, 4])
def test_a_gpu_alone_does_not_change_rail(share: int) -> None:
    """One operation of one GPU over other shares than those of its server is refused."""
    job, plan = solve_job(pools=True)
    assert plan.pooled and om.verify(job, plan).valid
    rides = np.flatnonzero((job.step().rail == 1) & (plan.ports != share))
    ports = plan.ports.copy()
    ports[rides[0]] = share
    broken = om.verify(job, replace(plan, ports=ports)).violations
    assert {violation.rule for violation in broken} >= {rules.RAILS_ARE_ALIKE}


def test_rails_are_pooled_only_where_the_job_says_what_it_takes() -> None:
    job, plan = solve_job(pools=True)
    for network in (
        replace(job.network, change_rail_s=None),
        replace(job.network, fabric=om.IdealSwitch(8)),
    ):
        broken = om.verify(replace(job, network=network), plan).violations
        assert {violation.rule for violation in broken} >= {
            "data change rail only in jobs that let them"
        }

    # It takes longer where changing rail does, and the plan does not say so.
    slower = replace(job, network=replace(job.network, change_rail_s=1e-3))
    assert not om.verify(slower, plan).valid
    slower = replace(job, network=replace(job.network, scale_up_bytes_per_s=1e9))
    assert not om.verify(slower, plan).valid


@pytest.mark.parametrize(("gpus_per_server", "allowed"), [(31, True), (32, False)])
def test_all_shares_of_a_server_fit_into_one_set_of_ports(
    gpus_per_server: int, allowed: bool
) -> None:
    job = in_servers(2)
    network = replace(job.network, gpus_per_server=gpus_per_server)
    assert rules.lets_pool(forge(job, network=network)) is allowed


def test_the_bound_holds_for_pooled_rails_too() -> None:
    """Pipelines of two stages: a GPU needs no changes where it has shares of two ports."""
    model = om.TransformerModel(
        layers=4, hidden=4, heads=1, sequence=4, vocabulary=2, ffn=4, ffn_matrices=2
    )
    job = om.RailJob(
        parallelism=om.Parallelism(tp=2, dp=3, pp=2),
        network=om.RailNetwork(gpus_per_server=2, change_rail_s=1e-6),
        workload=om.Workload(model=model, batch=3),
    )
    pooled_s = bound_changes(rules.pool_job(job))
    assert pooled_s < bound_changes(job)
    assert om.verify(job, claim(job)).figures["lower_bound_checked"] == pooled_s


def test_servers_of_one_gpu_have_one_rail_to_pool() -> None:
    of_two = in_servers(2)
    job = om.RailJob(
        parallelism=om.Parallelism(dp=2),
        network=replace(of_two.network, gpus_per_server=1),
        workload=replace(of_two.workload, peak_flops_per_s=1e9),
    )
    plan = pooled(job, lambda step: np.where(step.rail >= 0, 1, 0))
    assert om.verify(job, replace(plan, rails=plan.rails[:1])).ok


def test_exchanged_rails_are_refused() -> None:
    """Each rail has its own circuits: with two timelines exchanged data arrive elsewhere."""
    job, plan = solve_job(pools=True)
    one, two, *others = plan.rails
    assert not np.array_equal(one.matchings, two.matchings)
    swapped = (replace(one, rails=two.rails), replace(two, rails=one.rails), *others)
    assert not om.verify(job, replace(plan, rails=swapped)).valid


@pytest.mark.parametrize(
    ("apart", "dark"), [(0.0, 1.0), (0.25, 1.25), (0.75, 1.75), (1.0, 2.0), (1.5, 2.0)]
)
def test_what_stops_of_two_rails_have_in_common_counts_once(apart: float, dark: float) -> None:
    """Data over the ports of both rails rest while either switch stops; numbers are delays."""
    steady_job = in_servers(2, switching="all-stop")
    steady = pooled(steady_job)
    last = np.argmax(np.where(steady.ports, steady.start_s, -1.0))
    start_s, lasts_s = steady.start_s[last], steady.end_s[last] - steady.start_s[last]
    assert steady.end_s[last] == steady.step_s
    delay_s = float(lasts_s) / 4
    job = steady_job.with_delay(delay_s)
    stops_s = start_s + delay_s * np.array([1.0, 1.0 + apart])
    rails = tuple(
        line([[1, 0]] * 2, [0.0, float(stop_s)], rails=(rail,))
        for rail, stop_s in enumerate(stops_s)
    )

    # What the last operation may rest is exactly the time that some rail is dark.
    for rests, is_right in ((dark, True), (dark - 0.01, False), (dark + 0.01, False)):
        end_s = steady.step_s + rests * delay_s
        ends_s = np.where(steady.end_s == steady.step_s, end_s, steady.end_s)
        broken = om.verify(job, replace(steady, rails=rails, end_s=ends_s, step_s=end_s))
        rules_broken = {violation.rule for violation in broken.violations}
        assert rules_broken == (set() if is_right else {rules.LASTS_AS_BYTES_NEED})
