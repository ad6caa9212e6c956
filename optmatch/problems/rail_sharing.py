"""Rail sharing: several training jobs on one set of rails, divided by ports, servers or time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np

from optmatch.fabrics import Fabric
from optmatch.model import (
    IDLE,
    Amount,
    Axes,
    Count,
    Displayed,
    Given,
    InputError,
    Positive,
    Range,
    Value,
    check_fields,
    given,
)
from optmatch.problems.rails.execution.plan import RailPlan, ranks_of_rails
from optmatch.problems.rails.problem import RailJob

Divided = Literal["ports", "servers", "time"]
"""What is divided among jobs on the same rails."""


_MOST_NAMED = 8
"""Jobs that are named where an answer is summed up."""


@dataclass(frozen=True, slots=True, eq=False)
class NamedJob(Value):
    """A training job among others.

    Parameters
    ----------
    name
        Its name, which no other job has.
    job
        The job with all that it asks for: ports of each GPU, and replicas.

    Examples
    --------
    >>> import optmatch as om
    >>> NamedJob("training", om.rails.presets.make_job("mixtral-8x22b", 128)).job.n_gpus
    128
    """

    name: str
    job: RailJob


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailShare(Value):
    """How much of the rails a job has, and the plan of its step with that.

    Parameters
    ----------
    ports_per_gpu
        The ports of each of its GPUs on the rail of the GPU.
    replicas
        Its degree of data parallelism. With fewer replicas it has fewer servers, and each replica
        does more of the batch, which stays as it is.
    plan
        The plan of a step.
    """

    ports_per_gpu: Count
    replicas: Count
    plan: RailPlan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailShares(Value):
    """What each of several jobs has of the same rails, and its plans alone and beside the others.

    Parameters
    ----------
    alone
        ``alone[job]``: its share and plan if it has the rails to itself.
    beside
        ``beside[job]``: its share and plan beside the others.
    first_port
        ``first_port[job, rail]``: its GPUs have consecutive ports of the switch of this rail from
        this one on, in the order of their ranks; -1 where it has no GPU. int32.
    steps
        ``steps[job]``: how many steps it runs in a round of turns; 1 where time is not divided.

    See Also
    --------
    RailSharing : The problem that it answers.
    """

    alone: tuple[RailShare, ...]
    beside: tuple[RailShare, ...]
    first_port: Annotated[Given[np.int32], Axes(2), Range(IDLE)] = given()
    steps: tuple[Count, ...]

    def summary(self) -> str:
        """Return the replicas and ports of each job."""
        shares = [f"dp {s.replicas}, ports of a GPU {s.ports_per_gpu}" for s in self.beside]
        return f"jobs: {'; '.join(shares[:_MOST_NAMED])}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailSharing(Displayed):
    """Divide rails among training jobs, so that the largest stretch of a job is least.

    The stretch of a job, as in scheduling, is the time from one of its steps to the next beside
    the other jobs, over the least time that a step can take: with all links there at once, and
    with the fastest of all shares that the job may have. Where servers are divided, that may be
    one with fewer replicas than it asks for. The objective is the largest stretch.

    Divided by ports, all jobs run at once on servers of their own, and each GPU has 1 to
    `RailNetwork.ports_per_gpu` ports. Divided by servers they run at once too, and each job has
    all ports of fewer servers: its replicas become a divisor of those that it asks for, and its
    batch stays. A circuit joins ports of one job and a switch that changes circuits one by one
    stops no other circuit, so that each plan is the same alone on its ports and beside other jobs.

    Divided by time, the jobs run on the same servers and take turns of whole steps: the circuits
    of all rails alternate between jobs at the end of a step, when nothing is under way. Between
    turns the rails change to the circuits with which the next job begins.

    Parameters
    ----------
    jobs
        The jobs, in the order of their ports or turns.
    radix
        The ports of the switch of each rail.
    by
        What is divided: ``"ports"``, ``"servers"``, or ``"time"`` in turns of whole steps.
    handover_s
        What GPUs need between turns, in seconds, for example to exchange weights in their memory.
        Circuits change meanwhile, so that the longer of both counts.
    round_s
        The longest round in which each job has its turn, in seconds. A round in which each job
        runs one step is always allowed.

    Raises
    ------
    InputError
        Naming the job, if it has no name or that of another job, or cannot share its switches as
        asked; or the rail with more GPUs than ports.

    See Also
    --------
    RailShares : The answer.
    optmatch.studies.share_rails : The same with a mapping of jobs, as a function.

    Examples
    --------
    >>> import optmatch as om
    >>> model = om.TransformerModel(layers=8, hidden=1024, heads=8, sequence=128, vocabulary=1000,
    ...                             ffn=4096)
    >>> job = om.RailJob(parallelism=om.Parallelism(dp=4),
    ...                  network=om.RailNetwork(gpus_per_server=1, ports_per_gpu=2),
    ...                  workload=om.Workload(model=model, batch=8))
    >>> sharing = RailSharing(jobs=(NamedJob("a", job), NamedJob("b", job)), radix=12, by="time")
    >>> sharing.lower_bound()
    2.0
    """

    jobs: tuple[NamedJob, ...]
    radix: Count
    by: Divided = "ports"
    handover_s: Amount = 0.0
    round_s: Positive = 60.0
    kind: ClassVar[str] = "rail-sharing"
    answer_class: ClassVar[type[RailShares] | None] = RailShares
    objectives: ClassVar[dict[str, str]] = {"rail-sharing": "times"}

    def __post_init__(self) -> None:
        """Check that jobs have different names, can share, and have their least share each.

        Raises
        ------
        InputError
            Naming the job or the rail.
        """
        check_fields(self)
        if not self.jobs:
            raise InputError("jobs: there is none, one at least is expected", where="jobs")
        seen: set[str] = set()
        for number, named in enumerate(self.jobs):
            where = f"jobs[{number}]"
            if not named.name.strip():
                raise InputError(
                    f"{where}.name = {named.name!r}: a name is expected", where=f"{where}.name"
                )
            if named.name in seen:
                raise InputError(f"{where}: job {named.name} is there twice", where=where)
            seen.add(named.name)
            self._check_network(named, where)
        self._check_radix()

    def _check_network(self, named: NamedJob, where: str) -> None:
        """Refuse a job whose rails cannot be those of the first job, or cannot be divided.

        A rail is the switch that joins GPUs of the same place in all servers.

        Parameters
        ----------
        named
            The job.
        where
            Its place in the problem, for messages.

        Raises
        ------
        InputError
            In turns (``by = "time"``), if its network is another one than that of the first job.
            At once, if its switches stop as a whole or are fabrics of their own, or have another
            delay.
        """
        network = named.job.network
        first = self.jobs[0].job.network
        where = f"{where}.job.network"

        # In turns, a job has the same servers and rails as the one before it.
        if self.by == "time":
            if replace(network, radix=None) != replace(first, radix=None):
                text = f"job {named.name}: another network than job {self.jobs[0].name}"
                raise InputError(f"{text}; jobs take turns on the same rails", where=where)
            return

        # At once, no job may stop the circuits of another one, or be in the way of its light.
        if network.switching != "per-circuit" or network.fabric is not None:
            obstacle = f"switching = {network.switching!r}"
            if network.fabric is not None:
                obstacle = "a fabric of its own"
            raise InputError(
                f"job {named.name}: {obstacle}; jobs share ideal switches that change one by one,"
                " or take turns (by = 'time')",
                where=where,
            )
        if network.delay_s != first.delay_s:
            raise InputError(
                f"job {named.name}: delay_s = {network.delay_s:g}, job {self.jobs[0].name} has"
                f" {first.delay_s:g}; they share switches",
                where=where,
            )

    def _check_radix(self) -> None:
        """Refuse switches with fewer ports than the least shares of all jobs need.

        A rail is the switch that joins GPUs of the same place in all servers; its radix is its
        number of ports.

        In turns, each job needs all ports of its GPUs by itself. At once, the jobs together need
        a port for each GPU, or those of their fewest replicas.

        Raises
        ------
        InputError
            Naming the first rail with too few ports.
        """
        # One job at a time: each has to fit by itself.
        if self.by == "time":
            for named in self.jobs:
                ports_per_gpu = named.job.network.ports_per_gpu
                for rail, n_gpus in self.gpus_of_rails(named.job).items():
                    if n_gpus * ports_per_gpu > self.radix:
                        raise InputError(
                            f"radix = {self.radix} ports: job {named.name} has {n_gpus} GPUs with"
                            f" {ports_per_gpu} ports each on rail {rail}",
                            where="radix",
                        )
            return

        # All jobs at once: the sum of their smallest shares has to fit.
        least: dict[int, int] = defaultdict(int)
        for named in self.jobs:
            # The smallest share comes first in the list.
            ports = self.ports_of_rails(named.job, *self.list_shares(named)[0])
            for rail, n_ports in ports.items():
                least[rail] += n_ports
        for rail, n_ports in least.items():
            if n_ports > self.radix:
                needs = f"has {n_ports} GPUs of {len(self.jobs)} jobs"
                if self.by == "servers":
                    needs = f"needs {n_ports} ports for the fewest replicas of all jobs"
                text = f"radix = {self.radix} ports: rail {rail} {needs}"
                raise InputError(text, where="radix")

    @property
    def fabric(self) -> Fabric | None:
        """The switch of each rail; None for an ideal one."""
        return self.jobs[0].job.fabric

    @property
    def n_rails(self) -> int:
        """The number of the last rail with a GPU of some job, and one more."""
        rails = [rail for named in self.jobs for rail in self.gpus_of_rails(named.job)]
        return 1 + max(rails, default=-1)

    def lower_bound(self) -> float:
        """Return a stretch that the most stretched job cannot fall below.

        No step is shorter than the least one. In turns, the stretch of a job is no less than the
        round over its turn, and the shortest turn is no longer than the round over the number of
        jobs. This holds if one job at least needs time for its step. If none does, all turns may
        last no time, and the stretch of no time over no time is 1.

        Returns
        -------
        float
            A ratio of times: the number of jobs in turns of which one needs time, 1 otherwise.
        """
        if self.by == "time" and any(self.bound_step(named) > 0 for named in self.jobs):
            return float(len(self.jobs))
        return 1.0

    @staticmethod
    def gpus_of_rails(job: RailJob) -> Mapping[int, int]:
        """Return by rail, ascending, how many GPUs of a job are on it."""
        if job.workload.recorded is not None:
            ranks_of_rail = ranks_of_rails(job.workload.recorded)
            return {rail: len(ranks) for rail, ranks in ranks_of_rail.items()}
        n_rails = job.network.gpus_per_server
        return dict.fromkeys(range(n_rails), job.n_gpus // n_rails)

    def ports_of_rails(self, job: RailJob, ports_per_gpu: int, replicas: int) -> Mapping[int, int]:
        """Return by rail the ports of its switch that a job needs for a share.

        Parameters
        ----------
        job
            The job with all that it asks for.
        ports_per_gpu
            The ports of each of its GPUs on the rail of the GPU.
        replicas
            Its degree of data parallelism; with fewer replicas it has fewer GPUs in proportion.

        Returns
        -------
        mapping
            Numbers of ports, by the number of the rail.
        """
        all_replicas = job.parallelism.dp
        return {
            rail: ports_per_gpu * n_gpus * replicas // all_replicas
            for rail, n_gpus in self.gpus_of_rails(job).items()
        }

    def list_shares(self, named: NamedJob) -> tuple[tuple[int, int], ...]:
        """List the shares that a job may have, by what is divided, the smallest one first.

        A share is a number of ports of each GPU on its rail, and a number of replicas (the degree
        of data parallelism).

        Parameters
        ----------
        named
            One of the jobs.

        Returns
        -------
        tuple of (ports_per_gpu, replicas)
            All of them are possible for the job by itself; whether they fit on the switches beside
            the others is not looked at.
        """
        job = named.job
        most_ports = job.network.ports_per_gpu
        most_replicas = job.parallelism.dp
        if self.by == "ports":
            return tuple((ports, most_replicas) for ports in range(1, most_ports + 1))
        if self.by == "time" or job.workload.recorded is not None:
            return ((most_ports, most_replicas),)

        # With some numbers of replicas the experts, the shards or whole servers do not work out.
        shares = []
        for replicas in range(1, most_replicas + 1):
            if most_replicas % replicas:
                continue
            try:
                give_share(job, most_ports, replicas)
            except InputError:
                continue
            shares.append((most_ports, replicas))
        return tuple(shares)

    def figures_of(self, answer: RailShares) -> dict[str, str]:
        """Return the share of each of the first jobs, and its steps with and without the others.

        Parameters
        ----------
        answer
            The shares of all jobs.

        Returns
        -------
        dict
            By the name of the job, in words. Of many jobs, the first eight.
        """
        figures = {}
        steps_s = self.measure_steps(answer)
        for number, named in enumerate(self.jobs[:_MOST_NAMED]):
            share = answer.beside[number]
            text = f"dp {share.replicas}, ports of a GPU {share.ports_per_gpu}"
            if self.by == "time":
                text = f"steps in a turn {answer.steps[number]}"
            alone_s = answer.alone[number].plan.step_s
            figures[named.name] = f"{text}: {steps_s[number]:.4g} s a step, alone {alone_s:.4g} s"
        return figures

    def measure_steps(self, answer: RailShares) -> list[float]:
        """Return for each job the time from one of its steps to the next, beside the others.

        In turns it is the time of the whole round over the steps of the job in it.

        Parameters
        ----------
        answer
            The shares of all jobs.

        Returns
        -------
        list of float
            By job, in seconds.
        """
        own_steps_s = [share.plan.step_s for share in answer.beside]
        if self.by != "time":
            return own_steps_s
        turns_s = [n * step_s for n, step_s in zip(answer.steps, own_steps_s, strict=True)]
        round_s = sum(turns_s) + sum(self.measure_handovers(answer))
        return [round_s / n for n in answer.steps]

    def measure_stretches(self, answer: RailShares) -> list[float]:
        """Return for each job its step beside the others over the least time of a step.

        Parameters
        ----------
        answer
            The shares of all jobs.

        Returns
        -------
        list of float
            By job; infinite if a step could take no time, and takes some.
        """
        steps_s = self.measure_steps(answer)
        return [
            stretch(step_s, self.bound_step(named))
            for named, step_s in zip(self.jobs, steps_s, strict=True)
        ]

    def bound_step(self, named: NamedJob) -> float:
        """Return the least time of a step of a job, with any share and all links there, in s."""
        parts = [give_share(named.job, *share) for share in self.list_shares(named)]
        return min(part.lower_bound() for part in parts)

    def measure_handovers(self, answer: RailShares) -> list[float]:
        """Return how long the rails and the GPUs rest after the turn of each job.

        Jobs that divide time take turns of whole steps on the same rails, the switches between
        GPUs; between turns the circuits change.

        Circuits change only if the next job begins with one that this job does not end with.

        Parameters
        ----------
        answer
            The shares of all jobs, whose turns follow each other.

        Returns
        -------
        list of float
            By job, in seconds; 0 of a job that has no other one beside it.
        """
        n_jobs = len(self.jobs)
        if n_jobs == 1:
            return [0.0]
        delay_s = self.jobs[0].job.network.delay_s
        circuits = [list_first_circuits(share.plan) for share in answer.beside]
        handovers_s = []
        for job in range(n_jobs):
            next_job = (job + 1) % n_jobs
            all_are_up = circuits[next_job] <= circuits[job]
            handovers_s.append(max(self.handover_s, 0.0 if all_are_up else delay_s))
        return handovers_s


def stretch(step_s: float, least_s: float) -> float:
    """Return a time over the least one; 1 if both are 0, infinite if only the least one is."""
    if least_s > 0:
        return step_s / least_s
    return 1.0 if step_s == 0 else float("inf")


def list_first_circuits(plan: RailPlan) -> set[tuple[int, int, int]]:
    """List the circuits with which a step begins.

    These are also those with which it ends: a plan is periodic, and the next step begins with the
    circuits that the last one leaves.

    Parameters
    ----------
    plan
        The plan of a step, with a timeline of matchings for each group of equal rails.

    Returns
    -------
    set of (rail, transmit port, receive port)
        Ports are those of the plan. Jobs that take turns have the first ports of each switch, so
        that these are also the ports of the switch.
    """
    circuits: set[tuple[int, int, int]] = set()
    for timeline in plan.rails:
        receiver = timeline.matchings[0]
        lit = np.flatnonzero(receiver != IDLE)
        for rail in timeline.rails:
            pairs = zip(lit.tolist(), receiver[lit].tolist(), strict=True)
            circuits.update((rail, sender, port) for sender, port in pairs)
    return circuits


def give_share(job: RailJob, ports_per_gpu: int, replicas: int) -> RailJob:
    """Return a job that has a share of its ports and replicas.

    Its batch stays the same, as the training does.

    Parameters
    ----------
    job
        The job with all that it asks for.
    ports_per_gpu
        The ports of each of its GPUs on the rail of the GPU.
    replicas
        Its degree of data parallelism.

    Returns
    -------
    RailJob
        The job on switches that are as large as it needs.

    Raises
    ------
    InputError
        If the job cannot be run with so many replicas.
    """
    network = replace(job.network, ports_per_gpu=ports_per_gpu, radix=None)
    parallelism = job.parallelism
    if replicas != parallelism.dp:
        parallelism = replace(parallelism, dp=replicas)
    return replace(job, network=network, parallelism=parallelism)
