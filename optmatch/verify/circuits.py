"""The transfer matrix of each cell, computed from the parts that it is made of.

A reader of netlists says which couplers are a cell, which of its states is bar, and which phase
sets it. Here the matrix of every cell follows from its parts alone: the waves at all pins of the
circuit are one linear system. It shares no code with the reader, so a cell that was read wrongly
is found.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellCircuit, CellPart, Fabric
from optmatch.fabrics.netlists.circuits import cell_circuits
from optmatch.model import BAR, CROSS

MAX_LEAK = 0.1
"""A state sends light where it should if at most this share of as much leaks elsewhere."""


def circuit_matrix(
    circuit: CellCircuit, difference_rad: float, coupling_change: float = 0.0
) -> NDArray[np.complex128]:
    """Compute ``T[b side, a side]`` of a cell from the optical parts that it is made of.

    With the amplitudes :math:`x` that enter parts at all pins, :math:`y` that leave them, and the
    light :math:`s` from outside, parts are :math:`y = S x` and joins :math:`x = C y + s`; hence
    :math:`(I - C S) x = s` is solved. The first phase shifter of arm 1 has the difference of
    phases; if arm 1 has none, the first one of arm 2 has its negative. `coupling_change` is by how
    much more of the power crosses in couplers of four pins than their matrices say: at another
    wavelength. Entries of terminals that the cell lacks are 0.
    """
    arm_1, arm_2 = circuit.arms
    phase_of_part = {arm_1[0]: difference_rad} if arm_1 else {arm_2[0]: -difference_rad}
    # Row and column k of all matrices belong to pin k; `number` counts the pins of all parts.
    number = {
        f"{part.name},{pin}": k
        for k, (part, pin) in enumerate(
            (part, pin) for part in circuit.parts for pin in part.pins if pin
        )
    }

    # S has a block for each part, C is a permutation of the joined pins.
    scattering = np.zeros((len(number), len(number)), dtype=np.complex128)
    for part in circuit.parts:
        phase_rad = phase_of_part.get(part.name, 0.0)
        for exit_, entry, amplitude in _ways_through(part, phase_rad, coupling_change):
            scattering[number[exit_], number[entry]] = amplitude
    joined = np.zeros((len(number), len(number)))
    for first, second in circuit.joins:
        joined[number[first], number[second]] = 1.0
        joined[number[second], number[first]] = 1.0

    # One column at a time: light of amplitude 1 comes in at one a pin, and the equations give what
    # leaves by the b pins.
    a_pins, b_pins = circuit.terminals[:2], circuit.terminals[2:]
    matrix = np.zeros((2, 2), dtype=np.complex128)
    for column, pin in enumerate(a_pins):
        if pin:
            source = np.zeros(len(number), dtype=np.complex128)
            source[number[pin]] = 1.0
            entering = np.linalg.solve(np.eye(len(number)) - joined @ scattering, source)
            leaving = scattering @ entering
            matrix[:, column] = [leaving[number[b_pin]] if b_pin else 0.0 for b_pin in b_pins]
    return matrix


def _ways_through(
    part: CellPart, phase_rad: float, coupling_change: float
) -> list[tuple[str, str, complex]]:
    """List exit, entry and amplitude of all ways through a part, in both directions.

    A part without a matrix leads a1 to b1 and a2 to b2, and adds a phase. A coupler of three pins
    is symmetric, and splits evenly at each wavelength.
    """
    # The last axis of a part's matrix holds the real and the imaginary part.
    a_pins, b_pins = part.pins[:2], part.pins[2:]
    through = np.eye(2) * np.exp(1j * phase_rad)
    if part.matrix is not None:
        through = part.matrix[..., 0] + 1j * part.matrix[..., 1]
        if all(part.pins):
            through = _with_other_coupling(through, coupling_change)
    ways = []
    for row, b_pin in enumerate(b_pins):
        for column, a_pin in enumerate(a_pins):
            if a_pin and b_pin:
                b_end = f"{part.name},{b_pin}"
                a_end = f"{part.name},{a_pin}"
                amplitude = complex(through[row, column])
                ways += [(b_end, a_end, amplitude), (a_end, b_end, amplitude)]
    return ways


def _with_other_coupling(
    coupler: NDArray[np.complex128], coupling_change: float
) -> NDArray[np.complex128]:
    """Return the matrix of a 2x2 coupler in which another share of the power crosses.

    Phases stay, and so does the power that leaves the coupler altogether; the share ends at 0 and
    1.
    """
    if coupling_change == 0.0:
        return coupler
    power = np.abs(coupler) ** 2
    power_out = power.sum(axis=0)  # by side entered
    crossing = np.clip(power[::-1].diagonal() + coupling_change * power_out, 0.0, power_out)
    staying = power_out - crossing
    # Rows are sides left by: in the first one, what stays comes from side 1.
    changed = np.array([[staying[0], crossing[1]], [crossing[0], staying[1]]])
    matrix: NDArray[np.complex128] = np.sqrt(changed) * np.exp(1j * np.angle(coupler))
    return matrix


@lru_cache(maxsize=64)
def circuit_matrices(
    fabric: Fabric, coupling_change: float = 0.0
) -> NDArray[np.complex128] | None:
    """Return ``T[cell, state, b side, a side]``, read-only; None if no circuit is known."""
    circuits = cell_circuits(fabric)
    if not any(circuits):
        return None
    matrices = np.empty((len(circuits), 2, 2, 2), dtype=np.complex128)
    for cell, circuit in enumerate(circuits):
        for state in (BAR, CROSS):
            matrices[cell, state] = (
                ideal_matrix(state)
                if circuit is None
                else circuit_matrix(circuit, circuit.difference_rad[state], coupling_change)
            )
    matrices.flags.writeable = False
    return matrices


def ideal_matrix(state: int) -> NDArray[np.complex128]:
    """Return ``T[b side, a side]`` of an ideal interferometer, as of `CellDevice`."""
    if state == BAR:
        return np.array([[1j, 0], [0, -1j]])
    return np.array([[0, 1j], [1j, 0]])


class WrongState(NamedTuple):
    """A state that a cell does not have, by the matrix of its parts."""

    cell: int
    state: int
    matrix: NDArray[np.complex128]


def find_wrong_states(fabric: Fabric) -> list[WrongState]:
    """List the states of cells in which light does not go where the state says.

    The matrices are those of the parts of a cell. In bar light goes from a1 to b1 and from a2 to
    b2, in cross from a1 to b2 and from a2 to b1, as far as the cell has these terminals. All else
    that leaves the terminal where it goes, or comes from where it starts, may be `MAX_LEAK` of its
    power at most. A cell with one terminal on each side is dark in cross.
    """
    matrices = circuit_matrices(fabric)
    if matrices is None:
        return []
    wrong = []
    for cell, circuit in enumerate(cell_circuits(fabric)):
        if circuit is None:
            continue
        # A terminal without a pin is not there; a1 and a2 come first, then b1 and b2.
        has_a = np.array([bool(pin) for pin in circuit.terminals[:2]])
        has_b = np.array([bool(pin) for pin in circuit.terminals[2:]])
        power = np.abs(matrices[cell]) ** 2
        for state in (BAR, CROSS):
            if has_a.sum() == has_b.sum() == 1:
                holds = power[CROSS].sum() <= MAX_LEAK * power[BAR].sum()
            else:
                holds = _goes_right(power[state], has_a, has_b, state)
            if not holds:
                wrong.append(WrongState(cell, state, matrices[cell, state]))
    return wrong


def _goes_right(
    power: NDArray[np.float64], has_a: NDArray[np.bool_], has_b: NDArray[np.bool_], state: int
) -> bool:
    """Tell whether the power that a state should pass outweighs all that leaks beside it.

    It does not if a wanted entry of ``power[b side, a side]`` is 0, or an entry in its row or
    column is more than `MAX_LEAK` of it.
    """
    for a_side in np.flatnonzero(has_a):
        b_side = a_side if state == BAR else 1 - a_side
        if has_b[b_side]:
            wanted_power = power[b_side, a_side]
            leaked = max(power[1 - b_side, a_side], power[b_side, 1 - a_side])
            if wanted_power <= 0 or leaked > MAX_LEAK * wanted_power:
                return False
    return True
