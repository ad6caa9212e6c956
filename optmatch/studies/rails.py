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
    """Divide rails among jobs, by ports, servers or time: solve a `RailSharing`.

    Parameters
    ----------
    jobs
        By name.
    radix
        Ports of the switch of each rail.
    by, handover_s, round_s
        What is divided, the time between turns, and the longest round; as of `RailSharing`.
    method, limits, seed
        Of `optmatch.solve`; the method is one for rail jobs, by which each step is planned.

    Returns
    -------
    dict
        By name, the share of each job, and its verified plans alone and beside the others.

    Raises
    ------
    InputError
        Of jobs that cannot share their switches, or need more ports than there are with the least
        share of each.
    LimitReached
        Of a job for which the method finds no plan.
    VerificationError
        Of a plan that does not hold.

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
