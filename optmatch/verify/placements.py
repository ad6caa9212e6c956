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
    """Recount the losses of a placement and, of a solution, check its claims.

    Parameters
    ----------
    problem
        The placement that was asked for: each host gets a port of a switch.
    subject
        The answer to check: ports of hosts, or a solution, whose objective, bound and proof are
        checked, too. Anything else is refused as no answer.
    findings
        Takes the violations, and these figures:

        * ``lower_bound_recomputed``: the bound that is counted here, in the unit of the objective;
        * if each host has a live port of its own: ``circuits``, their number;
          ``worst_circuit_loss_db`` and ``total_circuit_loss_db``, the largest loss and the sum of
          all losses; and ``objective``, one of these two losses, as the problem says;
        * of a solution: ``lower_bound_checked``, the larger one of the counted bound and of the
          one that its certificate proves.
    """
    traffic = Traffic(problem)

    def replay(answer: Any) -> bool:
        """Apply all rules to an answer; tell whether its losses could be counted."""
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
        """List the circuits that a placement needs and what circuits between ports lose.

        Parameters
        ----------
        problem
            The placement: its switch with losses and dead ports, its pattern of circuits, and the
            hosts that have a port already (``held[host]``, -1 without one).
        """
        self.loss_db = _list_losses(problem)
        self.circuits = _list_circuits(problem)
        self.port_of_host = {host: port for host, port in enumerate(problem.held) if port >= 0}
        taken = {*self.port_of_host.values(), *problem.fabric.dead_ports}
        self.open_ports = [port for port in range(len(self.loss_db)) if port not in taken]
        # Row p of each has the losses of circuits out of port p, or into it, from the least on;
        # the other port is one that no host has yet.
        self._sorted_out_db = np.sort(self.loss_db[:, self.open_ports], axis=1)
        self._sorted_in_db = np.sort(self.loss_db[self.open_ports, :], axis=0).T

    def list_partners(self, n_hosts: int) -> list[Partners]:
        """Return with whom each host has circuits.

        Partners that have a port already (``port_of_host``) are given by that port, as their loss
        is known; the others are only counted.

        Parameters
        ----------
        n_hosts
            The number of hosts.

        Returns
        -------
        list of Partners
            For each host: how many hosts without a port it sends to (``n_out``) and receives from
            (``n_in``), and the ports of the others (``ports_out`` and ``ports_in``).
        """
        targets: list[list[int]] = [[] for _ in range(n_hosts)]
        sources: list[list[int]] = [[] for _ in range(n_hosts)]
        for source, target in self.circuits:
            targets[source].append(target)
            sources[target].append(source)
        # Hosts in `held` have a port already.
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
        """Return what the circuits of a host lose at least if it is on a port.

        Partners without a port are taken to be on the open ports that lose least, circuits out and
        in separately.

        Parameters
        ----------
        port
            The port of the host.
        partners
            How many partners without a port it sends to (``n_out``) and receives from (``n_in``),
            and the ports of the others (``ports_out`` and ``ports_in``).

        Returns
        -------
        list of float or None
            A loss in dB for each circuit, infinite where no circuit may be; None if there are
            fewer open ports than partners.
        """
        out_db = self._sorted_out_db[port, : partners.n_out].tolist()
        in_db = self._sorted_in_db[port, : partners.n_in].tolist()
        if len(out_db) < partners.n_out or len(in_db) < partners.n_in:
            return None
        losses_db = out_db + in_db
        losses_db += [float(self.loss_db[port, other]) for other in partners.ports_out]
        losses_db += [float(self.loss_db[other, port]) for other in partners.ports_in]
        return losses_db  # type: ignore[no-any-return]


def _list_losses(problem: HostPlacement) -> NDArray[np.float64]:
    """Return what a circuit between two ports loses, as the verifier counts it.

    Parameters
    ----------
    problem
        The placement; its switch states the losses, and perhaps budgets that limit them.

    Returns
    -------
    NDArray
        ``loss_db[source port, destination port]`` in dB, shape (ports, ports); infinite where no
        circuit may be: over its budget, from a port to itself, or at a dead port.
    """
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
    """List the pairs of hosts that need a circuit, from source to destination.

    Parameters
    ----------
    problem
        The placement. Its pattern is ``ring`` (each host to the next, the last to the first),
        ``all-to-all``, or ``demand`` (where ``demand_bytes[source, destination]`` is positive).
    """
    hosts = range(problem.n_hosts)
    if problem.pattern == "ring":
        return [(host, (host + 1) % problem.n_hosts) for host in hosts if problem.n_hosts > 1]
    if problem.pattern == "all-to-all":
        return [(source, target) for source in hosts for target in hosts if source != target]
    demand: Any = problem.demand_bytes
    return [(source, target) for source in hosts for target in hosts if demand[source, target] > 0]


def _replay(problem: HostPlacement, traffic: Traffic, answer: Any, findings: Findings) -> bool:
    """Apply all rules of placements to an answer, and count the losses of its circuits.

    A placement gives each host a live port of its own; hosts that have a port already keep it.
    Each pair of hosts that needs a circuit has to be on ports between which one may be, within its
    loss budget.

    Parameters
    ----------
    problem
        The placement that was asked for.
    traffic
        ``circuits``, the pairs of hosts that need one; ``loss_db[source port, destination port]``,
        infinite where none may be; and ``port_of_host``, the ports that hosts have already.
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
    """Bound the objective from below, by looking at each host alone.

    A host on a port needs some circuits out and some in. The circuits that lose least at this port
    cost no more than the real ones; that gives a least cost for each host and port. Hosts with the
    same needs take different ports, hence not all of them can have the best port: of three such
    hosts, one is on the third best port or on a worse one.

    Parameters
    ----------
    problem
        The placement; its objective is the worst loss or the sum of losses, in dB.
    traffic
        Its circuits and their losses, and the ports that hosts have already.

    Returns
    -------
    float
        In dB, at most the objective of any placement; infinite if some host has no port at all.
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
    # Needs of a host: to how many hosts it sends, and from how many it receives.
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
    """Return what the circuits of a host lose at least, for each port that the host may get.

    By the objective this is the loss of the worst circuit, or half of the sum of all. Half,
    because each circuit has two ends, and counts half at each of its hosts.

    Parameters
    ----------
    problem
        The placement; its objective is ``worst-loss-db`` or ``total-loss-db``.
    traffic
        Its circuits, losses and open ports.
    host
        The host; one that has a port already is looked at there alone.
    partners
        With whom the host has circuits.

    Returns
    -------
    NDArray
        ``cost_db[port]`` in dB, shape (ports,); infinite where the host cannot be.
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
    """Check a certificate of a lower bound, and return the bound that it shows.

    A certificate shows that no placement has circuits that all lose less than a threshold.

    Parameters
    ----------
    problem
        The placement.
    traffic
        Its circuits and losses, counted by the verifier.
    proof
        The certificate: `ShavingProof` (trials that leave a host without a port) or
        `SpectralProof` (an eigenvalue); anything else is refused.

    Returns
    -------
    float
        The bound on the objective in dB; infinite if there is no placement at all.

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
        """List for each host all ports that it could have before anything is ruled out.

        A set of ports is a whole number, with bit `port` set for each of them. A host that has a
        port already has a set of this one.

        Parameters
        ----------
        traffic
            The circuits that are needed, what circuits lose, and the open ports.
        n_hosts
            The number of hosts.
        threshold_db
            The loss in dB that no circuit reaches.
        """
        is_usable = traffic.loss_db < threshold_db
        # For each port the sets of ports that a circuit may go to, and that one may come from.
        self._reached_from = [_set_of(np.flatnonzero(row)) for row in is_usable]
        self._reaching = [_set_of(np.flatnonzero(column)) for column in is_usable.T]
        # For each host those that it sends to, and those that send to it.
        self._targets: list[list[int]] = [[] for _ in range(n_hosts)]
        self._sources: list[list[int]] = [[] for _ in range(n_hosts)]
        for source, target in traffic.circuits:
            self._targets[source].append(target)
            self._sources[target].append(source)
        open_ports = _set_of(traffic.open_ports)
        held = traffic.port_of_host
        self.of_host = [1 << held[host] if host in held else open_ports for host in range(n_hosts)]

    def are_impossible(self, host: int, port: int) -> bool:
        """Return whether some host has no port left if a host is on a port.

        The sets of ports of the object stay as they are: the trial is made on copies.

        Parameters
        ----------
        host, port
            The host, and the port that it is put on for the trial.
        """
        # The host has this port alone, and all others lose it.
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
        """Remove the ports that hosts cannot have, and whatever follows from that.

        Hosts are placed on different ports. Partners are hosts that need a circuit between them.
        This is constraint propagation, by three rules, until none of them removes a port:

        1. A host keeps a port only if each of its partners may have a port that it can reach.
        2. A host that has one port left takes it from all others.
        3. All hosts together need as many ports as they are.

        Parameters
        ----------
        options
            ``options[host]``: the ports that a host may still have, as a whole number whose bit p
            is 1 for port p. For example, 5 means the ports 0 and 2. Changed in place.
        stale_hosts
            The hosts to begin with, such as the partners of one whose ports have changed; emptied
            if the result is True.

        Returns
        -------
        bool
            False if there is no placement: some host has no port left, or there are fewer ports
            than hosts. True says only that these rules do not exclude one.
        """
        while stale_hosts:
            # Rule 1: a host that loses ports makes its partners look again.
            while stale_hosts:
                host = stale_hosts.pop()
                before = options[host]
                self._keep_joinable(options, host)
                if not options[host]:
                    return False
                if options[host] != before:
                    stale_hosts.update(self._targets[host], self._sources[host])

            # Hosts with a single port take it from all others, and need different ones.
            # A set has one port at most if it is 0 without its lowest bit: ports & (ports - 1).
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
        """Remove the ports of a host on which it could not have circuits with all its partners.

        Partners are hosts that need a circuit with this one. Sets of ports are whole numbers whose
        bit p is 1 for port p. A port stays only if

        - every partner may have some port to which a circuit can lead from it (or from which one
          can lead to it);
        - all partners in one direction together may have as many such ports as they are.

        Parameters
        ----------
        options
            ``options[host]``: the set of ports that a host may still have, as a whole number with
            bit `port` set for each of them; the entry of the host is changed in place.
        host
            The host.
        """
        # Two directions: partners that the host sends to, and partners that send to it.
        # ``joined_to[port]`` are the ports of partners that fit to a port of the host, and
        # ``joined_from[port]`` the ports of the host that fit to a port of a partner.
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
    """Return the set of some ports as a whole number: bit `port` is set for each of them.

    Ports 0 and 2 give 5.
    """
    ports_as_number = 0
    for port in ports:
        ports_as_number |= 1 << int(port)
    return ports_as_number


def _ports_of(ports_as_number: int) -> Iterator[int]:
    """Yield the ports of a set, from the lowest one on.

    Parameters
    ----------
    ports_as_number
        The set, as a whole number with bit `port` set for each port: 5 gives ports 0 and 2.
    """
    while ports_as_number:
        # In two's complement a number and its negative share the lowest bit alone.
        lowest = ports_as_number & -ports_as_number
        yield lowest.bit_length() - 1
        ports_as_number ^= lowest


def _check_shaving_proof(traffic: Traffic, n_hosts: int, proof: ShavingProof) -> None:
    """Check a proof that hosts cannot all have ports, by repeating its trials.

    Each host is to get a port of its own, with circuits to its partners that lose less than a
    threshold. A *trial* puts one host on one port and follows what that rules out. If some host is
    left without a port, then the first host cannot be on that port, and loses it for all later
    trials. The proof is complete if after all trials some host has no port left.

    Parameters
    ----------
    traffic
        The circuits that are needed, and what circuits lose.
    n_hosts
        The number of hosts.
    proof
        ``removed[trial]`` has the host and the port of each trial in order, ``threshold_db`` the
        loss in dB that no circuit is to reach.

    Raises
    ------
    ProofError
        If a trial rules nothing out, as every host still has a port; or if every host still has a
        port after the last trial.
    """
    # All hosts and ports of trials exist.
    n_ports = len(traffic.loss_db)
    for row, (host, port) in enumerate(proof.removed.reshape(-1, 2).tolist()):
        if not (0 <= host < n_hosts and 0 <= port < n_ports):
            raise ProofError(f"removed[{row}]: no host {host}, or no port {port}")

    # `options` has for each host the set of ports that it may still have, as bits. It is narrowed
    # before the trials of each host; `is_open` says that every host has a port left.
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
    """Check what one eigenvalue shows: no set of ports is as large as the hosts need.

    In an all-to-all of n hosts each host has a port, and all pairs of these ports lose less than a
    threshold. Such a set of ports is a *clique* of n ports.

    The proof is a symmetric matrix with 1 wherever two ports may be together and on the diagonal,
    and any numbers elsewhere. The rows and columns of a clique of n ports are all ones, a matrix
    whose largest eigenvalue is n; that of the whole matrix is no smaller. Hence, if the largest
    eigenvalue is below n, there is no such clique (the theta bound of Lovasz).

    Parameters
    ----------
    problem
        The placement; its pattern has to be an all-to-all.
    loss_db
        ``loss_db[source port, destination port]`` in dB, shape (ports, ports).
    proof
        ``entries[port, port]`` of the matrix where two ports may not be together, and
        ``threshold_db``, the loss in dB that no circuit is to reach.

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
