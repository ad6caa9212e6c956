r"""From states of cells to voltages of heaters: drive tables.

A cell is in a state if the phases of its arms differ by a known angle (`find_differences`), up to
whole turns. A heater can only add to the phase of its arm, hence the wanted difference is reached
by arm 1, or by arm 2 with the rest of a whole turn. The arm that needs less power is taken, of
those in reach.

A heater warms other cells, too. With ``share[j, i]``, the part of the turn of heater j that cell i
gets, the difference of cell i is :math:`a_1 - a_2 + u_1 - u_2 + \sum_j share_{ji} (u_1 + u_2)_j`
for the turns u of the heaters. It is solved for u by iteration, which converges as long as shares
are small. Phases are then right with all heaters on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.fabric import Fabric
from optmatch.fabrics.netlists.circuits import cell_circuits, with_cell_phases
from optmatch.fabrics.waveguides import heat_shares
from optmatch.model import FREE, CellDevice, InputError
from optmatch.model.heaters import ARMS, Heater

_WHOLE_TURN_RAD = 2 * math.pi

_CLOSE_RAD = 1e-9
"""Phases are right within this; less than this below a whole turn needs no heat."""

_MOST_ROUNDS = 500


class HeaterStep(NamedTuple):
    """One heater gets another voltage."""

    slot: int
    cell: int
    arm: int
    """The arm of the cell that it heats, 1 or 2."""
    state: int
    """The state of the cell in this slot: 0 bar, 1 cross."""
    turn_rad: float
    """By how much the heater turns the phase of its arm from now on."""
    volts: float
    power_mw: float
    """The power of this heater from now on; NaN if it is not known."""
    total_mw: float
    """The power of all heaters from now on; NaN if one is not known."""
    settling_s: float
    """How long the cell takes to settle."""


Heaters = Mapping[tuple[int, int], Heater]
"""The heaters of a chip, by the number of the cell and the arm."""


def plan_heater_steps(
    fabric: Fabric,
    cell_states: NDArray[np.int8],
    heaters: Heaters,
    cells: CellDevice,
    *,
    most_mw: float | None = None,
) -> list[HeaterStep]:
    """Plan the voltages of all heaters of a chip, slot by slot, in the order of setting them.

    ``cell_states[slot, cell]``: 0 bar, 1 cross, -1 free. `heaters` are calibrated; `cells` say
    what heat reaches other cells, and power and settling times that heaters do not state.
    `most_mw` is the most power, None for no limit. A free cell keeps the voltages that it has;
    before the first slot there is no voltage. At the beginning of each slot heaters are turned
    down first, and only then others up, hence the total power on the way is never above that of
    both slots. Heaters that keep their voltage have no step. A cell that no heater brings to its
    phase is refused, and so is a slot above `most_mw`.
    """
    n_cells = fabric.n_cells
    driver = _Driver(fabric, heaters, cells)
    turns_rad = np.zeros((n_cells, 2))
    shown_states = np.full(n_cells, FREE, dtype=np.int8)
    steps: list[HeaterStep] = []
    for slot, states in enumerate(cell_states):
        # Free cells keep the state that they show.
        shown_states = np.where(states == FREE, shown_states, states).astype(np.int8)
        next_turns_rad = driver.turns_for(shown_states, slot)
        steps += driver.order_changes(slot, shown_states, turns_rad, next_turns_rad, most_mw)
        turns_rad = next_turns_rad
    return steps


class _Driver:
    """Heaters of one chip as arrays by cell and arm, shape (cells, 2): arm 1 is column 0.

    ``largest_rad`` is the most that a heater can turn the phase of its arm, -1 for no heater, and
    ``mw_per_rad`` its power for each rad. ``wanted_rad[cell, state]`` is the difference of phases
    that sets a state, ``at_rest_rad[cell]`` the difference without power, and ``shares[heated,
    cell]`` the part of a turn that another cell gets as heat.
    """

    def __init__(self, fabric: Fabric, heaters: Heaters, cells: CellDevice) -> None:
        """Put what is known about the heaters of a chip into arrays by cell and arm.

        An arm without a heater can be turned by -1 rad at most, so that no phase is in its reach.
        A device of another number of cells, and a heater of a cell that does not exist, are an
        `InputError`.
        """
        graph = fabric.graph
        if graph is None:
            raise InputError("a switch without cells has no heaters")
        if cells.n_cells != fabric.n_cells:
            raise InputError(f"a device of {cells.n_cells} cells, not {fabric.n_cells}")
        self.names: Sequence[str] = fabric.cell_names
        self.heaters = heaters
        self.cells = cells
        # Differences of phases (arm 1 minus arm 2) are those of the table of cells, or else of the
        # netlist.
        with_phases = with_cell_phases(fabric, cells)
        wanted_rad = [with_phases.column("bar_phase_rad"), with_phases.column("cross_phase_rad")]
        self.wanted_rad = np.stack(wanted_rad, axis=1)

        # Powers that are not known count as 1 mW for each rad.
        shape = (fabric.n_cells, 2)
        self.largest_rad = np.full(shape, -1.0)  # no heater
        self.mw_per_rad = np.ones(shape)  # arms without a heater are out of reach anyway
        self.at_rest_rad = np.zeros(fabric.n_cells)

        # Arm 1 adds to the difference of phases without voltage, arm 2 takes away from it.
        for (cell, arm), heater in heaters.items():
            if cell >= fabric.n_cells:
                raise InputError(f"a heater of cell {cell}: cells are 0 .. {fabric.n_cells - 1}")
            self.largest_rad[cell, arm - 1] = heater.largest_turn_rad
            sign = 1 if arm == ARMS[0] else -1
            self.at_rest_rad[cell] += sign * heater.phase_at_rest_rad
            power_mw = self.power_mw(cell, arm, 1.0)
            self.mw_per_rad[cell, arm - 1] = 1.0 if math.isnan(power_mw) else power_mw

        # Where heaters state no difference without power, the table of cells does. Both may not
        # contradict each other, and of arms of unlike length one has to state it.
        circuits = cell_circuits(fabric)
        heated = (self.largest_rad >= 0).any(axis=1)
        for cell in np.flatnonzero(heated).tolist():
            by_heaters = self.at_rest_rad[cell]
            by_table = cells.phase_offset_rad[cell]
            apart_rad = math.remainder(by_heaters - by_table, _WHOLE_TURN_RAD)
            if by_heaters != 0 and by_table != 0 and abs(apart_rad) > 1e-6:
                raise InputError(
                    f"cell {self.names[cell]}: without power the phase of arm 1 less arm 2 is"
                    f" {by_heaters:.6g} rad by its heaters and {by_table:.6g} rad by the table"
                )
            circuit = circuits[cell]
            if by_heaters == by_table == 0 and circuit is not None and circuit.longer_um:
                raise InputError(
                    f"cell {self.names[cell]}: arms differ by {abs(circuit.longer_um):.6g} um, and"
                    " neither a_rad of its heaters nor phase_offset_rad says its phase without"
                    " power"
                )
            self.at_rest_rad[cell] = by_heaters if by_heaters != 0 else by_table

        # ``shares[heated, cell]``: the part of a heater's turn that another cell's phase gets.
        self.shares = np.zeros((fabric.n_cells, fabric.n_cells))
        if cells.device.thermal_crosstalk:
            self.shares = heat_shares(graph, cells.device)

    def turns_for(self, states: NDArray[np.int8], slot: int) -> NDArray[np.float64]:
        """Find ``turn_rad[cell, arm - 1]`` by which heaters must turn phases to set the cells.

        ``states[cell]`` is 0 for bar and 1 for cross; heaters of free cells (-1) are off. `slot`
        is named in errors. A heater also warms other cells, whose heaters then have less to do.
        The turns are therefore found again, each time with the heat of the last ones, until they
        settle (fixed-point iteration).
        """
        # wanted_rad: the difference of phases that heat has to make in each set cell.
        cells = np.flatnonzero(states != FREE)
        wanted_rad = self.wanted_rad[cells, states[cells]] - self.at_rest_rad[cells]
        turns_rad = np.zeros(self.largest_rad.shape)
        for _ in range(_MOST_ROUNDS):
            # warmed_rad: what each cell gets by the heat of others; its own heaters have to make
            # up for the rest.
            warmed_rad = turns_rad.sum(axis=1) @ self.shares
            missing_rad = wanted_rad - warmed_rad[cells]
            next_turns_rad = np.zeros_like(turns_rad)
            next_turns_rad[cells] = self._choose_arms(cells, missing_rad, turns_rad[cells])
            change_rad = np.abs(next_turns_rad - turns_rad).max(initial=0.0)
            turns_rad = next_turns_rad
            if change_rad < _CLOSE_RAD:
                break
        else:
            raise InputError(
                f"slot {slot}: heat of other cells is too strong for phases to be compensated"
                f" (thermal_crosstalk = {self.cells.device.thermal_crosstalk:g})"
            )

        # Each cell has a heater that reaches what it lacks.
        for cell, missing in zip(cells.tolist(), missing_rad, strict=True):
            reach_rad = self.largest_rad[cell]
            needed_rad = _wrapped(np.array([missing, -missing]))
            if (needed_rad <= np.maximum(reach_rad, 0.0)).any():
                continue
            if (reach_rad < 0).all():
                raise InputError(f"slot {slot}, cell {self.names[cell]}: no heater is calibrated")
            # Arms without a calibrated heater have a negative reach.
            reached = [
                f"arm {arm} reaches {reach:.3g} of {needed:.3g} rad"
                for arm, reach, needed in zip(ARMS, reach_rad, needed_rad, strict=True)
                if reach >= 0
            ]
            raise InputError(
                f"slot {slot}, cell {self.names[cell]}: {' and '.join(reached)} within its voltage"
            )
        return turns_rad

    def _choose_arms(
        self,
        cells: NDArray[np.intp],
        missing_rad: NDArray[np.float64],
        former_rad: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Choose for each cell which of its two heaters turns the phase, and how far.

        ``missing_rad[k]`` is what ``cells[k]`` lacks, ``former_rad[k, arm]`` the turns of the
        round before; the result has their shape. A heater on arm 1 adds to the difference that is
        missing, one on arm 2 takes from it, and whole turns make no difference. The heater that
        needs less power, and can reach the phase, is taken. In further rounds the former heater is
        kept unless the other one needs less than half, since two that need the same power would
        alternate.
        """
        # By cell and arm: the turn that would be needed, and its cost, infinite if out of reach.
        by_arm_rad = _wrapped(np.stack([missing_rad, -missing_rad], axis=1))
        cost = by_arm_rad * self.mw_per_rad[cells]
        cost[former_rad > 0] /= 2
        cost[by_arm_rad > self.largest_rad[cells]] = np.inf

        # The cheaper arm gets its turn, the other one none.
        arm = np.argmin(cost, axis=1)
        turns_rad = np.zeros_like(by_arm_rad)
        rows = np.arange(len(cells))
        turns_rad[rows, arm] = by_arm_rad[rows, arm]
        return turns_rad

    def order_changes(
        self,
        slot: int,
        states: NDArray[np.int8],
        before_rad: NDArray[np.float64],
        after_rad: NDArray[np.float64],
        most_mw: float | None,
    ) -> list[HeaterStep]:
        """List the steps of a slot in an order that never takes too much power.

        ``states[cell]`` are the states in this slot. ``before_rad[cell, arm - 1]`` and
        ``after_rad`` are the turns of heaters in the slot before and in this one; a turn is what a
        heater adds to the phase of its arm. Heaters whose power falls come first, those whose
        power rises last. Example: heater A falls from 5 to 1 mW and heater B rises from 0 to 4 mW.
        The total is 5, 1, 5 mW; in the other order it would be 5, 9, 5 mW. A slot in which all
        heaters take more than `most_mw`, or an unknown power, is refused.
        """
        # The heaters whose turn changes, with the rise of their power, and the totals.
        changes = []
        total_mw = 0.0
        total_after_mw = 0.0
        for (cell, arm), heater in sorted(self.heaters.items()):
            before_mw = self.power_mw(cell, arm, before_rad[cell, arm - 1])
            after_mw = self.power_mw(cell, arm, after_rad[cell, arm - 1])
            total_mw += before_mw
            total_after_mw += after_mw
            if most_mw is not None and math.isnan(after_mw):
                raise InputError(
                    f"cell {self.names[cell]}, arm {arm}: the resistance is not known, and the"
                    " power has a limit"
                )
            difference_rad = after_rad[cell, arm - 1] - before_rad[cell, arm - 1]
            # Where powers are unknown, turns tell which heaters go down.
            if abs(difference_rad) > _CLOSE_RAD:
                rise = difference_rad if math.isnan(after_mw) else after_mw - before_mw
                changes.append((rise, cell, arm, heater, before_mw))
        if most_mw is not None and total_after_mw > most_mw * (1 + 1e-12):
            raise InputError(
                f"slot {slot}: heaters take {total_after_mw:.4g} mW, at most {most_mw:g}"
            )

        # One step after the other; total_mw is the power of all heaters after it.
        steps = []
        for _, cell, arm, heater, before_mw in sorted(changes, key=lambda change: change[:3]):
            turn_rad = float(after_rad[cell, arm - 1])
            power_mw = self.power_mw(cell, arm, turn_rad)
            total_mw += power_mw - before_mw
            settling_s = heater.settling_s
            if settling_s is None:
                settling_s = float(self.cells.settling_s[cell])
            steps.append(
                HeaterStep(
                    slot=slot,
                    cell=cell,
                    arm=arm,
                    state=int(states[cell]),
                    turn_rad=turn_rad,
                    volts=heater.volts_for(turn_rad),
                    power_mw=power_mw,
                    total_mw=total_mw,
                    settling_s=settling_s,
                )
            )
        return steps

    def power_mw(self, cell: int, arm: int, turn_rad: float) -> float:
        """Return the power of a heater by its resistance, or by the device.

        NaN if neither says it.
        """
        heater = self.heaters[cell, arm]
        if heater.resistance_ohm is not None:
            return heater.power_mw(heater.volts_for(turn_rad))
        mw_per_pi = float(self.cells.heater_mw_per_pi[cell])
        return mw_per_pi * turn_rad / math.pi if mw_per_pi > 0 else math.nan


def _wrapped(turn_rad: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return turns from 0 up to a whole one; 0 for what misses a whole one by rounding alone."""
    wrapped: NDArray[np.float64] = np.mod(turn_rad, _WHOLE_TURN_RAD)
    wrapped[_WHOLE_TURN_RAD - wrapped < _CLOSE_RAD] = 0.0
    return wrapped
