"""HostPlacement: which port of a switch each host gets, such that its circuits lose least."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import (
    Axes,
    Count,
    Displayed,
    Given,
    GivenOrNone,
    InputError,
    Range,
    Value,
    check_fields,
    check_size,
    frozen,
    given,
)
from optmatch.model.numbers import check_below, check_length

Pattern = Literal["all-to-all", "ring", "demand"]
PlacementObjective = Literal["worst-loss-db", "total-loss-db"]

FREE_HOST = -1
"""In `HostPlacement.held`: the host has no port yet."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostPorts(Value):
    """The answer to a placement: the port of each host.

    Parameters
    ----------
    port_of_host
        ``port_of_host[host]``; int32, shape (hosts,).

    See Also
    --------
    HostPlacement : The problem that it answers.
    """

    port_of_host: Annotated[Given[np.int32], Range(0)] = ()  # type: ignore[assignment]

    def summary(self) -> str:
        """Return the ports in the order of hosts."""
        return f"ports: {', '.join(map(str, self.port_of_host.tolist()))}"

    def check_fits(self, problem: Any) -> None:
        """Refuse a placement without a port of the switch for each host."""
        check_length("port_of_host", self.port_of_host, problem.n_hosts, "hosts")
        check_below("port_of_host", self.port_of_host, problem.fabric.n_ports, "port")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpectralProof(Value):
    """Shows that no k ports can all be joined by circuits below a loss: by one eigenvalue.

    Two ports are *apart* if the circuit between them, in one direction or the other, loses
    `threshold_db` or more, or is dead. Take a symmetric matrix whose entries are 1 wherever two
    ports are not apart, and on the diagonal, and anything elsewhere. For k ports of which no two
    are apart, its entries among them are all 1 and sum up to k * k, so its largest eigenvalue is
    at least k (Lovász 1979, doi 10.1109/TIT.1979.1055985). If it is less than k there are no such
    ports, and an all-to-all of k hosts has a circuit of `threshold_db` or more.

    Parameters
    ----------
    threshold_db
        The loss that some circuit has, in dB; infinite for "some circuit is over its budget".
    entries
        ``entries[port, port]``: the matrix where two ports are apart; the rest is not read.
        float64, shape (ports, ports).

    See Also
    --------
    HostPlacement : The problem whose bound it shows.
    """

    threshold_db: Annotated[float, Range(0, infinite=True)] = 0.0
    entries: Annotated[Given[np.float64], Axes(2)] = ((),)  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShavingProof(Value):
    """Shows that some circuit loses so much: ports are removed from hosts until one has none.

    Suppose that all circuits lose less than `threshold_db`. A host then has only ports from which
    each of its partners can be reached on a port of its own. Put a host on a port for a trial, and
    remove from all hosts the ports that they cannot have any more: if some host has none left, the
    first host is never on that port. A list of such trials, each of which may use the results of
    those before it, ends with a host that has no port at all.

    Parameters
    ----------
    threshold_db
        The loss that some circuit has, in dB; infinite for "some circuit is over its budget".
    removed
        ``removed[trial] = host, port``, in the order in which they can be shown. int32, shape
        (trials, 2).

    See Also
    --------
    HostPlacement : The problem whose bound it shows.
    """

    threshold_db: Annotated[float, Range(0, infinite=True)] = 0.0
    removed: Annotated[Given[np.int32], Axes(2), Range(0)] = ((),)  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, eq=False)
class HostPlacement(Displayed):
    """Give each host a port of an ideal switch, so that the circuits of its traffic lose least.

    Which two ports a circuit joins decides what it loses. Hosts can be cabled to ports before any
    circuit is set up; from then on all plans use the circuits between their ports. Circuits over
    their link budget, and dead ports, cannot be used.

    Parameters
    ----------
    fabric
        An ideal switch with `loss_db`, perhaps with dead ports.
    n_hosts
        The number of hosts that want a port, at most that of live ports.
    pattern
        Which hosts need circuits. ``"all-to-all"``: each to each other. ``"ring"``: host k to host
        k + 1, the last one to the first; the hosts of a ring are interchangeable, so the answer is
        also the best order of ports on a ring. ``"demand"``: from source to destination wherever
        `demand_bytes` is above 0.
    demand_bytes
        ``demand_bytes[source host, destination host]`` of the pattern ``"demand"``; 0 on the
        diagonal.
    held
        The port that each host has already, -1 for a host without one, as 4,-1,7. Empty: no host
        has one. With all hosts but one held the answer is the spare port that loses least.
    objective
        What is least: the loss of the worst circuit, or of all together. ``"worst-loss-db"``: the
        loss of the circuit that loses most. ``"total-loss-db"``: the sum of the losses of all
        circuits that are needed.

    Raises
    ------
    InputError
        If the switch states no losses, has too few live ports, or a held port does not exist, is
        dead, or is held twice.

    See Also
    --------
    IdealSwitch : The switch, with the loss of each circuit.
    HostPorts : The answer.
    SpectralProof : Shows that an all-to-all cannot lose less.
    ShavingProof : Shows that a demand cannot lose less.

    Examples
    --------
    >>> import optmatch as om
    >>> switch = om.IdealSwitch(3, loss_db=[[1, 3, 2], [3, 1, 3], [1, 3, 1]])
    >>> problem = HostPlacement(switch, 2)
    >>> sorted(om.solve(problem, seed=0).answer.port_of_host.tolist()), problem.lower_bound()
    ([0, 2], 2.0)
    """

    fabric: Fabric
    n_hosts: Count
    pattern: Pattern = field(default="all-to-all", kw_only=True)
    demand_bytes: Annotated[GivenOrNone[np.float64], Axes(2), Range(0)] = given(
        default=None, kw_only=True
    )
    held: tuple[Annotated[int, Range(FREE_HOST)], ...] = field(default=(), kw_only=True)
    objective: PlacementObjective = field(default="worst-loss-db", kw_only=True)
    kind: ClassVar[str] = "placement"
    answer_class: ClassVar[type[HostPorts] | None] = HostPorts
    objectives: ClassVar[dict[str, str]] = dict.fromkeys(get_args(PlacementObjective), "dB")

    def __post_init__(self) -> None:
        """Check all fields: the switch states losses, and has live ports for all hosts.

        Raises
        ------
        InputError
            Naming the field that is wrong.
        """
        check_fields(self)
        if self.fabric.circuit_loss_db is None:
            raise InputError("fabric: an ideal switch with loss_db is needed", where="fabric")
        check_size("entries", self.n_hosts**2, "n_hosts")
        n_live = len(self.fabric.live_ports)
        if self.n_hosts > n_live:
            raise InputError(
                f"n_hosts = {self.n_hosts}: the switch has {n_live} live ports", where="n_hosts"
            )
        self._check_demand()
        self._check_held()

    def _check_demand(self) -> None:
        """Refuse a demand of another shape or pattern.

        Raises
        ------
        InputError
            If it is given for another pattern or missing for ``"demand"``, or is no matrix of
            hosts with 0 on the diagonal.
        """
        demand = self.demand_bytes
        if (demand is None) == (self.pattern == "demand"):
            raise InputError(
                "demand_bytes: of the pattern demand, and of no other", where="demand_bytes"
            )
        n = self.n_hosts
        if demand is not None and (demand.shape != (n, n) or demand.diagonal().any()):
            raise InputError(
                f"demand_bytes: {n} x {n} numbers, 0 on the diagonal, are expected",
                where="demand_bytes",
            )

    def _check_held(self) -> None:
        """Check the ports that hosts have already.

        Raises
        ------
        InputError
            If there is another number of hosts, or a port does not exist, is dead, or is held
            twice.
        """
        if not self.held:
            return
        if len(self.held) != self.n_hosts:
            raise InputError(
                f"held has {len(self.held)} entries: one for each of {self.n_hosts} hosts, or"
                " none, is expected",
                where="held",
            )

        live_ports = set(self.fabric.live_ports.tolist())
        host_at: dict[int, int] = {}
        for host, port in enumerate(self.held):
            if port == FREE_HOST:
                continue
            where = f"held[{host}]"
            if port not in live_ports:
                raise InputError(f"{where} = {port}: no live port of the switch", where=where)
            if port in host_at:
                raise InputError(f"{where} = {port}: host {host_at[port]} has it", where=where)
            host_at[port] = host

    @property
    def pairs(self) -> NDArray[np.int32]:
        """``pairs[circuit] = source host, destination host``: what is needed; ascending."""
        n = self.n_hosts
        if self.pattern == "all-to-all":
            needed = ~np.eye(n, dtype=bool)
        elif self.pattern == "ring":
            needed = np.zeros((n, n), dtype=bool)
            if n > 1:
                needed[np.arange(n), (np.arange(n) + 1) % n] = True
        else:
            needed = np.asarray(self.demand_bytes) > 0
        return np.argwhere(needed).astype(np.int32)

    @property
    def usable_loss_db(self) -> NDArray[np.float64]:
        """``usable_loss_db[source, destination]``: losses of circuits, infinite if not usable.

        Of no use are circuits over their link budget, those of dead ports, and those from a port
        to itself. Shape (ports, ports).
        """
        stated_db: Any = self.fabric.circuit_loss_db
        loss_db = np.array(stated_db)
        over_budget = self.fabric.over_budget
        if over_budget is not None:
            loss_db[over_budget] = inf
        dead_ports = list(self.fabric.dead_ports)
        loss_db[dead_ports, :] = inf
        loss_db[:, dead_ports] = inf
        np.fill_diagonal(loss_db, inf)
        return loss_db

    def objective_of(self, port_of_host: NDArray[np.integer]) -> float:
        """Return the objective of an answer, infinite if a circuit cannot be used.

        Parameters
        ----------
        port_of_host
            ``port_of_host[host]``; shape (hosts,).

        Returns
        -------
        float
            The loss of the worst circuit, or of all together, in dB.

        Raises
        ------
        InputError
            If there is another number of hosts, or a port does not exist.
        """
        ports = frozen("port_of_host", port_of_host, 1, np.int64)
        n_ports = self.fabric.n_ports
        if len(ports) != self.n_hosts or ((ports < 0) | (ports >= n_ports)).any():
            raise InputError(
                f"port_of_host: {self.n_hosts} ports of 0 .. {n_ports - 1} are expected",
                where="port_of_host",
            )
        sources, destinations = self.pairs.T
        losses_db = self.usable_loss_db[ports[sources], ports[destinations]]
        if self.objective == "total-loss-db":
            return float(losses_db.sum())
        return float(losses_db.max(initial=0.0))

    def lower_bound(self) -> float:
        """Bound the objective by what each host needs at least, on its best port.

        A host that sends to d others needs d circuits out of its port, and the d-th cheapest of
        them bounds its worst one; likewise what it receives. Hosts are on different ports, so of m
        hosts with such needs one is on the m-th best port or a worse one. Circuits between hosts
        that have their ports count as they are. The sum adds up the cheapest circuits of each
        host; each circuit is counted at both of its ends, and takes half of each.

        Returns
        -------
        float
            In dB; infinite if some host has no port with enough usable circuits.
        """
        needs = HostNeeds.of(self)
        cost_db = needs.port_costs(self)
        if np.isinf(cost_db.min(axis=1)).any():
            return inf
        if self.objective == "total-loss-db":
            return _bound_total(needs, cost_db)
        return _bound_worst(needs, cost_db)


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """What each host needs at least, as the bound of a placement counts it.

    Parameters
    ----------
    n_out, n_in
        ``n_out[host]``: circuits to hosts without a port of their own yet; likewise from them.
    candidates
        ``candidates[host, port]``: whether the host may get the port.
    """

    n_out: NDArray[np.int64]
    n_in: NDArray[np.int64]
    candidates: NDArray[np.bool_]

    @classmethod
    def of(cls, problem: HostPlacement) -> HostNeeds:
        """Count the needs of all hosts of a problem.

        Parameters
        ----------
        problem
            The hosts, the pairs that need circuits, and the ports that hosts hold already.

        Returns
        -------
        HostNeeds
            By host: circuits to and from hosts that hold no port yet, and the ports that it may
            get, which is the one port for a host that holds one.
        """
        held_port = np.array(problem.held or (FREE_HOST,) * problem.n_hosts)
        is_held = held_port != FREE_HOST
        sources, destinations = problem.pairs.T
        n_out = np.bincount(sources[~is_held[destinations]], minlength=problem.n_hosts)
        n_in = np.bincount(destinations[~is_held[sources]], minlength=problem.n_hosts)

        candidates = np.zeros((problem.n_hosts, problem.fabric.n_ports), dtype=bool)
        open_ports = np.setdiff1d(problem.fabric.live_ports, held_port[is_held])
        candidates[np.ix_(~is_held, open_ports)] = True
        candidates[is_held, held_port[is_held]] = True
        return cls(n_out, n_in, candidates)

    def port_costs(self, problem: HostPlacement) -> NDArray[np.float64]:
        """Bound from below the loss that each host causes on each port it might get.

        Hosts are to be placed on the ports of a switch, some have a port already. A host needs
        circuits to and from its partners. The loss to a partner with a port is known. A partner
        without one may get any open port, hence the cheapest open ports are assumed. For example,
        a host that sends to 2 such partners, from a port with losses of 3, 1 and 2 dB, loses 1 and
        2 dB at least.

        Parameters
        ----------
        problem
            The placement of which these are the needs. The fields that are read here:

            - ``usable_loss_db[source port, destination port]``: infinite where no circuit may be;
            - ``held[host]``: the port that a host has already, `FREE_HOST` if it has none;
            - ``pairs``: ``source host, destination host`` of each circuit that is needed;
            - ``objective``: ``"total-loss-db"`` adds losses up; else the worst one counts.

        Returns
        -------
        ndarray, shape (hosts, ports)
            ``cost_db[host, port]``: the loss of its worst circuit, or half of the sum of all, by
            the objective; half, since each circuit is counted at both of its hosts. Infinite where
            the host may not get the port, or the port has too few circuits.
        """
        loss_db = problem.usable_loss_db
        held_port = np.array(problem.held or (FREE_HOST,) * problem.n_hosts)
        is_held = held_port != FREE_HOST
        open_ports = np.setdiff1d(problem.fabric.live_ports, held_port[is_held])

        # Losses from each port to all open ports, and from these to it, ascending. For the total,
        # column d is then the sum of the d + 1 cheapest ones.
        out_db = np.sort(loss_db[:, open_ports], axis=1)
        in_db = np.sort(loss_db[open_ports, :], axis=0).T
        total = problem.objective == "total-loss-db"
        if total:
            out_db = np.cumsum(out_db, axis=1)
            in_db = np.cumsum(in_db, axis=1)
        cost_db = np.zeros((problem.n_hosts, problem.fabric.n_ports))
        for needed, sorted_db in ((self.n_out, out_db), (self.n_in, in_db)):
            # Column d is the cost of d circuits: 0 of none, infinite of more than there are
            # ports.
            padded_db = np.hstack([np.zeros((len(loss_db), 1)), sorted_db])
            no_such_circuits = np.full((len(loss_db), problem.n_hosts), inf)
            padded_db = np.hstack([padded_db, no_such_circuits])
            part_db = padded_db[:, needed].T  # (hosts, ports)
            cost_db = cost_db + part_db if total else np.maximum(cost_db, part_db)

        # Circuits to and from hosts with a port are known, for each port that this host may get.
        for source, destination in problem.pairs.tolist():
            if held_port[destination] != FREE_HOST:
                part_db = loss_db[:, held_port[destination]]
                cost_db[source] = (
                    cost_db[source] + part_db if total else np.maximum(cost_db[source], part_db)
                )
            if held_port[source] != FREE_HOST:
                part_db = loss_db[held_port[source], :]
                cost_db[destination] = (
                    cost_db[destination] + part_db
                    if total
                    else np.maximum(cost_db[destination], part_db)
                )
        if total:
            cost_db /= 2
        return np.where(self.candidates, cost_db, inf)


def _bound_worst(needs: HostNeeds, cost_db: NDArray[np.float64]) -> float:
    """Bound the worst loss, for each group of hosts with equal needs.

    Of all m hosts that need no less than the group, each on another port, one is on the m-th best
    port of the group or on a worse one.

    Parameters
    ----------
    needs
        The needs of all hosts.
    cost_db
        ``cost_db[host, port]``: the loss of the worst circuit of a host on a port at least.

    Returns
    -------
    float
        In dB.
    """
    bound_db = float(cost_db.min(axis=1).max())
    is_free = needs.candidates.sum(axis=1) > 1
    seen: set[tuple[int, int]] = set()
    for host in np.flatnonzero(is_free).tolist():
        need = int(needs.n_out[host]), int(needs.n_in[host])
        if need in seen:
            continue
        seen.add(need)
        like = is_free & (needs.n_out >= need[0]) & (needs.n_in >= need[1])
        least_db = cost_db[like].min(axis=0)
        bound_db = max(bound_db, float(np.sort(least_db)[np.count_nonzero(like) - 1]))
    return bound_db


def _bound_total(needs: HostNeeds, cost_db: NDArray[np.float64]) -> float:
    """Bound the sum of losses: hosts with equal needs are on the cheapest ports, one on each.

    Parameters
    ----------
    needs
        The needs of all hosts.
    cost_db
        ``cost_db[host, port]``: half of what the circuits of a host lose on a port at least.

    Returns
    -------
    float
        In dB.
    """
    bound_db = 0.0
    rows, group_of_host = np.unique(cost_db, axis=0, return_inverse=True)
    group_of_host = group_of_host.ravel()
    for group, row in enumerate(rows):
        n_alike = int(np.count_nonzero(group_of_host == group))
        bound_db += float(np.sort(row)[:n_alike].sum())
    return bound_db
