"""Check the proof that some chips of a rack have more circuits than ways lead to or from them."""

from __future__ import annotations

from collections.abc import Iterable

from optmatch.problems import BlockProof
from optmatch.verify.report import ProofError
from optmatch.verify.reroutes.failure import Failure


def check_block(failure: Failure, proof: BlockProof) -> None:
    """Follow all light that working cells let through, and count circuits.

    The `ProofError` says where light gets through, or that there are as many waveguides as
    circuits.
    """
    fabric, chips = failure.problem.fabric, set(proof.chips.tolist())
    if failure.graph is None or failure.per_unit == 1:
        raise ProofError("a block of chips, where there is no rack with cells")
    for chip in sorted(chips):
        if not 0 <= chip < fabric.n_units or chip in failure.lost:
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
            if left < 0 or link_of[left] in links:
                continue
            onward = mate[left]
            if onward < 0:
                yield left
            elif onward not in seen and entering[onward] not in failed:
                seen.add(onward)
                waiting.append(onward)
