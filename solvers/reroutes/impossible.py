"""Why nothing helps against a failure: a cut through a rack, or proofs for a switch with cells."""

from __future__ import annotations

from itertools import islice, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import IDLE, Clock, Limits, Status, ignore
from optmatch.problems import BlockProof, CutProof, Reroute, Routing, RoutingProof

_MOST_SERVERS = 16
_MOST_HANDOVERS = 24


def find_cut(problem: Reroute) -> CutProof | None:
    """Find servers that more circuits must leave than live fibres lead out.

    Parameters
    ----------
    problem
        A failure in a rack.

    Returns
    -------
    CutProof or None
        The smallest of the cuts that lack most fibres; None if no cut proves anything.

    Notes
    -----
    All sets of up to 16 servers are tried, of larger racks the single servers and their
    complements; time is linear in circuits and sets.
    """
    rack = problem.fabric
    sides = _sides(rack.n_servers)
    missing = _crossing(problem, rack, sides) - _fibres_out(problem, rack, sides)
    size = sides.sum(axis=1)
    order = np.lexsort((size, -missing))
    if not len(order) or missing[order[0]] <= 0:
        return None
    return CutProof(servers=np.flatnonzero(sides[order[0]]).astype(np.int32))


def _sides(n: int) -> NDArray[np.bool_]:
    """List the sets of servers to be tried, a row each."""
    if n <= _MOST_SERVERS:
        numbers = np.arange(1, 2**n - 1)
        return (numbers[:, None] >> np.arange(n) & 1).astype(bool)
    single = np.eye(n, dtype=bool)
    return np.concatenate([single, ~single])


def _fibres_out(problem: Reroute, rack: Fabric, sides: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count the live fibres that lead out of each set."""
    live = rack.edge_fibres.astype(np.int64)
    np.subtract.at(live, rack.edge_of_fibre[list(problem.failed_fibres)], 1)
    found = np.zeros(len(sides), dtype=np.int64)
    for (tail, head), count in zip(rack.edges.tolist(), live.tolist(), strict=True):
        found += count * (sides[:, tail] & ~sides[:, head])
    return found


def _crossing(problem: Reroute, rack: Fabric, sides: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count the circuits that must leave each set, for its cheapest handover."""
    server = rack.server_of_unit
    lost = {unit: k for k, unit in enumerate(problem.lost)}
    fixed = np.zeros(len(sides), dtype=np.int64)
    outside, inside = (np.zeros((len(sides), len(lost)), dtype=np.int64) for _ in range(2))
    for a, b in (problem.circuits // rack.ports_per_unit).tolist():
        if a in lost and b in lost:
            continue
        if a in lost:
            inside[:, lost[a]] += ~sides[:, server[b]]
        elif b in lost:
            outside[:, lost[b]] += sides[:, server[a]]
        else:
            fixed += sides[:, server[a]] & ~sides[:, server[b]]
    spares = sides[:, server[list(problem.live_spares)]]
    within, without = spares.sum(axis=1), (~spares).sum(axis=1)
    sums = np.zeros((len(sides), len(lost) + 1), dtype=np.int64)
    sums[:, 1:] = np.cumsum(np.sort(inside - outside, axis=1), axis=1)
    counts = np.arange(len(lost) + 1)
    allowed = (counts <= within[:, None]) & (len(lost) - counts <= without[:, None])
    least = np.where(allowed, sums, 2**30).min(axis=1)
    total: NDArray[np.int64] = fixed + outside.sum(axis=1) + least
    return total


def prove_handovers(
    problem: Reroute, clock: Clock, seed: int, iterations: int | None = None
) -> tuple[RoutingProof | None, ...] | None:
    """Prove for every handover of lost ports that the cells hold no routing of the circuits.

    Returns
    -------
    tuple of RoutingProof, or None
        In the order of handovers; None as soon as one could not be proved in time, or has a
        routing.
    """
    fabric = problem.broken_fabric
    if fabric.n_chips:
        return None
    handovers = list(
        islice(permutations(problem.live_spares, len(problem.lost)), _MOST_HANDOVERS + 1)
    )
    if len(handovers) > _MOST_HANDOVERS:
        return None
    proofs: list[RoutingProof | None] = []
    for handover in handovers:
        after = dict(zip(problem.lost, handover, strict=True))
        matching = np.full(fabric.n_ports, IDLE, dtype=np.int32)
        for source, destination in problem.circuits.tolist():
            a, b = after.get(source, source), after.get(destination, destination)
            matching[a] = b
            if fabric.bidirectional:
                matching[b] = a
        routing = Routing(fabric, matching, objective="worst-cells")
        proof = _prove(routing, clock, seed, iterations)
        if proof is None:
            return None
        proofs.append(proof)
    return tuple(proofs)


def _prove(routing: Routing, clock: Clock, seed: int, iterations: int | None) -> Any:
    from optmatch.solvers.routing.ilp import route

    remaining = clock.remaining_s
    limits = Limits(time_s=remaining if np.isfinite(remaining) else None, iterations=iterations)
    solution = route(routing, limits, np.random.default_rng(seed), ignore)
    return solution.certificate if solution.status is Status.INFEASIBLE else None


def explain_bound(lost: int, spares: int) -> str:
    """Say why the bound of a problem is infinite."""
    if lost > spares:
        return f"{lost} units with circuits are lost, {spares} live spares are there"
    return "a circuit has no route between its ends, or any spare of them"


def explain(problem: Reroute, certificate: Any) -> str:
    """Say in words why nothing helps."""
    if certificate is None:
        return "an exhaustive search found no way"
    if isinstance(certificate, BlockProof):
        chips, count = ", ".join(map(str, certificate.chips.tolist())), len(certificate.links)
        way = "lead away from" if certificate.leaving else "lead to"
        return f"only {count} waveguides {way} the chips {chips}, which have more circuits"
    if isinstance(certificate, tuple) and isinstance(certificate[0], RoutingProof):
        leaf = certificate[0].prices.any(axis=0)
        links = np.flatnonzero(leaf).tolist()
        shown = ", ".join(map(str, links[:12])) + (" ..." if len(links) > 12 else "")
        first = f" with each of {len(certificate)} handovers" if problem.lost else ""
        return f"the circuits need more of some waveguides{first} than there are: links {shown}"
    servers = ", ".join(map(str, certificate.servers.tolist()))
    return f"more circuits must leave the servers {servers} than live fibres lead out"
