"""Loss, crosstalk and power on a known chip: followed beam by beam, and bounded."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import CellCircuit, CellPart
from optmatch.fabrics.light import trace
from optmatch.model import BAR, CROSS
from optmatch.verify.light import (
    circuit_matrices,
    circuit_matrix,
    find_wrong_states,
    ideal_matrix,
    ways_through,
)
from optmatch.verify.routing.bounds import (
    Quality,
    bound_crosstalk,
    bound_objective,
    bound_power,
    chip_figures,
    measure_quality,
    sum_least,
    sum_power,
)
from tests.helpers import oracles
from tests.helpers.chips import LOSS, POWER, SNR, draw_chip
from tests.verify.rules import schedule
from tests.verify.rules.routing import PINS, interferometer

BENES = om.Benes(4)
STATES = np.array([*product((0, 1), repeat=BENES.n_cells)], dtype=np.int8)


@pytest.mark.parametrize("fabric", [BENES, om.HexMesh(2, 1), om.Crossbar(2)], ids=lambda f: f.type)
def test_beams_lose_and_leak_as_one_follows_them(fabric: om.Fabric) -> None:
    """Several slots, of any states."""
    graph, rng, chip = fabric.graph, np.random.default_rng(4), draw_chip(fabric.n_cells, 2)
    assert graph is not None
    states = rng.integers(0, 2, (6, fabric.n_cells)).astype(np.int8)
    starts = np.asarray(fabric.source_terminals)
    found = measure_quality(trace(graph, states, np.tile(starts, (len(states), 1))), chip)
    assert found.crosstalk.any()
    for slot, row in enumerate(states):
        ways = [[at for at, _ in oracles.follow(graph, row, k)[0]] for k in starts.tolist()]
        powers = []
        for way in ways:
            lost, power = 0.0, {}
            for at in way:
                power[at] = 10 ** (-lost / 10)
                lost += chip.loss_db[at // 4, row[at // 4]]
            powers.append(power)
            assert found.loss_db[slot, len(powers) - 1] == pytest.approx(lost)
        for k, mine in enumerate(powers):
            ratio = sum(
                chip.leak[at // 4, row[at // 4]] * other[at ^ 1] / mine[at]
                for j, other in enumerate(powers)
                for at in mine
                if j != k and at ^ 1 in other
            )
            assert found.crosstalk[slot, k] == pytest.approx(ratio)


@pytest.mark.parametrize(
    "broken", [{}, {"dead_cells": [0]}, {"stuck_bar": [0], "stuck_cross": [3], "dead_cells": [5]}]
)
def test_the_least_loss_is_that_of_all_states(broken: dict[str, list[int]]) -> None:
    """Of each circuit alone; and of several the largest, infinite where there is no way."""
    fabric = om.Faulty(BENES, **broken)
    chip, rows = draw_chip(BENES.n_cells, 3), STATES
    for state, name in enumerate(("stuck_bar", "stuck_cross")):
        rows = rows[(rows[:, broken.get(name, [])] == state).all(axis=1)]
    least = np.full((4, 4), math.inf)
    for row in rows:
        for k, start in enumerate(fabric.source_terminals.tolist()):
            steps, left = oracles.follow(BENES.graph, row, start)  # as if nothing were dead
            way = [at for at, _ in steps]
            if not set(broken.get("dead_cells", [])) & {at // 4 for at in way}:
                end = fabric.destination_terminals.tolist().index(left)
                lost = sum(chip.loss_db[at // 4, row[at // 4]] for at in way)
                least[k, end] = min(least[k, end], lost)
    assert np.isinf(least).any() == bool(broken)
    for k, end in product(range(4), repeat=2):
        wanted = np.zeros((4, 4), dtype=bool)
        wanted[k, end] = True
        assert sum_least(fabric, chip.loss_db, wanted) == pytest.approx([least[k, end]])
    found = sum_least(fabric, chip.loss_db, np.eye(4, dtype=bool))
    assert found == pytest.approx(least.diagonal())
    assert sum_least(om.IdealSwitch(4), chip.loss_db, np.ones((4, 4), dtype=bool)) == []


def test_the_mean_crosstalk_is_bounded_if_all_cells_are_passed_twice() -> None:
    """By the lesser leak of each cell, or that of the state in which it is stuck."""
    chip = draw_chip(BENES.n_cells, 6)
    fabric = om.Faulty(BENES, stuck_bar=[1], stuck_cross=[2])
    graph, leak = fabric.graph, chip.leak
    assert graph is not None
    free = np.delete(leak, [1, 2], axis=0).min(axis=1).sum()
    bound = bound_crosstalk(graph, chip, BENES.n_cells, 4)
    assert bound == pytest.approx(2 * (free + leak[1, 0] + leak[2, 1]) / 4)
    assert bound_crosstalk(graph, chip, BENES.n_cells - 1, 4) == 0.0
    assert bound_crosstalk(graph, chip, BENES.n_cells, 0) == 0.0
    rows = STATES[(STATES[:, 1] == 0) & (STATES[:, 2] == 1)]
    starts = np.tile(fabric.source_terminals, (len(rows), 1))
    ratios = measure_quality(trace(graph, rows, starts), chip).crosstalk.max(axis=1)
    assert bound <= ratios.min()


def test_each_objective_has_its_bound_and_its_figure() -> None:
    """Two ports that cannot meet: infinite. Of all pairs only the loss is bounded."""
    chip, whole = draw_chip(BENES.n_cells, 1), [1, 0, 3, 2]
    graph: Any = BENES.graph
    loss, snr = (om.Routing(BENES, whole, objective=goal, cells=chip) for goal in (LOSS, SNR))
    wanted = np.asarray(whole)[:, None] == np.arange(4)
    assert bound_objective(loss) == max(sum_least(BENES, chip.loss_db, wanted))
    assert bound_objective(snr) == bound_crosstalk(graph, chip, BENES.n_cells, 4) > 0
    part = om.Routing(BENES, [1, -1, 3, 2], objective=SNR, cells=chip)
    assert bound_objective(part) == 0.0
    pairs = om.AllToAll(BENES, objective=LOSS, cells=chip)
    assert bound_objective(pairs) == max(sum_least(BENES, chip.loss_db, ~np.eye(4, dtype=bool)))
    assert bound_objective(om.AllToAll(BENES, objective=SNR, cells=chip)) == 0.0
    cut: Any = om.Faulty(BENES, stuck_bar=[*range(BENES.n_cells)])
    there = [oracles.follow(cut.graph, [0] * 6, at)[1] for at in cut.source_terminals.tolist()]
    kept = [cut.destination_terminals.tolist().index(end) for end in there]
    for goal in (LOSS, SNR):
        assert bound_objective(om.Routing(cut, kept, objective=goal, cells=chip)) < math.inf
        moved = om.Routing(cut, np.roll(kept, 1), objective=goal, cells=chip)
        assert bound_objective(moved) == math.inf
    routed: Any = om.solve(loss, seed=0)
    assert om.verify(loss, replace(routed, objective=routed.objective * (1 + 1e-12))).valid
    quality = Quality(np.array([[1.0, 3.0]]), np.array([[0.01, 0.001]]))
    told = {"worst_loss_db": 3.0, "worst_snr_db": pytest.approx(20.0), "power_mw": 5.0}
    assert chip_figures(loss, quality, [2.0, 3.0]) == told | {"objective": 3.0}
    assert chip_figures(snr, quality, [2.0, 3.0]) == told | {"objective": 0.01}
    nothing = Quality(np.zeros((0, 2)), np.zeros((0, 2)))
    assert chip_figures(snr, nothing, [])["worst_snr_db"] == math.inf


def test_power_is_a_sum_over_cells() -> None:
    """As stated; the cheaper state of a free cell; of a stuck one its own; and its bound."""
    chip = draw_chip(BENES.n_cells, 2)
    fabric = om.Faulty(BENES, stuck_bar=[1], stuck_cross=[2], dead_cells=[5])
    graph: Any = fabric.graph
    rows = np.array([[0, 0, 1, 1, 0, 1], [-1, -1, -1, 0, -1, -1]], dtype=np.int8)
    power = chip.power_mw.tolist()
    by_hand = [
        power[0][0] + power[1][0] + power[2][1] + power[3][1] + power[4][0] + power[5][1],
        min(power[0]) + power[1][0] + power[2][1] + power[3][0] + min(power[4]) + min(power[5]),
    ]
    assert sum_power(graph, chip, rows) == pytest.approx(by_hand, rel=1e-12)
    assert sum_power(None, chip, None) == []
    dark = sum_power(graph, chip, np.full((1, 6), -1, dtype=np.int8))[0]
    nothing = np.zeros((4, 4), dtype=bool)
    assert bound_power(fabric, chip, nothing, 3) == pytest.approx(3 * dark)
    assert bound_power(om.IdealSwitch(4), chip, nothing, 3) == 0.0
    whole = np.eye(4, dtype=bool)[[1, 0, 3, 2]]
    problem = om.Routing(BENES, [1, 0, 3, 2], objective=POWER, cells=chip)
    bound = bound_power(BENES, chip, whole, 1)
    assert bound_objective(problem) == bound == pytest.approx(problem.lower_bound())
    held = [
        row
        for row in STATES
        if [oracles.follow(BENES.graph, row, at)[1] for at in BENES.source_terminals.tolist()]
        == BENES.destination_terminals[[1, 0, 3, 2]].tolist()
    ]
    assert bound <= min(sum_power(BENES.graph, chip, np.array(held)))
    pairs = om.AllToAll(BENES, objective=POWER, cells=chip)
    every = bound_power(BENES, chip, ~np.eye(4, dtype=bool), 3)
    assert bound_objective(pairs) == every == pytest.approx(pairs.lower_bound())


def test_couplers_send_another_share_across() -> None:
    """With equal phases two couplers that send the share s across let 4 s (1 - s) cross."""
    even = interferometer(math.pi, 0.0)
    straight, across = 0.7**0.5, 0.3**0.5
    matrix = [[[straight, 0.0], [0.0, across]], [[0.0, across], [straight, 0.0]]]
    fabric = replace(even, circuits=(with_couplers(PINS, matrix, ("c1", "c2")),))
    for coupling_change, share in ((0.0, 0.3), (0.2, 0.5), (-0.2, 0.1), (-0.5, 0.0), (0.9, 1.0)):
        matrices = circuit_matrices(fabric, coupling_change)
        assert matrices is not None
        power = np.abs(matrices[0, CROSS]) ** 2
        crossing = 4 * share * (1 - share)
        assert power == pytest.approx(
            np.array([[1 - crossing, crossing], [crossing, 1 - crossing]])
        )


def test_what_enters_a_coupler_may_lose_light_on_either_side() -> None:
    """Of 0.4 and 0.45 a tenth more crosses; what leaves altogether stays as much."""
    power = np.array([[0.25, 0.1], [0.15, 0.35]])  # [side left by, side entered]
    matrix = np.stack([np.sqrt(power), np.zeros((2, 2))], axis=2)
    coupler = CellPart(name="c", component="c", kind="coupler", pins=PINS, matrix=matrix)
    ways = {way[:2]: abs(way[2]) ** 2 for way in ways_through(coupler, 0.0, 0.1)}
    expected = np.array([[0.21, 0.145], [0.19, 0.305]])
    for (row, b_pin), (column, a_pin) in product(enumerate(PINS[2:]), enumerate(PINS[:2])):
        assert ways[f"c,{b_pin}", f"c,{a_pin}"] == pytest.approx(expected[row, column])
        assert ways[f"c,{a_pin}", f"c,{b_pin}"] == pytest.approx(expected[row, column])


def wrong_states(fabric: om.Fabric) -> list[tuple[int, int]]:
    """Return cells and states without their power."""
    return [(cell, state) for cell, state, _ in find_wrong_states(fabric)]


@pytest.mark.parametrize(("size", "wrong"), [(0.9, []), (0.0, [(0, BAR), (0, CROSS)])])
def test_couplers_may_lose_light_but_not_all(size: float, wrong: Any) -> None:
    half = size * 0.5**0.5
    matrix = [[[half, 0.0], [0.0, half]], [[0.0, half], [half, 0.0]]]
    lossy = with_couplers(PINS, matrix, ("c1", "c2"))
    assert wrong_states(replace(interferometer(math.pi, 0.0), circuits=(lossy,))) == wrong


@pytest.mark.parametrize(("leak", "is_wrong"), [(0.09, False), (0.11, True)])
def test_a_tenth_may_leak_of_what_passes(leak: float, is_wrong: bool) -> None:
    """In bar of a whole cell, and in cross of one with a terminal on each side."""
    off_rad = 2 * math.atan(leak**0.5)
    assert wrong_states(interferometer(math.pi - off_rad, 0.0)) == [(0, BAR)] * is_wrong
    (circuit,) = interferometer(math.pi, 2 * math.asin(leak**0.5)).circuits
    assert circuit is not None
    gate = replace(circuit, terminals=("c1,a1", "", "c2,b1", ""))
    ports, open_pins = [("w1", "m,a1"), ("e1", "m,b1")], ["m,a2", "m,b2"]
    fabric = om.Netlist(["m"], {}, ports, circuits=[gate], open_pins=open_pins)
    assert wrong_states(fabric) == [(0, BAR), (0, CROSS)] * is_wrong
    # With the phase of cross in both states no light passes at all.
    dark = replace(gate, difference_rad=(0.0, 0.0))
    assert wrong_states(replace(fabric, circuits=(dark,))) == [(0, BAR), (0, CROSS)]


@pytest.mark.parametrize(("bar_rad", "wrong"), [(math.pi, []), (0.0, [(0, BAR), (0, CROSS)])])
def test_light_may_get_lost_where_a_cell_has_no_terminal(bar_rad: float, wrong: Any) -> None:
    """The second coupler has no exit b2."""
    (circuit,) = interferometer(bar_rad, math.pi - bar_rad).circuits
    assert circuit is not None
    half = 0.5**0.5
    matrix: Any = [[[half, 0.0], [0.0, half]], [[0.0, 0.0], [0.0, 0.0]]]
    parts = [
        replace(part, pins=("a1", "a2", "b1", ""), matrix=matrix) if part.name == "c2" else part
        for part in circuit.parts
    ]
    joining = replace(circuit, parts=parts, terminals=("c1,a1", "c1,a2", "c2,b1", ""))
    ports = [("w1", "m,a1"), ("w2", "m,a2"), ("e1", "m,b1")]
    fabric = om.Netlist(["m"], {}, ports, circuits=[joining], open_pins=["m,b2"])
    assert wrong_states(fabric) == wrong


def test_light_that_gets_elsewhere_is_told_by_the_names_of_both_ports() -> None:
    problem = om.Routing(interferometer(math.pi, 0.0), [0, 1])
    report = om.verify(problem, schedule([[0, 1]], cell_states=[[CROSS]]))
    assert report.violations[0].where == "slot 0, circuit from port w1 to port e1"


def test_cells_behind_unknown_ones_are_looked_at() -> None:
    """The second cell has its states the wrong way round."""
    (swapped,) = interferometer(0.0, math.pi).circuits
    both = interferometer(math.pi, 0.0, before_unknown=True)
    fabric = replace(both, circuits=(None, swapped))
    assert wrong_states(fabric) == [(1, BAR), (1, CROSS)]
    matrices = circuit_matrices(fabric)
    assert matrices is not None and (np.abs(matrices[0, BAR]) == np.eye(2)).all()
    assert not matrices.flags.writeable  # all who ask share them


def test_couplers_of_three_pins_split_evenly() -> None:
    """Whatever is sent across in the other one, equal amplitudes leave by both pins."""
    half = 0.5**0.5
    splitter = [[[half, 0.0], [0.0, 0.0]], [[half, 0.0], [0.0, 0.0]]]
    circuit = with_couplers(("a1", "", "b1", "b2"), splitter, ("c1",))
    for difference_rad in (0.0, math.pi):
        power = np.abs(circuit_matrix(circuit, difference_rad, 0.2)) ** 2
        assert power[:, 0] == pytest.approx(np.full(2, 0.5))


def with_couplers(pins: Any, matrix: Any, names: tuple[str, ...]) -> CellCircuit:
    """Return the circuit of an interferometer in which some couplers are replaced."""
    (circuit,) = interferometer(math.pi, 0.0).circuits
    assert circuit is not None
    parts = [
        replace(part, pins=pins, matrix=matrix) if part.name in names else part
        for part in circuit.parts
    ]
    terminals = ("c1,a1", "c1,a2" if pins[1] else "", "c2,b1", "c2,b2")
    return replace(circuit, parts=parts, terminals=terminals)


def test_an_ideal_cell_leads_all_light_to_one_side() -> None:
    assert (np.abs(ideal_matrix(BAR)) == np.eye(2)).all()
    assert (np.abs(ideal_matrix(CROSS)) == np.eye(2)[::-1]).all()
