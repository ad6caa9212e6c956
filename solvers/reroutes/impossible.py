"""Why nothing helps against a failure: cuts through a rack, chips cut off, proofs for cells.

A *cut* is a set of servers which more circuits have to leave than live fibres lead out of it,
wherever spares take over. A *handover* chooses a spare for each lost *unit*, a chip of a rack or a
port of a switch.
"""

from __future__ import annotations

from itertools import islice, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, RackFabric, Units, units_of
from optmatch.fabrics.feedforward.networks import FeedForward
from optmatch.fabrics.units import measure_reach
from optmatch.model import IDLE, Clock, Limits, Status, check_time, ignore, uncounted
from optmatch.problems import BlockProof, CutProof, Reroute, Routing, RoutingProof
from optmatch.solvers.reroutes.routing_state import HitCircuits, RoutingState, spread

_MOST_SERVERS = 16
"""With so many servers all sets are tried as cuts."""
_MOST_SINGLE = 512
"""With so many servers each is tried as a cut by itself."""
_MOST_HANDOVERS = 24
"""At most so many handovers are each refuted by prices of links."""


def find_cut(problem: Reroute) -> CutProof | None:
    """Find servers that more circuits must leave than live fibres lead out; None if none prove it.

    In racks of up to 16 servers all sets of servers are tried. In larger ones these are each
    server alone and all servers but one; from 512 servers on only those at which hit circuits end.
    Among the cuts that lack most fibres the smallest counts. Time is linear in sets and in the
    square of the servers.
    """
    # Which servers are in each set: ``inside[set, server]``, and ``sides[set, server]`` the same
    # as numbers 0 and 1. The number 5, 0b101, is the set of the servers 0 and 2.
    rack = problem.units
    ends = rack.server_of_unit[problem.circuits[problem.hit] // rack.ports_per_unit]
    n = rack.n_servers
    if n <= _MOST_SERVERS:
        numbers = np.arange(1, 2**n - 1)
        inside = (numbers[:, None] >> np.arange(n) & 1).astype(bool)
    else:
        tried = np.arange(n) if n <= _MOST_SINGLE else np.unique(ends)
        single = np.arange(n) == tried[:, None]
        inside = np.concatenate([single, ~single])
    sides = inside.astype(np.float32)

    # The live fibres that lead out of each set: ``fibres[from, to]``, where switches between racks
    # follow the servers. Through a switch there go no more circuits than come to it from inside,
    # and than lead from it to outside.
    live = rack.edge_fibres.astype(np.float32)
    np.subtract.at(live, rack.edge_of_fibre[list(problem.failed_fibres)], 1)
    nodes = int(rack.edges.max(initial=n - 1)) + 1
    fibres = np.zeros((nodes, nodes), dtype=np.float32)
    fibres[tuple(rack.edges.T)] = live
    # Cells that lead light both ways may send it through a fibre backwards too.
    interposer = getattr(rack, "interposer", None)
    if not isinstance(interposer, FeedForward | None):
        fibres += fibres.T
    n_fibres = ((sides @ fibres[:n, :n]) * (1 - sides)).sum(axis=1)
    if nodes > n:
        n_fibres += np.minimum(sides @ fibres[:n, n:], (1 - sides) @ fibres[n:, :n].T).sum(axis=1)

    # The cut that lacks most fibres proves most.
    missing = _count_leaving(problem, rack, sides) - n_fibres
    size = sides.sum(axis=1)
    order = np.lexsort((size, -missing))
    if not len(order) or missing[order[0]] <= 0:
        return None
    return CutProof(servers=np.flatnonzero(inside[order[0]]).astype(np.int32))


def _count_leaving(problem: Reroute, rack: Units, sides: NDArray[np.float32]) -> NDArray[Any]:
    """Count the circuits that must leave each set of servers, for its cheapest handover.

    ``sides[set, server]`` is 1 for the servers of a set, else 0; `rack` are the units of the
    problem. Circuits between units that stay are counted as they are. Those of a lost unit depend
    on where its spare is. If it is inside of the set, its circuits to units outside leave the set;
    if it is outside, those that come to it from inside do. Circuits between two lost units are not
    counted, which leaves a lower bound. Returns numbers of circuits, float32 of shape (sets,).
    """
    server = rack.server_of_unit
    lost = np.array(problem.lost, dtype=np.int64)
    ends = problem.circuits // rack.ports_per_unit
    is_lost = np.isin(ends, lost)
    between_servers = np.zeros((rack.n_servers, rack.n_servers), dtype=np.float32)
    np.add.at(between_servers, tuple(server[ends[~is_lost.any(axis=1)]].T), 1)

    # ``from_lost[server, k]``: circuits from the lost unit ``lost[k]`` to units that stay, by
    # their server; ``to_lost``: those the other way round. Units in `lost` ascend.
    from_lost = np.zeros((rack.n_servers, len(lost)), dtype=np.float32)
    to_lost = np.zeros((rack.n_servers, len(lost)), dtype=np.float32)
    for side, table in ((0, from_lost), (1, to_lost)):
        pairs = ends[is_lost[:, side] & ~is_lost[:, 1 - side]]
        places = np.searchsorted(lost, pairs[:, side])
        np.add.at(table, (server[pairs[:, 1 - side]], places), 1)

    # ``if_inside[set, k]``: the circuits that leave the set because of a lost unit if its spare is
    # inside; ``if_outside[set, k]``: the same if it is outside.
    if_inside = (1 - sides) @ from_lost
    if_outside = sides @ to_lost

    # If all spares that take over are outside, ``if_outside.sum(axis=1)`` circuits leave the set.
    # A unit that goes inside changes this by the difference of both, which may be below 0. With m
    # units inside the least change is the sum of the m smallest differences, ``sums[set, m]``:
    # differences of 2, -3 and -1 give 0, -3, -4 and -2. A number m for which there are too few
    # spares inside, or outside, counts 2**20, more than any sum.
    spare_sides = sides[:, server[list(problem.live_spares)]]
    spares_inside = spare_sides.sum(axis=1)
    spares_outside = spare_sides.shape[1] - spares_inside
    sums = np.zeros((len(sides), len(lost) + 1), dtype=np.float32)
    sums[:, 1:] = np.cumsum(np.sort(if_inside - if_outside, axis=1), axis=1)
    n_inside = np.arange(len(lost) + 1)
    fits_inside = n_inside <= spares_inside[:, None]
    fits_outside = len(lost) - n_inside <= spares_outside[:, None]
    least = np.where(fits_inside & fits_outside, sums, 2.0**20).min(axis=1)
    check_time()
    between_units_that_stay = ((sides @ between_servers) * (1 - sides)).sum(axis=1)
    total: NDArray[Any] = between_units_that_stay + if_outside.sum(axis=1) + least
    return total


def prove_handovers(
    problem: Reroute, clock: Clock, seed: int, iterations: int | None = None
) -> tuple[RoutingProof | None, ...] | None:
    """Prove for every handover of lost ports that the cells hold no routing of the circuits.

    Returns a proof for each handover, in the order of the permutations of spares. None as soon as
    one could not be proved in time, or has a routing; also for racks, and for more than
    `_MOST_HANDOVERS` handovers. `seed` is that of each search, and `iterations` limits the cases
    of branch and price for each handover, None for no limit.
    """
    fabric = problem.broken_fabric
    if isinstance(fabric, RackFabric):
        return None
    handovers = list(
        islice(permutations(problem.live_spares, len(problem.lost)), _MOST_HANDOVERS + 1)
    )
    if len(handovers) > _MOST_HANDOVERS:
        return None
    proofs: list[Any] = []
    with uncounted():
        from optmatch.solvers.routing.methods import route_exactly

    # After a handover the circuits of each lost port are those of its spare: ``port_after[port]``.
    for handover in handovers:
        port_after = dict(zip(problem.lost, handover, strict=True))
        matching = np.full(fabric.n_ports, IDLE, dtype=np.int32)
        for source, destination in problem.circuits.tolist():
            a = port_after.get(source, source)
            b = port_after.get(destination, destination)
            matching[a] = b
            if fabric.bidirectional:
                matching[b] = a

        # One handover without a proof leaves the question open.
        routing = Routing(fabric, matching, objective="worst-cells")
        remaining = clock.remaining_s
        time_s = remaining if np.isfinite(remaining) else None
        limits = Limits(time_s=time_s, iterations=iterations)
        solution = route_exactly(routing, limits, np.random.default_rng(seed), ignore)
        if solution.status is not Status.INFEASIBLE or solution.certificate is None:
            return None
        proofs.append(solution.certificate)
    return tuple(proofs)


def explain_shortage(lost: int, spares: int) -> str:
    """Say that fewer spares are live than units are lost."""
    return f"{lost} units with circuits are lost, {spares} live spares are there"


def explain_bound(problem: Reroute) -> str:
    """Say why the bound of a problem is infinite: too few spares, or a circuit without any route.

    The circuit is named, and so is an end of it that nothing reaches though it has not failed: a
    spare takes over for units that are reported as failed alone.
    """
    lost = problem.lost
    spares = problem.live_spares
    if len(lost) > len(spares):
        return explain_shortage(len(lost), len(spares))

    # A lost unit may be replaced by any spare. Both arrays are of units, by source and
    # destination.
    units = units_of(problem.broken_fabric)
    has_route = measure_reach(units, problem.loss_units).length < UNREACHED
    meets_other = has_route & ~np.eye(len(has_route), dtype=bool)
    for source, destination in (problem.circuits[problem.hit] // units.ports_per_unit).tolist():
        sources = spares if source in lost else (source,)
        destinations = spares if destination in lost else (destination,)
        if has_route[np.ix_(sources, destinations)].any():
            continue
        ends = f"{units.describe_unit(source)} to {units.describe_unit(destination)}"
        text = f"the circuit from {ends} has no route, or none within its link budget"
        for unit in {source, destination}.difference(lost):
            if not (meets_other[unit].any() or meets_other[:, unit].any()):
                name = units.describe_unit(unit)
                text += f"; {name} is cut off: reported as failed, it may go to a spare"
        return text
    return "no choice of spares gives each circuit a route within its link budget"


def explain(problem: Reroute, certificate: Any) -> str:
    """Say in words why no plan gets over a failure: a sentence without a full stop.

    The certificate is a `BlockProof`, a `CutProof`, a `RoutingProof` for each handover, or None
    where a search has proved it.
    """
    if certificate is None:
        return "an exhaustive search found no way"
    if isinstance(certificate, BlockProof):
        chips = ", ".join(map(str, certificate.chips.tolist()))
        way = "lead away from" if certificate.leaving else "lead to"
        shortage = f"only {len(certificate.links)} waveguides"
        return f"{shortage} {way} the chips {chips}, which have more circuits"

    # Prices of links are a cut: all links with a price.
    if isinstance(certificate, tuple) and isinstance(certificate[0], RoutingProof):
        leaf = certificate[0].prices.any(axis=0)
        links = np.flatnonzero(leaf).tolist()
        link_names = ", ".join(map(str, links[:12])) + (" ..." if len(links) > 12 else "")
        first = f" with each of {len(certificate)} handovers" if problem.lost else ""
        return (
            f"the circuits need more of some waveguides{first} than there are: links {link_names}"
        )
    servers = ", ".join(map(str, certificate.servers.tolist()))
    return f"more circuits must leave the servers {servers} than live fibres lead out"


def find_block(routing: RoutingState, case: HitCircuits) -> BlockProof | None:
    """Find chips from which, or to which, fewer waveguides lead than they have circuits.

    A largest flow from the chips of a server to all chips, and one back, through what would be
    free without any circuit; some 10 ms each where a rack has thousands of cells. None if no
    server of a hit circuit has such chips, or there are no cells.
    """
    # Side 0 are the sources of circuits, side 1 their destinations. ``loads[k]`` is the number of
    # circuits that chip ``chips[k]`` has on this side.
    rack = routing.fabric
    if not isinstance(rack, RackFabric) or rack.graph is None:
        return None
    server = rack.server_of_unit
    for side in (0, 1):
        units = routing.ends[:, side]
        for place in sorted({int(server[unit]) for unit in units[list(case.hit)].tolist()}):
            chips = np.setdiff1d(np.flatnonzero(server == place), case.lost)
            loads = np.array([np.count_nonzero(units == chip) for chip in chips.tolist()])
            proof = _cut_off(routing, chips, loads, side)
            if proof is not None:
                return proof
    return None


def _cut_off(
    routing: RoutingState, chips: NDArray[Any], loads: NDArray[Any], side: int
) -> BlockProof | None:
    """Prove by a minimum cut that the chips of a server have more circuits than waveguides.

    `chips` are numbers of chips, and ``loads[k]`` is how many circuits leave chip ``chips[k]`` if
    `side` is 0, or come to it if `side` is 1. The network is that of resources: waveguides and the
    ports of chips, each with the capacity that it has without any circuit. None if the largest
    flow carries all circuits, or if the cut passes the ports of chips instead of waveguides, which
    proves nothing about routes.
    """
    with uncounted():
        from scipy.sparse import csr_array  # takes a third of a second
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    graph = routing.graph
    n_resources = len(graph.capacity)

    # The capacity that is free without any circuit, and the arcs that light can take.
    free_capacity = routing.free.copy()
    np.add.at(free_capacity, graph.resource[np.concatenate(routing.paths)], 1)
    arcs = np.flatnonzero(routing.open_arcs())
    tail = graph.tail[arcs]
    head = graph.head[arcs]
    starts = np.arange(graph.units)
    goals = graph.units + np.arange(graph.units)

    # Flows into the chips are flows out of them with all arcs turned round.
    if side == 1:
        tail, head = head, tail
        starts, goals = goals, starts

    # Only what can be reached from the chips belongs to the network.
    is_reached = spread(len(graph.resource), starts[chips], tail, head)
    is_used = is_reached[tail]
    tail = graph.resource[tail[is_used]]
    head = graph.resource[head[is_used]]
    chip_resources = graph.resource[starts[chips]]
    goal_resources = graph.resource[goals]

    # A resource is an edge of the network, from its number to its number plus n; an arc leads from
    # the end of one to the beginning of the next. With n = 10, resource 3 is the edge from node 3
    # to 13, an arc from it to resource 7 is the edge from 13 to 7, and source and sink are 20 and
    # 21. `most` is more than any flow.
    source = 2 * n_resources
    sink = source + 1
    most = int(loads.sum()) + 1
    resources = np.arange(n_resources)
    edges: list[tuple[Any, Any, Any]] = [
        (resources, n_resources + resources, np.maximum(free_capacity, 0)),
        (n_resources + tail, head, np.full(len(tail), most)),
        (np.full(len(chip_resources), source), chip_resources, loads),
        (n_resources + goal_resources, np.full(len(goal_resources), sink), [most] * len(goals)),
    ]
    from_node, to_node, capacity = map(np.concatenate, zip(*edges, strict=True))
    network = csr_array(
        (capacity, (from_node, to_node)), shape=(sink + 1, sink + 1), dtype=np.int32
    )
    network.data = np.minimum(network.data, most).astype(np.int32)  # equal edges were added up
    flow = maximum_flow(network, source, sink)
    if flow.flow_value >= loads.sum():
        return None

    # The cut: resources whose first node, r, can still be reached in the residual network, and
    # whose last node, n + r, cannot. Waveguides have the lowest numbers, ports of chips follow.
    residual = (network - flow.flow).tocsr()
    residual.eliminate_zeros()
    is_near = np.zeros(sink + 1, dtype=np.bool_)
    is_near[breadth_first_order(residual, source, return_predecessors=False)] = True
    is_cut = is_near[:n_resources] & ~is_near[n_resources:source] & (free_capacity > 0)
    links: Any = np.flatnonzero(is_cut)
    if len(links) and links[-1] >= routing.fabric.graph.links.count:  # type: ignore[union-attr]
        return None  # the ports of chips are the short part
    return BlockProof(chips=chips[is_near[chip_resources]], links=links, leaving=side == 0)
