"""Racks without cells: cuts against all sets of servers, ports and fibres by their rules."""

from dataclasses import replace

import numpy as np

import optmatch as om
from optmatch.solvers.reroutes.greedy import case_of
from optmatch.solvers.reroutes.routing_state import RoutingState
from optmatch.solvers.reroutes.states import fill_rack
from optmatch.testing.reroutes import draw_rack_state

RACKS = [
    om.RackFabric((6, 2, 1), (2, 2, 1), fibres=2, ports_per_chip=3),
    om.RackFabric((4, 2, 1), (2, 2, 1), fibres=2, ports_per_chip=3, racks=2, joined=True),
]


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
