"""The transfer matrices of cells whose circuits a netlist states, in bar and in cross.

Light passes such a cell once: through the first coupler, along both arms, and through the second
coupler. Nothing is reflected, hence the amplitudes follow from walking along the joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.netlists.circuits import cell_circuits
from optmatch.model import BAR, CROSS

if TYPE_CHECKING:
    from optmatch.fabrics import CellCircuit, CellPart, Fabric

IDEAL_MATRICES = np.array([[[1j, 0], [0, -1j]], [[0, 1j], [1j, 0]]])
"""``IDEAL_MATRICES[state, b side, a side]``: a lossless cell by the convention of `Device`."""


def find_circuit_matrices(fabric: Fabric) -> NDArray[np.complex128] | None:
    """Return the matrices of lossless cells, by their circuits where these are known.

    ``matrices[cell, state, b side, a side]``: amplitudes at b1 and b2 for light of amplitude 1 at
    a1 and a2, 0 at a terminal that a cell does not have. None if no cell has a known circuit.
    """
    circuits = cell_circuits(fabric)
    if not any(circuits):
        return None
    matrices = np.tile(IDEAL_MATRICES, (len(circuits), 1, 1, 1))
    for cell, circuit in enumerate(circuits):
        if circuit is not None:
            for state in (BAR, CROSS):
                matrices[cell, state] = _walk_circuit(circuit, circuit.difference_rad[state])
    return matrices


def _walk_circuit(circuit: CellCircuit, difference_rad: float) -> NDArray[np.complex128]:
    """Return ``matrix[b side, a side]`` of a cell; `difference_rad` is how far arm 1 is ahead.

    Entries are complex amplitudes, of light that enters at a terminal of side a (column 0 or 1)
    and leaves at one of side b (row 0 or 1). Waves walk along the joins; where a coupler divides
    one, both parts go on, and those that meet at a terminal are added up.
    """
    part_of_name = {part.name: part for part in circuit.parts}
    joined_pin: dict[str, str] = {}
    for first, second in circuit.joins:
        joined_pin[first] = second
        joined_pin[second] = first

    # One shifter holds the whole difference; the others of both arms stand for none.
    arm_1, arm_2 = circuit.arms
    phase_of_part = {arm_1[0]: difference_rad} if arm_1 else {arm_2[0]: -difference_rad}

    matrix = np.zeros((2, 2), dtype=np.complex128)
    for a_side, a_pin in enumerate(circuit.terminals[:2]):
        # Waves on their way: where each enters a part, and its amplitude.
        entering: list[tuple[str, complex]] = [(a_pin, 1.0 + 0j)] if a_pin else []
        while entering:
            entry, amplitude = entering.pop()
            name, pin = entry.rsplit(",", 1)
            part = part_of_name[name]
            for exit_pin, factor in _ways_from(part, pin, phase_of_part.get(name, 0.0)):
                exit_ = f"{name},{exit_pin}"
                if exit_ in joined_pin:
                    entering.append((joined_pin[exit_], amplitude * factor))
                elif exit_ in circuit.terminals[2:]:
                    matrix[circuit.terminals.index(exit_) - 2, a_side] += amplitude * factor
    return matrix


def _ways_from(part: CellPart, pin: str, phase_rad: float) -> list[tuple[str, complex]]:
    """List the pins at which light leaves a part that it enters at `pin`, with the amplitudes.

    A part without a matrix is a piece of waveguide: a1 leads to b1 and a2 to b2, and the phase of
    the light grows by `phase_rad`.
    """
    place = part.pins.index(pin)
    if part.matrix is None:
        exit_pin = part.pins[(place + 2) % 4]
        return [(exit_pin, complex(np.exp(1j * phase_rad)))] if exit_pin else []

    # Couplers are reciprocal: light from the b side has the transposed matrix.
    matrix = part.matrix[..., 0] + 1j * part.matrix[..., 1]
    if place < 2:
        ways = zip(part.pins[2:], matrix[:, place], strict=True)
    else:
        ways = zip(part.pins[:2], matrix[place - 2, :], strict=True)
    return [(exit_pin, complex(factor)) for exit_pin, factor in ways if exit_pin]
