"""Triggers of plans: the same order without times, and nothing that could go dark too early."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import optmatch as om
from optmatch.problems.rails.execution.derivation import derive_triggers
from optmatch.problems.rails.execution.orders import check_triggers, link_triggers, retime
from optmatch.problems.rails.execution.triggers import RailTriggers, TriggerPlan
from tests.helpers.rails import MODEL, random_jobs, small_job


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_jobs(), st.sampled_from(["on-demand", "provisioned", "static"]))
def test_the_order_of_a_plan_is_a_plan(job: om.RailJob, method: str) -> None:
    answer = om.solve(job, method=method, seed=0).answer
    if answer is None:
        return
    triggers = derive_triggers(job, answer)
    again = retime(job, check_triggers(job, triggers), triggers)
    assert om.verify(job, again).valid
    assert again.step_s <= answer.step_s * (1 + 1e-9)


def solved(method: str = "provisioned", **options: Any) -> tuple[om.RailJob, om.RailPlan]:
    """Solve a small job."""
    job = small_job(delay_s=1e-4, model=MODEL, **options)
    return job, om.solve(job, method=method, seed=0).answer


@pytest.mark.parametrize("method", ["on-demand", "provisioned", "prefetch"])
@pytest.mark.parametrize(
    "options",
    [{"ports_per_gpu": 2}, {"switching": "all-stop"}, {"fabric": om.Benes(4)}],
    ids=["two-ports", "all-stop", "cells"],
)
def test_nothing_is_lost_without_times(method: str, options: dict[str, Any]) -> None:
    job, plan = solved(method, **options)
    triggers = derive_triggers(job, plan)
    again = retime(job, check_triggers(job, triggers), triggers)
    assert om.verify(job, again).valid
    assert again.step_s == pytest.approx(plan.step_s)
    rail = triggers.rails[0]
    if method == "on-demand":
        assert set(rail.wanted[:, 3].tolist()) == set(range(len(rail.place)))
    elif method == "provisioned":
        assert not len(rail.wanted)


def test_a_change_waits_for_what_goes_over_its_circuits_and_no_more() -> None:
    """Stages change circuits one by one, each after its own last message or exchange."""
    job, plan = solved()
    rail = derive_triggers(job, plan).rails[0]
    step = job.step()
    for changes, after in zip(rail.split(rail.changes), rail.split(rail.after), strict=True):
        gpus = {rail.ranks[port] for port in changes[:, 0].tolist()}
        for rank, group, number, part, _, _ in after.tolist():
            assert rank in gpus
            assert rank in step.groups[group].ranks and number >= 1 and part == 0


def test_rounds_are_parts() -> None:
    job, plan = solved(dp=4, pp=1, collectives={"dp": "halving"})
    triggers = derive_triggers(job, plan)
    assert set(triggers.rails[0].needs[:, 3].tolist()) >= {0, 1, 2}
    assert ((triggers.shares > 0) & (triggers.shares < 1)).all() and len(triggers.shares)


def changed(plan: TriggerPlan, **rail: Any) -> TriggerPlan:
    """Change the first rail of a plan."""
    return replace(plan, rails=(replace(plan.rails[0], **rail), *plan.rails[1:]))


def test_what_waits_for_too_little_is_refused() -> None:
    job, plan = solved()
    triggers = derive_triggers(job, plan)
    rail = triggers.rails[0]
    row = rail.after[0].tolist()
    with pytest.raises(om.InputError, match=re.escape(f"/rails/0/after: lacks {row}")):
        check_triggers(job, changed(triggers, after=rail.after[1:]))
    with pytest.raises(om.InputError, match="/rails/0/needs: lacks"):
        check_triggers(job, changed(triggers, needs=rail.needs[:-1]))
    more = np.concatenate([rail.needs, rail.needs[:1] + np.eye(6, dtype=int)[3]])
    with pytest.raises(om.InputError, match=r"/rails/0/needs: .* does not follow from the order"):
        check_triggers(job, changed(triggers, needs=more))


def test_an_order_that_nobody_can_keep_is_refused() -> None:
    job, plan = solved()
    triggers = derive_triggers(job, plan)
    top = int(triggers.place.max()) + 9
    for place, complaint in (
        (2 * top - triggers.place, "stands before"),
        (np.zeros_like(triggers.place), "is there twice"),
        (triggers.place + (np.arange(len(triggers.place)) == 0) * (2 * top), "stands before"),
    ):
        with pytest.raises(om.InputError, match=complaint):
            link_triggers(job, replace(triggers, place=place))
    ranks = job.step().rank
    moved = triggers.place + (ranks == ranks.max()) * top
    with pytest.raises(om.InputError, match="not that of the other ranks"):
        link_triggers(job, replace(triggers, place=moved))


def test_triggers_of_another_job_are_refused() -> None:
    job, plan = solved()
    triggers = derive_triggers(job, plan)
    other = small_job(dp=4, delay_s=1e-4, model=MODEL)
    with pytest.raises(om.InputError, match="groups"):
        link_triggers(other, triggers)
    with pytest.raises(om.InputError, match=r"start_s.*operations"):
        derive_triggers(other, plan)
    with pytest.raises(om.InputError, match=r"rails\[0\].ranks"):
        link_triggers(job, changed(triggers, ranks=tuple(r + 1 for r in triggers.rails[0].ranks)))
    with pytest.raises(om.InputError, match="rails: 1, the job has 2"):
        link_triggers(job, replace(triggers, rails=triggers.rails[:1]))
    with pytest.raises(om.InputError, match="no ports on rail 0"):
        link_triggers(job, replace(triggers, ports=np.zeros_like(triggers.ports)))


def test_states_are_matchings() -> None:
    rail = derive_triggers(*solved()).rails[0]
    with pytest.raises(om.InputError, match="the last state is not the first"):
        replace(rail, changes=rail.changes[:-1])
    for circuits, complaint in (
        ([[0, 9, 0]], "ports are from 0 to 3"),
        ([[-1, 0, 0]], "ports are from 0 to 3"),
        ([[0, -1, 0], [0, -1, 0]], "is there twice"),
        ([[0, 0, 0], [1, 0, 0]], "two circuits lead to receive port 0"),
        ([[0, 0, -1]], r"changes\[0\]: trigger -1"),
    ):
        kept = rail.changes[rail.changes[:, 2] > 0]
        with pytest.raises(om.InputError, match=complaint):
            replace(rail, changes=np.concatenate([np.array(circuits, np.int32), kept]))
    with pytest.raises(om.InputError, match=r"place\[1\] is not after the one before"):
        replace(rail, place=rail.place[::-1])
    with pytest.raises(om.InputError, match=r"changes\[.*\] is not after the one before"):
        replace(rail, changes=rail.changes[::-1])
    with pytest.raises(om.InputError, match=r"after\[0\]: trigger 99 given"):
        replace(rail, after=np.array([[0, 0, 1, 0, 0, 99]], np.int32))


circuits = st.tuples(st.integers(0, 3), st.integers(-1, 3))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(circuits, unique_by=lambda row: row[0]), min_size=1, max_size=4))
def test_states_are_refused_as_if_each_were_looked_at(
    changes: list[list[tuple[int, int]]],
) -> None:
    state = [1, 0, -1, -1]
    rows = [list(state)]
    changes = [*changes, list(enumerate(state))]
    for change in changes:
        for sends, to in change:
            state[sends] = to
        rows.append(list(state))
    valid = True
    for row in rows:
        used = [to for to in row if to >= 0]
        valid &= len(set(used)) == len(used)
    turned = [(*row, k) for k, change in enumerate(changes) for row in change]
    try:
        RailTriggers(
            rail=0,
            ranks=(0, 1, 2, 3),
            circuits=np.array(rows[0]),
            place=np.arange(len(changes), dtype=np.int32),
            changes=np.array(turned, np.int32),
        )
    except om.InputError:
        assert not valid
    else:
        assert valid
