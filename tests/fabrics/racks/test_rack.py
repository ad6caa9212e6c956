"""Racks: numbers of chips, servers and fibres, refused fields, and the rules of cubes."""

import re

import networkx as nx
import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import UNREACHED, units_of
from optmatch.io import dumps, loads
from optmatch.problems import Reroute


def test_the_default_rack_is_a_ring_of_servers_along_each_axis() -> None:
    rack = om.RackFabric()
    assert (rack.n_chips, rack.n_servers, rack.server_grid) == (64, 16, (2, 2, 4))
    places = {tuple(place): k for k, place in enumerate(rack.server_coordinates[:, 1:].tolist())}
    for edge, (tail, head) in enumerate(rack.edges.tolist()):
        a, b = (rack.server_coordinates[server, 1:] for server in (tail, head))
        axis = np.flatnonzero(a != b)
        assert len(axis) == 1
        side = rack.server_grid[axis[0]]
        assert (b[axis[0]] - a[axis[0]]) % side in (1, side - 1)
        assert rack.edge_fibres[edge] == (16 if side == 2 else 8)
    assert len(places) == 16


def test_chips_lie_in_their_servers() -> None:
    """The coordinates of a chip, divided by the sides of a server, are those of its server."""
    rack = om.RackFabric((6, 2, 4), (3, 1, 2), racks=2)
    for chip, (number, *place) in enumerate(rack.chip_coordinates.tolist()):
        server = rack.server_of_chip[chip]
        block = [at // side for at, side in zip(place, rack.server, strict=True)]
        assert rack.server_coordinates[server].tolist() == [number, *block]
        x, y, z = place
        assert rack.chip_at(x, y, z, rack=number) == chip


def test_route_lengths_are_those_of_the_graph_of_servers() -> None:
    for rack in (
        om.RackFabric(racks=2),
        om.RackFabric((6, 2, 2), (2, 1, 1), wrap=False),
        om.RackFabric((2, 2, 2), (1, 1, 1), racks=2, joined=True),
        om.RackFabric(fibres=0),
    ):
        graph = nx.DiGraph(rack.edges[rack.edge_fibres > 0].tolist())
        graph.add_nodes_from(range(rack.n_servers))
        far = dict(nx.all_pairs_shortest_path_length(graph))
        cells, fibres = rack.route_lengths()
        for a, b in np.ndindex(rack.n_chips, rack.n_chips):
            servers = rack.server_of_chip[[a, b]].tolist()
            assert fibres[a, b] == far[servers[0]].get(servers[1], UNREACHED)
        assert (cells == np.where(fibres == UNREACHED, UNREACHED, 0)).all()


def test_a_switch_is_one_server_and_a_rack_is_no_switch() -> None:
    mesh, rack = om.HexMesh(1, 1), om.RackFabric()
    ports = units_of(mesh)
    assert (ports.n_units, ports.n_servers, ports.n_fibres) == (mesh.n_ports, 1, 0)
    assert (ports.server_of_unit == 0).all() and len(ports.server_of_unit) == mesh.n_ports
    assert (ports.route_lengths().cells == mesh.route_cells()).all()
    assert (ports.route_lengths().fibres[mesh.route_cells() < UNREACHED] == 0).all()
    assert (ports.fibre_of_terminal == -1).all()
    assert ports.describe_unit(1) == mesh.describe_port(1)
    assert units_of(rack) is rack
    assert not any(hasattr(mesh, name) for name in ("n_chips", "n_servers", "n_fibres", "edges"))
    assert (rack.n_units, rack.n_units * rack.ports_per_unit) == (64, rack.n_ports)
    assert rack.describe_unit(5) == "chip 5 (rack 0, x 3 y 0 z 0, server 1)"
    for refused in (
        lambda: om.AllToAll(rack),
        lambda: om.Routing(rack, np.full(rack.n_ports, -1)),
        lambda: om.Demand(rack, np.zeros((rack.n_ports, rack.n_ports))),
        lambda: om.Faulty(rack),
    ):
        with pytest.raises(om.InputError, match="one switch is expected, not racks"):
            refused()


def test_inter_rack_switches_join_the_faces_of_all_racks() -> None:
    """A switch meets the servers at its place of both faces of each rack."""
    rack = om.RackFabric((4, 4, 4), (2, 2, 1), fibres=3, racks=3, joined=True)
    assert (rack.n_rack_switches, len(rack.rack_switches)) == (8 + 8 + 4, 20)
    places, grid = rack.server_coordinates.tolist(), rack.server_grid
    seen = []
    for (tail, head), fibres in zip(rack.edges.tolist(), rack.edge_fibres.tolist(), strict=True):
        assert fibres == 3
        if max(tail, head) < rack.n_servers:
            (rack_of_tail, *a), (rack_of_head, *b) = places[tail], places[head]
            assert rack_of_tail == rack_of_head
            assert np.abs(np.subtract(a, b)).sum() == 1  # never around the end
            continue
        axis, *spot = rack.rack_switches[max(tail, head) - rack.n_servers].tolist()
        place = places[min(tail, head)][1:]
        assert [at for k, at in enumerate(place) if k != axis] == spot
        assert place[axis] in (0, grid[axis] - 1)
        seen.append((tail, head))
    assert len(set(seen)) == 2 * 3 * 2 * rack.n_rack_switches
    assert (
        rack.n_fibres
        == om.RackFabric(fibres=3, racks=3).n_fibres + 3 * 3 * 2 * rack.n_rack_switches
    )
    assert nx.is_strongly_connected(nx.DiGraph(rack.edges.tolist()))


def test_an_axis_of_one_server_has_two_faces() -> None:
    rack = om.RackFabric((2, 2, 2), (2, 2, 1), fibres=4, racks=2, joined=True)
    fibres = {tuple(e): n for e, n in zip(rack.edges.tolist(), rack.edge_fibres, strict=True)}
    assert rack.rack_switches.tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1], [2, 0, 0]]
    assert (fibres[0, 4], fibres[4, 0], fibres[0, 8], fibres[0, 1]) == (8, 8, 4, 4)


def test_racks_have_edges_in_turn() -> None:
    for joined in (False, True):
        rack = om.RackFabric((6, 2, 2), (2, 1, 1), racks=3, joined=joined)
        per_rack = len(rack.edges) // 3
        servers = rack.n_servers // 3
        for number in range(3):
            ends = rack.edges[number * per_rack : (number + 1) * per_rack]
            here = np.where(ends < rack.n_servers, ends - number * servers, ends)
            first = rack.edges[:per_rack]
            assert (here == first).all()
            assert sorted(ends.tolist()) == ends.tolist()


def test_without_wrap_the_ends_are_no_neighbours() -> None:
    line = om.RackFabric((8, 2, 1), (2, 2, 1), wrap=False)
    assert line.edges.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [2, 3], [3, 2]]


def test_no_server_is_further_than_four_fibres() -> None:
    rack = om.RackFabric()
    assert rack.edge_fibres.sum() == rack.n_fibres
    assert nx.diameter(nx.DiGraph(rack.edges.tolist())) == 1 + 1 + 2


def test_cells_of_servers_are_joined_by_their_fibres() -> None:
    """A fibre ends at an output of one server, and at an input of the one its edge names."""
    interposer = om.Benes(12)
    rack = om.RackFabric((6, 2, 1), (2, 2, 1), fibres=1, ports_per_chip=2, interposer=interposer)
    graph = rack.graph
    assert graph is not None
    assert graph.n_cells == rack.n_cells == 3 * interposer.n_cells
    per_server = 4 * interposer.n_cells
    inputs = set(interposer.source_terminals.tolist())
    seen = []
    for terminal, fibre in enumerate(rack.fibre_of_terminal.tolist()):
        if fibre >= 0:
            tail, head = rack.edges[rack.edge_of_fibre[fibre]].tolist()
            enters = terminal % per_server in inputs
            assert terminal // per_server == (head if enters else tail)
            assert graph.mate[terminal] // per_server == (tail if enters else head)
            assert rack.fibre_of_terminal[graph.mate[terminal]] == fibre
            seen.append(fibre)
    assert sorted(seen) == sorted([*range(rack.n_fibres)] * 2)
    ends = np.concatenate([rack.source_terminals, rack.destination_terminals])
    assert (graph.mate[ends] < 0).all()
    assert len(set(ends.tolist())) == 2 * rack.n_ports


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chips": (4, 4)}, "chips = (4, 4): a list of 3 is expected"),
        ({"server": (3, 1, 1)}, "server = 3 chips along x: does not divide the 4 of the rack"),
        ({"fibres": -1}, "fibres = -1: must be >= 0"),
        ({"wrap": 1}, "wrap = 1: true or false"),
        ({"joined": 1}, "joined = 1: true or false"),
        ({"joined": True, "wrap": False}, "joined = True: needs wrap"),
        ({"joined": True, "interposer": om.Benes(128)}, "joined = True: ideal interposers only"),
        ({"racks": 0}, "racks = 0: must be >= 1"),
        ({"interposer": om.IdealSwitch(80)}, "interposer: cells with inputs and outputs"),
        ({"interposer": om.HexMesh(3, 3)}, "interposer: cells with inputs and outputs"),
        ({"interposer": om.Benes(16)}, "16 ports, but chips and fibres of a server need 72"),
    ],
)
def test_what_is_no_rack_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(om.InputError, match=re.escape(message)):
        om.RackFabric(**options)  # type: ignore[arg-type]


def test_a_rack_comes_back_from_a_file() -> None:
    rack = om.RackFabric((4, 2, 1), (2, 2, 1), fibres=1, interposer=om.Benes(32))
    problem = Reroute(rack, [], cell_states=np.zeros(rack.n_cells))
    assert loads(dumps(problem)) == problem


def test_files_say_whether_racks_are_joined() -> None:
    """A file may leave it out; what a file says is checked."""
    for joined in (False, True):
        problem = om.SliceAllocation(om.RackFabric(racks=2, joined=joined), (2, 2, 2))
        text = dumps(problem)
        assert loads(text) == problem
    for right, wrong, message in (
        ('"joined": true', '"joined": 1', "joined = 1: true or false"),
        ('"wrap": true', '"wrap": false', "joined = True: needs wrap"),
    ):
        with pytest.raises(om.InputError, match=message):
            loads(text.replace(right, wrong))
