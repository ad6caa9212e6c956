"""The rules of solutions of failures: bounds, proofs that nothing helps, and claims.

1. Levels (`_bound_levels`): each hit circuit changes, and has at least the shortest route between
   its units after the best handover of lost units to spares.
2. A cut of servers (`_check_cut`): more circuits must leave a set of servers, whichever spares are
   taken, than fibres do (max-flow, min-cut).
3. A block of chips (`_check_block`): light from some chips passes certain links or none, and more
   circuits begin there than there are links.
4. All handovers (`_check_handovers`): for each one, link prices show that there is no routing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import permutations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, RackFabric, RouteLengths, break_cells
from optmatch.model import Schedule, Solution
from optmatch.problems import BlockProof, CutProof, Reroute, RoutingProof, Transition
from optmatch.verify.bounds import check_solution
from optmatch.verify.light import round_losses
from optmatch.verify.report import Findings, ProofError
from optmatch.verify.reroutes.replay import Failure, assess_failure, replay_transition
from optmatch.verify.routing.bounds import Circuit, ProofChecker, leads_one_way, route_lengths

_Length = TypeVar("_Length", np.int32, np.int64)

_MOST_HANDOVERS = 720
"""All assignments of spares to lost units are tried up to 6!; further ones take too long."""


def verify_reroute(
    problem: Reroute, subject: Schedule | Transition | Solution, findings: Findings
) -> None:
    """Replay a transition from the circuits of now to those after a failure, and check all claims.

    The figure ``lower_bound_recomputed`` has the levels of the objective that no answer falls
    below, infinite if there is none.
    """
    # No levels, None, means that there is no answer.
    failure = assess_failure(problem)
    findings.figures["lower_bound_recomputed"] = _bound_levels(failure) or math.inf

    # The answer is replayed. Of a solution `prove` checks the certificate, and its bound, its
    # objective and its status are compared with what is found.
    check_solution(
        subject,
        findings,
        replay=partial(replay_transition, failure, findings=findings),
        prove=partial(_check_proof, failure),
    )


# Certificates


def _check_proof(failure: Failure, proof: object) -> float:
    """Return infinity if a proof shows that there is no answer, else raise `ProofError`."""
    if isinstance(proof, CutProof):
        _check_cut(failure, proof)
    elif isinstance(proof, BlockProof):
        _check_block(failure, proof)
    elif isinstance(proof, tuple):
        _check_handovers(failure, proof)
    else:
        raise ProofError(f"a {type(proof).__name__}, not a proof about failures")
    return math.inf


def _check_cut(failure: Failure, proof: CutProof) -> None:
    """Check that more circuits must leave a set of servers than there are fibres that work.

    ``proof.servers`` is the set, ascending. For example, 3 circuits cannot leave over 2 fibres. A
    set that proves nothing, or has servers that do not exist, is a `ProofError`.
    """
    units = failure.problem.units
    n_servers = units.n_servers
    if proof.servers[-1] >= n_servers:
        raise ProofError(f"server {proof.servers[-1]}: servers are 0 .. {n_servers - 1}")
    inside = np.isin(np.arange(n_servers), proof.servers)  # by server
    is_inside: list[bool] = inside.tolist()
    failed = list(failure.problem.failed_fibres)
    ends = np.delete(units.edges[units.edge_of_fibre], failed, axis=0)
    # Cells may send light through a fibre backwards too, unless all links and inputs lead it from
    # ends a of cells (terminals 0 and 1 of four) to ends b.
    interposer = getattr(failure.problem.fabric, "interposer", None)
    if interposer is not None:
        enters_at_b = interposer.source_terminals % 4 >= 2
        if enters_at_b.any() or not leads_one_way(interposer.graph):
            ends = np.concatenate([ends, ends[:, ::-1]])

    # Fibres that lead out of the set. Each one that works leads from its tail to its head, a row
    # of `ends`. Nodes from n_servers on are switches between racks, which are on neither side: of
    # these, fibres from the set, and fibres to other servers, are counted apart.
    n_leaving = 0
    fibres_to_switch = Counter[int]()  # from servers inside
    fibres_from_switch = Counter[int]()  # to servers outside
    for tail, head in ends.tolist():
        if head >= n_servers:
            fibres_to_switch[head] += is_inside[tail]
        elif tail >= n_servers:
            fibres_from_switch[tail] += not is_inside[head]
        elif is_inside[tail] and not is_inside[head]:
            n_leaving += 1
    # As many circuits pass a switch as it has fibres on either side: the smaller number of both.
    for switch, n_fibres in fibres_to_switch.items():
        n_leaving += min(n_fibres, fibres_from_switch[switch])

    n_needed = _must_cross(failure, inside[units.server_of_unit])
    if n_needed <= n_leaving:
        raise ProofError(f"{n_needed} circuits must leave the servers, {n_leaving} fibres do")


def _must_cross(failure: Failure, inside: NDArray[np.bool_]) -> float:
    """Count the fewest circuits that leave a set of units, whichever spares replace lost units.

    ``inside[unit]`` says which units are in the set. A circuit between two lost units is not
    counted: its ends may stay together. Infinite if there are not enough spares.
    """
    n_fixed = 0  # circuits that leave the set whatever is handed over
    # For each lost unit, how many of its circuits leave the set if its spare is outside: those
    # that come from units inside; and if it is inside: those that lead to units outside. A unit
    # with 2 of the former and 3 of the latter adds 2 in the first case, and 3 in the second one.
    if_outside = dict.fromkeys(sorted(failure.lost), 0)
    if_inside = dict.fromkeys(sorted(failure.lost), 0)
    for ports in failure.problem.circuits.tolist():
        source, destination = map(failure.unit, ports)
        if source in failure.lost and destination in failure.lost:
            continue
        if source in failure.lost:
            if_inside[source] += not inside[destination]
        elif destination in failure.lost:
            if_outside[destination] += bool(inside[source])
        else:
            n_fixed += bool(inside[source]) and not inside[destination]

    # At first all lost units get spares outside. ``added_inside[k]`` is how many more circuits
    # leave the set if one of them gets a spare inside instead, the cheapest one first (1 in the
    # example, and -1 with 2 and 3 exchanged). `totals` has the circuits for each number of lost
    # units whose spares are inside, as far as there are enough spares on both sides.
    n_spares_inside = sum(bool(inside[spare]) for spare in failure.spares)
    n_spares_outside = len(failure.spares) - n_spares_inside
    added_inside = sorted(if_inside[unit] - if_outside[unit] for unit in if_inside)
    n_all_outside = n_fixed + sum(if_outside.values())
    least_inside = max(0, len(added_inside) - n_spares_outside)
    totals = [
        n_all_outside + sum(added_inside[:n_inside])
        for n_inside in range(least_inside, n_spares_inside + 1)
    ]
    return min(totals, default=math.inf)


def _check_handovers(failure: Failure, proofs: tuple[RoutingProof | None, ...]) -> None:
    """Check that for each handover of lost ports to spares a proof shows that there is no routing.

    In a handover, a tuple, spare k replaces the k-th lost port. Handovers are in the order of
    `itertools.permutations` of the spares. A proof that does not hold is a `ProofError`.
    """
    fabric = failure.problem.fabric
    lost = sorted(failure.lost)
    if failure.graph is None or failure.per_unit != 1:
        raise ProofError("proofs of routings, where ports are not what spares replace")
    n_handovers = math.perm(len(failure.spares), len(lost))
    if n_handovers != len(proofs):
        raise ProofError(f"{len(proofs)} proofs for {n_handovers} handovers")

    checker = ProofChecker(break_cells(failure.graph, failure.faults))
    starts = fabric.source_terminals.tolist()
    ends = fabric.destination_terminals.tolist()
    handovers = permutations(sorted(failure.spares), len(lost))
    for handover, proof in zip(handovers, proofs, strict=True):
        spare_of = dict(zip(lost, handover, strict=True))
        # The circuits after this handover; of a bidirectional one the smaller port is the source.
        pairs = []
        for ports in failure.problem.circuits.tolist():
            source, destination = (spare_of.get(port, port) for port in ports)
            if fabric.bidirectional and source > destination:
                source, destination = destination, source
            pairs.append((source, destination))
        circuits = [Circuit(starts[source], ends[target]) for source, target in sorted(pairs)]
        if proof is None or not checker.show_infeasible(proof, circuits):
            raise ProofError(f"the proof for the handover {handover} does not hold")


def _check_block(failure: Failure, proof: BlockProof) -> None:
    """Check that circuits of some chips outnumber the links that their light must pass.

    The proof names the chips, and the links that light of circuits out of them (``proof.leaving``)
    or into them has to pass: 2 links cannot serve the 3 circuits that leave a chip. Light is
    followed through all working cells in both states, but not through these links; no port on the
    other side may be reached. A proof that shows nothing is a `ProofError`.
    """
    fabric = failure.problem.fabric
    chips = set(proof.chips.tolist())
    if failure.graph is None:
        raise ProofError("a block of chips, where there are no cells")
    for chip in sorted(chips):
        if not 0 <= chip < failure.problem.units.n_units or chip in failure.lost:
            raise ProofError(f"chip {chip}: is none, or is lost")

    # Light from the sources must not come to any of the destinations around the links. On one side
    # are the live ports of the chips, on the other one all live ports.
    live_ports = [port for port in range(fabric.n_ports) if port not in failure.dead_ports]
    ports_of_chips = [port for port in live_ports if failure.unit(port) in chips]
    if proof.leaving:
        sources, destinations = ports_of_chips, live_ports
    else:
        sources, destinations = live_ports, ports_of_chips
    port_at = {int(fabric.destination_terminals[port]): port for port in destinations}
    links = set(proof.links.tolist())
    for terminal in _light_from(failure, fabric.source_terminals[sources].tolist(), links):
        if terminal in port_at:
            raise ProofError(f"light reaches port {port_at[terminal]} around the links")

    # The circuits that begin at the chips, or end there: a source is in column 0 of the circuits,
    # a destination in column 1.
    end = 0 if proof.leaving else 1
    units = [failure.unit(port) for port in failure.problem.circuits[:, end].tolist()]
    n_circuits = sum(unit in chips for unit in units)
    if n_circuits <= len(links):
        raise ProofError(f"{n_circuits} circuits of the chips, {len(links)} links")


def _light_from(failure: Failure, starts: Iterable[int], links: set[int]) -> Iterator[int]:
    """Yield the terminals by which light can leave the graph, in any states of its cells.

    It begins at the terminals `starts`. Depth-first search that passes neither these links nor
    failed fibres.
    """
    assert failure.graph is not None
    # In the graph of `break_cells` failed cells are stuck in one state, or lead nowhere. Links
    # have the numbers that they have without faults.
    link_of = failure.graph.links.of_terminal.tolist()
    graph = break_cells(failure.graph, failure.faults)
    mate = graph.mate.tolist()
    exits = graph.exits.tolist()
    fibre_of = failure.fibre_of_terminal.tolist()
    failed_fibres = set(failure.problem.failed_fibres)

    # Light that enters a cell at a terminal leaves it by one of ``exits[terminal]``, and enters
    # the next cell at the `mate` of that, -1 where it leaves the graph.
    waiting = [start for start in starts if link_of[start] not in links]
    entered = set(waiting)
    while waiting:
        for left in exits[waiting.pop()]:
            if link_of[left] in links:
                continue
            next_terminal = mate[left]
            if next_terminal < 0:
                yield left
            elif next_terminal not in entered and fibre_of[next_terminal] not in failed_fibres:
                entered.add(next_terminal)
                waiting.append(next_terminal)


# Lower bounds


def _bound_levels(failure: Failure) -> tuple[int, int, int, int, int] | None:
    """Bound the levels of any repair's cost from below; None if no handover has routes for all.

    Each hit circuit gets its shortest route. The levels are disturbed circuits (0), changed
    circuits (those hit), cells set (0), the worst loss of one of them in 0.01 dB, and the cells
    and fibres of all of them. A handover gives each lost unit a spare of its own: if units 1 and 4
    are lost and 7 and 8 are spares, there are the handovers (7, 8) and (8, 7). With too many of
    them each end in a lost unit may be at any spare, which is a bound too.
    """
    problem = failure.problem
    lost = sorted(failure.lost)
    spares = sorted(failure.spares)
    hit = sorted(failure.hit)
    if len(lost) > len(spares):
        return None
    lengths = _route_lengths(failure)
    stated_losses = round_losses(problem.fabric)
    end_units = problem.circuits[hit].astype(np.int64) // failure.per_unit  # (circuits, 2)

    # The handovers to be tried: for each one, the units that replace the lost ones. Where light
    # may not pass servers (`through`), a rack moves as a whole to a spare one, and its chips stay
    # as far apart as before: then it is enough that each lost unit stands for itself.
    handovers: Iterable[tuple[int, ...]] = [tuple(lost)]
    if problem.units.through:
        # Too many handovers are not tried. Instead each lost unit gets, in the tables, the least
        # length from and to any spare, which no handover goes below, and stands for itself.
        if math.perm(len(spares), len(lost)) > _MOST_HANDOVERS:
            lengths = RouteLengths(
                _shorten_to_any(lengths.cells, lost, spares),
                _shorten_to_any(lengths.fibres, lost, spares),
            )
            if stated_losses is not None:
                stated_losses = _shorten_to_any(stated_losses, lost, spares)
        else:
            handovers = permutations(spares, len(lost))

    # The worst loss and the length of each handover; one with a circuit that has no route is left
    # out. The losses of a cell and of a fibre are whole numbers of 0.01 dB.
    levels: list[tuple[int, int]] = []
    cell_loss, fibre_loss = problem.loss_units
    unit_after = np.arange(problem.units.n_units)
    for handover in handovers:
        # By unit the one that has its circuits afterwards: itself, or the spare of a lost one.
        unit_after[lost] = handover
        source, destination = unit_after[end_units].T
        cells = lengths.cells[source, destination].astype(np.int64)
        fibres = lengths.fibres[source, destination].astype(np.int64)
        if (cells == UNREACHED).any():  # where cells are not reached, fibres are not either
            continue
        # Losses that a switch states count instead of those of cells and fibres.
        losses = cells * cell_loss + fibres * fibre_loss
        if stated_losses is not None:
            losses = stated_losses[source, destination]
        levels.append((int(losses.max(initial=0)), int(cells.sum() + fibres.sum())))
    return (0, len(hit), 0, *min(levels)) if levels else None


def _shorten_to_any(
    table: NDArray[_Length], lost: list[int], spares: list[int]
) -> NDArray[_Length]:
    """Let each lost unit be as near as the nearest spare, a bound for every handover.

    ``table[source unit, destination unit]`` is a length or a loss; the result is a copy.
    """
    nearest = table.copy()
    nearest[lost] = nearest[spares].min(axis=0)
    nearest[:, lost] = nearest[:, spares].min(axis=1, keepdims=True)
    return nearest


def _route_lengths(failure: Failure) -> RouteLengths:
    """Return the cells and fibres of the shortest routes, by source and destination unit.

    On a switch they lead around broken cells, and are `UNREACHED` where there is no route, or
    where a circuit of an ideal switch is over its link budget; racks count as without failures.
    """
    problem = failure.problem
    if isinstance(problem.fabric, RackFabric):
        return problem.units.route_lengths()
    n_cells = route_lengths(problem.fabric, tuple(failure.faults.tolist()))
    cells = np.where(np.isinf(n_cells), UNREACHED, n_cells).astype(np.int32)
    return RouteLengths(cells, fibres=np.zeros_like(cells))
