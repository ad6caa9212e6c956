"""The rules of slices: own servers, whole circuits, each on a way of its own, and a true bound."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise, product

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.model import Schedule, Solution
from optmatch.problems import Allocation, SliceAllocation
from optmatch.verify.bounds import check_solution
from optmatch.verify.report import Findings
from optmatch.verify.slices.bounds import Torus, bound_load, check_load_proof, list_tori, neighbour

Shape = tuple[int, int, int]
MOST_TOLD = 20
"""The most wrong circuits or fibres that are named; further ones are counted."""


def verify_slice(
    problem: SliceAllocation, subject: Schedule | Allocation | Solution, findings: Findings
) -> None:
    """Check an allocation and, of a solution, its claims."""
    findings.step = 1.0  # a circuit
    findings.figures["lower_bound_recomputed"] = bound_load(problem)
    if not isinstance(subject, Solution):
        _replay(problem, subject, findings)
        return
    check_solution(
        problem,
        subject,
        findings,
        replay=partial(_replay, problem, findings=findings),
        prove=partial(check_load_proof, problem),
        floor="the lower bound is not below one pair's circuits",
    )


def _replay(problem: SliceAllocation, answer: object, findings: Findings) -> bool:
    """Check an allocation; tell whether its load could be counted."""
    if not isinstance(answer, Allocation):
        findings.refuse(
            "the answer is an allocation", "answer", type(answer).__name__, "Allocation"
        )
        return False
    allowed = {torus.shape: torus for torus in list_tori(problem)}
    if answer.shape not in allowed:
        findings.refuse(
            "the slice is the one asked for, on the fewest servers",
            "shape",
            answer.shape,
            " or ".join(map(str, allowed)) or "none: it is too large",
        )
        return False
    torus = allowed[answer.shape]
    if not _check_servers(problem, answer, torus, findings):
        return False
    wanted = _expected_circuits(problem, answer)
    given = [tuple(row) for row in answer.circuits.tolist()]
    findings.expect("each circuit is there once", "circuits", len(given), len(set(given)))
    for name, rows in (
        ("no circuit is superfluous", set(given) - set(wanted)),
        ("no circuit is missing", set(wanted) - set(given)),
    ):
        for row in sorted(rows)[:MOST_TOLD]:
            findings.refuse(name, f"from port {row[0]} to port {row[1]}", "one", "none")
    if findings.violations:
        return False
    ways = _check_routes(problem, answer, torus, findings)
    if ways is None:
        return False
    _check_fibres(problem, answer, [ways.get(wanted[row], []) for row in given], findings)
    new = answer.fibres[:, 1]
    before = np.flatnonzero(problem.lit_fibres)
    lit = np.concatenate([before, new[new < problem.fabric.n_fibres]])
    loads = np.bincount(problem.fabric.edge_of_fibre[lit], minlength=len(problem.fabric.edges))
    used = sorted({edge for way in ways.values() for edge in way})
    figures = findings.figures
    figures["servers"] = len(answer.servers)
    figures["circuits"] = len(given)
    figures["fibres"] = len(answer.fibres)
    figures["longest_route_hops"] = max(map(len, ways.values()), default=0)
    figures["worst_load"] = int(loads[used].max(initial=0))
    figures["objective"] = float(figures["worst_load"])
    return True


def _check_servers(
    problem: SliceAllocation, answer: Allocation, torus: Torus, findings: Findings
) -> bool:
    servers, before = answer.servers.tolist(), len(findings.violations)
    findings.expect("each slot has a server", "servers", len(servers), torus.slots)
    free = set(problem.free_servers.tolist())
    for slot, server in enumerate(servers):
        place = f"servers[{slot}]"
        if not 0 <= server < problem.fabric.n_servers:
            findings.refuse("the server exists", place, server, f"< {problem.fabric.n_servers}")
        elif server not in free:
            findings.refuse("the server is free", place, server, "neither placed nor reserved")
        elif server in servers[:slot]:
            findings.refuse("a server has one slot", place, server, "another server")
    if len(findings.violations) > before:
        return False
    racks = {int(problem.fabric.server_coordinates[server, 0]) for server in servers}
    if problem.fabric.joined:
        findings.figures["racks"] = len(racks)
        return True
    findings.expect("all servers are in one rack", "servers", len(racks), 1)
    return len(racks) == 1


def _expected_circuits(
    problem: SliceAllocation, answer: Allocation
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the circuits by their ports, each with its slots."""
    fabric, shape, part = problem.fabric, answer.shape, problem.fabric.server
    sides = [math.ceil(side / size) for side, size in zip(shape, part, strict=True)]
    chip_of: dict[Shape, tuple[int, int]] = {}
    for x, y, z in product(*map(range, shape)):
        slot = x // part[0] + sides[0] * (y // part[1] + sides[1] * (z // part[2]))
        inner = x % part[0] + part[0] * (y % part[1] + part[1] * (z % part[2]))
        server = int(answer.servers[slot])
        chip_of[x, y, z] = server * fabric.chips_per_server + inner, slot
    wanted = {}
    for here, (chip, slot) in chip_of.items():
        for axis, step in product(range(3), (-1, 1)):
            at = neighbour(shape, problem.twisted, here, axis, step)
            if at is not None:
                there, up = chip_of[at], step > 0
                source = chip * fabric.ports_per_chip + 2 * axis + up
                arrival = there[0] * fabric.ports_per_chip + 2 * axis + (not up)
                wanted[source, arrival] = slot, there[1]
    return wanted


def _check_routes(
    problem: SliceAllocation, answer: Allocation, torus: Torus, findings: Findings
) -> dict[tuple[int, int], list[int]] | None:
    """Check every route; return the edges passed by pair of slots, None if one has no way."""
    edge_of = {(u, v): edge for edge, (u, v) in enumerate(problem.fabric.edges.tolist())}
    pairs, loads, servers = sorted(torus.weights), problem.loads, answer.servers.tolist()
    findings.expect("each pair of slots has a route", "routes", len(answer.routes), len(pairs))
    if len(answer.routes) != len(pairs):
        return None
    ways: dict[tuple[int, int], list[int]] = {}
    for number, (pair, route) in enumerate(zip(pairs, answer.routes, strict=True)):
        place, ends = f"routes[{number}]", tuple(servers[slot] for slot in pair)
        if len(route) < 2 or (route[0], route[-1]) != ends:
            findings.refuse(
                "a route joins its slots", place, route, f"from {ends[0]} to {ends[1]}"
            )
            return None
        steps = list(pairwise(route))
        gap = next((step for step in steps if step not in edge_of), None)
        if gap is not None:
            findings.refuse("a route passes fibres", place, f"{gap[0]} to {gap[1]}", "neighbours")
            return None
        for hop in range(1, len(route) - 1):
            check_crossing(problem.fabric, route[hop - 1 : hop + 2], f"{place}[{hop}]", findings)
        way = [edge_of[step] for step in steps]
        offered = problem.candidates(*ends, torus.weights[pair], loads)
        if tuple(way) not in offered:
            findings.refuse(
                "a route is one of those offered", place, route, f"one of {len(offered)}"
            )
        ways[pair] = way
    return ways


def check_crossing(
    fabric: RackFabric, passed: tuple[int, ...], place: str, findings: Findings
) -> None:
    """Check that a switch joins faces at its own place: of two racks, or the two of one."""
    switch = passed[1] - fabric.n_servers
    if switch < 0:
        return
    grid = fabric.server_grid
    for axis in range(3):
        across = [side for k, side in enumerate(grid) if k != axis]
        if switch < math.prod(across):
            break
        switch -= math.prod(across)
    ends = [fabric.server_coordinates[server].tolist() for server in passed[::2]]
    at = [[spot for k, spot in enumerate(end[1:]) if k != axis] for end in ends]
    expected = [switch % across[0], switch // across[0]]
    if at != [expected, expected]:
        findings.refuse(
            "an inter-rack switch joins servers at its place of the faces", place, at, expected
        )
    elif not all(end[1 + axis] in (0, grid[axis] - 1) for end in ends):
        findings.refuse(
            "fibres to an inter-rack switch leave by a face", place, ends, f"an end of axis {axis}"
        )
    elif ends[0] == ends[1]:
        findings.refuse(
            "an inter-rack switch joins two racks, or two faces of one", place, ends, "others"
        )


def _check_fibres(
    problem: SliceAllocation, answer: Allocation, ways: list[list[int]], findings: Findings
) -> None:
    """Check that each circuit has one free fibre on each edge of its way, for itself."""
    passed: list[list[int]] = [[] for _ in ways]
    owner: dict[int, int] = {}
    lit, edge_of = problem.lit_fibres, problem.fabric.edge_of_fibre.tolist()
    for use, (circuit, fibre) in enumerate(answer.fibres.tolist()):
        place = f"fibres[{use}]"
        if not (circuit < len(ways) and fibre < len(lit)):
            findings.refuse("circuit and fibre exist", place, (circuit, fibre), "numbers of them")
            continue
        if lit[fibre]:
            findings.refuse("a fibre carries one circuit", place, fibre, "one that is free")
        if fibre in owner:
            findings.refuse("a fibre carries one circuit", place, fibre, "another fibre")
        owner[fibre] = circuit
        passed[circuit].append(edge_of[fibre])
    for circuit, (got, expected) in enumerate(zip(passed, ways, strict=True)):
        if got != expected:
            findings.refuse(
                "a circuit has a fibre on each edge of its route",
                f"circuit {circuit}",
                got,
                expected,
            )
            if len(findings.violations) > MOST_TOLD:
                return
