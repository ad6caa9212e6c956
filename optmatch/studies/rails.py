"""Several training jobs on the same rails, as a function of a mapping of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from optmatch.entrances import solve
from optmatch.model import IDLE, Limit, LimitReached, Limits, Solution, Status
from optmatch.problems import NamedJob, RailJob, RailPlan, RailShare, RailShares, RailSharing
from optmatch.problems.rail_sharing import Divided, give_share, stretch


class RailTenant(NamedTuple):
    """A job on rails that it shares with others."""

    ports_per_gpu: int
    """What it has beside the others; alone it has as many as it asks for, if they fit."""
    ports: Mapping[int, range]
    """By rail: its ports of the switch there. Jobs that run at once have different ports."""
    alone: Solution[RailPlan]
    beside: Solution[RailPlan]
    """The plan of a step beside the others; where time is divided, of a step in its turn."""
    replicas: int
    """Its degree of data parallelism beside the others."""
    steps_per_round: int
    """How many steps it runs in its turn; 1 where jobs run at once."""
    step_s: float
    """The time from one of its steps to the next, beside the others."""

    @property
    def slowdown(self) -> float:
        """Its step beside the others over its step alone; 1 where a step takes no time."""
        alone_s: float = self.alone.answer.step_s
        return stretch(self.step_s, alone_s)


def share_rails(
    jobs: Mapping[str, RailJob],
    radix: int,
    *,
    by: Divided = "ports",
    handover_s: float = 0.0,
    round_s: float = 60.0,
    method: str | None = None,
    limits: Limits | None = None,
    seed: int = 0,
) -> dict[str, RailTenant]:
    """Divide the switches between GPUs among several training jobs, and plan a step of each job.

    A rail is a switch that joins GPUs of all servers. Jobs share rails in one of three ways: each
    job has ports of its own, or servers of its own, all the time; or jobs take turns, in rounds,
    and each has all ports in its turn.

    Parameters
    ----------
    jobs
        The training jobs, by name.
    radix
        How many ports the switch of each rail has.
    by
        The thing that is divided: ``"ports"``, ``"servers"`` or ``"time"``.
    handover_s
        Where time is divided: the seconds that GPUs need between two turns.
    round_s
        Where time is divided: the longest round in which each job has its turn, in seconds.
    method
        The name of the method for rail jobs by which each step is planned; None for the default.
    limits
        When to stop; None for no limits.
    seed
        The seed of the random numbers of the method.

    Returns
    -------
    dict
        By name a record for each job: its ports on each rail (`ports`, `ports_per_gpu`), its
        verified plans without the others (`alone`) and with them (`beside`), how many steps it has
        in a turn (`steps_per_round`), and the seconds from one step to the next (`step_s`).

    Raises
    ------
    InputError
        If jobs cannot share their switches, or need more ports than there are even with the least
        share of each.
    LimitReached
        If the method finds no plan for a job.
    VerificationError
        If a plan does not hold: a defect.

    Examples
    --------
    >>> import optmatch as om
    >>> model = om.TransformerModel(layers=8, hidden=1024, heads=8, sequence=128, vocabulary=1000,
    ...                             ffn=4096)
    >>> job = om.RailJob(parallelism=om.Parallelism(dp=4),
    ...                  network=om.RailNetwork(gpus_per_server=1, ports_per_gpu=2),
    ...                  workload=om.Workload(model=model, batch=8))
    >>> shares = share_rails({"a": job, "b": job}, radix=12, method="static")
    >>> [(tenant.ports_per_gpu, tenant.ports[0]) for tenant in shares.values()]
    [(2, range(0, 8)), (1, range(8, 12))]
    """
    named_jobs = tuple(NamedJob(name, job) for name, job in jobs.items())
    problem = RailSharing(
        jobs=named_jobs, radix=radix, by=by, handover_s=handover_s, round_s=round_s
    )
    solution = solve(problem, method, limits=limits, seed=seed)
    answer = solution.answer
    if answer is None:
        raise LimitReached(f"method {solution.method}: {solution.stats.get('reason', 'no plan')}")

    # Each job with its ports on each rail, and its plans as solutions of their own.
    steps_s = problem.measure_steps(answer)
    tenants = {}
    for number, named in enumerate(named_jobs):
        beside = answer.beside[number]
        n_ports = problem.ports_of_rails(named.job, beside.ports_per_gpu, beside.replicas)
        ports = {}
        for rail, first_port in enumerate(answer.first_port[number].tolist()):
            if first_port != IDLE:
                ports[rail] = range(first_port, first_port + n_ports[rail])
        tenants[named.name] = RailTenant(
            ports_per_gpu=beside.ports_per_gpu,
            ports=ports,
            alone=_make_solution(named.job, answer.alone[number], solution),
            beside=_make_solution(named.job, beside, solution),
            replicas=beside.replicas,
            steps_per_round=answer.steps[number],
            step_s=steps_s[number],
        )
    return tenants


def _make_solution(
    job: RailJob, share: RailShare, solution: Solution[RailShares]
) -> Solution[RailPlan]:
    """Return the plan of a share of the switch as a solution of the job that has just this share.

    Parameters
    ----------
    job
        The job with all its replicas and ports.
    share
        Its ports for each GPU, its replicas, and its plan.
    solution
        The solution of all jobs together: its method and seed are those of the plan.

    Returns
    -------
    Solution
        A feasible one; its objective is the time of a step in seconds.
    """
    part = give_share(job, share.ports_per_gpu, share.replicas)
    return Solution(
        problem=part,
        answer=share.plan,
        status=Status.FEASIBLE,
        limit=solution.limit or Limit.EXHAUSTED,
        objective=share.plan.step_s,
        lower_bound=min(part.lower_bound(), share.plan.step_s),
        method=solution.method,
        seed=solution.seed,
    )
