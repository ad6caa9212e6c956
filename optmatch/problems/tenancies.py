"""Tenancy: jobs that use the ports of one switch side by side, each with its own question."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, SelectedPorts
from optmatch.model import (
    Amount,
    Axes,
    Count,
    Displayed,
    GivenOrNone,
    Index,
    InputError,
    Positive,
    Range,
    Value,
    check_fields,
    check_size,
    given,
)
from optmatch.model.numbers import check_below, check_length
from optmatch.problems.all_to_all import AllToAll
from optmatch.problems.collectives.plan import CollectivePlan
from optmatch.problems.collectives.problem import Collective
from optmatch.problems.demands.problem import Demand
from optmatch.problems.demands.ticks import count_all_up, count_up

Question = Literal[
    "all-to-all", "demand", "all-gather", "reduce-scatter", "all-reduce", "broadcast"
]


@dataclass(frozen=True, slots=True, eq=False)
class Tenant(Value):
    """A job: its name, its number of ports, and its question.

    Parameters
    ----------
    name
        The name of the job.
    n_ports
        Its ports; of a collective its ranks.
    question
        ``"all-to-all"``: each two ports meet once, for a slot. ``"demand"``: `demand_bytes` is
        carried. Otherwise a collective of `size_bytes`.
    demand_bytes
        ``demand_bytes[source, destination]`` between ports of the job, 0 on the diagonal; one
        phase of a rail is such a matrix.
    size_bytes
        The buffer of a collective, as of `optmatch.problems.Collective`.
    held
        The ports that the job has already, in its order; None of a job that comes.

    See Also
    --------
    Tenancy : Several of them on one switch.

    Examples
    --------
    >>> Tenant("training", 4, "all-reduce", size_bytes=8.0)
    Tenant(name='training', n_ports=4, question='all-reduce', size_bytes=8.0)
    """

    name: str
    n_ports: Count
    question: Question = "all-to-all"
    demand_bytes: Annotated[GivenOrNone[np.float64], Axes(2), Range(0)] = given(default=None)
    size_bytes: Amount = 0.0
    held: tuple[Index, ...] | None = None

    def __post_init__(self) -> None:
        """Check all fields: what the question needs is given, and nothing else.

        Raises
        ------
        InputError
            Naming the field that is wrong.
        """
        check_fields(self)
        check_size("ports", self.n_ports, "n_ports")
        demand = self.demand_bytes
        is_collective = self.question not in ("all-to-all", "demand")
        if (demand is None) == (self.question == "demand"):
            raise InputError(
                "demand_bytes: of a demand, and of nothing else", where="demand_bytes"
            )
        if demand is not None and (demand.shape != (self.n_ports,) * 2 or demand.diagonal().any()):
            rule = f"demand_bytes: {self.n_ports} x {self.n_ports} numbers, 0 on the diagonal"
            raise InputError(f"{rule}, are expected", where="demand_bytes")
        if bool(self.size_bytes) != is_collective:
            rule = "above 0 of a collective, and 0 otherwise"
            raise InputError(f"size_bytes = {self.size_bytes:g}: {rule}", where="size_bytes")
        if self.held is not None and not len(set(self.held)) == len(self.held) == self.n_ports:
            raise InputError(f"held: {self.n_ports} different ports are expected", where="held")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TenancyPlan(Value):
    """Which job has which ports; the schedule of all jobs together stands in the solution.

    Parameters
    ----------
    ports
        ``ports[job]``: its ports, in the order of the job.
    plans
        ``plans[job]``: the plan of a collective, None of other jobs.

    See Also
    --------
    Tenancy : The problem that it answers.
    """

    ports: tuple[tuple[Index, ...], ...]
    plans: tuple[CollectivePlan | None, ...]

    def summary(self) -> str:
        """Return the ports of each job."""
        ports_of_jobs = [", ".join(map(str, ports)) for ports in self.ports]
        return f"ports: {'; '.join(ports_of_jobs)}"

    def owners(self, problem: Tenancy) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """Return which job has which port.

        Parameters
        ----------
        problem
            The switch and its jobs.

        Returns
        -------
        names : tuple of str
            The names of the jobs.
        job_of_port : ndarray, shape (ports,)
            The job of each port, -1 if it has none.
        """
        job_of_port = np.full(problem.fabric.n_ports, -1)
        for job, ports in enumerate(self.ports):
            job_of_port[list(ports)] = job
        return tuple(tenant.name for tenant in problem.tenants), job_of_port

    def check_fits(self, problem: Any) -> None:
        """Refuse ports and plans of jobs that do not fit the jobs of a switch."""
        check_length("ports", self.ports, len(problem.tenants), "jobs")
        check_length("plans", self.plans, len(problem.tenants), "jobs")
        for job, tenant in enumerate(problem.tenants):
            ports = self.ports[job]
            check_length(f"ports[{job}]", ports, tenant.n_ports, "ports of the job")
            check_below(f"ports[{job}]", ports, problem.fabric.n_ports, "port")
            if len(set(ports)) < len(ports):
                raise InputError(f"ports[{job}]: a port is there twice", where=f"ports[{job}]")

            # A plan is checked against the question of its job alone, as a problem on these ports.
            plan = self.plans[job]
            if plan is not None:
                question = problem.question(tenant, ports)
                if not isinstance(question, Collective):
                    raise InputError(
                        f"plans[{job}]: a plan of a collective, of a job that asks for"
                        f" {tenant.question}",
                        where=f"plans[{job}]",
                    )
                plan.check_fits(question, f"plans[{job}].")


@dataclass(frozen=True, slots=True, eq=False)
class Tenancy(Displayed):
    """Give ports of one switch to jobs, and run them side by side in the fewest slots.

    All jobs share the slots: in each the union of their matchings is one matching of the switch.
    A job rests when it has nothing to do. The objective is the time of all slots, with a delay
    before each, plus a delay for each circuit that changes because a job loses ports that it
    holds.

    Parameters
    ----------
    fabric
        The switch.
    tenants
        The jobs, by different names.
    slot_s
        How long each matching is held, in seconds.
    delay_s
        The reconfiguration delay, in seconds.
    rate_bytes_per_s
        The rate of a circuit in bytes per second; at the rate 1 bytes are seconds.
    alpha_s
        Seconds of software for each round of a collective.

    Raises
    ------
    InputError
        Naming the job whose name, held ports or question do not fit; or too few ports.

    See Also
    --------
    Tenant : A job.
    TenancyPlan : The answer.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> problem = Tenancy(HexMesh(4, 4, ports=8), (Tenant("a", 4), Tenant("b", 4)))
    >>> problem.lower_bound()
    3.0
    """

    fabric: Fabric
    tenants: tuple[Tenant, ...]
    slot_s: Positive = field(default=1.0, kw_only=True)
    delay_s: Amount = field(default=0.0, kw_only=True)
    rate_bytes_per_s: Positive = field(default=1.0, kw_only=True)
    alpha_s: Amount = field(default=0.0, kw_only=True)
    kind: ClassVar[str] = "tenancy"
    answer_class: ClassVar[type[TenancyPlan] | None] = TenancyPlan
    objectives: ClassVar[dict[str, str]] = {"tenancy": "s"}

    def __post_init__(self) -> None:
        """Check all fields: there are enough live ports, and names and held ports occur once.

        Raises
        ------
        InputError
            Naming the tenant that is wrong.
        """
        check_fields(self)
        self.fabric.require_switch()
        check_size("entries", self.fabric.n_ports**2, "fabric")
        n_needed = sum(tenant.n_ports for tenant in self.tenants)
        n_live = len(self.fabric.live_ports)
        if n_needed > n_live:
            message = f"tenants: {n_needed} ports are needed, and {n_live} are alive"
            raise InputError(message, where="tenants")

        # Tenants one after the other; a plan of each has to fit into memory.
        names: set[str] = set()
        holder_of_port: dict[int, str] = {}
        for number, tenant in enumerate(self.tenants):
            where = f"tenants[{number}]"
            if tenant.name in names:
                raise InputError(f"{where}: a second job {tenant.name!r}", where=where)
            names.add(tenant.name)
            self._check_held(tenant, holder_of_port, where)
            try:
                slots = self.fewest_slots(tenant)
                check_size("entries", slots * self.fabric.n_ports, where)
            except InputError as exc:
                raise InputError(f"{where}: {exc.message}", where=where) from None

    def _check_held(self, tenant: Tenant, holder_of_port: dict[int, str], where: str) -> None:
        """Refuse ports that are dead or that a job before holds.

        Parameters
        ----------
        tenant
            The job, with the ports that it holds already.
        holder_of_port
            The name of the job that holds each port, of the jobs before; the ports of this one are
            added.
        where
            The place of the job, for messages.

        Raises
        ------
        InputError
            Naming the job and the port.
        """
        for port in tenant.held or ():
            message = f"{where}: {tenant.name!r} holds port {port}"
            if port not in self.fabric.live_ports:
                raise InputError(f"{message}, which is not alive here", where=where)
            holder = holder_of_port.setdefault(port, tenant.name)
            if holder != tenant.name:
                raise InputError(f"{message}, as {holder!r} does", where=where)

    def slots_wanted(self, tenant: Tenant) -> NDArray[np.int64]:
        """Count in how many slots a job with a demand needs each circuit.

        Parameters
        ----------
        tenant
            A job whose question is a demand.

        Returns
        -------
        ndarray, shape (ports of the job, ports of the job)
            ``slots[source, destination]``, rounded up; on bidirectional ports the larger of both
            directions, as a circuit carries both at once.

        Raises
        ------
        InputError
            If there are more slots than can be counted.
        """
        with np.errstate(over="ignore", divide="ignore"):
            slots = np.asarray(tenant.demand_bytes) / (self.rate_bytes_per_s * self.slot_s)
        if not (slots < 2**31).all():
            raise InputError("demand_bytes: more slots than can be counted", where="demand_bytes")
        whole_slots = count_all_up(slots)
        if self.fabric.bidirectional:
            return np.maximum(whole_slots, whole_slots.T)
        return whole_slots

    def slots_for(self, seconds: float) -> int:
        """Return how many slots hold so many seconds of rounds."""
        return count_up(min(seconds / self.slot_s, 2.0**62))

    def question(self, tenant: Tenant, ports: tuple[int, ...]) -> AllToAll | Demand | Collective:
        """Return the question of a job on its ports, as a problem of its own kind.

        All-to-all and demand are counted in slots: a slot lasts 1 s there, without delay.

        Parameters
        ----------
        tenant
            The job.
        ports
            The ports of the switch that it has, one for each of its own in order.

        Returns
        -------
        AllToAll, Demand or Collective
            The problem on a fabric of these ports alone.
        """
        fabric = SelectedPorts(self.fabric, ports)
        if tenant.question == "all-to-all":
            return AllToAll(fabric)
        if tenant.question == "demand":
            return Demand(fabric, self.slots_wanted(tenant).astype(np.float64), quantum_s=1.0)
        return Collective(
            tenant.question,
            tenant.n_ports,
            tenant.size_bytes,
            alpha_s=self.alpha_s,
            rate_bytes_per_s=self.rate_bytes_per_s,
            delay_s=self.delay_s,
            two_way=self.fabric.bidirectional,
            fabric=fabric,
        )

    def fewest_slots(self, tenant: Tenant) -> int:
        """Return a number of slots that the job needs, even if it is alone.

        Parameters
        ----------
        tenant
            The job: an all-to-all, a demand or a collective.

        Returns
        -------
        int
            A lower bound on its slots: of a collective, on those that its bound in seconds takes.
        """
        if tenant.question == "demand":
            return self._count_demand_slots(tenant)
        any_ports = tuple(self.fabric.live_ports[: tenant.n_ports].tolist())
        question = self.question(tenant, any_ports)
        if isinstance(question, AllToAll):
            return question.min_slots
        assert isinstance(question, Collective)
        # Circuits may be there before, and other jobs pay for the delays of all.
        seconds = replace(question, delay_s=0.0).lower_bound()
        return max(self.slots_for(seconds), self._count_slots_with_one_idle(tenant))

    def _count_slots_with_one_idle(self, tenant: Tenant) -> int:
        """Count the slots of a broadcast between bidirectional ports of an odd number n.

        One of them is idle in each slot. While the root has a circuit, n - 2 others receive, and
        it needs S slots for S slots of data; while the root is idle, n - 1 receive. All receive
        (n - 1) S, which takes n / (n - 1) S slots at least.

        Parameters
        ----------
        tenant
            The job.

        Returns
        -------
        int
            The slots; 0 for all other jobs, of which this says nothing.
        """
        n_ports = tenant.n_ports
        if tenant.question != "broadcast" or not self.fabric.bidirectional or n_ports % 2 == 0:
            return 0
        if n_ports == 1:
            return 0
        root_s = tenant.size_bytes / self.rate_bytes_per_s
        return self.slots_for(root_s * n_ports / (n_ports - 1))

    def _count_demand_slots(self, tenant: Tenant) -> int:
        """Count the slots that a demand needs: of its busiest port, and of all together.

        Parameters
        ----------
        tenant
            A job whose question is a demand.

        Returns
        -------
        int
            A lower bound on the number of slots.
        """
        slots = self.slots_wanted(tenant)
        busiest = int(max(slots.sum(axis=0).max(), slots.sum(axis=1).max()))
        n_ports = tenant.n_ports
        if not self.fabric.bidirectional or n_ports < 2:
            return busiest
        # Each circuit stands twice in the matrix, and a slot holds one for every two ports.
        n_entries_per_slot = n_ports - n_ports % 2
        return max(busiest, -(-int(slots.sum()) // n_entries_per_slot))

    @property
    def min_slots(self) -> int:
        """The fewest slots that the worst job needs."""
        return max((self.fewest_slots(tenant) for tenant in self.tenants), default=0)

    def changed_circuits(
        self, ports: tuple[tuple[int, ...], ...], matchings: NDArray[np.int32]
    ) -> int:
        """Count the circuits that change because a job gets other ports than it held.

        A job has ranks 0, 1, ..., and each rank has a port of the switch. If a rank gets another
        port than it held, all circuits at this port count, each once in however many slots it is.

        Parameters
        ----------
        ports
            ``ports[job]``: the ports of each job.
        matchings
            ``matchings[slot, port]`` of all jobs.

        Returns
        -------
        int
            Different circuits, each counted once, of jobs that held ports, with an end at a rank
            that moves to another port.
        """
        # Ports that a job has got in exchange for another one.
        moved = np.zeros(self.fabric.n_ports, dtype=bool)
        for tenant, new_ports in zip(self.tenants, ports, strict=True):
            if tenant.held is None:
                continue
            for new_port, old_port in zip(new_ports, tenant.held, strict=True):
                if new_port != old_port:
                    moved[new_port] = True

        # Each circuit once, in however many slots it is.
        slots, sources = np.nonzero(matchings >= 0)
        circuits = np.unique(np.stack([sources, matchings[slots, sources]], axis=1), axis=0)
        changed = int(moved[circuits].any(axis=1).sum())
        return changed // 2 if self.fabric.bidirectional else changed

    def lower_bound(self) -> float:
        """Count the worst job alone, with no moves."""
        return self.min_slots * (self.slot_s + self.delay_s)
