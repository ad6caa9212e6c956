"""The circuit of a cell: the couplers, arms and phase shifters that a netlist makes a cell of.

A reader of netlists recognises a Mach-Zehnder interferometer and makes one cell of it. This module
has the record of its parts, which stays with the fabric and goes into problem files. Whoever needs
the transfer matrix of the cell computes it from these parts: the reader does so to decide which
phase sets which state, and the verifier does so again, by code of its own, to check the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.fabric import Fabric
from optmatch.model import (
    BAR,
    CROSS,
    Axes,
    CellDevice,
    GivenOrNone,
    InputError,
    Value,
    check_fields,
    given,
)

_PASSIVE = 1.001
"""The largest factor of an amplitude in a part without gain, up to rounding of its numbers."""

_PartKind = Literal["coupler", "shifter", "pass", "crossing"]

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellPart(Value):
    """A part of the circuit of a cell; light passes it from left to right and back.

    Parameters
    ----------
    name
        The name of its instance in the netlist.
    component
        The name of its component in the netlist.
    kind
        ``"coupler"`` splits light by `matrix`. ``"pass"``, ``"crossing"`` and ``"shifter"`` lead
        light from pin a1 to b1 and from a2 to b2; a shifter adds a phase that can be set.
    pins
        The names of its pins a1 and a2 (left, upper first), b1 and b2 (right); empty for a pin
        that it does not have.
    matrix
        ``matrix[exit, entry, 0 or 1]``: real and imaginary part of the amplitude at b1 and b2 for
        light of amplitude 1 that enters at a1 and a2; shape (2, 2, 2). Light from right to left
        has the transposed matrix, since couplers are reciprocal; nothing is reflected. A coupler
        has it, no other part does.
    """

    name: str
    component: str
    kind: _PartKind
    pins: tuple[str, str, str, str]
    matrix: Annotated[GivenOrNone[np.float64], Axes(3)] = given(
        default=None, metadata={"brief": True}
    )

    def __post_init__(self) -> None:
        """Check that a coupler, and nothing else, has a matrix of the shape (2, 2, 2).

        Its axes are exit, entry, and real or imaginary part.

        Raises
        ------
        InputError
            Naming the part.
        """
        check_fields(self)
        if (self.kind == "coupler") != (self.matrix is not None):
            raise InputError(f"part {self.name}: a coupler has a matrix, and nothing else has one")
        if self.matrix is not None and self.matrix.shape != (2, 2, 2):
            raise InputError(f"part {self.name}: matrix has the shape {self.matrix.shape}")
        if self.matrix is not None:
            amplitudes = self.matrix[..., 0] + 1j * self.matrix[..., 1]
            largest = np.linalg.norm(amplitudes, 2)
            if not largest <= _PASSIVE:
                raise InputError(
                    f"part {self.name}: its matrix makes light {largest:g} times as strong"
                )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellCircuit(Value):
    r"""What a cell is made of: an interferometer of two couplers that two arms join.

    Parameters
    ----------
    parts
        Couplers, phase shifters, and the parts of the arms that pass light.
    joins
        Pairs of pins ``"part,pin"`` that are joined.
    terminals
        The pins ``"part,pin"`` at which the cell has its terminals a1, a2, b1, b2; empty for a
        terminal that the cell does not have. A 1x2 cell has no a2, a 2x1 cell no b2, and a gate
        (1x1) neither. Where both couplers have two outer pins, a1 and b1 are in line with arm 1:
        the way between them that crosses no coupler leads through arm 1.
    arms
        The names of the phase shifters in arm 1 and in arm 2, from the a side to the b side. One
        of the arms has one at least.
    difference_rad
        The phase of arm 1 less that of arm 2, the sum over its shifters, that sets the cell to bar
        and to cross; from :math:`-\pi` (excluded) to :math:`\pi`.
    longer_um
        By how much arm 1 is longer than arm 2 in micrometres, as the netlist says; where it is not
        0, the phase without power is not known.

    Raises
    ------
    InputError
        If a pin belongs to no part, a name is there twice, or no arm has a phase shifter.

    Notes
    -----
    For ideal 2x2 couplers the cell is :math:`j e^{j\varphi} ((\sin\theta, \cos\theta),
    (\cos\theta, -\sin\theta))`, where :math:`2\theta` is the difference: :math:`\pi` for bar, 0
    for cross. With a 1x2 and a 2x2 coupler they are :math:`\pm\pi/2`.
    """

    parts: Sequence[CellPart]
    joins: Sequence[Pair]
    terminals: tuple[str, str, str, str]
    arms: tuple[Sequence[str], Sequence[str]]
    difference_rad: tuple[float, float]
    longer_um: float = field(default=0.0, metadata={"brief": True})

    def __post_init__(self) -> None:
        """Check that joins, terminals and arms of a cell name pins and parts that it has."""
        check_fields(self)
        names = [part.name for part in self.parts]
        if len(set(names)) != len(names):
            raise InputError("a part of a cell is there twice", where="parts")
        pins = {f"{part.name},{pin}" for part in self.parts for pin in part.pins if pin}
        used = [*(pin for join in self.joins for pin in join), *filter(None, self.terminals)]
        for pin in used:
            if pin not in pins:
                raise InputError(f"{pin}: no part of the cell has this pin", where="joins")
            if used.count(pin) > 1:
                raise InputError(f"{pin}: a pin leads to one other alone", where="joins")
        # In bar light goes from a1 to b1 and from a2 to b2: a gate is open in bar.
        has_a1, has_a2, has_b1, has_b2 = (bool(pin) for pin in self.terminals)
        if has_a1 + has_a2 == has_b1 + has_b2 == 1 and has_a1 != has_b1:
            raise InputError(
                f"terminals = {self.terminals}: a gate has a1 and b1, or a2 and b2",
                where="terminals",
            )
        shifters = {part.name for part in self.parts if part.kind == "shifter"}
        listed = [name for arm in self.arms for name in arm]
        if not listed or not shifters.issuperset(listed):
            raise InputError(f"arms = {self.arms}: names of phase shifters", where="arms")

    @property
    def name(self) -> str:
        """The names of its couplers, as ``"c1+c2"``."""
        return "+".join(part.name for part in self.parts if part.kind == "coupler")


def cell_circuits(fabric: Fabric) -> tuple[CellCircuit | None, ...]:
    """Return the circuit of each cell of a fabric, or of the one below it; None if not known."""
    below = getattr(fabric, "fabric", None)
    if isinstance(below, Fabric):
        return cell_circuits(below)
    interposer = getattr(fabric, "interposer", None)
    if isinstance(interposer, Fabric):  # a rack has its cells once for each server
        return cell_circuits(interposer) * (fabric.n_cells // interposer.n_cells)
    circuits: Sequence[CellCircuit | None] = getattr(fabric, "circuits", ())
    return tuple(circuits) or (None,) * fabric.n_cells


def find_differences(fabric: Fabric) -> NDArray[np.float64]:
    r"""Return ``difference_rad[cell, state]``, the phase of arm 1 less that of arm 2.

    It is :math:`\pi` in bar and 0 in cross for a cell whose circuit is not known.

    Examples
    --------
    >>> from optmatch.fabrics import Benes
    >>> find_differences(Benes(2)).round(3).tolist()
    [[3.142, 0.0]]
    """
    standard = (np.pi, 0.0)
    rows = [
        standard if circuit is None else circuit.difference_rad
        for circuit in cell_circuits(fabric)
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def with_cell_phases(fabric: Fabric, cells: CellDevice) -> CellDevice:
    """Give cells the phases that set their states by their circuits, unless their table has some.

    Their heaters then take the power, and give the heat, that the circuits of a netlist need.
    """
    if cells.bar_phase_rad is not None or cells.cross_phase_rad is not None:
        return cells
    if not any(cell_circuits(fabric)):
        return cells
    difference_rad = find_differences(fabric)
    return replace(
        cells,
        bar_phase_rad=difference_rad[:, BAR].copy(),
        cross_phase_rad=difference_rad[:, CROSS].copy(),
    )
