"""Free cells: the model of powers against a dense one, its promises, and all states tried."""

import sys
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.fabrics import Faulty
from optmatch.model import CROSS, DEVICES, FREE, cells_of
from optmatch.solvers.routing import idle

RATIO = "worst_signal_to_crosstalk_db"


def solved(fabric: om.Fabric, shift: int) -> tuple[om.Routing, om.Solution]:
    """Route a cyclic shift, of bidirectional ports an exchange of halves."""
    matching = np.roll(np.arange(fabric.n_ports), shift).astype(np.int32)
    problem = om.Routing(fabric, matching)
    return problem, om.solve(problem, seed=0)


def setting(problem: om.Routing, solution: om.Solution) -> tuple[Any, Any, NDArray[np.int8], Any]:
    """Return flow, ends, states with free cells in cross, and the free cells."""
    device = DEVICES["silicon-electro-optic"]
    graph: Any = problem.fabric.graph
    states = solution.schedule.cell_states[0].copy()  # type: ignore[index]
    free = np.flatnonzero(states == FREE)
    states[free] = CROSS
    source = np.flatnonzero(problem.matching >= 0)
    ends = idle.Ends(
        problem.fabric.source_terminals[source],
        problem.fabric.destination_terminals[problem.matching[source]],
    )
    return idle.PowerFlow.of(graph, cells_of(device, graph.n_cells)), ends, states, free


def spread_densely(
    fabric: om.Fabric, matching: NDArray[np.int32], states: NDArray[np.int8]
) -> NDArray[np.float64]:
    """Add powers terminal by terminal: crosstalk over signal of each circuit."""
    device, graph = DEVICES["silicon-electro-optic"], fabric.graph
    assert graph is not None
    n = len(graph.mate)
    power = np.abs(device.cell(states)) ** 2
    move = np.zeros((n, n))
    for terminal in range(n):
        cell, side = divmod(terminal, 4)
        for left in (0, 1):
            out = 4 * cell + (2 - (side & 2)) + left
            move[out, terminal] = power[cell, left, side & 1]
    join = np.zeros((n, n))
    for terminal in np.flatnonzero(graph.mate >= 0).tolist():
        join[terminal, graph.mate[terminal]] = 1.0
    entering = np.linalg.inv(np.eye(n) - join @ move)
    leaving = move @ entering
    arriving = leaving[np.ix_(fabric.destination_terminals[matching], fabric.source_terminals)]
    ratios: NDArray[np.float64] = arriving.sum(axis=1) / np.diag(arriving) - 1
    return ratios


FABRICS = [om.SwitchAndSelect(5), om.Crossbar(9), om.HexMesh(3, 3, tx=3, rx=3)]


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
def test_powers_are_those_of_a_dense_model(fabric: om.Fabric) -> None:
    problem, solution = solved(fabric, 1)
    flow, ends, states, _ = setting(problem, solution)
    expected = spread_densely(fabric, problem.matching, states)
    # the dense model has no losses of waveguides, which the device has none of either
    assert np.allclose(idle.solve_powers(flow, ends, states).ratios, expected, rtol=1e-6)


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
def test_estimates_are_derivatives(fabric: om.Fabric) -> None:
    problem, solution = solved(fabric, 1)
    flow, ends, states, free = setting(problem, solution)
    now = idle.solve_powers(flow, ends, states)
    estimated = idle.estimate_changes(flow, now, states, free)
    step = 1e-4
    for k, cell in enumerate(free[:12]):
        # a third kind of state, which only this cell has
        here, there = flow.by_state[states[cell], cell], flow.by_state[1 - states[cell], cell]
        third = np.zeros((1, *flow.by_state.shape[1:]))
        third[0, cell] = (1 - step) * here + step * there
        moved = flow._replace(by_state=np.concatenate([flow.by_state, third]))
        partly = states.copy()
        partly[cell] = 2
        grown = (idle.solve_powers(moved, ends, partly).cost - now.cost) / step
        assert grown == pytest.approx(estimated[k], rel=1e-2, abs=1e-9 * now.cost)


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
def test_no_choice_beats_cells_that_swallow_light(fabric: om.Fabric) -> None:
    """The bound at which the search ends: fewer powers in the sum, none negative."""
    problem, solution = solved(fabric, 1)
    flow, ends, states, free = setting(problem, solution)
    swallowing = states.copy()
    swallowing[free] = FREE
    bound = idle.solve_powers(flow, ends, swallowing).cost
    rng = np.random.default_rng(1)
    for _ in range(20):
        states[free] = rng.integers(0, 2, len(free))
        assert idle.solve_powers(flow, ends, states).cost >= bound * (1 - 1e-9)


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
    assert found > best - 0.5


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


def test_the_model_is_not_that_of_the_verifier() -> None:
    source = (sys.modules[idle.__name__].__file__ or "").strip()
    assert source
    names = set(vars(idle))
    assert not names & {"scatter", "measure_optics", "trace"}
