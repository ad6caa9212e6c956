"""The rules of placements: hosts on ports, the losses of their circuits, and what is proved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Schedule, Solution
from optmatch.problems import HostPlacement, HostPorts, ShavingProof, SpectralProof
from optmatch.verify.bounds import check_solution
from optmatch.verify.budgets import find_over_budget, losses_of
from optmatch.verify.report import Findings, ProofError, Rule

ANSWER_IS_PORTS = Rule("the answer has a port for each host")
PORT_IS_LIVE = Rule("a host is on a live port")
PORT_OF_ONE_HOST = Rule("a port has one host")
HELD_PORT_STAYS = Rule("a host keeps the port that it has")
PAIR_IS_USABLE = Rule("a circuit that is needed keeps to its link budget")

_SPECTRAL_MARGIN = 1e-6
"""An eigenvalue counts as larger by this share: far more than the error of computing it."""


def verify_placement(
    problem: HostPlacement, subject: Schedule | HostPorts | Solution, findings: Findings
) -> None:
    """Recount the losses of a placement and, of a solution, check its claims."""
    traffic = Traffic(problem)

    def replay(answer: Any) -> bool:
        return _replay(problem, traffic, answer, findings)

    findings.figures["lower_bound_recomputed"] = _count_bound(problem, traffic)
    if not isinstance(subject, Solution):
        replay(subject)
        return
    check_solution(
        problem,
        subject,
        findings,
        replay=replay,
        prove=partial(_check_proof, problem, traffic),
    )


class Partners(NamedTuple):
    """With whom a host has circuits."""

    n_out: int
    """The hosts without a port of their own to which it sends."""
    n_in: int
    """The hosts without a port of their own from which it receives."""
    ports_out: tuple[int, ...]
    """The ports of the other hosts to which it sends."""
    ports_in: tuple[int, ...]
    """The ports of the other hosts from which it receives."""


class Traffic:
    """The circuits that a placement needs, and what they lose.

    Attributes
    ----------
    loss_db
        ``loss_db[source port, destination port]``, infinite where no circuit may be.
    circuits
        Pairs of hosts, source and destination.
    port_of_host
        The port that a host has already, by host.
    open_ports
        The live ports that no host has yet.
    """

    def __init__(self, problem: HostPlacement) -> None:
        self.loss_db = _list_losses(problem)
        self.circuits = _list_circuits(problem)
        self.port_of_host = {host: port for host, port in enumerate(problem.held) if port >= 0}
        taken = {*self.port_of_host.values(), *problem.fabric.dead_ports}
        self.open_ports = [port for port in range(len(self.loss_db)) if port not in taken]
        self._sorted_out_db = np.sort(self.loss_db[:, self.open_ports], axis=1)
        self._sorted_in_db = np.sort(self.loss_db[self.open_ports, :], axis=0).T

    def list_partners(self, n_hosts: int) -> list[Partners]:
        """Return with whom each host has circuits."""
        targets: list[list[int]] = [[] for _ in range(n_hosts)]
        sources: list[list[int]] = [[] for _ in range(n_hosts)]
        for source, target in self.circuits:
            targets[source].append(target)
            sources[target].append(source)
        held = self.port_of_host
        return [
            Partners(
                n_out=sum(target not in held for target in targets[host]),
                n_in=sum(source not in held for source in sources[host]),
                ports_out=tuple(held[target] for target in targets[host] if target in held),
                ports_in=tuple(held[source] for source in sources[host] if source in held),
            )
            for host in range(n_hosts)
        ]

    def list_least_losses(self, port: int, partners: Partners) -> list[float] | None:
        """Return what the circuits of a host lose at least on a port; None if it has too few."""
        out_db = self._sorted_out_db[port, : partners.n_out].tolist()
        in_db = self._sorted_in_db[port, : partners.n_in].tolist()
        if len(out_db) < partners.n_out or len(in_db) < partners.n_in:
            return None
        losses_db = out_db + in_db
        losses_db += [float(self.loss_db[port, other]) for other in partners.ports_out]
        losses_db += [float(self.loss_db[other, port]) for other in partners.ports_in]
        return losses_db  # type: ignore[no-any-return]


def _list_losses(problem: HostPlacement) -> NDArray[np.float64]:
    """Return ``loss_db[source port, destination port]``, infinite where no circuit may be."""
    stated_db = losses_of(problem.fabric)
    assert stated_db is not None  # the problem refuses a switch without
    loss_db = np.where(find_over_budget(problem.fabric), math.inf, stated_db)
    for port in range(len(loss_db)):
        loss_db[port, port] = math.inf
    for port in problem.fabric.dead_ports:
        loss_db[port] = math.inf
        loss_db[:, port] = math.inf
    return loss_db


def _list_circuits(problem: HostPlacement) -> list[tuple[int, int]]:
    """List the pairs of hosts that need a circuit, from source to destination."""
    hosts = range(problem.n_hosts)
    if problem.pattern == "ring":
        return [(host, (host + 1) % problem.n_hosts) for host in hosts if problem.n_hosts > 1]
    if problem.pattern == "all-to-all":
        return [(source, target) for source in hosts for target in hosts if source != target]
    demand: Any = problem.demand_bytes
    return [(source, target) for source in hosts for target in hosts if demand[source, target] > 0]


def _replay(problem: HostPlacement, traffic: Traffic, answer: Any, findings: Findings) -> bool:
    """Apply all rules of placements to an answer, and count the losses of its circuits.

    Parameters
    ----------
    problem
        The placement that was asked for.
    traffic
        Its circuits and their losses, counted by the verifier.
    answer
        What is checked: `HostPorts`, or something wrong in its place.
    findings
        Takes the violations, and the figures: the number of circuits, the worst loss and the sum
        of losses in dB, and the objective.

    Returns
    -------
    bool
        Whether each host has a live port of its own, so that the losses could be counted.
    """
    if not isinstance(answer, HostPorts) or len(answer.port_of_host) != problem.n_hosts:
        got = len(answer.port_of_host) if isinstance(answer, HostPorts) else type(answer).__name__
        findings.refuse(ANSWER_IS_PORTS, "port_of_host", got, problem.n_hosts)
        return False

    # Hosts are on live ports, each on one of its own, and on those that they have already.
    violations_before = len(findings.violations)
    live_ports = set(range(problem.fabric.n_ports)) - set(problem.fabric.dead_ports)
    host_at: dict[int, int] = {}
    for host, port in enumerate(answer.port_of_host.tolist()):
        where = f"port_of_host[{host}]"
        if port not in live_ports:
            findings.refuse(PORT_IS_LIVE, where, port, "a live port")
        if port in host_at:
            findings.refuse(PORT_OF_ONE_HOST, where, port, f"not the port of host {host_at[port]}")
        host_at[port] = host
        if host in traffic.port_of_host:
            findings.expect(HELD_PORT_STAYS, where, port, traffic.port_of_host[host])
    if len(findings.violations) > violations_before:
        findings.skipped.append("losses: hosts without a port of their own have no circuits")
        return False

    # What all circuits lose; one over its budget cannot be used.
    losses_db = []
    for source, target in traffic.circuits:
        ports = int(answer.port_of_host[source]), int(answer.port_of_host[target])
        circuit_loss_db = float(traffic.loss_db[ports])
        losses_db.append(circuit_loss_db)
        if math.isinf(circuit_loss_db):
            got = f"ports {ports[0]} and {ports[1]}"
            where = f"hosts {source} and {target}"
            findings.refuse(PAIR_IS_USABLE, where, got, "a pair within its budget")
    findings.figures["circuits"] = len(losses_db)
    findings.figures["worst_circuit_loss_db"] = max(losses_db, default=0.0)
    findings.figures["total_circuit_loss_db"] = math.fsum(losses_db)
    findings.figures["objective"] = findings.figures[_FIGURE_OF_OBJECTIVE[problem.objective]]
    return True


_FIGURE_OF_OBJECTIVE = {
    "worst-loss-db": "worst_circuit_loss_db",
    "total-loss-db": "total_circuit_loss_db",
}


def _count_bound(problem: HostPlacement, traffic: Traffic) -> float:
    """Bound the objective by the cheapest circuits of each host on each port that it may get.

    Each host is looked at alone: on a port it needs so many circuits out and in, and those that
    lose least there cost no more than the real ones. Hosts with the same needs take different
    ports, so not all of them can have the best one.

    Parameters
    ----------
    problem
        The placement; its objective is the worst loss or the sum of losses.
    traffic
        Its circuits and their losses.

    Returns
    -------
    float
        In dB; infinite if some host has no port at all.
    """
    partners = traffic.list_partners(problem.n_hosts)
    cost_db = [
        _list_costs(problem, traffic, host, partners[host]) for host in range(len(partners))
    ]
    if any(math.isinf(row.min()) for row in cost_db):
        return math.inf

    # Hosts that cost the same everywhere are on different ports, at best on the cheapest ones.
    if problem.objective == "total-loss-db":
        rows_alike: dict[bytes, list[NDArray[np.float64]]] = {}
        for row in cost_db:
            rows_alike.setdefault(row.tobytes(), []).append(row)
        return math.fsum(
            math.fsum(np.sort(rows[0])[: len(rows)].tolist()) for rows in rows_alike.values()
        )

    # Of m hosts with such needs, or larger ones, one is on the m-th best port or on a worse one.
    bound_db = max(float(row.min()) for row in cost_db)
    movable = [host for host in range(len(partners)) if host not in traffic.port_of_host]
    needs = {(partners[host].n_out, partners[host].n_in) for host in movable}
    for n_out, n_in in needs:
        rows = [
            cost_db[host]
            for host in movable
            if partners[host].n_out >= n_out and partners[host].n_in >= n_in
        ]
        least_db = np.min(rows, axis=0)
        bound_db = max(bound_db, float(np.sort(least_db)[len(rows) - 1]))
    return bound_db


def _list_costs(
    problem: HostPlacement, traffic: Traffic, host: int, partners: Partners
) -> NDArray[np.float64]:
    """Return ``cost_db[port]``: what the circuits of a host lose at least there.

    The worst of them, or half of their sum, as each circuit has two ends. Infinite where the host
    cannot be.
    """
    candidates = traffic.open_ports
    if host in traffic.port_of_host:
        candidates = [traffic.port_of_host[host]]
    cost_db = np.full(len(traffic.loss_db), math.inf)
    for port in candidates:
        losses_db = traffic.list_least_losses(port, partners)
        if losses_db is None:
            continue
        if problem.objective == "total-loss-db":
            cost_db[port] = math.fsum(losses_db) / 2
        else:
            cost_db[port] = max(losses_db, default=0.0)
    return cost_db


def _check_proof(problem: HostPlacement, traffic: Traffic, proof: Any) -> float:
    """Return the bound that a certificate shows.

    Raises
    ------
    ProofError
        If it is no proof about a placement, or does not show what it says.
    """
    if not isinstance(proof, ShavingProof | SpectralProof):
        raise ProofError(f"a {type(proof).__name__}, which is no proof about a placement")
    if problem.objective == "total-loss-db" and math.isfinite(proof.threshold_db):
        raise ProofError(
            "a proof about the worst circuit says nothing about a sum, but that there is none"
        )
    if isinstance(proof, ShavingProof):
        _check_shaving_proof(traffic, problem.n_hosts, proof)
    else:
        _check_spectral_proof(problem, traffic.loss_db, proof)
    return proof.threshold_db


class PortOptions:
    """The ports that each host can still have, if all circuits lose less than a threshold.

    A set of ports is a whole number, with bit `port` set for each of them.

    Parameters
    ----------
    traffic
        The circuits that are needed.
    n_hosts
        The number of hosts.
    threshold_db
        The loss that no circuit reaches.

    Attributes
    ----------
    of_host
        ``of_host[host]``: the set of ports.
    """

    def __init__(self, traffic: Traffic, n_hosts: int, threshold_db: float) -> None:
        is_usable = traffic.loss_db < threshold_db
        self._reached_from = [_set_of(np.flatnonzero(row)) for row in is_usable]
        self._reaching = [_set_of(np.flatnonzero(column)) for column in is_usable.T]
        self._targets: list[list[int]] = [[] for _ in range(n_hosts)]
        self._sources: list[list[int]] = [[] for _ in range(n_hosts)]
        for source, target in traffic.circuits:
            self._targets[source].append(target)
            self._sources[target].append(source)
        open_ports = _set_of(traffic.open_ports)
        held = traffic.port_of_host
        self.of_host = [1 << held[host] if host in held else open_ports for host in range(n_hosts)]

    def are_impossible(self, host: int, port: int) -> bool:
        """Return whether some host has no port left if a host is on a port."""
        options = [ports & ~(1 << port) for ports in self.of_host]
        options[host] = self.of_host[host] & (1 << port)
        # Most contradictions are near the host; what is far is looked at if there are none.
        if not self._narrow(options, {*self._targets[host], *self._sources[host]}):
            return True
        return not self._narrow(options, set(range(len(options))))

    def narrow(self) -> bool:
        """Remove ports that hosts cannot have; tell whether each host has one, a different one."""
        return self._narrow(self.of_host, set(range(len(self.of_host))))

    def _narrow(self, options: list[int], stale_hosts: set[int]) -> bool:
        """Remove ports that hosts cannot have, until nothing follows any more.

        Propagation of the circuits (a host keeps the ports that fit to some port of each partner)
        and of all-different (a host with one port takes it from all others).

        Parameters
        ----------
        options
            ``options[host]``: the set of ports that a host may still have; changed in place.
        stale_hosts
            The hosts to begin with, such as the partners of one whose ports have changed; emptied.

        Returns
        -------
        bool
            False if some host has no port left, or the hosts together have fewer than they are.
        """
        while stale_hosts:
            while stale_hosts:
                host = stale_hosts.pop()
                before = options[host]
                self._keep_joinable(options, host)
                if not options[host]:
                    return False
                if options[host] != before:
                    stale_hosts.update(self._targets[host], self._sources[host])

            # Hosts with a single port take it from all others, and need different ones.
            single = [ports for ports in options if not ports & (ports - 1)]
            taken = 0
            for ports in single:
                taken |= ports
            if taken.bit_count() < len(single):
                return False
            for host, ports in enumerate(options):
                if ports & taken and ports & (ports - 1):
                    options[host] = ports & ~taken
                    stale_hosts.update(self._targets[host], self._sources[host])

            # All together need as many ports as they are.
            union = 0
            for ports in options:
                union |= ports
            if not all(options) or union.bit_count() < len(options):
                return False
        return True

    def _keep_joinable(self, options: list[int], host: int) -> None:
        """Keep the ports of a host that fit to those of its partners.

        Each partner needs a port that can be joined, and all partners that it sends to, or that
        send to it, need as many different ones as they are.
        """
        sides = (
            (self._targets[host], self._reached_from, self._reaching),
            (self._sources[host], self._reaching, self._reached_from),
        )
        for partners, joined_to, joined_from in sides:
            union = 0
            for partner in partners:
                joinable = 0
                for port in _ports_of(options[partner]):
                    joinable |= joined_from[port]
                    if not options[host] & ~joinable:
                        break  # the other ports of the partner cannot add anything
                options[host] &= joinable
                union |= options[partner]
            for port in _ports_of(options[host]):
                if (joined_to[port] & union).bit_count() < len(partners):
                    options[host] ^= 1 << port


def _set_of(ports: Any) -> int:
    """Return the set of some ports as a whole number."""
    ports_as_number = 0
    for port in ports:
        ports_as_number |= 1 << int(port)
    return ports_as_number


def _ports_of(ports_as_number: int) -> Iterator[int]:
    """Go through the ports of a set, from the lowest one on."""
    while ports_as_number:
        lowest = ports_as_number & -ports_as_number
        yield lowest.bit_length() - 1
        ports_as_number ^= lowest


def _check_shaving_proof(traffic: Traffic, n_hosts: int, proof: ShavingProof) -> None:
    """Repeat the trials of a proof: see `ShavingProof`.

    Raises
    ------
    ProofError
        If a trial leaves a port for every host, or some host has ports behind the last one.
    """
    n_ports = len(traffic.loss_db)
    for row, (host, port) in enumerate(proof.removed.reshape(-1, 2).tolist()):
        if not (0 <= host < n_hosts and 0 <= port < n_ports):
            raise ProofError(f"removed[{row}]: no host {host}, or no port {port}")

    options = PortOptions(traffic, n_hosts, proof.threshold_db)
    is_open = options.narrow()
    last_host = -1
    for row, (host, port) in enumerate(proof.removed.reshape(-1, 2).tolist()):
        # What trials of one host have shown is used for the next host.
        if is_open and host != last_host:
            is_open = options.narrow()
            last_host = host
        if not is_open:
            return
        if not options.are_impossible(host, port):
            raise ProofError(
                f"removed[{row}]: host {host} can be on port {port} as far as is shown"
            )
        options.of_host[host] &= ~(1 << port)
    if options.narrow():
        raise ProofError("removed: each host has a port behind the last trial")


def _check_spectral_proof(
    problem: HostPlacement, loss_db: NDArray[np.float64], proof: SpectralProof
) -> None:
    """Check what one eigenvalue shows: see `SpectralProof`.

    Raises
    ------
    ProofError
        If it is about another pattern or switch, or its eigenvalue is too large.
    """
    if problem.pattern != "all-to-all":
        raise ProofError("eigenvalues bound the worst loss of an all-to-all")
    n_ports = len(loss_db)
    if proof.entries.shape != (n_ports, n_ports):
        raise ProofError(f"entries of shape {proof.entries.shape} for {n_ports} ports")

    # Entries may differ from 1 only where two ports are apart, and there symmetrically.
    worse_db = np.maximum(loss_db, loss_db.T)
    is_excluded = worse_db >= proof.threshold_db
    np.fill_diagonal(is_excluded, False)
    matrix = np.where(is_excluded, (proof.entries + proof.entries.T) / 2, 1.0)
    largest = float(np.linalg.eigvalsh(matrix)[-1])
    if largest * (1 + _SPECTRAL_MARGIN) >= problem.n_hosts:
        raise ProofError(
            f"the largest eigenvalue is {largest:.6g}, which is not below {problem.n_hosts} hosts"
        )
