"""Scattering: the convention of cells, the full solution, and what others find for the same."""

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import optmatch as om
from optmatch.fabrics import CellGraph, SmartLightMesh
from optmatch.fabrics.light import trace
from optmatch.model import BAR, CROSS
from optmatch.model.device import transfer
from optmatch.optics.measurement import find_loops
from optmatch.optics.scattering import Waves, scatter as unchecked
from tests.helpers import oracles
from tests.helpers.crosscheck import SaxCircuit
from tests.helpers.modes import examples
from tests.helpers.oracles import solve_densely

LEAKY = om.Device(
    bar_loss_db=0.5, cross_loss_db=0.3, bar_extinction_db=18.0, cross_extinction_db=25.0
)
FABRICS: list[om.Fabric] = [
    om.HexMesh(1, 1),
    om.HexMesh(2, 3),
    om.SquareMesh(2, 2),
    om.TriangularMesh(2, 2),
    SmartLightMesh(),
    om.Benes(7),
    om.Crossbar(4),
    om.SwitchAndSelect(4),
    om.Reck(5),
]


def wire(mate: list[int]) -> CellGraph:
    """Join the terminals of cells in a row."""
    joins, places = np.array(mate, dtype=np.int32), np.arange(len(mate) // 4)
    ends = np.stack([places[:, None] + [0.0, 0.5], np.zeros((len(places), 2))], axis=2)
    return CellGraph(mate=joins, ends=ends, perimeter=np.flatnonzero(joins < 0).astype(np.int32))


def matrices(graph: CellGraph, seed: int, device: om.Device = LEAKY) -> NDArray[np.complex128]:
    """Draw states and phase errors; return the matrices of all cells."""
    rng = np.random.default_rng(seed)
    errors = rng.normal(0.0, 0.4, (graph.n_cells, 2))
    return device.cell(rng.integers(0, 2, graph.n_cells), errors)


def fading(graph: CellGraph, seed: int) -> NDArray[np.complex128]:
    """Draw losses and phases of waveguides."""
    rng = np.random.default_rng(seed)
    size, turn = rng.uniform(0.7, 1.0, graph.links.count), rng.random(graph.links.count)
    factors: NDArray[np.complex128] = size * np.exp(2j * np.pi * turn)
    return factors


def lost(
    graph: CellGraph,
    cells: NDArray[np.complex128],
    waveguides: NDArray[np.complex128],
    waves: Waves,
) -> NDArray[np.float64]:
    """Add up what each cell and each waveguide swallows, from its own matrix alone."""
    total = np.zeros(waves.entering.shape[1])
    for cell, forward in enumerate(cells):
        for end, matrix in ((0, forward), (2, forward.T)):
            absorbs = np.eye(2) - matrix.conj().T @ matrix
            x = waves.entering[4 * cell + end : 4 * cell + end + 2]
            total += np.einsum("sn,st,tn->n", x.conj(), absorbs, x).real
    for terminal in np.flatnonzero(graph.mate >= 0):
        kept = abs(waveguides[graph.links.of_terminal[terminal]]) ** 2
        total += (1 - kept) * np.abs(waves.leaving[terminal]) ** 2
    return total


def scatter(
    graph: CellGraph,
    cells: NDArray[np.complex128],
    waveguides: NDArray[np.complex128],
    inputs: NDArray[np.integer],
) -> Waves:
    """Solve, and check in every test that what leaves and what is lost is what enters.

    To 1e-12, or to 1e-14 of the strongest light anywhere: where loops gather light, each digit
    that it gains is one that the balance loses, since cells keep energy to rounding only.
    """
    waves = unchecked(graph, cells, waveguides, inputs)
    out = (np.abs(waves.leaving[graph.perimeter]) ** 2).sum(axis=0)
    strongest = (np.abs(waves.entering) ** 2).max(axis=0)
    off = np.abs(out + lost(graph, cells, waveguides, waves) - 1)
    assert (off < np.maximum(1e-12, 1e-14 * strongest)).all()
    return waves


@given(st.floats(-4, 4), st.floats(-4, 4))
def test_a_cell_is_two_couplers_around_two_arms(up: float, low: float) -> None:
    """T is what a coupler, two arms of given phases and a coupler make, multiplied out."""
    coupler = np.array([[1, 1j], [1j, 1]]) / np.sqrt(2)
    arms = np.diag(np.exp(1j * np.array([up, low])))
    assert np.allclose(
        coupler @ arms @ coupler, transfer((up - low) / 2, (up + low) / 2), rtol=0, atol=1e-15
    )


def test_the_passive_state_is_cross_and_bar_tells_the_sides_apart() -> None:
    assert np.array_equal(transfer(0.0), 1j * np.array([[0, 1], [1, 0]]))
    assert np.allclose(transfer(np.pi / 2), 1j * np.diag([1, -1]), atol=1e-15)
    ideal = om.Device()
    assert np.array_equal(ideal.cell(CROSS), 1j * np.array([[0, 1], [1, 0]]))
    assert np.array_equal(ideal.cell(BAR), 1j * np.diag([1, -1]))


def test_the_order_of_indices() -> None:
    graph = wire([-1] * 4)
    cell = np.array([[[0.1, 0.2], [0.3, 0.4]]], dtype=complex)  # [side of end b, side of end a]
    waves = scatter(graph, cell, np.ones(4, dtype=complex), np.array([0, 1, 2, 3]))
    assert np.allclose(
        waves.leaving,
        [[0, 0, 0.1, 0.3], [0, 0, 0.2, 0.4], [0.1, 0.2, 0, 0], [0.3, 0.4, 0, 0]],
    )
    assert np.array_equal(waves.entering, np.eye(4))


def test_the_faintest_leak_counts() -> None:
    """Beside a ring without loss too, into which no light gets."""
    joined = wire([-1, -1, 4, 5, 2, 3, -1, -1, -1, 11, -1, 9])
    cells = np.stack([transfer(np.pi / 2 + 1e-7), transfer(0.0), np.eye(2, dtype=complex)])
    guides = np.ones(joined.links.count, dtype=complex)
    for side in (0, 1):  # one alone, or bright light would be everywhere
        waves = scatter(joined, cells, guides, np.array([side]))
        wanted = (cells[1] @ cells[0])[:, [side]]
        assert np.allclose(waves.leaving[6:8], wanted, rtol=1e-6, atol=0)
        assert not waves.entering[8:].any()


@pytest.mark.parametrize(
    ("leak", "fades", "lit"),
    [(1.3e-6, 0.0, True), (0.9e-6, 0.2e-12, False), (0.9e-6, 0.8e-12, True), (1e-10, 0.0, False)],
)
def test_light_in_a_ring_is_as_strong_as_digits_allow(
    leak: float, fades: float, lit: bool
) -> None:
    """A cell whose side 1 leads to itself; light a million times as strong counts as none."""
    kept = np.sqrt(1 - leak**2)
    cell = np.array([[[kept, 1j * leak], [1j * leak, kept]]])
    ring = wire([-1, 3, -1, 1])
    guides = np.ones(ring.links.count, dtype=complex)
    guides[ring.links.of_terminal[1]] = 1 - fades
    inside = np.abs(unchecked(ring, cell, guides, np.array([0])).entering[1, 0])
    strong = leak / (leak**2 / 2 + fades)
    assert inside == pytest.approx(strong if lit else 0.0, rel=1e-3)
    again = unchecked(ring, cell, guides, np.array([0])).entering[1, 0]
    assert np.abs(again) == inside  # the pattern is kept as it was


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_solution(fabric: om.Fabric, seed: int) -> None:
    graph: Any = fabric.graph
    cells, guides = matrices(graph, seed), fading(graph, seed)
    waves = scatter(graph, cells, guides, graph.perimeter)
    dense = solve_densely(graph, cells, guides, graph.perimeter)
    assert np.abs(waves.entering - dense.entering).max() < 1e-12
    assert np.abs(waves.leaving - dense.leaving).max() < 1e-12
    between = waves.leaving[graph.perimeter]
    assert np.abs(between - between.T).max() < 1e-12


@settings(max_examples=25)
@given(st.sampled_from(FABRICS), st.integers(0, 2**32 - 1))
def test_without_leaks_it_is_tracing(fabric: om.Fabric, seed: int) -> None:
    graph: Any = fabric.graph
    states = np.random.default_rng(seed).integers(0, 2, graph.n_cells).astype(np.int8)
    device = om.Device(bar_loss_db=1e-9, cross_loss_db=0.25)
    guides = np.ones(graph.links.count, dtype=complex)
    waves = scatter(graph, device.cell(states), guides, graph.perimeter)
    light = trace(graph, states[None], graph.perimeter[None])
    expected = np.zeros((len(graph.mate), len(graph.perimeter)))
    loss_db = np.zeros(len(graph.perimeter))
    np.add.at(loss_db, light.beam, np.where(states[light.entered // 4] == BAR, 1e-9, 0.25))
    expected[light.arrived[0], np.arange(len(graph.perimeter))] = 10 ** (-loss_db / 10)
    power = np.abs(waves.leaving[graph.perimeter]) ** 2
    assert np.abs(power - expected[graph.perimeter]).max() < 1e-12
    alone = scatter(graph, device.cell(states), guides, graph.perimeter[:1])
    assert np.allclose(alone.leaving[:, 0], waves.leaving[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("extinction_db", [None, 200.0, 110.0, 80.0, 30.0])
def test_loops_free_of_loss(extinction_db: float | None) -> None:
    graph = om.SquareMesh(3, 3).graph
    device = om.Device(bar_extinction_db=extinction_db, cross_extinction_db=extinction_db)
    cells = device.cell(np.full(graph.n_cells, BAR))
    guides = np.ones(graph.links.count, dtype=complex)
    if extinction_db is None:
        with pytest.raises(np.linalg.LinAlgError):
            solve_densely(graph, cells, guides, graph.perimeter)
    waves = scatter(graph, cells, guides, graph.perimeter)
    if extinction_db is None:
        inside = [
            t for loop in find_loops(graph, np.zeros(graph.n_cells, np.int8)) for t in loop.entered
        ]
        assert inside
        assert not waves.entering[inside].any()


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
def test_loops_are_the_ways_that_no_port_leads_to(fabric: om.Fabric) -> None:
    """Traced ways and loops together pass every way through every cell once, in each direction."""
    graph: Any = fabric.graph
    states = np.random.default_rng(3).integers(0, 2, graph.n_cells).astype(np.int8)
    light = trace(graph, states[None], graph.perimeter[None])
    passed = light.entered.tolist()
    for loop in find_loops(graph, states):
        onward = [int(graph.mate[left]) for left in loop.left]
        assert onward == [*loop.entered[1:], loop.entered[0]]
        passed += [*loop.entered, *loop.left]
    assert sorted(passed) == list(range(4 * graph.n_cells))


def test_a_hexagon_of_bars_has_a_loop() -> None:
    """Inside, light goes round for ever; a free cell is no part of a loop."""
    graph = om.HexMesh(1, 1).graph
    (loop,) = find_loops(graph, np.zeros(6, np.int8))
    assert sorted(loop.cells) == [0, 1, 2, 3, 4, 5]
    for cell in (0, 2):
        states = np.zeros(6, np.int8)
        states[cell] = -1
        assert find_loops(graph, states) == []
    # A dead cell is like a free one, whatever is stated of it, and so are those around it.
    mesh = om.HexMesh(2, 2)
    for cell in range(mesh.n_cells):
        dead: Any = om.Faulty(mesh, dead_cells=[cell]).graph
        states = np.zeros(mesh.n_cells, np.int8)
        stated = find_loops(dead, states)
        states[cell] = -1
        assert stated == find_loops(dead, states) == find_loops(mesh.graph, states)
    stuck: Any = om.Faulty(om.HexMesh(1, 1), stuck_bar=range(6)).graph
    assert len(find_loops(stuck, np.full(6, -1, np.int8))) == 1


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
def test_light_that_enters_inside(fabric: om.Fabric) -> None:
    """It goes on, and comes back, as dense elimination says; next to free terminals too."""
    graph: Any = fabric.graph
    cells, guides = matrices(graph, 3), fading(graph, 3)
    inputs = np.random.default_rng(3).permutation(len(graph.mate))[:20]
    waves, dense = (solve(graph, cells, guides, inputs) for solve in (unchecked, solve_densely))
    assert np.allclose(waves.entering, dense.entering, rtol=0, atol=1e-12)
    assert np.allclose(waves.leaving, dense.leaving, rtol=0, atol=1e-12)


@settings(max_examples=examples(20, plain=20))
@given(seed=st.integers(0, 2**32))
def test_light_in_any_wiring(seed: int) -> None:
    """Terminal 0 may be joined to another one."""
    graph = oracles.random_fabric(np.random.default_rng(seed), 5).graph
    cells, guides = matrices(graph, seed), fading(graph, seed)
    waves, dense = (
        solve(graph, cells, guides, graph.perimeter) for solve in (scatter, solve_densely)
    )
    assert np.allclose(waves.leaving, dense.leaving, rtol=0, atol=1e-12)


def test_faint_light_passes_beside_a_loop_without_loss() -> None:
    """Cell 0 leads light round for ever, and past that; cell 2 lets hardly any pass."""
    graph = wire([2, 18, 0, -1, -1, -1, 8, -1, 6, -1, 12, -1, 10, -1, -1, -1, -1, -1, 1, -1])
    cells = np.tile(np.eye(2, dtype=np.complex128), (5, 1, 1))
    cells[2] *= 1e-7
    guides = np.ones(graph.links.count, dtype=complex)
    waves = unchecked(graph, cells, guides, np.array([4, 16]))
    assert np.abs(waves.leaving[[14, 3], [0, 1]]).tolist() == [1e-7, 1.0]
    assert not waves.entering[0].any()


def test_what_is_refused() -> None:
    """Cells are those of the graph, and do not amplify."""
    graph = om.HexMesh(1, 1).graph
    cells, guides = matrices(graph, 0), fading(graph, 0)
    with pytest.raises(om.InputError, match="not of this graph"):
        scatter(graph, cells[1:], guides, graph.perimeter)
    with pytest.raises(om.InputError, match="not of this graph"):
        scatter(graph, cells, guides[1:], graph.perimeter)
    amplifying = np.tile(np.array([[1, 0.5], [0.5, 1]], dtype=np.complex128), (4, 1, 1))
    square = om.SquareMesh(1, 1).graph
    with pytest.raises(om.SolverError, match="without end"):
        unchecked(square, amplifying, fading(square, 0) * 0 + 1, square.perimeter)
    assert find_loops(graph, np.full(6, -1, dtype=np.int8)) == []  # free cells lead nowhere


SIMULATED = [om.HexMesh(2, 2), om.Benes(4), om.Clements(4)]


@pytest.mark.slow
@pytest.mark.parametrize("fabric", SIMULATED, ids=lambda f: f"{f.type}-{f.n_ports}")
def test_sax_finds_the_same(fabric: om.Fabric) -> None:
    """An independent simulator agrees to 1e-12, with lossy, leaky cells in random states."""
    pytest.importorskip("sax", reason="needs sax: pip install 'optmatch[crosscheck]'")
    graph: Any = fabric.graph
    circuit = SaxCircuit(graph)
    for seed in range(3):
        cells, guides = matrices(graph, seed), fading(graph, seed)
        waves = scatter(graph, cells, guides, graph.perimeter)
        simulated = circuit.scatter(cells, guides)
        assert np.abs(waves.leaving[graph.perimeter] - simulated).max() < 1e-12


def test_without_sax_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sax", None)
    with pytest.raises(om.SolverUnavailable, match=r"pip install 'optmatch\[crosscheck\]'"):
        SaxCircuit(om.HexMesh(1, 1).graph)
