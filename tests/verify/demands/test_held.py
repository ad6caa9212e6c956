"""What a small mesh holds, against all states of its cells."""

from itertools import combinations

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import Fabric
from optmatch.verify.demands import bounds
from optmatch.verify.demands.bounds import MOST_CELLS, MOST_PORTS, HeldCircuits
from tests.helpers import oracles
from tests.helpers.held import all_held

MESHES = [
    om.HexMesh(1, 1, ports=[0, 1, 2, 3]),
    om.HexMesh(1, 2, ports=6),
    om.Faulty(om.HexMesh(1, 2, ports=5), stuck_bar=[3], dead_cells=[6]),
    om.SquareMesh(1, 2, ports=[0, 1, 4, 5, 8, 9]),
    om.TriangularMesh(1, 1, ports=[0, 1, 2, 3, 4]),
    *(oracles.random_fabric(np.random.default_rng(seed), 4) for seed in (10, 14)),
]


@pytest.mark.parametrize("fabric", MESHES, ids=lambda fabric: fabric.title)
def test_what_is_held_is_what_some_states_connect(fabric: Fabric) -> None:
    """Of two and of three pairs; each pair is worth one, so together they are worth one more."""
    assert fabric.n_ports <= MOST_PORTS and fabric.n_cells <= MOST_CELLS
    assert fabric.graph is not None
    held, known = HeldCircuits(fabric, fabric.graph), all_held(fabric)
    refused = 0
    for count in (1, 2, 3):
        for pairs in combinations(list(combinations(range(fabric.n_ports), 2)), count):
            if len({port for pair in pairs for port in pair}) < 2 * count:
                continue
            worth = np.zeros((fabric.n_ports, fabric.n_ports), dtype=np.int64)
            worth[tuple(np.transpose(pairs))] = 1
            expected = any(set(pairs) <= row for row in known)
            assert held.earn_more(worth, count - 1) == expected, pairs
            assert not held.earn_more(worth.T, count)
            refused += not expected
    assert refused


def test_the_dearest_circuits_that_are_held_decide() -> None:
    fabric = MESHES[1]
    assert fabric.graph is not None
    rng, known = np.random.default_rng(0), all_held(fabric)
    for _ in range(20):
        worth = rng.integers(0, 9, (6, 6)) * (rng.random((6, 6)) < 0.6)
        np.fill_diagonal(worth, 0)
        most = max(sum(int(worth[i, j] + worth[j, i]) for i, j in row) for row in known)
        held = HeldCircuits(fabric, fabric.graph)
        assert not held.earn_more(worth, most)
        assert not most or held.earn_more(worth, most - 1)


def test_a_port_has_one_circuit() -> None:
    """Ports 0 and 1 could each be joined with port 2, but not both."""
    worth = np.array([[0, 0, 3], [0, 0, 3], [0, 0, 0]])
    held = HeldCircuits(om.IdealSwitch(3, bidirectional=True), None)
    assert held.earn_more(worth, 2) and not held.earn_more(worth, 3)


def test_of_larger_meshes_all_matchings_count() -> None:
    """And of ports that only send or receive."""
    for fabric, small in (
        (om.HexMesh(1, 2, ports=MOST_PORTS), True),
        (om.HexMesh(1, 2, ports=MOST_PORTS + 2), False),
        (om.HexMesh(3, 3, ports=4), False),
        (om.HexMesh(1, 1, tx=[0, 2], rx=[4, 6]), False),
        (om.IdealSwitch(2), False),
    ):
        assert (bounds._list_held(fabric) is not None) == small


def test_the_largest_mesh_is_still_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = om.HexMesh(1, 2, ports=4)
    for most_cells, small in ((mesh.n_cells, True), (mesh.n_cells - 1, False)):
        monkeypatch.setattr(bounds, "MOST_CELLS", most_cells)
        assert (bounds._list_held(mesh) is not None) == small
