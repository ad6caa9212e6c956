"""The scheduler's view of routing: right states for every fabric, few toggles, many threads."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.control.routing.router import Routed, Router
from optmatch.fabrics import netlist_from_tree
from optmatch.model import CellDevice, InfeasibleError
from optmatch.solvers.routing.row_router import MeshRouter
from tests.helpers.toggles import fewest_toggles

MESH = om.HexMesh(4, 4, ports=12)
FABRICS = [
    MESH,
    om.HexMesh(3, 3, tx=4, rx=4),
    om.Faulty(om.HexMesh(4, 4, ports=8), stuck_bar=[30], stuck_cross=[41], dead_ports=[3]),
    om.Benes(7),
    om.DilatedBenes(4),
    om.Crossbar(4),
    om.SpankeBenes(5),
    om.Faulty(om.Benes(8), stuck_bar=[2]),
    om.Faulty(om.Crossbar(3), stuck_bar=[4]),  # holds what meets there, and no more
    om.IdealSwitch(5),
]


def draw(fabric: om.Fabric, rng: np.random.Generator, idle: float = 0.3) -> NDArray[np.int32]:
    """Draw a matching of the live ports, some of them idle."""
    live = rng.permutation(fabric.live_ports)
    live = live[: len(live) - int(rng.binomial(len(live), idle))]
    matching = np.full(fabric.n_ports, -1, dtype=np.int32)
    if fabric.bidirectional:
        live = live[: len(live) // 2 * 2]
        matching[live] = live.reshape(-1, 2)[:, ::-1].ravel()
    else:
        matching[live] = rng.permutation(live)
    return matching


def is_right(fabric: om.Fabric, matching: NDArray[np.int32], states: NDArray[np.int8]) -> bool:
    """Ask the verifier, which traces light in plain Python."""
    rows = states[None] if fabric.n_cells else None
    schedule = om.Schedule(matchings=matching[None], durations_s=np.ones(1), cell_states=rows)
    return om.verify(om.Routing(fabric, matching), schedule).ok


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
def test_every_fabric_is_routed_and_rerouted(fabric: om.Fabric) -> None:
    rng, router = np.random.default_rng(0), Router(fabric, check=True)
    matchings = np.array([draw(fabric, rng) for _ in range(12)])
    batch = router.route_batch(matchings)
    assert batch.held.any()
    states = np.full(fabric.n_cells, -1, dtype=np.int8)
    for k, matching in enumerate(matchings):
        if not batch.held[k]:
            with pytest.raises(InfeasibleError):
                router.route(matching)
            continue
        routed = router.route(matching)
        assert (routed.states == batch.states[k]).all()
        assert (routed.lengths == batch.lengths[k]).all()
        assert is_right(fabric, matching, routed.states)
        changed = router.reroute(states, matching)
        assert is_right(fabric, matching, changed.states)
        states = changed.states
        for port in np.flatnonzero(changed.lengths):
            last = changed.routes[port, changed.lengths[port] - 1]
            assert last == fabric.destination_terminals[matching[port]]


@pytest.mark.parametrize(
    "fabric",
    [
        MESH,
        om.Benes(5),
        om.SpankeBenes(5),
        om.Reck(5),
        om.Crossbar(3),
        om.Piloss(3),
        om.Faulty(om.Clements(5), stuck_bar=[2]),
        om.Faulty(om.Crossbar(4), stuck_cross=[5], stuck_bar=[11]),
    ],
    ids=str,
)
def test_few_cells_are_toggled(fabric: om.Fabric) -> None:
    """With idle ports and faults, within a tenth of an exact search, over 40 cases each."""
    rng, router, graph = np.random.default_rng(5), Router(fabric, check=True), fabric.graph
    assert graph is not None
    states = np.where(graph.stuck >= 0, graph.stuck, 0).astype(np.int8)
    toggles = least = held = 0
    while held < 40:
        matching = draw(fabric, rng)
        try:
            changed = router.reroute(states, matching).states
        except InfeasibleError:
            continue
        toggles += int((changed != states)[graph.stuck < 0].sum())
        least += fewest_toggles(fabric, states, matching)
        states, held = np.where(changed < 0, states, changed).astype(np.int8), held + 1
    assert least > 20
    assert toggles <= 1.1 * least


def test_what_is_there_already_stays() -> None:
    rng, fabric = np.random.default_rng(3), FABRICS[2]
    router = Router(fabric, check=True)
    matching = draw(fabric, rng)
    full = np.maximum(router.route(matching).states, 0)
    again = router.reroute(full, matching).states
    assert (again[again >= 0] == full[again >= 0]).all()
    assert again[41] in (-1, 1)  # stuck in cross, stated as bar
    idle: Any = [-1] * 8
    assert (router.reroute(again, idle).states == again).all()
    router.reroute(full, idle, out=Routed(again, *router.empty()[1:]))
    assert again[41] == -1  # given as bar


def test_changes_of_a_benes_network_are_few() -> None:
    """64 ports: 125 toggles from one random permutation to the next; looping alone takes 158."""
    rng, fabric = np.random.default_rng(4), om.Benes(64)
    router, toggles = Router(fabric), []
    states = np.full(fabric.n_cells, -1, dtype=np.int8)
    for _ in range(25):
        changed = router.reroute(states, rng.permutation(64).astype(np.int32)).states
        toggles.append(int(((states >= 0) & (changed != states)).sum()))
        states = changed
    assert np.mean(toggles[1:]) <= 126


def test_a_wrong_answer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    router = Router(MESH, check=True)
    matching = draw(MESH, np.random.default_rng(6), idle=0.0)
    route: Any = MeshRouter.route

    def forget(self: Any, rows: Any, states: Any, *others: Any) -> None:
        route(self, rows, states, *others)
        states[:, int(np.flatnonzero(states[0] >= 0)[0])] = -1

    monkeypatch.setattr(MeshRouter, "route", forget)
    with pytest.raises(om.VerificationError, match="lost in free cell"):
        router.route(matching)
    with pytest.raises(om.VerificationError, match="lost in free cell"):
        router.route_batch(matching[None])


def test_arrays_are_used_again() -> None:
    rng, mesh = np.random.default_rng(7), om.HexMesh(9, 9, ports=32)
    router, matching = Router(mesh, check=True), draw(mesh, rng)
    out = router.empty()
    router.route(matching, out=out)
    tracemalloc.start()
    try:
        for _ in range(3):
            assert router.route(matching, out=out) is out
        assert tracemalloc.get_traced_memory()[1] < out.routes.nbytes / 2
    finally:
        tracemalloc.stop()
    other = Router(om.HexMesh(3, 3, ports=12)).empty()
    with pytest.raises(om.InputError, match="arrays of another router"):
        router.route(matching, out=other)


def test_threads_do_not_meet() -> None:
    rng, router = np.random.default_rng(8), Router(MESH, check=True)
    matchings = np.array([draw(MESH, rng) for _ in range(600)])
    alone = router.route_batch(matchings, threads=1)
    shared = router.route_batch(matchings, threads=4)
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one, other)
    with ThreadPoolExecutor(4) as pool:
        singles = list(pool.map(router.route, matchings[:200]))
    assert all((s.states == alone.states[k]).all() for k, s in enumerate(singles))


@pytest.mark.parametrize(
    ("matching", "message"),
    [
        ([1, 0, 1, -1], "sources 0 and 2 share destination 1"),
        ([1, 2, 0, -1], "circuits of bidirectional ports are mutual"),
        ([0, -1, -1, -1], "cannot meet itself"),
        ([4, -1, -1, -1], r"matching\[0\] = 4"),
        ([1, 0], "2 entries, there are 4 ports"),
        ([0.5, 1, 2, 3], r"matching\[0\] = 0.5"),
    ],
)
def test_what_is_no_matching_is_refused(matching: Any, message: str) -> None:
    router = Router(om.HexMesh(2, 2, ports=4))
    with pytest.raises(om.InputError, match=message):
        router.route(matching)
    if isinstance(matching[0], int) and len(matching) == 4:
        with pytest.raises(om.InputError, match=r"matchings\[1"):
            router.route_batch([[1, 0, 3, 2], matching])
    with pytest.raises(om.InputError, match="states: not -1, 0 or 1 for each of"):
        router.reroute([0, 1], [1, 0, 3, 2])
    with pytest.raises(om.InputError, match="states: not -1, 0 or 1 for each of"):
        router.reroute([2] * router.fabric.n_cells, [1, 0, 3, 2])
    with pytest.raises(om.InputError, match="rack"):
        Router(om.RackFabric())


def test_a_router_of_a_netlist_knows_the_phases_of_its_cells() -> None:
    # A 1x2 switch has a 1x2 coupler: its states are a quarter of a turn away from those of a cell
    # of two 2x2 couplers, and so are the powers of its heaters.
    ports = {"west": "s,o1", "east 1": "s,o2", "east 2": "s,o3"}
    tree = {"instances": {"s": "switch_1x2"}, "connections": {}, "ports": ports}
    fabric = netlist_from_tree(tree)
    problem = om.Routing(fabric, [1, 0, -1], objective="power-mw")
    assert problem.cells is not None and problem.cells.bar_phase_rad is not None
    assert Router(fabric, prefer="power-mw")._cells == problem.cells


# A router that is asked for no circuit at all.


@pytest.mark.parametrize("aim", ["worst-loss-db", "worst-snr-db", "power-mw"])
def test_a_matching_without_circuits_has_no_lengths(aim: Any) -> None:
    """The first circuit of none was read: the lengths of another call came back."""
    mesh = om.HexMesh(3, 3, ports=4)
    router = om.Router(mesh, prefer=aim, cells=CellDevice.of("smartlight", mesh.n_cells))
    assert router.route([1, 0, 3, 2]).lengths.any()
    dark = router.route([-1] * 4)
    assert not dark.lengths.any() and (dark.states == -1).all()
