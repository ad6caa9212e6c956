"""Pods whose chips no light passes: whole racks take over, against a plain count of them."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics.racks.rack import fibres_of_switch, switch_schedules
from optmatch.model import InfeasibleError
from optmatch.solvers.reroutes.states import fill_rack
from tests.helpers.modes import examples

SMALL = om.RackFabric((2, 2, 2), (1, 1, 1), fibres=1, racks=11, joined=True, through=False)


@cache
def small_state() -> om.Reroute:
    """Put a job on eight cubes and one on a part of the ninth; the rest are spares."""
    state = fill_rack(SMALL, [((0, 0, 0), (4, 4, 4))])
    chip, other = SMALL.chip_at(0, 0, 0, 8), SMALL.chip_at(1, 0, 0, 8)
    edge = SMALL.edges.tolist().index([chip, other])
    fibre = int(np.flatnonzero(SMALL.edge_of_fibre == edge)[0])
    return replace(
        state,
        circuits=np.vstack([state.circuits, [[6 * chip + 1, 6 * other]]]),
        owners=np.append(state.owners, 1),
        routes=(*state.routes, (fibre,)),
        spares=tuple(set(state.spares) - {chip, other}),
    )


def racks_by_hand(state: om.Reroute, failed: dict[str, tuple[int, ...]]) -> tuple[set[int], int]:
    """Return the racks with a failed part in use, and count those of which nothing is or has."""
    server = {f: SMALL.edges[SMALL.edge_of_fibre[f]].min() for f in range(SMALL.n_fibres)}
    parts = [("chip", chip, chip // 8) for chip in failed.get("failed_chips", ())]
    parts += [("port", port, port // 48) for port in failed.get("failed_ports", ())]
    parts += [("fibre", f, int(server[f]) // 8) for f in failed.get("failed_fibres", ())]
    in_use = {"port": set(state.circuits.ravel().tolist())}
    in_use["chip"] = {port // 6 for port in in_use["port"]}
    in_use["fibre"] = {fibre for route in state.routes for fibre in route}
    lost = {rack for kind, part, rack in parts if part in in_use[kind]}
    broken = {rack for _, _, rack in parts}
    whole = {r for r in range(11) if set(range(8 * r, 8 * r + 8)) <= set(state.spares)}
    return lost, len(whole - broken)


@pytest.mark.parametrize("method", ["greedy", "ilp"])
def test_each_failure_is_decided_as_counted(method: str) -> None:
    """As many racks move as have a failed part in use, or it is proved that too few are free."""
    rng, outcomes = np.random.default_rng(0), set[om.Status]()
    kinds = {"failed_chips": 88, "failed_ports": 528, "failed_fibres": SMALL.n_fibres}
    for _ in range(examples(30, plain=8)):
        failed: dict[str, Any] = {
            kind: tuple(rng.choice(count, int(rng.integers(0, 3)), replace=False).tolist())
            for kind, count in kinds.items()
        }
        problem = replace(small_state(), **failed)
        lost, free = racks_by_hand(problem, failed)
        solution = om.solve(problem, method, seed=0)
        assert om.verify(problem, solution).ok
        outcomes.add(solution.status)
        if len(lost) > free:
            assert solution.status is om.Status.INFEASIBLE
            continue
        assert solution.status is om.Status.OPTIMAL
        moved: Any = solution.answer.moves
        assert set((moved[:, 0] // 8).tolist()) == lost
        assert (moved % 8 == moved[:, :1] % 8).all()
    assert outcomes == {om.Status.OPTIMAL, om.Status.INFEASIBLE}


def test_a_controller_swaps_cubes_and_brings_them_back() -> None:
    """A port of a switch, a chip; a cube is a spare again when all of it works."""
    controller = om.Rerouter(small_state())
    port = fibres_of_switch(SMALL, 3, port=2)
    assert {int(rack) for rack in SMALL.rack_of_fibre[list(port)]} == {1}
    controller.apply(controller.fail(fibre=port))
    controller.apply(controller.fail(chip=0))
    with pytest.raises(InfeasibleError, match="8 units with circuits are lost, 0 live spares"):
        controller.fail(chip=16)
    with pytest.raises(InfeasibleError):
        controller.what_if(fibre=fibres_of_switch(SMALL, 0)[1:])
    controller.repair(chip=16)
    assert controller.repair(fibre=port[0]).spares == small_state().spares[:6]
    assert set(range(8, 16)) <= set(controller.repair(fibre=port[1]).spares)
    controller.repair(chip=0)
    for unit in (0, 8):
        assert controller.state.circuits.tolist() != small_state().circuits.tolist()
        controller.apply(controller.give_back(unit))
    assert controller.state.circuits.tolist() == small_state().circuits.tolist()
    assert set(controller.state.spares) == set(small_state().spares)
    assert controller.stand_ins == {}


def test_switches_hold_what_circuits_pass() -> None:
    """Each circuit between two racks is an entry of one switch, traced here from port to port."""
    state = small_state()
    uses = np.stack([state.passed.circuit, state.passed.part], axis=1)
    schedules = switch_schedules(SMALL, uses)
    assert len(schedules) == SMALL.n_rack_switches == 12
    found = set()
    for switch, schedule in enumerate(schedules):
        ins, outs = [], []
        for fibre, edge in enumerate(SMALL.edge_of_fibre.tolist()):
            tail, head = SMALL.edges[edge].tolist()
            ins += [fibre] * (head == SMALL.n_servers + switch)
            outs += [fibre] * (tail == SMALL.n_servers + switch)
        row = schedule.matchings[0].tolist()
        assert len(row) == len(ins) == 22
        found |= {(ins[k], outs[to]) for k, to in enumerate(row) if to >= 0}
        for port in range(22):
            expected = tuple(sorted((ins[port], outs[port])))
            assert fibres_of_switch(SMALL, switch, port) == expected
    assert found == {route for route in state.routes if len(route) == 2}
    with pytest.raises(om.InputError, match="port = 22: there are 22"):
        fibres_of_switch(SMALL, 0, 22)


def test_light_that_runs_does_not_turn_back() -> None:
    """Repairs have no such routes, neither at a server nor at a switch between racks."""
    rack = om.RackFabric((3, 1, 1), (1, 1, 1), fibres=1, ports_per_chip=2)
    with pytest.raises(om.InputError, match=r"routes\[0\]\[1\] = 3: leads back to server 2"):
        om.Reroute(rack, [[4, 5], [2, 0]], [1, 1], routes=((5, 3), (2,)))


def test_a_running_route_may_go_round_a_ring_of_servers() -> None:
    """It passes more nodes than there are; before, there was no room for it."""
    rack = om.RackFabric((3, 1, 1), (1, 1, 1), fibres=8, ports_per_chip=2)
    four_times_around = (0, 24, 32, 1, 25, 33, 2, 26, 34, 3, 27, 35, 4)
    failed = (*range(16, 24), *range(28, 32))
    state = om.Reroute(
        rack,
        [[0, 2], [2, 4]],
        [0, 0],
        routes=(four_times_around, (28,)),
        failed_fibres=failed,
    )
    assert om.solve(state, "ilp", seed=0).status is om.Status.OPTIMAL


def test_no_light_passes_a_chip() -> None:
    """Neither in a state, nor in a slice: three in a row have no ring."""
    ring = om.RackFabric((1, 1, 4), (1, 1, 1), fibres=1)
    circuits: Any = [[0, 12]]
    routes: Any = [[0, 3]]
    assert om.Reroute(ring, circuits, routes=routes).lost == ()
    with pytest.raises(om.InputError, match="leaves server 1, which no light passes"):
        om.Reroute(replace(ring, through=False), circuits, routes=routes)
    for fabric in (ring, replace(ring, through=False)):
        solution = om.solve(om.SliceAllocation(fabric, (1, 1, 3)), "ilp")
        assert om.verify(solution.problem, solution).ok
        assert (solution.answer is not None) == fabric.through
    with pytest.raises(om.InputError, match="through = False: ideal interposers only"):
        om.RackFabric(interposer=om.Benes(72), through=False)


@pytest.mark.parametrize("shape", [(2, 2, 1), (4, 4, 1), (4, 4, 4), (4, 4, 8), (8, 4, 8)])
def test_slices_of_a_pod_pass_the_verifier(shape: tuple[int, int, int]) -> None:
    """Parts of a cube, a cube, several; each route is one fibre, or two over a switch."""
    problem = om.SliceAllocation(om.RackFabric.tpu_v4(4), shape)
    solution = om.solve(problem, "optical", seed=0)
    answer: Any = solution.answer
    assert om.verify(problem, solution).ok
    assert max(map(len, answer.routes)) <= 3
    for route in answer.routes:
        assert all(node >= problem.fabric.n_servers for node in route[1:-1])
