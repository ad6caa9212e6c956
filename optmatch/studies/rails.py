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

    Each job has 1 to `ports_per_gpu` ports for each of its GPUs, as many on all rails. Every such
    step is planned and verified; without a plan it is no choice. The worst slowdown is the least
    one that these plans allow, then their sum. A circuit joins ports of one job, and a switch that
    changes circuits one by one stops no other: so a job's plan beside the others is the plan of
    its own ports.

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
    >>> [(each.ports_per_gpu, each.ports[0]) for each in shares.values()]
    [(2, range(0, 8)), (1, range(8, 12))]
    """
    radix = integer("radix", radix, at_least=1)
    gpus = {name: _count_gpus(name, job) for name, job in jobs.items()}
    needed: dict[int, int] = defaultdict(int)
    for own in gpus.values():
        for rail, count in own.items():
            needed[rail] += count
    for rail, count in needed.items():
        if count > radix:
            text = f"radix = {radix} ports: rail {rail} has {count} GPUs of {len(jobs)} jobs"
            raise InputError(text, where="radix")
    plans = {
        name: _plan(job, radix, gpus[name], method, limits, seed) for name, job in jobs.items()
    }
    given = _divide(plans, gpus, radix)
    found: dict[str, RailTenant] = {}
    used: dict[int, int] = defaultdict(int)
    for name, k in given.items():
        ports = {}
        for rail, count in gpus[name].items():
            ports[rail] = range(used[rail], used[rail] + k * count)
            used[rail] += k * count
        alone = min(plans[name].values(), key=_step_s)
        found[name] = RailTenant(k, ports, alone, plans[name][k])
    return found


def _count_gpus(name: str, job: RailJob) -> dict[int, int]:
    """Count the GPUs of each rail."""
    network = job.network
    if network.switching != "per-circuit" or network.fabric is not None:
        what = "a fabric of its own" if network.fabric else f"switching = {network.switching!r}"
        text = f"job {name}: {what}; jobs share ideal switches that change one by one"
        raise InputError(text, where="network")
    if job.workload.recorded is not None:
        return {rail: len(own) for rail, own in ranks_of_rails(job.workload.recorded).items()}
    rails = network.gpus_per_server
    return dict.fromkeys(range(rails), job.n_gpus // rails)


def _plan(
    job: RailJob,
    radix: int,
    gpus: Mapping[int, int],
    method: str | None,
    limits: Limits | None,
    seed: int,
) -> dict[int, Solution[RailPlan]]:
    """Plan the job with each number of ports of a GPU that fits, alone on the switch."""
    found: dict[int, Solution[RailPlan]] = {}
    for k in range(1, job.network.ports_per_gpu + 1):
        own = k * max(gpus.values(), default=0)
        if own <= radix:
            network = replace(job.network, ports_per_gpu=k, radix=max(own, 1))
            each = replace(job, network=network)
            plan = solve(each, method, limits=limits, seed=seed)
            if plan.answer is not None:
                found[k] = plan
                report = verify(each, plan)
                if not report.valid:
                    raise VerificationError(f"{k} ports for each GPU: {report.violations[0]}")
    if not found:
        raise LimitReached(f"method {method}: no plan with 1 to {job.network.ports_per_gpu} ports")
    return found


def _divide(
    plans: Mapping[str, Mapping[int, Solution[RailPlan]]],
    gpus: Mapping[str, Mapping[int, int]],
    radix: int,
) -> dict[str, int]:
    """Choose ports for each job: the worst slowdown is least, then ports go where they help most.

    What is allowed by a bound on all slowdowns needs the fewest ports of each job, so the least
    bound that fits is the answer.
    """
    slow = {
        name: {k: _step_s(each) / min(map(_step_s, own.values())) for k, each in own.items()}
        for name, own in plans.items()
    }

    def fits(given: Mapping[str, int]) -> bool:
        total: dict[int, int] = defaultdict(int)
        for name, k in given.items():
            for rail, count in gpus[name].items():
                total[rail] += k * count
        return max(total.values(), default=0) <= radix

    given: dict[str, int] = {}
    for bound in sorted({each for own in slow.values() for each in own.values()}):
        if all(min(own.values()) <= bound for own in slow.values()):
            given = {n: min(k for k, s in own.items() if s <= bound) for n, own in slow.items()}
            if fits(given):
                break
    while True:  # what is left goes where it gains most
        gains = [
            (given_s - s, name, k)
            for name, own in slow.items()
            for given_s in [own[given[name]]]
            for k, s in own.items()
            if s < given_s and k > given[name] and fits(given | {name: k})
        ]
        if not gains:
            return given
        _, name, k = max(gains, key=lambda gain: (gain[0], -gain[2]))
        given[name] = k
