"""Division of rails among training jobs: every share is planned, and the best shares are chosen.

The choice is a bottleneck assignment of one share to each job under a capacity, the ports of each
switch: thresholds of the stretch are tried in ascending order. Turns of jobs are chosen in the
same way, by the length of the shortest turn.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from optmatch.model import (
    IDLE,
    RTOL,
    Limit,
    Limits,
    OnEvent,
    Solution,
    Status,
    Tick,
    ignore,
)
from optmatch.problems import RailJob, RailShare, RailShares, RailSharing
from optmatch.problems.rail_sharing import NamedJob, give_share, stretch
from optmatch.solvers.frame import stoppable
from optmatch.solvers.rails.methods import Simple, solve_by

_MOST_ENTRIES = 4_000_000
"""Entries of the table of rounds that are tried, to bound memory: a row for each round, a column
for each job. Two jobs try a million multiples of each step as the length of the shortest turn, ten
jobs 40,000. Where a round has room for more multiples, they are spread over it evenly."""
_MOST_STEPS = 2**53
"""Steps of a turn: up to this number floats tell two numbers of steps apart."""


class ShareSize(NamedTuple):
    """How much a job may have: ports of each of its GPUs, and replicas."""

    ports_per_gpu: int
    replicas: int


Plans = dict[ShareSize, RailShare]
"""By size, the share with its plan; sizes without a plan are left out."""


def divide_rails(
    planner: Simple,
    problem: RailSharing,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> Solution[RailShares]:
    """Divide rails among training jobs, so that the job that suffers most suffers least.

    Rails are switches, and several jobs use the same ones. A share is what one job has of them:
    ports of each of its GPUs, and replicas (its degree of data parallelism). The stretch of a job
    is the time from one of its steps to the next, over the least time that a step can take: 2
    means twice as slow. First a step of each job is planned with each share that it could have.
    Then the shares with the smallest worst stretch are chosen.

    Parameters
    ----------
    planner
        The name of the method that plans a step, such as ``"prefetch"``.
    problem
        The jobs, the ports of each switch, and what is divided: ports, servers, or time.
    limits
        The time of all plans together, and the iterations of each.
    rng
        Random numbers of the plans.
    on_event
        Told how many steps have been planned.

    Returns
    -------
    Solution
        The answer is the shares; the objective is their worst stretch. It is optimal if that is at
        its lower bound. There is no answer if some job has no plan, or if the shares with plans do
        not fit on the switches together; `stats` has the reason.
    """
    plans_of_job: list[Plans] = [{} for _ in problem.jobs]
    limit: Limit | None = None
    with stoppable() as stop:
        limit = _plan_all_shares(planner, problem, plans_of_job, limits, rng, on_event)
    limit = stop.limit or limit

    # Shares are chosen among those that have a plan: each job needs one at least.
    bound = problem.lower_bound()
    shares = None
    if all(plans_of_job):
        choose = _take_turns if problem.by == "time" else _divide_ports
        shares = choose(problem, plans_of_job)
    if shares is None:
        reason = "the shares that have plans do not fit on the switches together"
        if not all(plans_of_job):
            reason = "some job has no plan with a share that fits"
        return Solution(
            problem=problem,
            status=Status.UNKNOWN,
            limit=limit or Limit.EXHAUSTED,
            lower_bound=bound,
            method=planner,
            stats={"reason": reason},
        )
    worst = max(problem.measure_stretches(shares))
    proved = worst <= bound * (1 + RTOL)
    return Solution(
        problem=problem,
        answer=shares,
        status=Status.OPTIMAL if proved else Status.FEASIBLE,
        limit=None if proved else limit or Limit.EXHAUSTED,
        objective=worst,
        lower_bound=min(bound, worst),
        method=planner,
    )


def _plan_all_shares(
    planner: Simple,
    problem: RailSharing,
    plans_of_job: list[Plans],
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> Limit | None:
    """Plan a step of each job with each share of the rails that it could have.

    A share is ports of each GPU of the job, and replicas (its degree of data parallelism). First
    each job is planned with its smallest share, then each with its second one, and so on: if the
    time is up early, each job has at least that plan. Equal jobs with equal shares are planned
    once.

    Parameters
    ----------
    planner
        The name of the method that plans a step.
    problem
        The jobs, the ports of each switch, and what is divided.
    plans_of_job
        A dictionary for each job, empty at first. This function adds each plan as it is made:
        ``plans_of_job[job][size]`` is the share of this size with its plan. Sizes for which no
        plan is found are left out.
    limits
        The time of all plans together, and the iterations of each. Each plan gets an equal part
        of the time that is left.
    rng
        Random numbers of the plans.
    on_event
        Told before each plan how many have been made.

    Returns
    -------
    Limit or None
        `Limit.TIME` if time cut some plan short, else None.

    Raises
    ------
    KeyboardInterrupt
        If a plan was interrupted; the plans before it stay in `plans_of_job`.
    """
    clock = limits.start()

    # Tasks in order: all smallest shares (rank 0), then all second ones (rank 1), and so on.
    tasks = [
        (rank, job, size)
        for job, named in enumerate(problem.jobs)
        for rank, size in enumerate(_list_sizes(problem, named))
    ]
    tasks.sort(key=lambda task: task[0])

    # The job as it is with each share. Only the first of equal jobs is planned, within its part of
    # the time that is left for all different ones, if there is a limit.
    parts = [(give_share(problem.jobs[job].job, *size), size.replicas) for _, job, size in tasks]
    n_different = len(set(parts))

    # None stands for a search that has found no plan: it is not made again for an equal job.
    share_of_job: dict[tuple[RailJob, int], RailShare | None] = {}
    limit = None
    for done, ((_, job, size), key) in enumerate(zip(tasks, parts, strict=True)):
        on_event(Tick("shares", done, len(tasks)))
        if key not in share_of_job:
            part, _ = key
            part_limits = Limits(iterations=limits.iterations)
            if math.isfinite(clock.remaining_s):
                part_s = clock.remaining_s / (n_different - len(share_of_job))
                part_limits = Limits(time_s=part_s, iterations=limits.iterations)
            with part_limits.start().running():
                solution = solve_by(planner, part, part_limits, rng, ignore)
            if solution.limit is Limit.INTERRUPTED:
                raise KeyboardInterrupt
            if solution.limit is Limit.TIME:
                limit = Limit.TIME
            share_of_job[key] = None
            if solution.answer is not None:
                share_of_job[key] = RailShare(
                    ports_per_gpu=size.ports_per_gpu, replicas=size.replicas, plan=solution.answer
                )
        share = share_of_job[key]
        if share is not None:
            plans_of_job[job][size] = share
    return limit


def _list_sizes(problem: RailSharing, named: NamedJob) -> Iterator[ShareSize]:
    """List the sizes of shares of a job that fit on the switches if it has these to itself.

    Parameters
    ----------
    problem
        The jobs, and the ports of each switch (`radix`).
    named
        One of the jobs.

    Yields
    ------
    ShareSize
        Ports of each GPU and replicas, the least share first.
    """
    for ports_per_gpu, replicas in problem.list_shares(named):
        n_ports = problem.ports_of_rails(named.job, ports_per_gpu, replicas)
        if max(n_ports.values(), default=0) <= problem.radix:
            yield ShareSize(ports_per_gpu, replicas)


def _choose_fastest(plans: Plans) -> RailShare:
    """Return the share with the shortest step; of equal ones the smallest, which comes first."""
    return min(plans.values(), key=lambda share: share.plan.step_s)


def _divide_ports(problem: RailSharing, plans_of_job: Sequence[Plans]) -> RailShares | None:
    """Divide the ports so that the job that suffers most suffers least (bottleneck assignment).

    A share is what a job has of the rails: ports of each of its GPUs, and replicas (its degree of
    data parallelism). The stretch of a job is the time of a step with its share, over the least
    time that a step can take: 2 means twice as slow. The division goes in two steps:

    1. A threshold is raised from the smallest stretch on. Each job gets the smallest share whose
       stretch is within it. The first threshold at which all shares fit on the switches is taken.
    2. Ports that are left are given away: again and again one job gets a larger share, always the
       one whose stretch falls most.

    Parameters
    ----------
    problem
        The jobs, and the ports of each switch (`radix`).
    plans_of_job
        ``plans_of_job[job][size]``: the share of this size with the plan of a step; smallest size
        first, at least one for each job.

    Returns
    -------
    RailShares or None
        None if even the smallest shares with a plan do not fit together. Else these fields:

        * ``alone[job]``: its fastest share, as if it had the rails to itself;
        * ``beside[job]``: its share beside the others;
        * ``first_port[job, rail]``: where its ports begin on the switch, -1 if it has none;
        * ``steps[job]``: 1, as all jobs run at the same time.
    """
    # By job and size the stretch with the plan of this size.
    stretch_of_job: list[dict[ShareSize, float]] = []
    for named, plans in zip(problem.jobs, plans_of_job, strict=True):
        least_s = problem.bound_step(named)
        stretch_of_job.append(
            {size: stretch(share.plan.step_s, least_s) for size, share in plans.items()}
        )

    # Step 1. As the threshold rises, shares grow smaller. `sizes` has the size of each job.
    sizes = None
    for threshold in sorted({ratio for ratios in stretch_of_job for ratio in ratios.values()}):
        least = _choose_least_within(threshold, stretch_of_job)
        if least is not None and _fits(problem, least):
            sizes = least
            break
    if sizes is None:
        return None

    # Step 2. Each turn of the loop tries every other size of every job, with the sizes of all
    # others as they are. Among equal gains the first job counts, with its smallest share.
    while True:
        best_gain = 0.0
        best_sizes = None
        for job, ratios in enumerate(stretch_of_job):
            for size, ratio in ratios.items():
                gain = ratios[sizes[job]] - ratio
                if gain <= best_gain:
                    continue
                larger = [*sizes[:job], size, *sizes[job + 1 :]]
                if _fits(problem, larger):
                    best_gain = gain
                    best_sizes = larger
        if best_sizes is None:
            break
        sizes = best_sizes
    return RailShares(
        alone=tuple(_choose_fastest(plans) for plans in plans_of_job),
        beside=tuple(plans[size] for plans, size in zip(plans_of_job, sizes, strict=True)),
        first_port=_lay_out_ports(problem, sizes),
        steps=(1,) * len(sizes),
    )


def _choose_least_within(
    threshold: float, stretch_of_job: Sequence[Mapping[ShareSize, float]]
) -> list[ShareSize] | None:
    """Return the least share of each job whose stretch is within a threshold.

    Parameters
    ----------
    threshold
        The most that the stretch may be: the time of a step over the least that it can take.
    stretch_of_job
        ``stretch_of_job[job][size]``: the stretch with a share of this size.

    Returns
    -------
    list of ShareSize, or None
        By job, with ports of each GPU compared before replicas; None if one of them has no such
        share.
    """
    sizes = []
    for ratios in stretch_of_job:
        within = [size for size, ratio in ratios.items() if ratio <= threshold]
        if not within:
            return None
        sizes.append(min(within))
    return sizes


def _fits(problem: RailSharing, sizes: Sequence[ShareSize]) -> bool:
    """Tell whether shares of all jobs fit on the switch of each rail together.

    Parameters
    ----------
    problem
        The jobs, and the ports of each switch (`radix`).
    sizes
        By job the ports of each of its GPUs, and its replicas.

    Returns
    -------
    bool
        Whether on no rail the ports that the jobs need are more than its switch has.
    """
    used: dict[int, int] = defaultdict(int)
    for named, size in zip(problem.jobs, sizes, strict=True):
        for rail, n_ports in problem.ports_of_rails(named.job, *size).items():
            used[rail] += n_ports
    return max(used.values(), default=0) <= problem.radix


def _lay_out_ports(problem: RailSharing, sizes: Sequence[ShareSize]) -> np.ndarray:
    """Give each job consecutive ports of each rail, in the order of the jobs.

    If a first job needs 8 ports of a rail and a second one 4, their first ports are 0 and 8.

    Parameters
    ----------
    problem
        The jobs, the number of rails, and what is divided.
    sizes
        By job the ports of each of its GPUs, and its replicas.

    Returns
    -------
    int32 array, shape (jobs, rails)
        The first port of each job on the switch of each rail, -1 where it has none. If jobs take
        turns, all have the same ports, from port 0 on.
    """
    ports_of_job = [
        problem.ports_of_rails(named.job, *size)
        for named, size in zip(problem.jobs, sizes, strict=True)
    ]
    first_port = np.full((len(sizes), problem.n_rails), IDLE, np.int32)
    next_port = np.zeros(problem.n_rails, np.int32)
    for job, ports in enumerate(ports_of_job):
        for rail, n_ports in ports.items():
            first_port[job, rail] = next_port[rail]
            if problem.by != "time":
                next_port[rail] += n_ports
    return first_port


def _take_turns(problem: RailSharing, plans_of_job: Sequence[Plans]) -> RailShares:
    """Choose how many steps each job runs in its turn, so that the worst slowdown is smallest.

    Jobs take turns on the same ports. In a round each job has one turn of some whole steps, and
    between turns the rails rest for some time. The slowdown of a job is the time of the round over
    the time of its own turn. With steps of 2 s and 3 s, turns of two steps each and 2 s of rest in
    all, a round lasts 4 + 6 + 2 = 12 s. The slowdowns are 12 / 4 = 3 and 12 / 6 = 2.

    The job with the shortest turn is slowed down most. Suppose that the shortest turn of the best
    round lasts w seconds. Each other job then runs the fewest steps that last w at least, since
    more steps only lengthen the round. As w is a multiple of the step of some job, all such
    multiples are tried.

    Parameters
    ----------
    problem
        The jobs, and the longest round in seconds (`round_s`). A round of one step of each job is
        always allowed.
    plans_of_job
        ``plans_of_job[job][size]``: a share of the rails (ports of each GPU, and replicas) with
        the plan of a step. The fastest one is taken; where time is divided there is one only.

    Returns
    -------
    RailShares
        By job its share (`alone` and `beside`, which are the same here), its first port on each
        rail (`first_port`), and its steps in a round (`steps`). Among rounds with equal worst
        slowdowns it is the shortest one.
    """
    fastest = tuple(_choose_fastest(plans) for plans in plans_of_job)
    step_s = np.array([share.plan.step_s for share in fastest])
    sizes = [ShareSize(share.ports_per_gpu, share.replicas) for share in fastest]
    shares = RailShares(
        alone=fastest,
        beside=fastest,
        first_port=_lay_out_ports(problem, sizes),
        steps=(1,) * len(fastest),
    )
    rest_s = sum(problem.measure_handovers(shares))

    # Seconds that are tried as w: multiples of each step, up to the longest round. If these are
    # more than memory may hold, fewer are tried, spread evenly.
    longest_turn_s = problem.round_s - rest_s
    most_multiples = max(1, _MOST_ENTRIES // len(fastest) ** 2)
    multiples = []
    for own_s in step_s.tolist():
        n_steps = 0.0
        if own_s > 0:
            n_steps = np.floor(np.clip(longest_turn_s / own_s, 0, _MOST_STEPS))
        n_steps_tried = np.linspace(1, n_steps, int(min(n_steps, most_multiples)))
        multiples.append(own_s * np.floor(n_steps_tried))
    # The shortest step is tried in any case, so that there is one w at least.
    turn_s = np.unique(np.concatenate([[float(step_s.min())], *multiples]))

    # ``steps[row, job]``: how many steps the job runs in its turn. Row 0 is one step of each job,
    # which is always allowed. Each other row is for one w: the fewest steps that last so long.
    steps = np.ones((len(turn_s) + 1, len(fastest)), np.int64)
    for job, own_s in enumerate(step_s.tolist()):
        if own_s > 0:
            steps[1:, job] = np.ceil(turn_s / own_s * (1 - RTOL)).clip(1, _MOST_STEPS)
    # By row, how long the round lasts, whether it may, and its shortest turn.
    round_s = steps @ step_s + rest_s
    allowed = round_s <= problem.round_s
    allowed[0] = True
    shortest_turn_s = (steps * step_s).min(axis=1)

    # The row with the smallest slowdown, of equal ones that with the shortest round. Steps of no
    # time are divided by a tiny number in place of 0.
    slowdown = np.where(allowed, round_s / np.maximum(shortest_turn_s, 1e-300), np.inf)
    best = np.lexsort([round_s, slowdown])[0]
    return RailShares(
        alone=shares.alone,
        beside=shares.beside,
        first_port=shares.first_port,
        steps=tuple(steps[best].tolist()),
    )
