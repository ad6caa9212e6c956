"""What interferometers are cells, and which phase sets which state: against a dense matrix."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.fabrics import CellCircuit, CellPart, Netlist, NetlistError, netlist_from_tree
from optmatch.fabrics.netlists.components import read_number
from optmatch.model import BAR, CROSS
from optmatch.verify.light import circuit_matrices, find_wrong_states
from tests.fabrics.netlists.chips import DrawnChip, flatten, port_amplitudes

DRAWN = 400
SCAN_RAD = np.linspace(0, 2 * np.pi, 721)
"""Phases of one shifter that are tried; twice as fine as a degree."""


def powers_of_phases(chip: DrawnChip, flat: dict[str, Any]) -> NDArray[np.float64]:
    """Scan the first phase shifter in an arm: ``power[phase, port left by, port entered]``."""
    shifters = [*chip.arm_shifters[0], *chip.arm_shifters[1]]
    if not shifters:
        fixed: NDArray[np.float64] = np.abs(port_amplitudes(flat, {})[1][None]) ** 2
        return fixed
    name = next(part for part in flat["instances"] if part.split(".")[-1] == shifters[0])
    # The amplitudes are affine in exp(j phase): two solutions give all.
    at_0 = port_amplitudes(flat, {name: 0.0})[1]
    at_pi = port_amplitudes(flat, {name: np.pi})[1]
    turn = np.exp(1j * SCAN_RAD)[:, None, None]
    scanned: NDArray[np.float64] = np.abs((at_0 + at_pi) / 2 + turn * (at_0 - at_pi) / 2) ** 2
    return scanned


def extinction(power: NDArray[np.float64], west: list[int], east: list[int], bar: bool) -> Any:
    """Return wanted over leaked power for each phase, if west 0 goes to east 0 or to east 1.

    A state in which no wanted pair of ports exists (a gate in cross) is judged by the caller.
    """
    worst = np.full(len(power), np.inf)
    for a, enter in enumerate(west):
        for b, leave in enumerate(east):
            if (a == b) == bar:
                beside = [power[:, other, enter] for other in east if other != leave]
                beside += [power[:, leave, other] for other in west if other != enter]
                leaked = np.max([*beside, np.full(len(power), 1e-30)], axis=0)
                worst = np.minimum(worst, power[:, leave, enter] / leaked)
    return worst


def is_switch(power: NDArray[np.float64], west: list[int], east: list[int]) -> tuple[bool, float]:
    """Say whether some phase has each state with 10 dB, and how far from that limit it is."""
    if len(west) == len(east) == 1:
        through = power[:, east[0], west[0]]
        ratio = through.max() / max(through.min(), 1e-30)
    else:
        ratio = min(extinction(power, west, east, bar).max() for bar in (True, False))
    return bool(ratio >= 10), abs(np.log10(max(ratio, 1e-30)) - 1)


def phases_of(fabric: Netlist, state: int) -> dict[str, float]:
    """Set the phase shifters of the one cell as the fabric says."""
    (circuit,) = fabric.circuits
    assert circuit is not None
    difference = circuit.difference_rad[state]
    arm_1, arm_2 = circuit.arms
    return {arm_1[-1]: difference} if arm_1 else {arm_2[-1]: -difference}


def check_cell(flat: dict[str, Any], power: NDArray[np.float64], fabric: Netlist) -> None:
    """Compare both states of the one cell with the dense matrix: light, phase and power."""
    names = [name for name, _ in fabric.ports]
    terminal = {pin.rpartition(",")[2]: names.index(name) for name, pin in fabric.ports}
    matrices = circuit_matrices(fabric)
    assert matrices is not None
    is_gate = len(terminal) == 2
    if len(terminal) == 4:  # the convention: equal phases of both arms cross
        assert fabric.circuits[0].difference_rad == (np.pi, 0.0)  # type: ignore[union-attr]
    for state in (BAR, CROSS):
        amplitude = port_amplitudes(flat, phases_of(fabric, state))[1]
        for a in (0, 1):
            for b in (0, 1):
                enter, leave = terminal.get(f"a{a + 1}"), terminal.get(f"b{b + 1}")
                if enter is None or leave is None:
                    continue
                got = abs(amplitude[leave, enter]) ** 2
                assert got == pytest.approx(abs(matrices[0, state, b, a]) ** 2, abs=1e-9)
                wanted = (a == b) == (state == BAR)
                scanned = power[:, leave, enter]
                best = scanned.max() if wanted else scanned.min()
                assert got == pytest.approx(best, abs=2e-5)
        west = [terminal[name] for name in ("a1", "a2") if name in terminal]
        east = [terminal[name] for name in ("b1", "b2") if name in terminal]
        if not is_gate:
            one = np.abs(amplitude[None]) ** 2
            assert extinction(one, west, east, state == BAR)[0] >= 10 * (1 - 1e-9)


@pytest.mark.slow
def test_drawn_interferometers_are_what_their_light_does() -> None:
    """Each drawn one is a cell with the right states, or refused and no switch."""
    rng = np.random.default_rng(50)
    n_cells = n_refused = 0
    for _ in range(DRAWN):
        chip = DrawnChip(rng)
        tree = chip.tree()
        flat = flatten(tree)
        ports = list(flat["ports"])
        west = [ports.index(name) for name in ports if name.startswith("west")]
        east = [ports.index(name) for name in ports if name.startswith("east")]
        power = powers_of_phases(chip, flat)
        expected, margin = is_switch(power, west, east)
        try:
            fabric = netlist_from_tree(tree)
        except NetlistError as error:
            assert not expected or margin < 0.01, (tree, error)
            assert "no phase" in str(error) and "matrix is" in str(error)
            n_refused += 1
            continue
        assert expected or margin < 0.01, tree
        assert fabric.n_cells == 1 and find_wrong_states(fabric) == []
        check_cell(flat, power, fabric)
        n_cells += 1
    assert n_cells > 150 and n_refused > 50


def test_a_setting_that_no_float_can_hold_is_no_number() -> None:
    assert read_number(10**400) is None


def one_cell(scale: float, terminals: tuple[str, str, str, str]) -> om.Netlist:
    """Give a chip of one cell with four ports: two couplers, each `scale` times the ideal one."""
    half = scale / np.sqrt(2)
    matrix = np.array([[[half, 0.0], [0.0, half]], [[0.0, half], [half, 0.0]]])
    pins = ("a1", "a2", "b1", "b2")
    couplers = [
        CellPart(name=name, component=name, kind="coupler", pins=pins, matrix=matrix)
        for name in ("c1", "c2")
    ]
    heater = CellPart(name="h", component="h", kind="shifter", pins=("a1", "", "b1", ""))
    circuit = CellCircuit(
        parts=[*couplers, heater],
        joins=[("c1,b1", "h,a1"), ("h,b1", "c2,a1"), ("c1,b2", "c2,a2")],
        terminals=terminals,
        arms=(["h"], []),
        difference_rad=(np.pi, 0.0),
    )
    ports = [("i0", "m,a1"), ("i1", "m,a2"), ("o0", "m,b1"), ("o1", "m,b2")]
    return om.Netlist(["m"], {}, ports, tx=["i0", "i1"], rx=["o0", "o1"], circuits=[circuit])


def test_what_no_circuit_of_a_cell_can_do_is_refused() -> None:
    whole = ("c1,a1", "c1,a2", "c2,b1", "c2,b2")
    assert one_cell(1.0, whole).n_ports == 2
    with pytest.raises(om.InputError, match="m,b2: the circuit of the cell has no b2"):
        one_cell(1.0, (*whole[:3], ""))
    with pytest.raises(om.InputError, match="a gate has a1 and b1, or a2 and b2"):
        one_cell(1.0, (whole[0], "", "", whole[3]))
    cell = one_cell(1.0, whole).circuits[0]
    assert cell is not None
    for joins in ([*cell.joins, ("c1,b1", "c2,a2")], [*cell.joins, ("c1,a1", "c2,b2")]):
        with pytest.raises(om.InputError, match="a pin leads to one other alone"):
            replace(cell, joins=joins)
    for scale in (1.01, 1e160):
        with pytest.raises(om.InputError, match="part c1: its matrix makes light"):
            one_cell(scale, whole)
