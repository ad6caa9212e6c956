"""The replay of slices: own servers, whole circuits, each on a route of its own, a true bound.

`_replay` checks in this order: the slice has the shape that was asked for; each slot has a free
server of its own (`_check_servers`); circuits are those of the torus, each once
(`_expected_circuits`); each pair of slots has one of the offered routes (`_check_routes`); each
circuit has a free fibre on each edge of its route (`_check_fibres`).

The levels of a steering are checked here too: no chip gives more ports than it has.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from itertools import pairwise, product

import numpy as np

from optmatch.model import RTOL, InputError, Schedule, Solution
from optmatch.model.declarations import form_of
from optmatch.problems import Allocation, SliceAllocation, Steering
from optmatch.problems.slices.shape import check_rings
from optmatch.verify.bounds import check_solution
from optmatch.verify.report import Findings, Report, agree
from optmatch.verify.slices.bounds import (
    Shape,
    Torus,
    bound_load,
    check_load_proof,
    list_tori,
    neighbour,
    slot_of,
)


def check_steering(steering: Steering) -> Report:
    """Check how the chips of a slice share their ports among rings, in exact fractions.

    A ring is a cycle of chips around which data pass, and each of its chips, the members, gives it
    a share of its ports. Half of these ports send. The bandwidth of a ring, in ports that send, is
    that of its slowest member, and is at most `link_units`. The *level* is the least bandwidth
    over demand of all rings; a good answer has the largest one. Prices of chips and links are a
    solution of the dual linear program, and prove that no level is larger.

    Parameters
    ----------
    steering
        The answer: ``shares[chip, ring]`` as parts of 1, whole ports ``units[ring]``, the level,
        and the prices ``chip_prices[chip]`` and ``link_prices[ring]``, which are 0 or more.
        Only the ratios of prices count.

    Returns
    -------
    Report
        Broken rules, and the figures ``level``, recomputed from the shares, and ``upper_bound``,
        from the prices: infinite if they prove nothing. Both agree in an optimal answer.

    Examples
    --------
    >>> from optmatch.solvers.slices.steering import steer
    >>> report = check_steering(steer([(0, 1, 3, 2)]))
    >>> report.ok, report.figures["level"], report.figures["upper_bound"]
    (True, 3.0, 3.0)
    """
    form_of(Steering).check("steering", steering)
    findings = Findings()
    if not _check_rings(steering, findings):
        return findings.report()
    demands = list(map(Fraction, steering.demands.tolist()))

    # Members alone have shares, and those of a chip are at most the whole.
    for chip, shares in enumerate(steering.shares.tolist()):
        total = sum(map(Fraction, shares))
        if total > 1 + RTOL:
            findings.refuse("a chip shares what it has", f"shares[{chip}]", float(total), "<= 1")
        for ring, share in enumerate(shares):
            is_member = chip in steering.rings[ring]
            if share < 0 or (share > 0 and not is_member):
                findings.refuse("members alone have shares", f"shares[{chip}, {ring}]", share, "0")
    _check_units(steering, demands, findings)

    # The level: the least ratio of bandwidth to demand, over all members of all rings, and over
    # the limits of their links. Half of the ports of a share send. In exact fractions, in ports
    # for a unit of demand.
    levels = []
    for ring, (members, demand) in enumerate(zip(steering.rings, demands, strict=True)):
        for chip in members:
            sending_ports = Fraction(float(steering.shares[chip, ring])) * steering.ports / 2
            levels.append(sending_ports / demand)
        if steering.link_units is not None:
            levels.append(Fraction(steering.link_units) / demand)

    # The claimed level is that of the shares, and prices prove that no level is larger.
    level = float(min(levels, default=0))
    findings.figures["level"] = level
    if not agree(steering.level, level):
        findings.refuse("the level is as recomputed", "level", steering.level, level)

    bound = _bound_level(steering, demands)
    findings.figures["upper_bound"] = float("inf") if bound is None else float(bound)
    if bound is None or not agree(float(bound), level):
        shown = "none" if bound is None else float(bound)
        findings.refuse("prices show that no level is larger", "chip_prices", shown, level)
    return findings.report()


def _check_rings(steering: Steering, findings: Findings) -> bool:
    """Check that rings, demands and ports are possible, and that shares and units are by ring.

    A steering gives each ring a share of the ports of its chips, and a whole number of them
    (units). Returns False if something is wrong, which ends all checks: they divide by demands
    and ports, and look up the chips of rings.
    """
    try:
        check_rings(steering.rings, steering.demands.tolist(), steering.ports, steering.link_units)
    except InputError as error:
        rule = "rings have chips with ports, and demands above 0"
        findings.refuse(rule, error.where or "rings", error.message, "possible ones")
        return False
    n_rings = len(steering.rings)
    n_chips = 1 + max((chip for ring in steering.rings for chip in ring), default=-1)
    # ``shares[chip, ring]`` may also describe chips on no ring.
    n_described, n_columns = steering.shares.shape
    fits = bool(n_described >= n_chips and n_columns == len(steering.units) == n_rings)
    expected = f"those of {n_rings} rings of {n_chips} chips"
    if not fits:
        rule = "shares and units are those of the rings"
        findings.refuse(rule, "shares", steering.shares.shape, expected)
    return fits


def _check_units(steering: Steering, demands: list[Fraction], findings: Findings) -> None:
    """Check that whole ports suffice, and that no other whole ports would be better.

    A ring of u units takes u ports to send and u ports to receive of each of its chips;
    ``steering.rings[ring]`` are these chips, and ``steering.units[ring]`` is u. No ring may have
    room for one unit more, and no other units may have a larger least ratio of units to demand.
    """
    # Units take no more ports than chips have.
    most_units = steering.ports // 2
    if steering.link_units is not None:
        most_units = min(most_units, int(steering.link_units))
    units_of_ring = steering.units.tolist()
    used_ports = _count_ports(steering, units_of_ring)
    for chip, count in enumerate(used_ports):
        if count > steering.ports:
            findings.refuse("a chip has so many ports", f"chip {chip}", count, steering.ports)

    # A ring can grow by one unit if each of its chips has two idle ports.
    all_used = "a ring has all whole ports it can use"
    for number, (ring, units) in enumerate(zip(steering.rings, units_of_ring, strict=True)):
        idle_ports = min(steering.ports - used_ports[chip] for chip in ring)
        could_have_more = idle_ports >= 2 and units < most_units
        if not 0 <= units <= most_units or could_have_more:
            findings.refuse(all_used, f"units[{number}]", units, f"<= {most_units}")

    # The least ratio is the largest if chips have no room for the fewest units with which all
    # rings are above it: with demands 1 and 3 and the least ratio 2 / 3, these are 1 and 3 units.
    ratios = [units / demand for units, demand in zip(units_of_ring, demands, strict=True)]
    least = min(ratios, default=Fraction(0))
    more_units = [math.floor(least * (1 + Fraction(RTOL)) * demand) + 1 for demand in demands]
    more_ports = _count_ports(steering, more_units)
    has_links = max(more_units, default=most_units + 1) <= most_units
    if has_links and max(more_ports) <= steering.ports:
        findings.refuse(all_used, "units", units_of_ring, more_units)


def _count_ports(steering: Steering, units_of_ring: list[int]) -> list[int]:
    """Return how many ports of each chip rings of so many units take: two for a unit."""
    n_ports = [0] * len(steering.shares)
    for ring, units in zip(steering.rings, units_of_ring, strict=True):
        for chip in ring:
            n_ports[chip] += 2 * units
    return n_ports


def _bound_level(steering: Steering, demands: list[Fraction]) -> Fraction | None:
    """Return the upper bound of the level that the prices show, by duality of linear programmes.

    Chips have a price for all of their ports, links of rings one for a port. The level is at most
    the worth of all that there is over the cost of level 1. None if the prices show nothing: one
    is below 0, they are of other chips or rings, all are 0, or links have prices but no limit.
    """
    limit = None if steering.link_units is None else Fraction(steering.link_units)
    chip_prices = list(map(Fraction, steering.chip_prices.tolist()))
    link_prices = list(map(Fraction, steering.link_prices.tolist()))
    are_prices = all(price >= 0 for price in chip_prices + link_prices)
    are_all = len(chip_prices) == len(steering.shares) and len(link_prices) == len(demands)
    if not are_prices or not are_all or (limit is None and any(link_prices)):
        return None

    # Weak duality: a level costs its multiple of `cost_of_level`, which cannot exceed the worth.
    sending_ports = Fraction(steering.ports, 2)
    cost_of_level = Fraction()
    for ring, demand, link_price in zip(steering.rings, demands, link_prices, strict=True):
        chips_price = sum((chip_prices[chip] for chip in ring), Fraction())
        cost_of_level += demand * (chips_price / sending_ports + link_price)
    worth = sum(chip_prices, Fraction())
    if limit is not None:
        worth += limit * sum(link_prices, Fraction())
    if not steering.rings:
        return Fraction(0)
    return worth / cost_of_level if cost_of_level > 0 else None


# Slices

MOST_TOLD = 20
"""The most wrong circuits or fibres that are named; further ones are counted."""


# Fibres
ONE_CIRCUIT_PER_FIBRE = "a fibre carries one circuit"


PortPair = tuple[int, int]
"""The ports from and to which a circuit leads."""
SlotPair = tuple[int, int]
"""The slots from and to which a circuit leads."""


def verify_slice(
    problem: SliceAllocation, subject: Schedule | Allocation | Solution, findings: Findings
) -> None:
    """Check where a slice is allocated, and what a solution claims about that.

    The figure ``lower_bound_recomputed`` is the bound by one pair of slots; it is infinite if no
    place has servers enough.
    """
    # Loads and their bounds are whole numbers of circuits, and are compared as such.
    findings.step = 1.0
    findings.figures["lower_bound_recomputed"] = bound_load(problem)

    # Each pair of slots has its circuits on one route. Anybody can count the load of the pair with
    # most circuits, hence a claimed lower bound below that (the `floor`) is a violation.
    check_solution(
        subject,
        findings,
        replay=partial(_replay, problem, findings=findings),
        prove=partial(check_load_proof, problem),
        floor="the lower bound is not below one pair's circuits",
    )


def _replay(problem: SliceAllocation, answer: object, findings: Findings) -> bool:
    """Check an allocation: its shape, servers, circuits, routes and fibres, in this order.

    Each check rests on those before. Returns False if one of them ends the replay; then the
    objective, the load of the fullest edge, is not known. Else `_add_figures` sets it.
    """
    # The slice is a torus of chips, in one of the shapes that fit. A *slot* is the part of it on
    # one server.
    if not isinstance(answer, Allocation):
        findings.refuse(
            "the answer is an allocation", "answer", type(answer).__name__, "Allocation"
        )
        return False
    torus_of_shape = {torus.shape: torus for torus in list_tori(problem)}
    torus = torus_of_shape.get(answer.shape)
    if torus is None:
        findings.refuse(
            "the slice is the one asked for, on the fewest servers",
            "shape",
            answer.shape,
            " or ".join(map(str, torus_of_shape)) or "none: it is too large",
        )
        return False
    if not _check_servers(problem, answer, torus, findings):
        return False

    # Routes and fibres are checked only for circuits that are all as expected. A circuit is known
    # by the two ports that it joins; ``slots_of_circuit[ports]`` are the two slots of these.
    slots_of_circuit = _expected_circuits(problem, answer, torus)
    circuits: list[PortPair] = [(start, end) for start, end in answer.circuits.tolist()]
    findings.expect("each circuit is there once", "circuits", len(circuits), len(set(circuits)))

    # None is there that the slice does not need, and none that it needs is missing.
    superfluous = set(circuits).difference(slots_of_circuit)
    missing = set(slots_of_circuit).difference(circuits)
    for rule, wrong, got, expected in (
        ("no circuit is superfluous", superfluous, "one", "none"),
        ("no circuit is missing", missing, "none", "one"),
    ):
        for source, destination in sorted(wrong)[:MOST_TOLD]:
            findings.refuse(rule, f"from port {source} to port {destination}", got, expected)
    if findings.violations:
        return False
    routes = _check_routes(problem, answer, torus, findings)
    if routes is None:
        return False

    # ``routes[slots]`` lists the edges between the servers of two slots, for all circuits between
    # them. A circuit inside a slot passes none.
    edges_of_circuit = [routes.get(slots_of_circuit[circuit], []) for circuit in circuits]
    _check_fibres(problem, answer, edges_of_circuit, findings)
    _add_figures(problem, answer, routes, findings)
    return True


def _add_figures(
    problem: SliceAllocation,
    answer: Allocation,
    routes: dict[SlotPair, list[int]],
    findings: Findings,
) -> None:
    """Add the figures of a slice; the objective is the load of the fullest edge that it uses.

    The load of an edge is the number of its fibres that carry a circuit, of this slice or of
    others. ``routes[slots]`` lists the edges on the route from one slot to another one.
    """
    # Rows of ``answer.fibres`` are (circuit, fibre). Fibres that do not exist are a violation
    # already, and do not count.
    fabric = problem.fabric
    new_fibres = answer.fibres[:, 1]
    new_fibres = new_fibres[new_fibres < fabric.n_fibres]
    lit_fibres = np.concatenate([np.flatnonzero(problem.lit_fibres), new_fibres])
    loads = np.bincount(fabric.edge_of_fibre[lit_fibres], minlength=len(fabric.edges))
    used_edges = sorted({edge for route in routes.values() for edge in route})
    worst_load = int(loads[used_edges].max(initial=0))
    findings.figures |= {
        "servers": len(answer.servers),
        "circuits": len(answer.circuits),
        "fibres": len(answer.fibres),
        "longest_route_hops": max((len(route) for route in routes.values()), default=0),
        "worst_load": worst_load,
        "objective": float(worst_load),
    }


def _check_servers(
    problem: SliceAllocation, answer: Allocation, torus: Torus, findings: Findings
) -> bool:
    """Check that each slot has a free server of its own, and all are in one rack or joined.

    Sets the figure ``racks`` of joined racks. False if a rule is broken: there are no chips then
    between which circuits could be.
    """
    fabric = problem.fabric
    servers = answer.servers.tolist()
    violations_before = len(findings.violations)
    findings.expect("each slot has a server", "servers", len(servers), torus.slots)

    # Each slot has a free server of its own.
    free_servers = set(problem.free_servers.tolist())
    for slot, server in enumerate(servers):
        where = f"servers[{slot}]"
        if not 0 <= server < fabric.n_servers:
            findings.refuse("the server exists", where, server, f"< {fabric.n_servers}")
        elif server not in free_servers:
            findings.refuse("the server is free", where, server, "neither placed nor reserved")
        elif server in servers[:slot]:
            findings.refuse("a server has one slot", where, server, "another server")
    if len(findings.violations) > violations_before:
        return False

    # Circuits leave a rack only where racks are joined by optical switches.
    racks = {int(fabric.server_coordinates[server, 0]) for server in servers}
    if fabric.joined:
        findings.figures["racks"] = len(racks)
        return True
    return findings.expect("all servers are in one rack", "servers", len(racks), 1)


def _expected_circuits(
    problem: SliceAllocation, answer: Allocation, torus: Torus
) -> dict[PortPair, SlotPair]:
    """List the circuits that a slice needs, by the two ports that each joins, with its two slots.

    Each chip has two ports for an axis: ``2 axis`` towards the lower place, ``2 axis + 1`` towards
    the higher one. The circuit from chip (0, 0, 0) to (1, 0, 0) leaves by port 1 and arrives at
    port 0. Ports are numbered through all chips of all racks. The servers have to exist.
    """
    # By the place of a chip in the slice: its slot, and its number among all chips of all racks.
    # Chips of a server are counted with the first axis fastest: `on_server` is the number there.
    fabric = problem.fabric
    shape = answer.shape
    slot_of_chip: dict[Shape, int] = {}
    number_of_chip: dict[Shape, int] = {}
    part = fabric.server
    for x, y, z in product(*map(range, shape)):
        slot = slot_of((x, y, z), part, torus.sides)
        on_server = x % part[0] + part[0] * (y % part[1] + part[1] * (z % part[2]))
        slot_of_chip[x, y, z] = slot
        number_of_chip[x, y, z] = int(answer.servers[slot]) * fabric.chips_per_server + on_server

    circuits: dict[PortPair, SlotPair] = {}
    for chip in slot_of_chip:
        for axis, step in product(range(3), (-1, 1)):
            next_chip = neighbour(shape, problem.twisted, chip, axis, step)
            if next_chip is None:
                continue
            # A circuit that leaves upwards arrives at the lower port of the next chip, and vice
            # versa.
            leaves_by, arrives_at = 2 * axis, 2 * axis + 1
            if step > 0:
                leaves_by, arrives_at = arrives_at, leaves_by
            source = number_of_chip[chip] * fabric.ports_per_chip + leaves_by
            destination = number_of_chip[next_chip] * fabric.ports_per_chip + arrives_at
            circuits[source, destination] = (slot_of_chip[chip], slot_of_chip[next_chip])
    return circuits


def _check_routes(
    problem: SliceAllocation, answer: Allocation, torus: Torus, findings: Findings
) -> dict[SlotPair, list[int]] | None:
    """Check that each pair of slots has one of the offered routes, from server to server.

    ``answer.routes[k]`` lists the nodes on the route of pair k, pairs in ascending order: servers,
    and switches between racks, which have the numbers after all servers. Returns the edges of each
    pair, in order; None if the number of routes is wrong, or a route does not join its slots or
    has a gap, at the first of these rules that is broken.
    """
    fabric = problem.fabric
    edge_between = {(tail, head): edge for edge, (tail, head) in enumerate(fabric.edges.tolist())}
    pairs = sorted(torus.weights)
    if not findings.expect(
        "each pair of slots has a route", "routes", len(answer.routes), len(pairs)
    ):
        return None

    # Each route leads from the server of one slot to that of the other, from neighbour to
    # neighbour.
    servers = answer.servers.tolist()
    edges_of_pair: dict[SlotPair, list[int]] = {}
    for number, (pair, route) in enumerate(zip(pairs, answer.routes, strict=True)):
        where = f"routes[{number}]"
        source, destination = (servers[slot] for slot in pair)
        if len(route) < 2 or route[0] != source or route[-1] != destination:
            findings.refuse(
                "a route joins its slots", where, route, f"from {source} to {destination}"
            )
            return None

        # Each hop is an edge of the fabric.
        hops = list(pairwise(route))
        gap = next((hop for hop in hops if hop not in edge_between), None)
        if gap is not None:
            findings.refuse("a route passes fibres", where, f"{gap[0]} to {gap[1]}", "neighbours")
            return None

        # The problem lists the routes that light may take, over edges of the fabric.
        edges = [edge_between[hop] for hop in hops]
        weight = torus.weights[pair]
        offered = problem.candidates(source, destination, weight, problem.loads)
        if tuple(edges) not in offered:
            findings.refuse(
                "a route is one of those offered", where, route, f"one of {len(offered)}"
            )
        edges_of_pair[pair] = edges
    return edges_of_pair


def _check_fibres(
    problem: SliceAllocation,
    answer: Allocation,
    edges_of_circuit: list[list[int]],
    findings: Findings,
) -> None:
    """Check that each circuit has one free fibre on each edge of its route, for itself.

    Rows of ``answer.fibres`` are circuit and fibre, in the order of the route;
    ``edges_of_circuit[circuit]`` are the edges that it passes. Ends early when more than
    `MOST_TOLD` violations are found.
    """
    is_lit = problem.lit_fibres
    edge_of_fibre = problem.fabric.edge_of_fibre.tolist()
    passed: list[list[int]] = [[] for _ in edges_of_circuit]  # edges, by circuit
    in_use = set[int]()

    # Each fibre is free, and is used once.
    for use, (circuit, fibre) in enumerate(answer.fibres.tolist()):
        where = f"fibres[{use}]"
        if circuit >= len(edges_of_circuit) or fibre >= len(is_lit):
            findings.refuse("circuit and fibre exist", where, (circuit, fibre), "numbers of them")
            continue
        if is_lit[fibre]:
            findings.refuse(ONE_CIRCUIT_PER_FIBRE, where, fibre, "one that is free")
        if fibre in in_use:
            findings.refuse(ONE_CIRCUIT_PER_FIBRE, where, fibre, "another fibre")
        in_use.add(fibre)
        passed[circuit].append(edge_of_fibre[fibre])

    # The edges of the fibres that a circuit has are those of its route, in the same order.
    for circuit, (edges, expected) in enumerate(zip(passed, edges_of_circuit, strict=True)):
        if edges != expected:
            findings.refuse(
                "a circuit has a fibre on each edge of its route",
                f"circuit {circuit}",
                edges,
                expected,
            )
            if len(findings.violations) > MOST_TOLD:
                return
