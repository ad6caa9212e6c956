"""Racks without cells: cuts against all sets of servers, ports and fibres by their rules."""

from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems import Reroute
from optmatch.solvers.reroutes.changes import name_paths
from optmatch.solvers.reroutes.greedy import case_of
from optmatch.solvers.reroutes.impossible import find_cut
from optmatch.solvers.reroutes.routing_state import RoutingState
from optmatch.solvers.reroutes.states import fill_rack
from optmatch.testing.reroutes import draw_rack_state

RACKS = [
    om.RackFabric((6, 2, 1), (2, 2, 1), fibres=2, ports_per_chip=3),
    om.RackFabric((4, 2, 1), (2, 2, 1), fibres=2, ports_per_chip=3, racks=2, joined=True),
]


def lacking(problem: Reroute, inside: set[int]) -> int:
    """Count how many more circuits must leave some servers than live fibres lead out."""
    rack: Any = problem.fabric
    server = rack.server_of_unit.tolist()
    direct, into, out_of = 0, dict[int, int](), dict[int, int]()
    for fibre in range(rack.n_fibres):
        tail, head = rack.edges[rack.edge_of_fibre[fibre]].tolist()
        if fibre in problem.failed_fibres:
            continue
        if head >= rack.n_servers:
            into[head] = into.get(head, 0) + (tail in inside)
        elif tail >= rack.n_servers:
            out_of[tail] = out_of.get(tail, 0) + (head not in inside)
        else:
            direct += tail in inside and head not in inside
    through = sum(min(count, out_of.get(switch, 0)) for switch, count in into.items())
    crossing = []
    for handover in permutations(problem.live_spares, len(problem.lost)):
        after = dict(zip(problem.lost, handover, strict=True))
        crossing.append(
            sum(
                server[after.get(a, a)] in inside and server[after.get(b, b)] not in inside
                for a, b in (problem.circuits // rack.ports_per_unit).tolist()
                if a not in after or b not in after
            )
        )
    return min(crossing) - direct - through


@pytest.mark.parametrize("rack", RACKS, ids=["ring", "joined"])
def test_the_cut_lacks_most_fibres_and_is_the_smallest(rack: om.RackFabric) -> None:
    found = 0
    for seed in range(16):
        rng = np.random.default_rng(seed)
        state = draw_rack_state(rack, rng)
        failed = rng.permutation(rack.n_fibres)[: int(rack.n_fibres * rng.uniform(0.2, 0.9))]
        chips = (state.circuits // rack.ports_per_chip)[0, : 1 + seed % 2].tolist()
        chips = chips[: len(state.spares)]
        problem = replace(state, failed_fibres=failed.tolist(), failed_chips=chips)
        sets = [
            {*servers}
            for size in range(1, rack.n_servers)
            for servers in combinations(range(rack.n_servers), size)
        ]
        table = {frozenset(inside): lacking(problem, inside) for inside in sets}
        most, proof = max(table.values()), find_cut(problem)
        assert (proof is not None) == (most > 0)
        if proof is not None:
            found += 1
            size = min(len(inside) for inside, number in table.items() if number == most)
            assert len(proof.servers) == size
            assert table[frozenset(proof.servers.tolist())] == most
    assert found > 8


@pytest.mark.parametrize("rack", RACKS, ids=["ring", "joined"])
def test_circuits_get_the_ports_they_wish_and_dark_fibres(rack: om.RackFabric) -> None:
    lit_ones = others = 0
    for seed in range(16):
        rng = np.random.default_rng(seed)
        problem = draw_rack_state(rack, rng)
        routing = RoutingState(problem)
        n = len(routing.paths)
        leaving = rng.permutation(n)[: int(rng.integers(2, 6))].tolist()
        lit, order = set(leaving[::2]), [int(k) for k in rng.permutation(leaving)]
        users = routing.users
        wishes = [tuple(rng.integers(0, rack.n_ports, 2).tolist()) for _ in order]
        paths = [routing.paths[k] for k in order]
        first = [0, *np.cumsum(rack.edge_fibres).tolist()]
        named = name_paths(
            routing.graph, users, first, paths, wishes, leaving=set(leaving), lit=lit
        )
        taken: tuple[set[int], set[int], set[int]] = set(), set(), set()

        def free(kind: int, places: range, user: Any) -> list[int]:
            return [
                p
                for p in places
                if p not in taken[kind] and (user[p] == -1 or user[p] in leaving)  # noqa: B023
            ]

        per_chip = rack.ports_per_chip
        for path, wish, pair, route in zip(
            paths, wishes, named.circuits, named.routes, strict=True
        ):
            chips = int(path[0]), int(path[-1]) - rack.n_units
            for end in (0, 1):
                places = range(chips[end] * per_chip, (chips[end] + 1) * per_chip)
                choice = free(end, places, users.ports[end])
                wished = places[wish[end] % per_chip]
                assert pair[end] == (wished if wished in choice else choice[0])
                others += wished not in choice
                taken[end].add(pair[end])
            for node, fibre in zip(path[1:-1].tolist(), route, strict=True):
                edge = node - routing.graph.inner
                choice = free(2, range(first[edge], first[edge + 1]), users.fibres)
                dark = [f for f in choice if users.fibres[f] not in lit]
                assert fibre == (dark or choice)[0]
                lit_ones += not dark
                taken[2].add(fibre)
    assert lit_ones and others


def test_what_a_circuit_leaves_it_may_have_again() -> None:
    problem = draw_rack_state(RACKS[0], np.random.default_rng(0))
    port, fibre = int(problem.circuits[0, 0]), int(problem.routes[0][0])
    broken = RoutingState(replace(problem, failed_ports=(port,), failed_fibres=(fibre,)))
    assert (broken.users.ports[:, port] == -2).all()
    assert broken.users.fibres[fibre] == -2
    whole = RoutingState(problem)
    assert whole.users.ports[0, port] == whole.users.fibres[fibre] == 0
    graph, chip = whole.graph, port // RACKS[0].ports_per_chip
    gone = whole.free - broken.free
    assert gone[[graph.leaving(chip), graph.entering(chip)]].tolist() == [1, 1]
    assert gone[graph.inner + RACKS[0].edge_of_fibre[fibre]] == 1 and gone.sum() == 3
    twin = whole.fork()
    twin.shut_ports([port])
    twin.shut_fibres([fibre])
    assert np.array_equal(twin.free, broken.free)
    assert whole.users.fibres[fibre] == 0 and case_of(problem).hit == ()


def test_the_nearest_of_many_spares_takes_over() -> None:
    state = fill_rack(om.RackFabric(chips=(8, 8, 8)), [((0, 0, 6), (8, 8, 1))])
    chip = int(state.circuits[100, 0]) // 6
    problem = replace(state, failed_chips=(chip,))
    bound = problem.lower_bound()
    assert len(problem.live_spares) == 448 and isinstance(bound, tuple)
    assert om.solve(problem, "greedy").objective == bound
