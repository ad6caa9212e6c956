"""The transfer matrix of each cell in its state, with the losses, leaks and errors of a device."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.fabrics.netlists.circuits import cell_circuits
from optmatch.model import BAR, CROSS, CellDevice
from optmatch.verify.light import circuit_matrices, ideal_matrix


def cell_matrices(
    fabric: Fabric,
    cells: CellDevice,
    states: NDArray[np.int8],
    errors_rad: NDArray[np.float64] | None = None,
    coupling_change: float = 0.0,
) -> NDArray[np.complex128]:
    """Return ``T[..., cell, b side, a side]`` of all cells in given states of a device.

    A device states losses, leaks and phase errors of an ideal cell. Where the circuit of a cell is
    known (the parts that it is made of), its matrix takes the place of the ideal one, and the
    effect of the device is multiplied with it. ``errors_rad[cell, arm]`` are errors of phases;
    `coupling_change` is by how much more of the power crosses in each coupler than at the central
    wavelength.
    """
    real = cells.cell(states, errors_rad)
    detuned = detune_couplers(real, coupling_change)
    circuits = circuit_matrices(fabric, coupling_change)
    if circuits is None:
        return detuned
    # The effect of the device on an ideal cell: its matrix times the inverse of the ideal one.
    numbers = np.arange(len(circuits))
    ideal_by_state = np.stack([ideal_matrix(BAR), ideal_matrix(CROSS)])
    factor = real @ ideal_by_state[states].conj().swapaxes(-1, -2)  # the inverse: it is unitary
    matrices: NDArray[np.complex128] = factor @ circuits[numbers, states]

    # Light that leaks towards a terminal that a cell does not have is lost in its coupler.
    has_terminal = np.ones((len(circuits), 4), dtype=bool)
    for cell, circuit in enumerate(cell_circuits(fabric)):
        if circuit is not None:
            has_terminal[cell] = [bool(pin) for pin in circuit.terminals]
    exists = has_terminal[:, 2:, None] & has_terminal[:, None, :2]
    has_circuit = np.array([circuit is not None for circuit in cell_circuits(fabric)])
    return np.where(has_circuit[:, None, None], np.where(exists, matrices, 0.0), detuned)


def detune_couplers(
    matrices: NDArray[np.complex128], coupling_change: float
) -> NDArray[np.complex128]:
    r"""Return the matrices of interferometers whose couplers split unevenly.

    With 50:50 couplers a cell has the matrix :math:`g j e^{j\Delta} ((s, c), (c, -s))` with
    :math:`s = \sin\vartheta` and :math:`c = \cos\vartheta`. If both couplers send the share
    :math:`1/2 + \delta` of the power across, multiplying couplers and arms out gives :math:`g j
    e^{j\Delta} ((s + 2j\delta c, c w), (c w, -s + 2j\delta c))` with :math:`w^2 = 1 - 4\delta^2`.
    In cross the power :math:`4\delta^2` thus stays on its side, and bar does not change.
    ``matrices[..., b side, a side]`` has the first form, and `coupling_change` is :math:`\delta`.
    """
    if coupling_change == 0.0:
        return matrices
    crossing = matrices[..., 0, 1]
    detuned = matrices.copy()
    detuned[..., 0, 0] += 2j * coupling_change * crossing
    detuned[..., 1, 1] += 2j * coupling_change * crossing
    detuned[..., [0, 1], [1, 0]] *= math.sqrt(1 - 4 * coupling_change**2)
    return detuned
