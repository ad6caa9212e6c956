"""Divisions of rails are the best ones of their plans, and hold when they are replayed."""

import random
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

import optmatch as om
from optmatch.problems import NamedJob, RailSharing
from optmatch.solvers.rail_sharing import division
from optmatch.solvers.rails.methods import solve_by
from tests.helpers.modes import examples
from tests.helpers.rails import make_job, message_step, small_job
from tests.helpers.shared_rails import METHOD_NAMES, best_stretch, draw_sharing, replay_sharing


def steps_of(problem: RailSharing, method: Any) -> list[dict[Any, float]]:
    """Plan each job with each share by itself, and return its step."""
    rows = []
    for named in problem.jobs:
        row = {}
        for ports, replicas in problem.list_shares(named):
            parallelism = replace(named.job.parallelism, dp=replicas)
            network = replace(named.job.network, ports_per_gpu=ports)
            part = replace(named.job, parallelism=parallelism, network=network)
            objective = om.solve(part, method, seed=0).objective
            assert isinstance(objective, float)
            row[ports, replicas] = objective
        rows.append(row)
    return rows


@pytest.mark.parametrize("by", ["ports", "servers", "time"])
@pytest.mark.parametrize("sizes", [((4, 2), (2, 2)), ((4, 1), (4, 2), (2, 1))])
def test_no_other_division_is_better(by: Any, sizes: Any) -> None:
    """Against all shares of all jobs, or all rounds, with the same plans."""
    jobs = [small_job(dp, 1, pp, ports_per_gpu=2, delay_s=0.001) for dp, pp in sizes]
    named = tuple(NamedJob(f"job-{number}", job) for number, job in enumerate(jobs))
    problem = RailSharing(jobs=named, radix=16, by=by, handover_s=0.01, round_s=7.0)
    solution = om.solve(problem, "provisioned", seed=0)
    best = best_stretch(problem, steps_of(problem, "provisioned"))
    assert solution.objective == pytest.approx(best, rel=1e-12)
    assert not replay_sharing(problem, solution.answer)


@pytest.mark.parametrize("part", range(4))
def test_drawn_shares_hold_when_they_are_replayed(part: int) -> None:
    count = examples(6, plain=2)
    n_replayed = 0
    for number in range(count * part, count * (part + 1)):
        rng = random.Random(f"sharing {number}")
        problem = draw_sharing(rng)
        limits = om.Limits(iterations=60)
        solution = om.solve(problem, rng.choice(METHOD_NAMES), seed=0, limits=limits)
        assert om.verify(problem, solution).valid, number
        if solution.answer is not None:
            assert not replay_sharing(problem, solution.answer), number
            n_replayed += 1
    assert n_replayed >= count / 2


def test_long_turns_amortise_the_handover() -> None:
    """Two equal jobs: with a handover as long as a step, each runs as many steps as fit."""
    job = make_job(gpus_per_server=1, recorded=message_step())
    pair = (NamedJob("a", job), NamedJob("b", job))
    for round_s, steps in ((4.0, 1), (10.5, 4), (22.5, 10)):
        problem = RailSharing(jobs=pair, radix=2, by="time", handover_s=1.0, round_s=round_s)
        solution = om.solve(problem, "provisioned", seed=0)
        assert solution.answer.steps == (steps, steps)
        assert solution.objective == pytest.approx(2 + 2 / steps, rel=1e-6)


@pytest.mark.parametrize("step_s", [1e-9, 1e-12, 3e-18])
def test_turns_of_very_short_steps_fill_the_round(step_s: float) -> None:
    """The round has room for more steps than are tried one by one, or than 64 bits count."""
    jobs = []
    for duration_s in (30.0, step_s):
        step = replace(message_step(), duration_s=[duration_s, 0, 0])
        job = make_job(
            gpus_per_server=1, recorded=step, port_bytes_per_s=1e30, latency_s=0.0, delay_s=0.0
        )
        jobs.append(NamedJob(f"steps of {duration_s} s", job))
    problem = RailSharing(
        jobs=tuple(jobs), radix=2, by="time", handover_s=1e-3, round_s=30.0 + 0.021
    )
    solution = om.solve(problem, "provisioned", seed=0)
    assert om.verify(problem, solution).valid

    # Turns of 30 s and of 0.019 s, and two handovers; turns are tried 30 microseconds apart. The
    # shortest steps are so many that their number is limited, which shortens their turn.
    turn_s = min(0.019, 2**53 * step_s)
    assert (30.002 + turn_s) / turn_s <= solution.objective
    assert solution.objective <= (30.002 + turn_s) / (turn_s - 4e-5)


def test_turns_of_many_jobs_with_short_steps_need_little_memory() -> None:
    """Twelve jobs would try a million lengths of turns each, in a table with twelve columns."""
    jobs = []
    for number in range(12):
        step = replace(message_step(), duration_s=[1e-5 * (1 + number / 7), 0, 0])
        job = make_job(gpus_per_server=1, recorded=step, delay_s=0.0)
        jobs.append(NamedJob(f"job {number}", job))
    problem = RailSharing(jobs=tuple(jobs), radix=2, by="time", handover_s=1e-3)
    tracemalloc.start()
    solution = om.solve(problem, "provisioned", seed=0)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 300e6

    # Twelve turns of 5 s or less, and handovers of 12 ms in all.
    assert solution.objective == pytest.approx(12 + 0.012 / 5, rel=1e-3)


def test_short_steps_take_turns_as_long_as_long_ones() -> None:
    job = make_job(gpus_per_server=1, recorded=message_step())
    slow = replace(message_step(), duration_s=[3.0, 0, 0])
    pair = (NamedJob("a", job), NamedJob("b", make_job(gpus_per_server=1, recorded=slow)))
    problem = RailSharing(jobs=pair, radix=2, by="time", round_s=7.0)
    solution = om.solve(problem, "provisioned", seed=0)
    assert solution.answer.steps == (3, 1)
    assert problem.measure_steps(solution.answer) == pytest.approx([2.0, 6.0], rel=1e-6)
    shorter = om.solve(replace(problem, round_s=1.0), "provisioned", seed=0)
    assert shorter.answer.steps == (1, 1)


def test_without_time_there_is_no_answer_and_a_reason() -> None:
    job = small_job(2, 1, 2)
    problem = RailSharing(jobs=(NamedJob("a", job), NamedJob("b", job)), radix=8)
    solution = om.solve(problem, seed=0, time_limit_s=0.0)
    assert solution.answer is None and solution.limit is om.Limit.TIME
    assert "no plan" in str(solution.stats["reason"])


def test_switches_that_stop_take_turns() -> None:
    """Jobs on one all-stop switch would stop each other at once; in turns they do not."""
    jobs = (NamedJob("a", small_job(2, 1, 2, switching="all-stop", delay_s=0.001)),)
    problem = RailSharing(jobs=(*jobs, NamedJob("b", jobs[0].job)), radix=4, by="time")
    solution = om.solve(problem, "provisioned", seed=0)
    assert not replay_sharing(problem, solution.answer)


def drop_answer(solution: Any) -> Any:
    """Return a solution as if no plan had been found."""
    return replace(
        solution,
        answer=None,
        objective=None,
        status=om.Status.UNKNOWN,
        limit=om.Limit.EXHAUSTED,
    )


def test_shares_that_do_not_fit_together_are_another_reason(monkeypatch: Any) -> None:
    """Each job has a plan, but only with all of its ports: both need twice the ports there are."""

    def plan_all_ports_only(planner: Any, job: om.RailJob, *rest: Any) -> Any:
        solution = solve_by(planner, job, *rest)
        if job.network.ports_per_gpu == 2:
            return solution
        return drop_answer(solution)

    monkeypatch.setattr(division, "solve_by", plan_all_ports_only)
    job = small_job(2, 1, 2, ports_per_gpu=2)
    problem = RailSharing(jobs=(NamedJob("a", job), NamedJob("b", job)), radix=8)
    solution = om.solve(problem, "provisioned", seed=0)
    assert solution.answer is None
    assert "do not fit" in str(solution.stats["reason"])


def test_equal_jobs_without_a_plan_are_tried_once(monkeypatch: Any) -> None:
    tried: list[om.RailJob] = []

    def find_no_plan(planner: Any, job: om.RailJob, *rest: Any) -> Any:
        tried.append(job)
        return drop_answer(solve_by(planner, job, *rest))

    monkeypatch.setattr(division, "solve_by", find_no_plan)
    job = small_job(2, 1, 2)
    problem = RailSharing(jobs=(NamedJob("a", job), NamedJob("b", job)), radix=8)
    solution = om.solve(problem, "provisioned", seed=0)
    assert "no plan" in str(solution.stats["reason"])
    assert len(tried) == 1


def test_equal_jobs_share_their_part_of_the_time(monkeypatch: Any) -> None:
    """A hundred equal jobs have one plan for each size of share, with the time of all of them."""
    limits_s: list[float] = []

    def record(planner: Any, job: Any, limits: om.Limits, *others: Any) -> om.Solution:
        assert limits.time_s is not None
        limits_s.append(limits.time_s)
        return solve_by(planner, job, limits, *others)

    monkeypatch.setattr(division, "solve_by", record)
    jobs = tuple(NamedJob(f"job-{k}", small_job(2, 1, 1, ports_per_gpu=2)) for k in range(100))
    problem = RailSharing(jobs=jobs, radix=300)
    solution = om.solve(problem, "static", seed=0, time_limit_s=1000.0)
    assert solution.answer is not None
    assert len(limits_s) <= 3
    assert min(limits_s) > 300.0
