"""Free cells: the light of settings against other models, promises of flips, and random states."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.fabrics import EXITS, Faulty, NetlistError, netlist_from_tree
from optmatch.model import CROSS, DEVICES, FREE, CellDevice, Device, cells_of
from optmatch.solvers.routing import idle
from optmatch.verify.light import circuit_matrices
from tests.fabrics.netlists.chips import DrawnChip
from tests.helpers.modes import examples

RATIO = "worst_signal_to_crosstalk_db"
LEAKY = replace(
    DEVICES["smartlight"],
    bar_extinction_db=18.0,
    cross_extinction_db=23.0,
    thermal_crosstalk=0.05,
)
UNKNOWN = replace(DEVICES["smartlight"], phase_error_rad=0.03)


def solved(fabric: om.Fabric, shift: int) -> tuple[om.Routing, om.Solution]:
    """Route a cyclic shift, of bidirectional ports an exchange of halves."""
    matching = np.roll(np.arange(fabric.n_ports), shift).astype(np.int32)
    problem = om.Routing(fabric, matching)
    return problem, om.solve(problem, seed=0)


def routed(fabric: om.Fabric, seed: int) -> tuple[om.Routing, om.Solution]:
    """Route a matching of all ports, drawn at random until there is a routing."""
    rng = np.random.default_rng(seed)
    while True:
        matching = rng.permutation(fabric.n_ports).astype(np.int32)
        if fabric.bidirectional:
            pairs = matching.reshape(-1, 2).copy()
            matching[pairs] = pairs[:, ::-1]
        problem = om.Routing(fabric, matching)
        solution = om.solve(problem, seed=0)
        if solution.schedule is not None:
            return problem, solution


def slot_light(
    problem: om.Routing,
    solution: om.Solution,
    device: Device,
    frequencies_hz: tuple[float, ...] = (0.0,),
    seed: int | None = 0,
) -> tuple[idle.StrayLight, NDArray[np.int8]]:
    """Return the light of a solution, and its states with free cells in cross."""
    fabric = problem.fabric
    stated = solution.schedule.cell_states[0].copy()  # type: ignore[index]
    free = np.flatnonzero(stated == FREE)
    source = np.flatnonzero(problem.matching >= 0)
    first = fabric.source_terminals[source]
    last = fabric.destination_terminals[problem.matching[source]]
    chip = idle.ChipOptics.of(fabric, cells_of(device, fabric.n_cells), frequencies_hz, seed)
    light = idle.StrayLight(chip, first, last, stated, free)
    stated[free] = CROSS
    return light, stated


def add_in_phase(
    fabric: om.Fabric, matching: NDArray[np.int32], states: NDArray[np.int8], device: Device
) -> NDArray[np.float64]:
    """Add amplitudes of all ways, terminal by terminal: the worst crosstalk over signal.

    The signal is the amplitude of the wanted way less all else of the same source.
    """
    graph = fabric.graph
    assert graph is not None
    error = device.phase_error_rad / np.sqrt(2)
    leak = [np.arctan(10 ** (-loss_db / 20)) for loss_db in (33.0, 44.0)]
    n = len(graph.mate)
    moves = np.zeros((2, n, n))  # without and with leaks
    for terminal in range(n):
        cell, place = divmod(terminal, 4)
        state = int(states[cell])
        gain = 10 ** (-0.48 / 20) / np.cos(leak[state])
        wanted, other = 4 * cell + EXITS[place, state], 4 * cell + EXITS[place, 1 - state]
        turns = (leak[state] - error, leak[state] + error)
        moves[:, wanted, terminal] = gain * max(abs(np.cos(turn)) for turn in turns)
        moves[1, other, terminal] = gain * max(abs(np.sin(turn)) for turn in turns)
    join = np.zeros((n, n))
    for terminal in np.flatnonzero(graph.mate >= 0).tolist():
        join[terminal, graph.mate[terminal]] = 1.0
    own, all_ways = (move @ np.linalg.inv(np.eye(n) - join @ move) for move in moves)
    places = np.ix_(fabric.destination_terminals[matching], fabric.source_terminals)
    direct, arriving = np.diag(own[places]), all_ways[places]
    signal = (2 * direct - np.diag(arriving)) ** 2
    ratios: NDArray[np.float64] = ((arriving**2).sum(axis=1) - np.diag(arriving) ** 2) / signal
    return ratios


FABRICS = [om.SwitchAndSelect(5), om.Crossbar(9), om.HexMesh(3, 3, tx=3, rx=3)]


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
@pytest.mark.parametrize("sigma", [0.0, 0.03])
def test_light_is_that_of_the_optics(fabric: om.Fabric, sigma: float) -> None:
    """Of every circuit, at two frequencies, with heat and, on a chip that is known, errors."""
    problem, solution = solved(fabric, 1)
    device = replace(LEAKY, phase_error_rad=sigma)
    frequencies = (0.0, 3e9)
    light, states = slot_light(problem, solution, device, frequencies, seed=4)
    rng = np.random.default_rng(0)
    for _ in range(3):
        states[light.free] = rng.integers(0, 2, len(light.free))
        optics = om.measure_optics(
            problem, solution, device, idle=states[None], frequencies_hz=frequencies, seed=4
        )
        measured = 10 ** (-optics.signal_to_crosstalk_db[0] / 10)
        ratios = light.ratios(light.solve(states)).reshape(len(frequencies), -1)
        assert np.allclose(ratios.max(axis=0), measured, rtol=1e-6)


@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize("fabric", FABRICS[:2], ids=lambda fabric: fabric.type)
def test_flips_do_what_they_promise(fabric: om.Fabric, seed: int | None) -> None:
    """Where light cannot come back to a cell, in known and in unknown phases.

    Heat of the flipped cell itself is left out.
    """
    problem, solution = solved(fabric, 1)
    device = replace(LEAKY, phase_error_rad=0.01, thermal_crosstalk=0.0)
    light, states = slot_light(problem, solution, device, (0.0, 3e9), seed)
    promised = light.ratios_after_flips(light.solve(states), states)
    for row, cell in enumerate(light.free[:12]):
        flipped = states.copy()
        flipped[cell] = 1 - flipped[cell]
        assert np.allclose(promised[row], light.ratios(light.solve(flipped)), rtol=1e-6)


def test_unknown_phases_are_the_worst() -> None:
    fabric = om.HexMesh(3, 3, tx=3, rx=3)
    problem, solution = solved(fabric, 1)
    device = replace(UNKNOWN, waveguide_loss_db_per_m=0.0)
    light, states = slot_light(problem, solution, device, seed=None)
    rng = np.random.default_rng(0)
    for _ in range(5):
        states[light.free] = rng.integers(0, 2, len(light.free))
        expected = add_in_phase(fabric, problem.matching, states, device)
        assert np.allclose(light.ratios(light.solve(states)), expected, rtol=1e-6)


def test_light_that_may_not_fade_stays_finite() -> None:
    """Closed rings of cells without loss in unknown phases: no signal is lost, no sum explodes."""
    device = Device(bar_extinction_db=20.0, cross_extinction_db=20.0, phase_error_rad=0.1)
    fabric = om.HexMesh(3, 3, ports=4)
    problem, solution = routed(fabric, 1)
    settled = om.settle_free_cells(problem, solution, device)
    assert np.isin(settled, (0, 1)).all()
    light, _ = slot_light(problem, solution, device, seed=None)
    ratios = light.ratios(light.solve(settled[0]))
    assert np.isfinite(ratios).all() and (ratios >= 0).all()


@pytest.mark.parametrize("seed", range(1, 1 + examples(1, plain=1)))
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "fabric",
    [om.HexMesh(4, 4, ports=8), om.SquareMesh(4, 4, tx=4, rx=4), om.HexMesh(5, 5, ports=6)],
)
def test_no_random_states_are_better(fabric: om.Fabric, known: bool, seed: int) -> None:
    """Of forty: but for the thousandth of a dB that less power may cost."""
    problem, solution = routed(fabric, seed)
    device = DEVICES["smartlight"] if known else UNKNOWN
    light, states = slot_light(problem, solution, device, seed=None)
    settled = om.settle_free_cells(problem, solution, device)
    ours = light.ratios(light.solve(settled[0])).max()
    rng = np.random.default_rng(seed)
    for _ in range(examples(40, plain=10)):
        states[light.free] = rng.integers(0, 2, len(light.free))
        assert ours <= light.ratios(light.solve(states)).max() * 1.00025


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_it_comes_close_to_the_best_of_all_states(shift: int) -> None:
    problem, solution = solved(om.SwitchAndSelect(4), shift)
    stated = solution.schedule.cell_states
    assert stated is not None
    free = np.flatnonzero(stated[0] == FREE)
    best = -np.inf
    for states in product((0, 1), repeat=len(free)):
        tried = stated.copy()
        tried[0, free] = states
        ratio = om.measure_optics(problem, solution, "smartlight", idle=tried).figures[RATIO]
        best = max(best, ratio)
    settled = om.settle_free_cells(problem, solution, "smartlight")
    found = om.measure_optics(problem, solution, "smartlight", idle=settled).figures[RATIO]
    assert found > best - 0.01


def test_stuck_cells_and_lonely_circuits_are_left_alone() -> None:
    fabric = Faulty(om.SwitchAndSelect(4), stuck_bar=[23])
    problem = om.Routing(fabric, np.array([1, -1, -1, -1], dtype=np.int32))
    solution = om.solve(problem, seed=0)
    stated = solution.schedule.cell_states
    assert stated is not None
    settled = om.settle_free_cells(problem, solution, "smartlight")
    expected = np.where(stated == FREE, CROSS, stated)
    expected[0, 23] = 0
    assert np.array_equal(settled, expected)


def test_dead_cells_pass_no_light() -> None:
    fabric = Faulty(om.HexMesh(4, 4, ports=8), dead_cells=[20])
    problem, solution = routed(fabric, 3)
    light, states = slot_light(problem, solution, LEAKY)
    optics = om.measure_optics(problem, solution, LEAKY, idle=states[None])
    measured = 10 ** (-optics.signal_to_crosstalk_db[0] / 10)
    assert np.allclose(light.ratios(light.solve(states)), measured, rtol=1e-6)


def test_circuits_of_netlists_are_those_of_the_optics() -> None:
    """Interferometers drawn at random: couplers of all kinds, phase shifters in either arm."""
    rng = np.random.default_rng(50)
    n_cells = 0
    while n_cells < 20:
        try:
            fabric = netlist_from_tree(DrawnChip(rng).tree())
        except NetlistError:  # no interferometer that switches
            continue
        ours = idle.find_circuit_matrices(fabric)
        expected = circuit_matrices(fabric)
        assert ours is not None
        assert expected is not None
        assert np.allclose(ours, expected, atol=1e-12)
        n_cells += 1
    assert idle.find_circuit_matrices(om.Benes(2)) is None


def test_frequencies_are_numbers() -> None:
    problem, solution = solved(om.SwitchAndSelect(4), 1)
    for wrong in ([], [np.inf], [[0.0]]):
        with pytest.raises(om.InputError, match="frequencies_hz"):
            om.settle_free_cells(problem, solution, "smartlight", frequencies_hz=wrong)  # type: ignore[arg-type]


def test_a_table_with_errors_is_a_known_chip() -> None:
    """Errors of phases that a calibration has measured are no unknown ones."""
    fabric = om.HexMesh(4, 4, ports=8)
    problem, solution = routed(fabric, 2)
    ideal = CellDevice.of("smartlight", fabric.n_cells)
    chip = ideal.draw({"arm_1_error_rad": 0.1, "arm_2_error_rad": 0.1}, seed=3)
    settled = om.settle_free_cells(problem, solution, chip)
    by_the_table, by_the_preset = (
        om.measure_optics(problem, solution, chip, idle=idle_states).figures[RATIO]
        for idle_states in (settled, om.settle_free_cells(problem, solution, "smartlight"))
    )
    assert by_the_table > by_the_preset
