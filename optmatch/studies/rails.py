"""Several training jobs on the same rails: the ports of each switch divided among them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from optmatch.entrances import solve, verify
from optmatch.model import InputError, LimitReached, Limits, Solution, VerificationError, integer
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan, ranks_of_rails


class RailTenant(NamedTuple):
    """A job on rails that it shares with others."""

    ports_per_gpu: int
    """What it has beside the others; alone it has as many as it asks for, if they fit."""
    ports: Mapping[int, range]
    """By rail: its ports of the switch there, which no other job has."""
    alone: Solution[RailPlan]
    beside: Solution[RailPlan]

    @property
    def slowdown(self) -> float:
        """The step beside the others over the step alone."""
        return _step_s(self.beside) / _step_s(self.alone)


def _step_s(plan: Solution[RailPlan]) -> float:
    assert plan.objective is not None  # every job has a plan
    return float(plan.objective)


def share_rails(
    jobs: Mapping[str, RailJob],
    radix: int,
    *,
    method: str | None = None,
    limits: Limits | None = None,
    seed: int = 0,
) -> dict[str, RailTenant]:
    """Divide the ports of each rail's switch among jobs on servers of their own.

    Each job has 1 to `ports_per_gpu` ports for each of its GPUs, as many on all rails. The step of
    each job is planned and verified for each such number. Numbers are then chosen so that the
    worst slowdown is the smallest one that these plans allow; ports that are left go where they
    help most. A circuit joins ports of one job, and a switch that changes circuits one by one
    stops no other circuit, so the plan of a job is the same alone on its ports and beside other
    jobs.

    Parameters
    ----------
    jobs
        By name.
    radix
        Ports of the switch of each rail.
    method, limits, seed
        Of each plan, as of `optmatch.solve`.

    Raises
    ------
    InputError
        Of a switch that stops as a whole when it changes, one with a fabric of its own, or jobs
        that need more ports than there are with one for each GPU.
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
    radix = integer("radix", radix, at_least=1)
    gpus_of_job = {name: _count_gpus(name, job) for name, job in jobs.items()}

    # Each GPU needs one port at least.
    one_port_each = dict.fromkeys(jobs, 1)
    for rail, n_ports in _ports_in_use(one_port_each, gpus_of_job).items():
        if n_ports > radix:
            text = f"radix = {radix} ports: rail {rail} has {n_ports} GPUs of {len(jobs)} jobs"
            raise InputError(text, where="radix")

    plans_of_job = {}
    for name, job in jobs.items():
        plans_of_job[name] = _plan_each_number_of_ports(
            job, radix, gpus_of_job[name], method=method, limits=limits, seed=seed
        )
    ports_per_gpu = _divide_ports(plans_of_job, gpus_of_job, radix)

    # Jobs get consecutive ports of each rail, in their order.
    tenants: dict[str, RailTenant] = {}
    next_port: dict[int, int] = defaultdict(int)
    for name, n_ports in ports_per_gpu.items():
        ports = {}
        for rail, n_gpus in gpus_of_job[name].items():
            first_port = next_port[rail]
            next_port[rail] = first_port + n_ports * n_gpus
            ports[rail] = range(first_port, next_port[rail])
        alone = min(plans_of_job[name].values(), key=_step_s)
        tenants[name] = RailTenant(n_ports, ports, alone, plans_of_job[name][n_ports])
    return tenants


def _count_gpus(name: str, job: RailJob) -> dict[int, int]:
    """Count the GPUs of a job on each rail; refuse a job that cannot share its switches."""
    network = job.network
    if network.switching != "per-circuit" or network.fabric is not None:
        obstacle = f"switching = {network.switching!r}"
        if network.fabric:
            obstacle = "a fabric of its own"
        text = f"job {name}: {obstacle}; jobs share ideal switches that change one by one"
        raise InputError(text, where="network")
    if job.workload.recorded is not None:
        ranks_of_rail = ranks_of_rails(job.workload.recorded)
        return {rail: len(ranks) for rail, ranks in ranks_of_rail.items()}
    n_rails = network.gpus_per_server
    return dict.fromkeys(range(n_rails), job.n_gpus // n_rails)


def _ports_in_use(
    ports_per_gpu: Mapping[str, int], gpus_of_job: Mapping[str, Mapping[int, int]]
) -> dict[int, int]:
    """Count the ports that all jobs together need on each rail.

    Parameters
    ----------
    ports_per_gpu
        By job.
    gpus_of_job
        By job, and by rail: the number of its GPUs there.
    """
    n_ports: dict[int, int] = defaultdict(int)
    for name, ports_of_gpu in ports_per_gpu.items():
        for rail, n_gpus in gpus_of_job[name].items():
            n_ports[rail] += ports_of_gpu * n_gpus
    return n_ports


def _plan_each_number_of_ports(
    job: RailJob,
    radix: int,
    n_gpus_of_rail: Mapping[int, int],
    *,
    method: str | None,
    limits: Limits | None,
    seed: int,
) -> dict[int, Solution[RailPlan]]:
    """Plan a job, alone on its switches, with each number of ports for a GPU that fits.

    Parameters
    ----------
    job
        The job, which asks for the largest number.
    radix
        Ports of the switch of each rail.
    n_gpus_of_rail
        The number of its GPUs on each rail.
    method, limits, seed
        Of each plan.

    Returns
    -------
    dict
        By the number of ports for a GPU: the plan. Numbers without a plan are left out.
    """
    plans: dict[int, Solution[RailPlan]] = {}
    for ports_per_gpu in range(1, job.network.ports_per_gpu + 1):
        n_ports = ports_per_gpu * max(n_gpus_of_rail.values(), default=0)
        if n_ports > radix:
            break
        network = replace(job.network, ports_per_gpu=ports_per_gpu, radix=max(n_ports, 1))
        job_with_ports = replace(job, network=network)
        plan = solve(job_with_ports, method, limits=limits, seed=seed)
        if plan.answer is None:
            continue
        report = verify(job_with_ports, plan)
        if not report.valid:
            raise VerificationError(f"{ports_per_gpu} ports for each GPU: {report.violations[0]}")
        plans[ports_per_gpu] = plan
    if not plans:
        raise LimitReached(f"method {method}: no plan with 1 to {job.network.ports_per_gpu} ports")
    return plans


def _divide_ports(
    plans_of_job: Mapping[str, Mapping[int, Solution[RailPlan]]],
    gpus_of_job: Mapping[str, Mapping[int, int]],
    radix: int,
) -> dict[str, int]:
    """Choose the ports for a GPU of each job so that the worst slowdown is smallest.

    A bound on all slowdowns gives each job the fewest ports that keep it. The smallest bound whose
    ports fit on the switches is the worst slowdown. Ports that are left then go, one step at a
    time, to the job whose slowdown falls most.

    Parameters
    ----------
    plans_of_job
        By job, and by ports for a GPU: its plan.
    gpus_of_job
        By job, and by rail: the number of its GPUs.
    radix
        Ports of each switch.
    """
    # The slowdown of a job with some ports: its step over its fastest one.
    slowdown: dict[str, dict[int, float]] = {}
    for name, plans in plans_of_job.items():
        fastest_s = min(_step_s(plan) for plan in plans.values())
        slowdown[name] = {ports: _step_s(plan) / fastest_s for ports, plan in plans.items()}

    def fits(ports_per_gpu: Mapping[str, int]) -> bool:
        n_ports = _ports_in_use(ports_per_gpu, gpus_of_job)
        return max(n_ports.values(), default=0) <= radix

    all_slowdowns = {ratio for ratios in slowdown.values() for ratio in ratios.values()}
    chosen: dict[str, int] = {}
    for bound in sorted(all_slowdowns):
        fewest_ports = _fewest_ports_within(bound, slowdown)
        if fewest_ports is not None:
            chosen = fewest_ports
            if fits(chosen):
                break

    # What is left goes where it gains most; of equal gains, the fewest ports.
    while True:
        best_gain = (0.0, 0)
        best_choice = None
        for name, ratios in slowdown.items():
            ports_now = chosen[name]
            for ports, ratio in ratios.items():
                gain = (ratios[ports_now] - ratio, -ports)
                if ports > ports_now and gain > best_gain and fits(chosen | {name: ports}):
                    best_gain = gain
                    best_choice = (name, ports)
        if best_choice is None:
            return chosen
        name, ports = best_choice
        chosen[name] = ports


def _fewest_ports_within(
    bound: float, slowdown: Mapping[str, Mapping[int, float]]
) -> dict[str, int] | None:
    """Return the fewest ports of each job with which its slowdown is within a bound.

    Returns
    -------
    dict or None
        By job; None if one of them cannot keep the bound.
    """
    fewest_ports = {}
    for name, ratios in slowdown.items():
        ports_within = [ports for ports, ratio in ratios.items() if ratio <= bound]
        if not ports_within:
            return None
        fewest_ports[name] = min(ports_within)
    return fewest_ports
