"""The rules of solutions of failures: bounds, proofs that nothing helps, and claims."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Faulty, RackFabric, RouteLengths, units_of
from optmatch.model import Schedule, Solution
from optmatch.problems import BlockProof, CutProof, Reroute, RoutingProof, Transition
from optmatch.verify.bounds import check_solution
from optmatch.verify.report import Findings, ProofError
from optmatch.verify.reroutes.failure import Failure, assess_failure
from optmatch.verify.reroutes.replay import replay_transition
from optmatch.verify.routing.proofs import Circuit, ProofChecker

_MOST_HANDOVERS = 720


def verify_reroute(
    problem: Reroute, subject: Schedule | Transition | Solution, findings: Findings
) -> None:
    """Replay a transition and, of a solution, check its claims."""
    failure = assess_failure(problem)
    findings.figures["lower_bound_recomputed"] = _bound_levels(failure) or math.inf

    def replay(answer: object) -> bool:
        if isinstance(answer, Transition):
            return replay_transition(failure, answer, findings)
        kind = type(answer).__name__
        findings.refuse("the answer is a transition", "answer", kind, "Transition")
        return False

    if isinstance(subject, Solution):
        prove = partial(_check_proof, failure)
        check_solution(problem, subject, findings, replay=replay, prove=prove)
    else:
        replay(subject)


def _check_proof(failure: Failure, proof: object) -> float:
    """Return the result of a proof: that there is no answer."""
    if isinstance(proof, CutProof):
        _check_cut(failure, proof)
    elif isinstance(proof, BlockProof):
        check_block(failure, proof)
    elif isinstance(proof, tuple):
        _check_handovers(failure, proof)
    else:
        raise ProofError(f"a {type(proof).__name__}, not a proof about failures")
    return math.inf


def _check_cut(failure: Failure, proof: CutProof) -> None:
    """Count the circuits that must leave the servers, and those that can."""
    rack = failure.problem.units
    if proof.servers[-1] >= rack.n_servers:
        raise ProofError(f"server {proof.servers[-1]}: servers are 0 .. {rack.n_servers - 1}")
    inside = np.isin(np.arange(rack.n_servers), proof.servers)
    failed = failure.problem.failed_fibres
    ends = np.delete(rack.edges[rack.edge_of_fibre], list(failed), axis=0).tolist()
    fibres = sum(max(a, b) < len(inside) and inside[a] and not inside[b] for a, b in ends)
    for switch in {max(pair) for pair in ends if max(pair) >= len(inside)}:  # light passes it
        to_it = sum(b == switch and bool(inside[a]) for a, b in ends)
        fibres += min(to_it, sum(a == switch and not inside[b] for a, b in ends))
    needed = _must_cross(failure, inside[rack.server_of_unit])
    if needed <= fibres:
        raise ProofError(f"{needed} circuits must leave the servers, {fibres} fibres do")


def _must_cross(failure: Failure, inside: Any) -> float:
    """Count the circuits that leave a set of units, for the cheapest handover of lost ones."""
    fixed = 0
    costs = {unit: [0, 0] for unit in sorted(failure.lost)}  # with the spare outside, or inside
    for source, destination in failure.problem.circuits.tolist():
        a, b = failure.unit(source), failure.unit(destination)
        if a in failure.lost and b in failure.lost:
            continue
        if a in failure.lost:
            costs[a][1] += not inside[b]
        elif b in failure.lost:
            costs[b][0] += bool(inside[a])
        else:
            fixed += bool(inside[a]) and not inside[b]
    spares_inside = sum(bool(inside[spare]) for spare in failure.spares)
    spares_outside = len(failure.spares) - spares_inside
    steps = sorted(into - out for out, into in costs.values())
    outside = fixed + sum(out for out, _ in costs.values())
    least = max(0, len(steps) - spares_outside)
    counts = range(least, spares_inside + 1)
    return min((outside + sum(steps[:k]) for k in counts), default=math.inf)


def _check_handovers(failure: Failure, proofs: tuple[RoutingProof | None, ...]) -> None:
    """Check that for each handover, in their order, a proof shows that cells hold no routing."""
    fabric, lost = failure.problem.fabric, sorted(failure.lost)
    if failure.graph is None or failure.per_unit != 1:
        raise ProofError("proofs of routings, where ports are not what spares replace")
    handovers = list(permutations(sorted(failure.spares), len(lost)))
    if len(handovers) != len(proofs):
        raise ProofError(f"{len(proofs)} proofs for {len(handovers)} handovers")
    checker = ProofChecker(failure.graph)
    starts, ends = fabric.source_terminals.tolist(), fabric.destination_terminals.tolist()
    for handover, proof in zip(handovers, proofs, strict=True):
        after = dict(zip(lost, handover, strict=True))
        circuits = sorted(
            tuple(after.get(port, port) for port in pair)
            for pair in failure.problem.circuits.tolist()
        )
        if fabric.bidirectional:
            circuits = sorted((min(pair), max(pair)) for pair in circuits)
        asked = [Circuit(starts[a], ends[b]) for a, b in circuits]
        if proof is None or not checker.show_infeasible(proof, asked):
            raise ProofError(f"the proof for the handover {handover} does not hold")


def _bound_levels(failure: Failure) -> tuple[int, int, int, int, int] | None:
    """Bound the levels: hit circuits change, and routes are not shorter than the way is far.

    The best handover of lost units counts; of more than 720 none is looked at, and each end of a
    circuit may be any spare by itself.
    """
    if len(failure.lost) > len(failure.spares):
        return None
    lost, spares = sorted(failure.lost), sorted(failure.spares)
    problem, hit, lengths = failure.problem, sorted(failure.hit), _route_lengths(failure)
    ends = np.array(
        [[failure.unit(port) for port in pair] for pair in problem.circuits[hit].tolist()],
        dtype=np.int64,
    ).reshape(-1, 2)
    if not problem.units.through:  # wherever racks go, their chips stay as far from each other
        handovers: Iterable[tuple[int, ...]] = [tuple(lost)]
    elif math.perm(len(spares), len(lost)) > _MOST_HANDOVERS:
        lengths = RouteLengths(*(_shorten_to_any(table, lost, spares) for table in lengths))
        handovers = [tuple(lost)]
    else:
        handovers = permutations(spares, len(lost))
    found, after = [], np.arange(problem.units.n_units)
    for handover in handovers:
        after[lost] = handover
        levels = _bound_routes(problem, lengths, after[ends])
        if levels is not None:
            found.append(levels)
    return (0, len(hit), 0, *min(found)) if found else None


def _bound_routes(
    problem: Reroute, lengths: RouteLengths, ends: NDArray[np.int64]
) -> tuple[int, int] | None:
    """Bound the worst loss and the length of routes between these units, ``(circuits, 2)``."""
    cells, fibres = (table[ends[:, 0], ends[:, 1]].astype(np.int64) for table in lengths)
    if (cells == UNREACHED).any():  # then both are
        return None
    cell_loss, fibre_loss = problem.loss_units
    losses = (int(c) * cell_loss + int(f) * fibre_loss for c, f in zip(cells, fibres, strict=True))
    return max(losses, default=0), int(cells.sum() + fibres.sum())


def _shorten_to_any(
    table: NDArray[np.int32], lost: list[int], spares: list[int]
) -> NDArray[np.int32]:
    """Let each lost unit be as near as the nearest spare."""
    near = table.copy()
    near[lost] = near[spares].min(axis=0)
    near[:, lost] = near[:, spares].min(axis=1, keepdims=True)
    return near


def _route_lengths(failure: Failure) -> RouteLengths:
    """Return the shortest routes: of a switch as its cells are now, of a rack without failures."""
    problem = failure.problem
    cells = (problem.stuck_bar, problem.stuck_cross, problem.dead_cells)
    if isinstance(problem.fabric, RackFabric) or not any(cells):
        return problem.units.route_lengths()
    return units_of(Faulty(problem.fabric, *cells)).route_lengths()


def check_block(failure: Failure, proof: BlockProof) -> None:
    """Follow all light that working cells let through, and count circuits.

    The `ProofError` says where light gets through, or that there are as many waveguides as
    circuits.
    """
    fabric, chips = failure.problem.fabric, set(proof.chips.tolist())
    if failure.graph is None or failure.per_unit == 1:
        raise ProofError("a block of chips, where there is no rack with cells")
    for chip in sorted(chips):
        if not 0 <= chip < failure.problem.units.n_units or chip in failure.lost:
            raise ProofError(f"chip {chip}: is none, or is lost")
    live = [port for port in range(fabric.n_ports) if port not in failure.dead_ports]
    of_chips = [port for port in live if failure.unit(port) in chips]
    starts, goals = (of_chips, live) if proof.leaving else (live, of_chips)
    ends = {int(fabric.destination_terminals[port]): port for port in goals}
    links = set(proof.links.tolist())
    for left in _light_from(failure, fabric.source_terminals[starts].tolist(), links):
        if left in ends:
            raise ProofError(f"light reaches port {ends[left]} around the links")
    side = 0 if proof.leaving else 1
    units = [failure.unit(port) for port in failure.problem.circuits[:, side].tolist()]
    circuits = sum(unit in chips for unit in units)
    if circuits <= len(links):
        raise ProofError(f"{circuits} circuits of the chips, {len(links)} links")


def _light_from(failure: Failure, starts: Iterable[int], links: set[int]) -> Iterable[int]:
    """Yield the terminals by which light leaves the graph, whatever states cells are in."""
    graph, whole = failure.graph, failure.problem.fabric.graph
    assert graph is not None
    assert whole is not None
    link_of = whole.links.of_terminal.tolist()  # numbers of the graph without faults
    mate, exits = graph.mate.tolist(), graph.exits.tolist()
    entering = failure.fibre_of_terminal.tolist()
    failed = set(failure.problem.failed_fibres)
    waiting = [start for start in starts if link_of[start] not in links]
    seen = set(waiting)
    while waiting:
        for left in exits[waiting.pop()]:
            if link_of[left] in links:
                continue
            onward = mate[left]
            if onward < 0:
                yield left
            elif onward not in seen and entering[onward] not in failed:
                seen.add(onward)
                waiting.append(onward)
