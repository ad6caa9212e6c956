"""Policies, one resource after the other: the same as by hand."""

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.sharing.first_fit import Dispatcher, first_fit
from optmatch.solvers.sharing.policies import fifo, irs, plan_groups, srsf
from tests.helpers.modes import examples
from tests.helpers.sharing import (
    Jobs,
    Resources,
    Sharing,
    draw_sharing,
    first_fit_by_hand,
    plan_by_hand,
)


@pytest.mark.parametrize("caps", [False, True])
def test_first_fit_is_that_of_an_oracle(caps: bool) -> None:
    rng = np.random.default_rng(20)
    for _ in range(examples(50, plain=10)):
        problem = draw_sharing(rng, resources=20, caps=caps)
        jobs = problem.jobs
        for priority in (fifo(jobs.arrivals_s), srsf(jobs.demand), rng.random(jobs.n_jobs)):
            found = first_fit(problem, priority).tolist()
            assert found == first_fit_by_hand(problem, priority.tolist())


def test_irs_is_that_of_an_oracle_with_sets() -> None:
    rng = np.random.default_rng(21)
    several = 0
    for _ in range(examples(100, plain=20)):
        problem = draw_sharing(rng, resources=14, jobs=6)
        classes, residual = problem.classes, problem.jobs.demand
        plan = plan_groups(classes.jobs_of, classes.sizes, residual)
        owned = [set(np.flatnonzero(row[classes.class_of]).tolist()) for row in plan.owned]
        found = list(zip([jobs.tolist() for jobs in plan.groups], owned, strict=True))
        assert found == list(plan_by_hand(problem, residual.tolist()))
        assert (plan.owned.sum(axis=0) <= 1).all()
        several += len(found) > 1
        assert first_fit(problem, None).tolist() == first_fit_by_hand(problem, None)
    assert several


def test_irs_takes_over_what_serves_more_jobs_there() -> None:
    many = [[True] * 20 + [True], [False] * 20 + [True]]
    plan = plan_groups(many, [10, 1], [3] * 21)
    assert plan.owned.tolist() == [[True, False], [False, True]]  # 20 wait for 10, 1 for 1
    few = [[True, True], [False, True]]
    plan = plan_groups(few, [10, 1], [3, 3])
    assert plan.owned.tolist() == [[False, False], [True, True]]
    plan = plan_groups([[True, True, False], [True, False, True]], [5, 5], [2, 9, 9])
    assert [jobs.tolist() for jobs in plan.groups] == [[0], [1], [2]]
    assert plan.owned.sum(axis=0).tolist() == [1, 1]
    assert plan_groups(np.ones((2, 0)), [1, 1], []).groups == []
    assert irs([[True], [True]], [0, 4], [2]).tolist() == [[-np.inf], [-2.0]]


def test_a_job_that_asks_again_stands_where_its_new_priority_says() -> None:
    """An older entry of it is gone; a withdrawn job, which asks for 0, gets nothing."""
    dispatcher = Dispatcher(Jobs([1, 1], [[0.0, 0.0]]))
    room = dispatcher.find([5.0])
    dispatcher.ask(0, 3, priority=9.0)
    dispatcher.ask(1, 1, priority=5.0)
    assert dispatcher.offer(room) == 0
    dispatcher.ask(0, 1, priority=1.0)
    assert [dispatcher.offer(room) for _ in range(3)] == [1, 0, -1]
    dispatcher.ask(0, 0, priority=1.0)
    assert dispatcher.offer(room) == -1 and dispatcher.left(0) == 0


def test_a_job_that_asks_again_after_a_rank_loses_the_place_that_the_rank_gave_it() -> None:
    dispatcher = Dispatcher(Jobs([2, 2], [[0.0, 0.0]]))
    room = dispatcher.find([5.0])
    for job in range(2):
        dispatcher.ask(job, 2, priority=0.0)
    dispatcher.rank(np.array([[9.0, 5.0]]))
    assert dispatcher.offer(room) == 0
    dispatcher.ask(0, 1, priority=1.0)
    assert [dispatcher.offer(room) for _ in range(4)] == [1, 1, 0, -1]


def test_what_cannot_be_honoured_is_refused() -> None:
    ports = Resources([[1.0, 1.0]], plane=[0, 1])
    whole = Sharing(ports, Jobs([2], [[1.0]], all_or_nothing=[1]))
    capped = Sharing(ports, Jobs([2], [[1.0]], plane_caps=[[1, 1]]))
    with pytest.raises(om.InputError, match="not for port-sharing of this form"):
        om.solve(whole, "fifo")
    with pytest.raises(om.InputError, match="these are"):
        om.solve(capped, "irs")
    assert om.solve(capped, "fifo").objective == 0.0
