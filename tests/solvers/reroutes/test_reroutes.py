"""Failures: what a state must be, what a failure does to it, and how good the answers are."""

import json
import os
import re
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import SelectedPorts
from optmatch.io import dumps, loads
from optmatch.problems import CutProof, Reroute
from optmatch.solvers.reroutes.changes import RouteNeeds, order_steps
from optmatch.solvers.reroutes.impossible import find_cut
from optmatch.solvers.reroutes.routing_state import RoutingState
from optmatch.solvers.reroutes.states import fill_rack, hold_matching
from optmatch.testing.reroutes import draw_rack_state
from tests.helpers.command import call

INSTANCES = Path(__file__).resolve().parents[3] / "instances" / "reroute"
RACK = om.RackFabric()
RING = om.RackFabric((6, 2, 1), (2, 2, 1), fibres=2, ports_per_chip=3)
MESH = om.HexMesh(2, 2, ports=[0, 5, 10, 15])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"circuits": [[0, 400]]}, "circuits[0, 1] = 400: ports are 0 .. 383"),
        ({"circuits": [[0, 6], [0, 7]]}, "circuits[1, 0] = 0: the port is in use by circuit 0"),
        ({"spares": [1]}, "spares[0] = 1: chip 1 (rack 0, x 1 y 0 z 0, server 0) is in use by"),
        ({"spares": [64]}, "spares[0] = 64: chips are 0 .. 63"),
        ({"routes": [[], []]}, "routes has 2 entries, there are 1 circuits"),
        ({"routes": [[0]]}, "routes[0] ends in server 1, circuit 0 in server 0"),
        ({"routes": [[200]]}, "routes[0][0] = 200: leaves server"),
        ({"routes": [[768]]}, "routes[0][0] = 768: fibres are 0 .. 767"),
        ({"routes": [[0, 10**30]]}, f"routes[0][1] = {10**30}: fibres are 0 .. 767"),
        ({"routes": [[0, 1]]}, "routes[0][1] = 1: leaves server 0, the light is in server 1"),
        (
            {"circuits": [[0, 24], [1, 25]], "routes": [[5], [5]]},
            "routes[1][0] = 5: the fibre is in use by circuit 0",
        ),
        ({"failed_chips": list(range(65))}, "failed_chips[64] = 64: chips are 0 .. 63"),
        ({"failed_chips": [3, 3]}, "failed_chips[1] = 3: is failed_chips[0] already"),
        ({"failed_fibres": [-1]}, "failed_fibres[0] = -1: must be >= 0"),
        ({"stuck_bar": [0]}, "stuck_bar[0] = 0: cells are none"),
        ({"cell_states": [0]}, "cell_states: the fabric has no cells"),
        ({"owners": [1, 2]}, "owners has 2 entries, there are 1 circuits"),
        ({"fibre_loss_db": -1.0}, "fibre_loss_db = -1: from 0 to 1000"),
        ({"cell_loss_db": 1e8}, "cell_loss_db = 1e+08"),
        (
            {"fabric": SelectedPorts(om.IdealSwitch(4), (0, 1))},
            "fabric: a rack, a switch with cells, or an ideal switch",
        ),
        ({"fabric": om.Faulty(MESH)}, "fabric: list its faults as failures"),
        ({"fabric": MESH, "circuits": [[0, 1]], "routes": ()}, "cell_states: needed where there"),
    ],
)
def test_what_is_no_state_is_refused(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"fabric": RACK, "circuits": [[0, 6]], "routes": [[]]}
    with pytest.raises(om.InputError, match=re.escape(message)):
        Reroute(**{**given, **options})


def test_cells_that_do_not_carry_their_circuits_are_refused() -> None:
    state = hold_matching(MESH, [1, 0, -1, -1])
    cell = state.circuit_routes[0][0] // 4
    for value, message in ((-1, "is lost in free cell"), (None, "is lost|leaves at")):
        states = np.array(state.cell_states)
        states[cell] = 1 - states[cell] if value is None else value
        with pytest.raises(om.InputError, match=f"the light of circuit 0 .* {message}"):
            replace(state, cell_states=states)


def test_spares_of_a_switch_with_directions_neither_send_nor_receive() -> None:
    assert hold_matching(om.Benes(4), [1, -1, -1, -1]).spares == (2, 3)


def test_a_chip_with_too_few_live_ports_is_lost() -> None:
    """A free port of the same chip takes over first, at either end."""
    circuits = [[0, 12], [1, 13]]
    state = Reroute(RACK, circuits, routes=[[], []], spares=[3])  # type: ignore[arg-type]
    some = replace(state, failed_ports=(0, 2, 3, 4))
    assert (some.lost, some.hit.tolist()) == ((), [True, False])
    moved = om.solve(some, "greedy", seed=0).answer
    assert moved.circuits.tolist() == [[5, 12]]
    more = replace(some, failed_ports=(0, 2, 3, 4, 5))
    assert (more.lost, more.hit.tolist()) == ((0,), [True, True])
    assert om.solve(more, "greedy", seed=0).answer.moves.tolist() == [[0, 3]]


@pytest.mark.parametrize("method", ["greedy", "ilp"])
def test_too_few_spares_are_infeasible(method: str) -> None:
    problem = replace(fill_rack(RACK), failed_chips=(0, 1, 2, 3, 4))
    solution = om.solve(problem, method, seed=0)
    assert solution.status is om.Status.INFEASIBLE
    assert solution.stats["reason"].startswith("5 units with circuits are lost, 4 live spares")


def best_of_ring(problem: Reroute) -> tuple[int, ...] | None:
    """Try all routes of all circuits around a ring of servers, for all handovers."""
    rack: Any = problem.fabric
    server = rack.server_of_chip
    edge_at = {tuple(edge): k for k, edge in enumerate(rack.edges.tolist())}
    room = rack.edge_fibres.copy()
    np.subtract.at(room, rack.edge_of_fibre[list(problem.failed_fibres)], 1)
    old = [tuple(rack.edge_of_fibre[list(way)].tolist()) for way in problem.circuit_routes]
    best = None
    for handover in permutations(problem.live_spares, len(problem.lost)):
        after = dict(zip(problem.lost, handover, strict=True))
        choices = []
        for a, b in (problem.circuits // rack.ports_per_chip).tolist():
            s, t = int(server[after.get(a, a)]), int(server[after.get(b, b)])
            third = 3 - s - t
            detours = (
                [()] if s == t else [(edge_at[s, t],), (edge_at[s, third], edge_at[third, t])]
            )
            choices.append(detours)
        for routes in product(*choices):
            used = np.bincount([e for route in routes for e in route], minlength=len(room))
            if (used > room).any():
                continue
            changed = [k for k, r in enumerate(routes) if problem.hit[k] or r != old[k]]
            lengths = [len(routes[k]) for k in changed]
            disturbed = sum(bool(problem.foreign[k]) for k in changed)
            worst = problem.loss_units[1] * max(lengths, default=0)
            levels = (disturbed, len(changed), 0, worst, sum(lengths))
            best = levels if best is None else min(best, levels)
    return best


def detoured(state: Reroute, rng: np.random.Generator) -> Reroute:
    """Send circuits the long way round the ring where there are fibres for it."""
    rack: Any = state.fabric
    users = {fibre for route in state.routes for fibre in route}
    routes = list(state.routes)
    for k, route in enumerate(routes):
        if len(route) != 1 or rng.random() < 0.5:
            continue
        tail, head = rack.edges[rack.edge_of_fibre[route[0]]].tolist()
        legs = [(tail, 3 - tail - head), (3 - tail - head, head)]
        free = [
            [
                f
                for f in range(rack.n_fibres)
                if f not in users and tuple(rack.edges[rack.edge_of_fibre[f]].tolist()) == leg
            ]
            for leg in legs
        ]
        if all(free):
            routes[k] = (free[0][0], free[1][0])
            users = {fibre for taken in routes for fibre in taken}
    return replace(state, routes=tuple(routes))


def test_rings_agree_with_brute_force() -> None:
    disturbed = moved = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        fibres = rng.permutation(RING.n_fibres)[: 1 + seed % 4].tolist()
        problem = replace(detoured(draw_rack_state(RING, rng), rng), failed_fibres=fibres)
        if seed % 2:
            problem = replace(problem, owners=np.arange(len(problem.circuits)))
        best = best_of_ring(problem)
        exact, quick = (om.solve(problem, method, seed=0) for method in ("ilp", "greedy"))
        if best is None:
            assert exact.status is om.Status.INFEASIBLE
            assert quick.answer is None
            continue
        assert exact.status is om.Status.OPTIMAL
        assert exact.objective == best
        assert quick.stats["disturbed"] == best[0]
        disturbed += best[0]
        moved += best[1] - int(problem.hit.sum())
    assert disturbed  # otherwise nothing was tried
    assert moved > disturbed


def test_a_rack_with_cells_is_repaired_fibre_by_fibre_and_cell_by_cell() -> None:
    rack = om.RackFabric((4, 2, 2), fibres=4, interposer=om.Benes(48))
    state = fill_rack(rack, (((0, 0, 0), (4, 2, 1)), ((0, 0, 1), (2, 2, 1))))
    way = state.circuit_routes[0]
    fibre = max(int(rack.fibre_of_terminal[t]) for w in state.circuit_routes for t in w)
    for failed in (
        {"failed_chips": (1,)},
        {"failed_fibres": (fibre,)},
        {"dead_cells": (way[len(way) // 2] // 4,)},
    ):
        problem = replace(state, **failed)  # type: ignore[arg-type]
        solution = om.solve(problem, "greedy", seed=0)
        assert problem.hit.any()
        assert solution.stats["disturbed"] == 0
        assert not problem.after(solution.answer).hit.any()


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="takes minutes then")
def test_dead_cells_of_a_full_rack_are_got_over_or_proved_fatal() -> None:
    """Circuits that were not hit make room where they must; chips that are cut off are named."""
    rack = om.RackFabric((2, 2, 2), (2, 1, 1), fibres=4, interposer=om.Benes(32))
    state = fill_rack(rack, (((0, 0, 0), (2, 2, 2)),))
    moved = proved = 0
    for cell in np.flatnonzero(np.array(state.cell_states) >= 0)[::17].tolist():
        problem = replace(state, dead_cells=(cell,))
        solution = om.solve(problem, "greedy", seed=0)  # verified, the proofs too
        if solution.answer is not None:
            moved += len(solution.answer.changed) > problem.hit.sum()
            assert not problem.after(solution.answer).hit.any()
        proved += solution.certificate is not None
    assert moved
    assert proved


def test_the_bound_looks_at_whole_handovers() -> None:
    circuits = [[0, 6 * 4], [1, 6 * 8]]  # to servers 1 and 2, which have no fibre in common
    state = Reroute(RACK, circuits, routes=[[0], [16]], spares=(5, 9), failed_chips=(0,))  # type: ignore[arg-type]
    hops = int(RACK.route_lengths().fibres[5, 8])
    assert hops == 2
    assert state.lower_bound()[3:] == (hops * state.loss_units[1], hops)
    solution = om.solve(state, "greedy", seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert om.verify(state, solution).figures["lower_bound_recomputed"] == solution.objective


@pytest.mark.parametrize(
    ("circuit", "fibre", "cut"),
    [([0, 24], 0, [5]), ([24, 0], 48, [server for server in range(16) if server != 5])],
    ids=["sends", "receives"],
)
def test_a_handover_has_to_go_where_spares_are(
    circuit: list[int], fibre: int, cut: list[int]
) -> None:
    cut_off = np.flatnonzero((RACK.edges[RACK.edge_of_fibre] == 5).any(axis=1))
    state = Reroute(
        RACK,
        [circuit],
        routes=[[fibre]],  # type: ignore[arg-type]
        spares=(20,),
        failed_chips=(0,),
        failed_fibres=tuple(cut_off.tolist()),
    )
    proof = find_cut(state)
    assert proof is not None
    assert proof.servers.tolist() == cut
    solution = om.solve(state, "greedy", seed=0)
    assert solution.status is om.Status.INFEASIBLE
    assert om.verify(state, solution).ok


def test_a_ring_of_waiting_circuits_is_broken() -> None:
    old = {0: RouteNeeds(frozenset("a"), {}), 1: RouteNeeds(frozenset("b"), {})}
    new = {0: RouteNeeds(frozenset("b"), {}), 1: RouteNeeds(frozenset("a"), {})}
    steps = order_steps(old, new, dark=(), now={})
    assert sorted(steps) == [(0, 0, -1), (0, 1, -1), (2, 0, -1), (2, 1, -1)]
    assert steps[0][0] == 0


def test_of_a_ring_goes_dark_who_stands_in_the_way_of_most() -> None:
    old = {k: RouteNeeds(frozenset(part), {}) for k, part in enumerate(("a", "bc", "d"))}
    new = {k: RouteNeeds(frozenset(part), {}) for k, part in enumerate(("b", "a", "c"))}
    assert order_steps(old, new, dark=(), now={})[0] == (0, 1, -1)


def test_cells_off_the_old_way_are_set_before_the_circuit_goes_dark() -> None:
    old = {0: RouteNeeds(frozenset("a"), {7: 0})}
    new = {0: RouteNeeds(frozenset("b"), {7: 1, 8: 1})}
    steps = order_steps(old, new, dark=(), now={7: 0, 8: 0})
    assert steps == [(1, 8, 1), (0, 0, -1), (1, 7, 1), (2, 0, -1)]


@pytest.mark.parametrize("name", ["rack-64-cut", "hex-9x9-32-cut"])
def test_the_quick_method_proves_what_is_impossible(name: str) -> None:
    problem = om.load(INSTANCES / f"{name}.json")
    assert isinstance(problem, Reroute)
    solution = om.solve(problem, seed=0)
    assert solution.status is om.Status.INFEASIBLE
    assert solution.certificate is not None
    read = loads(dumps(solution))
    assert isinstance(read, om.Solution)
    assert read == solution
    assert om.verify(problem, read).ok
    bare = replace(solution, certificate=None)
    assert not om.verify(problem, bare).ok


def test_the_command_line_solves_and_refuses(tmp_path: Path) -> None:
    """Exit 0 with an answer, 3 with the cut that proves there is none, 2 for what is no state."""
    state = fill_rack(RACK)
    out = np.flatnonzero(RACK.edges[RACK.edge_of_fibre][:, 0] == 5).tolist()
    problems = {
        "chip": replace(state, failed_chips=(5,)),
        "cut": replace(state, failed_fibres=tuple(out)),
    }
    for name, problem in problems.items():
        om.save(problem, tmp_path / f"{name}.json")
    broken = json.loads((tmp_path / "chip.json").read_text())
    broken["spares"] = [7]
    (tmp_path / "used.json").write_text(json.dumps(broken))
    codes = {"chip": 0, "cut": 3, "used": 2}
    runs = {
        name: call("solve", tmp_path / f"{name}.json", "--method", "ilp", code=code)
        for name, code in codes.items()
    }
    assert "must leave the servers 5" in runs["cut"].output + runs["cut"].stderr
    assert "spares[0] = 7: chip 7" in runs["used"].stderr


def test_the_command_line_makes_states_and_follows_them(tmp_path: Path) -> None:
    """Generate, solve, draw, and go on from the answer with the next failure."""
    first, answer, second = (str(tmp_path / f"{n}.json") for n in ("first", "answer", "second"))
    picture = str(tmp_path / "change.svg")
    for line in (
        f"generate reroute --rack --failed-chips 8 -o {first}",
        f"solve {first} -o {answer}",
        f"verify {answer}",
        f"plot {answer} -o {picture}",
        f"info {first}",
        f"generate reroute --state {answer} --failed-fibres 3,4 -o {second}",
    ):
        call(*line.split())
    state = loads(Path(second).read_text())
    assert isinstance(state, Reroute)
    assert (state.failed_chips, state.failed_fibres, len(state.spares)) == ((8,), (3, 4), 3)
    assert "12 circuits change" in Path(picture).read_text()


def test_meshes_come_with_spares(tmp_path: Path) -> None:
    file, answer = str(tmp_path / "mesh.json"), str(tmp_path / "answer.json")
    line = f"generate reroute --rows 4 --cols 4 --ports 8 --failed-ports 1 -o {file}"
    call(*line.split())
    assert len(om.load(file).spares) == 2  # type: ignore[union-attr]
    call("solve", file, "-o", answer)
    picture = str(tmp_path / "mesh.svg")
    call("plot", answer, "-o", picture)
    assert "after the transition: 3 circuits" in Path(picture).read_text()


def test_light_passes_the_switches_between_joined_racks() -> None:
    """A job of two racks goes on with spares; with too few fibres a cut proves why not."""
    fabric = om.RackFabric((4, 2, 2), (2, 1, 1), racks=2, joined=True)
    state = fill_rack(fabric, [((0, 0, 0), (4, 2, 3))])
    first = state.n_units // 2
    crossing = [len(set(chips)) > 1 for chips in (state.circuits // 6 // first).tolist()]
    assert sum(crossing) == 32 and len(state.spares) == 8
    solution = om.solve(replace(state, failed_chips=(5, first)), seed=0)
    assert solution.answer is not None and om.verify(solution.problem, solution).valid
    ends = fabric.edges[fabric.edge_of_fibre]
    tails, heads = ends.T
    leaving = np.flatnonzero((tails < fabric.n_servers // 2) & (heads >= fabric.n_servers))
    cut = om.solve(replace(state, failed_fibres=tuple(leaving[15:].tolist())), seed=0)
    assert cut.status is om.Status.INFEASIBLE and isinstance(cut.certificate, CutProof)
    assert om.verify(cut.problem, cut).ok
    with pytest.raises(om.InputError, match="a box of"):
        fill_rack(fabric, [((0, 0, 0), (4, 2, 5))])


def fill_racks(racks: int, spares: int, rng: np.random.Generator) -> om.Reroute:
    """Fill so many joined racks each by itself; some jobs make room for more spares."""
    one = fill_rack(om.RackFabric(joined=True))
    fabric = om.RackFabric(racks=racks, joined=True)
    at = np.arange(racks)[:, None, None]
    circuits = (one.circuits + at * one.fabric.n_ports).reshape(-1, 2)
    owners = (one.owners + at[:, :, 0] * (1 + one.owners.max())).ravel()
    ways = [
        tuple(fibre + rack * one.units.n_fibres for fibre in way)
        for rack in range(racks)
        for way in one.routes
    ]
    idle = {chip + 64 * rack for rack in range(racks) for chip in one.spares}
    jobs = rng.permutation(np.unique(owners)).tolist()
    gone = list[int]()
    while len(idle) < spares:
        gone.append(jobs.pop())
        idle |= set((circuits[owners == gone[-1]] // fabric.ports_per_chip).ravel().tolist())
    kept = np.flatnonzero(~np.isin(owners, gone))
    reserve = tuple(sorted(idle)[:: max(1, len(idle) // spares)])[:spares]
    return om.Reroute(fabric, circuits[kept], owners[kept], reserve, tuple(ways[k] for k in kept))


def test_a_cut_is_proved_before_all_spares_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 80 spares of joined racks the nearest four, where too few fibres are left."""
    state = fill_racks(6, 80, np.random.default_rng(0))
    fabric: Any = state.fabric
    home = int(fabric.server_of_chip[state.circuits[0, 0] // fabric.ports_per_chip])
    around = np.flatnonzero((fabric.edges[fabric.edge_of_fibre] == home).any(axis=1))
    chip = int(state.circuits[0, 0]) // fabric.ports_per_chip
    problem = replace(state, failed_chips=(chip,), failed_fibres=tuple(around[5:].tolist()))
    tried, route = list[int](), RoutingState.route

    def count(*given: Any) -> Any:
        tried.append(1)
        return route(*given)

    monkeypatch.setattr(RoutingState, "route", count)
    found = om.solve(problem, method="greedy", seed=0)
    assert found.status is om.Status.INFEASIBLE and om.verify(problem, found).ok
    assert len(tried) == 4
