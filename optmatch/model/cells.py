"""A device for every cell: a chip as it was measured, or drawn from a spread."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model.declarations import Count, Range, check_fields, form_of
from optmatch.model.device import DEVICES, NO_LEAK_DB, Device, find_device, mix_ways, phase_errors
from optmatch.model.errors import InputError
from optmatch.model.numbers import check_length, plain_array
from optmatch.model.schedule import BAR, CROSS
from optmatch.model.values import Value

ON_CHIP = ("worst-loss-db", "worst-snr-db", "power-mw")
"""Objectives that need a chip of which each cell is known."""

Losses = Annotated[NDArray[np.float64], Range(0, 1000)]
Amounts = Annotated[NDArray[np.float64], Range(0)]

CELL_FIELDS = (
    "bar_loss_db",
    "cross_loss_db",
    "bar_extinction_db",
    "cross_extinction_db",
    "phase_offset_rad",
    "heater_mw_per_pi",
    "settling_s",
    "arm_1_error_rad",
    "arm_2_error_rad",
    "bar_phase_rad",
    "cross_phase_rad",
)
"""What may be known of each cell, in the order of the columns of a table."""

_COLUMNS_OF_NEED = ("arm_1_error_rad", "arm_2_error_rad", "bar_phase_rad", "cross_phase_rad")
"""Columns that a table has only if some cell differs from an ideal one in them."""

_IDEAL_PHASES_RAD = dict(zip(_COLUMNS_OF_NEED, (0.0, 0.0, math.pi, 0.0), strict=True))
"""The values of an ideal cell in these columns, in rad."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellDevice(Value):
    r"""What each cell of one chip does to light, and what it takes to set it.

    Parameters
    ----------
    device
        What is the same everywhere: waveguides, facets, delays; and what a cell does that was not
        measured.
    bar_loss_db, cross_loss_db, bar_extinction_db, cross_extinction_db
        As of `Device`, by cell; float64, shape (cells,). An extinction of 1000 dB is no leak.
    phase_offset_rad
        By how much the phases of the arms of a cell differ without power. A heater adds what is
        left to the wanted difference, so light sees no offset and the power depends on it.
    heater_mw_per_pi
        The power that turns the phase by :math:`\pi`, in mW.
    settling_s
        How long the cell takes from one state to the other.
    arm_1_error_rad, arm_2_error_rad
        Errors of the phases of both arms in every state, which light does see: what a calibration
        has missed. None: no cell has any.
    bar_phase_rad, cross_phase_rad
        The difference of the phases of both arms, arm 1 less arm 2, in which a cell is in bar and
        in cross. None: :math:`\pi` and 0, as of interferometers with two 2x2 couplers. Cells with
        a 1x2 coupler need other differences.

    Raises
    ------
    InputError
        If lengths differ, there is no cell, or a value is out of range.

    See Also
    --------
    Device : One device for all cells.
    Routing : Takes it, for the loss and the crosstalk of the worst circuit.

    Examples
    --------
    >>> cells = CellDevice.of("smartlight", 3, {1: {"bar_loss_db": 0.7}})
    >>> cells.bar_loss_db.tolist(), cells.power_mw.tolist()
    ([0.48, 0.7, 0.48], [[1.34, 0.0], [1.34, 0.0], [1.34, 0.0]])
    """

    device: Device = DEVICES["ideal"]
    bar_loss_db: Losses
    cross_loss_db: Losses
    bar_extinction_db: Losses
    cross_extinction_db: Losses
    phase_offset_rad: NDArray[np.float64]
    heater_mw_per_pi: Amounts
    settling_s: Amounts
    arm_1_error_rad: NDArray[np.float64] | None = field(default=None, metadata={"brief": True})
    arm_2_error_rad: NDArray[np.float64] | None = field(default=None, metadata={"brief": True})
    bar_phase_rad: NDArray[np.float64] | None = field(default=None, metadata={"brief": True})
    cross_phase_rad: NDArray[np.float64] | None = field(default=None, metadata={"brief": True})

    def __post_init__(self) -> None:
        """Check ranges and lengths; columns that are ideal in all cells become None.

        ``bar_loss_db``, one of the columns, has an entry for each cell and counts them.

        Raises
        ------
        InputError
            Naming the column that has another length or a value out of range.
        """
        check_fields(self)

        # The losses in bar count the cells, and every other column has an entry for each.
        form_of(Count).check("n_cells", self.n_cells)
        for name in CELL_FIELDS:
            check_length(name, getattr(self, name), self.n_cells, "cells (bar_loss_db)")

        # Chips that are the same compare equal, whether ideal values are spelled out or not.
        for name, ideal_rad in _IDEAL_PHASES_RAD.items():
            column = getattr(self, name)
            if column is not None and (column == ideal_rad).all():
                self._set(**{name: None})  # the fields of a frozen dataclass cannot be assigned to

    @classmethod
    def of(
        cls,
        device: Device | str,
        n_cells: int,
        measured: Mapping[int, Mapping[str, float]] | None = None,
    ) -> CellDevice:
        """Take one device for all cells, except what was measured.

        Parameters
        ----------
        device
            A device, or the name of a preset.
        n_cells
            The number of cells.
        measured
            ``measured[cell][name]``: values of some cells.

        Returns
        -------
        CellDevice
            A table with a column for each figure and an entry for each cell.

        Raises
        ------
        InputError
            If there is no such cell, no such name, or a value is out of range.
        """
        chosen_device = find_device(device)
        n_cells = form_of(Count).check("n_cells", n_cells)
        columns = {name: np.full(n_cells, _default(chosen_device, name)) for name in CELL_FIELDS}

        # What was measured of a cell goes before the figures of the device.
        for cell, values in (measured or {}).items():
            if not 0 <= cell < n_cells:
                allowed = f"cells are 0 .. {n_cells - 1}"
                raise InputError(f"cell {cell}: {allowed}", where=f"cell {cell}")
            for name, value in values.items():
                if name not in columns:
                    names = ", ".join(CELL_FIELDS)
                    raise InputError(f"{name!r}: unknown; known are {names}", where=name)
                columns[name][cell] = form_of(float).check(f"cell {cell}, {name}", value)
        return cls(device=chosen_device, **columns)

    def draw(self, sigmas: Mapping[str, float], seed: int) -> CellDevice:
        """Draw a chip: each value with an error of a normal distribution, cut off at 0.

        Parameters
        ----------
        sigmas
            The standard deviation of each column that is drawn, by its name, in its unit.
        seed
            Of the generator.

        Returns
        -------
        CellDevice
            The same table with other values; the same seed draws the same chip.

        Raises
        ------
        InputError
            If a name is that of no column.

        Examples
        --------
        >>> chip = CellDevice.of("smartlight", 278).draw({"bar_loss_db": 0.1}, seed=0)
        >>> print(f"{chip.bar_loss_db.mean():.2f} {chip.bar_loss_db.std():.2f}")
        0.48 0.10
        """
        rng = np.random.default_rng(seed)
        drawn: dict[str, Any] = {}
        # Errors are drawn for all columns, so that one column does not depend on the others.
        for name in CELL_FIELDS:
            errors = rng.normal(0.0, 1.0, self.n_cells)
            if name not in sigmas:
                continue
            sigma = form_of(float).check(name, sigmas[name])
            values = self.column(name) + sigma * errors
            if not name.endswith("_rad"):  # phases alone may be negative
                values = np.maximum(values, 0.0)
            drawn[name] = values

        # A name that is none of the columns was not drawn.
        for name in sigmas:
            if name not in drawn:
                raise InputError(f"{name!r}: unknown; known are {', '.join(CELL_FIELDS)}")
        return replace(self, **drawn)

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return len(self.bar_loss_db)

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one of `CELL_FIELDS`, shape (cells,); ideal values if it is None.

        Parameters
        ----------
        name
            The name of a figure of cells, such as ``bar_loss_db``.
        """
        column: NDArray[np.float64] | None = getattr(self, name)
        if column is None:
            return np.full(self.n_cells, _IDEAL_PHASES_RAD[name])
        return column

    @property
    def arm_errors_rad(self) -> NDArray[np.float64]:
        """``arm_errors_rad[cell, arm]``: errors of phases that light sees."""
        return np.stack([self.column("arm_1_error_rad"), self.column("arm_2_error_rad")], axis=1)

    @property
    def leak(self) -> NDArray[np.float64]:
        """``leak[cell, state]``: power at the other over power at the wanted output, as a ratio.

        float64, shape (cells, 2), for bar (0) and cross (1). It follows from the stated
        extinctions, or if errors of phases are known, from the amplitudes that the phases give.
        """
        if self.arm_1_error_rad is None and self.arm_2_error_rad is None:
            return self._stated_leak
        power = self._power_by_state
        # A cell may send all light the other way.
        wanted_power = np.maximum(power[:, :, 0], 1e-100)
        leak: NDArray[np.float64] = power[:, :, 1] / wanted_power
        return leak

    @property
    def loss_db(self) -> NDArray[np.float64]:
        """``loss_db[cell, state]``: what light loses on its way to the wanted output, in dB.

        Where no errors of phases are known it is the stated loss, or more if extinction says that
        more light leaves by the other output; else it follows from the phases.

        float64, shape (cells, 2), for bar (0) and cross (1).
        """
        if self.arm_1_error_rad is None and self.arm_2_error_rad is None:
            stated = np.stack([self.bar_loss_db, self.cross_loss_db], axis=1)
            loss_db: NDArray[np.float64] = np.maximum(stated, 10 * np.log10(1 + self.leak))
            return loss_db
        wanted_db: NDArray[np.float64] = -10 * np.log10(
            np.maximum(self._power_by_state[:, :, 0], 1e-100)
        )
        return wanted_db

    @property
    def _stated_leak(self) -> NDArray[np.float64]:
        """``leak[cell, state]`` by the extinctions alone, without errors of phases.

        Extinction is the power at the wanted output over that at the other one, in dB, so the leak
        is 10 ** (-extinction / 10); from `NO_LEAK_DB` on it is 0. float64, shape (cells, 2).
        """
        extinction_db = np.stack([self.bar_extinction_db, self.cross_extinction_db], axis=1)

        # Powers of arrays and of single numbers differ in their last bit on some processors. The
        # power of a single number is taken, as for a `Device`, once for each different value.
        values_db, place = np.unique(extinction_db, return_inverse=True)
        leak_of_value = np.array([math.pow(10, -value_db / 10) for value_db in values_db.tolist()])
        leak: NDArray[np.float64] = leak_of_value[place].reshape(extinction_db.shape)
        return np.where(extinction_db >= NO_LEAK_DB, 0.0, leak)

    @property
    def _power_by_state(self) -> NDArray[np.float64]:
        """``power[cell, state, way]``: what leaves by the wanted way (0) and by the other (1).

        As parts of the power that enters on side 1, from end a, in bar (0) and cross (1); float64,
        shape (cells, 2, 2).
        """
        both_states = np.broadcast_to(np.array([[BAR], [CROSS]]), (2, self.n_cells))
        power = np.abs(self.cell(both_states)[..., 0]) ** 2  # light that enters on side 1
        # In bar light on side 1 should stay there, in cross it should change to side 2.
        in_bar = power[BAR]
        in_cross = power[CROSS, :, ::-1]
        return np.stack([in_bar, in_cross], axis=1)

    @property
    def turn_rad(self) -> NDArray[np.float64]:
        """``turn_rad[cell, state]``: by how much heaters turn the phase to hold a state.

        In rad, from 0 to 2 pi; float64, shape (cells, 2), for bar (0) and cross (1).
        """
        wanted_rad = np.stack([self.column("bar_phase_rad"), self.column("cross_phase_rad")], 1)
        turn: NDArray[np.float64] = np.mod(wanted_rad - self.phase_offset_rad[:, None], 2 * np.pi)
        turn[2 * np.pi - turn < 1e-12] = 0.0  # a whole turn but for rounding
        return turn

    @property
    def power_mw(self) -> NDArray[np.float64]:
        """``power_mw[cell, state]``: of the heaters that hold a state."""
        power: NDArray[np.float64] = self.heater_mw_per_pi[:, None] * self.turn_rad / np.pi
        return power

    def cell(
        self, states: ArrayLike, errors_rad: NDArray[np.float64] | None = None
    ) -> NDArray[np.complex128]:
        """Return the matrices of the cells in given states, as `Device.cell` does.

        Parameters
        ----------
        states
            ``states[..., cell]``: 0 bar, 1 cross.
        errors_rad
            ``errors_rad[..., cell, arm]``: errors of the phases of the arms, beside those of the
            table; None for none.

        Returns
        -------
        NDArray
            ``matrix[..., cell, exit, entry]``: amplitudes between the two sides of a cell;
            complex128.

        Raises
        ------
        InputError
            If a state is neither bar nor cross.
        """
        chosen = plain_array("states", states)
        if chosen.dtype.kind not in "iu" or not np.isin(chosen, (BAR, CROSS)).all():
            raise InputError("a cell is in bar (0) or in cross (1)", where="states")
        # Each cell has the loss and the leak of its own state, and the errors of both tables add
        # up.
        loss_db = np.where(chosen == BAR, self.bar_loss_db, self.cross_loss_db)
        stated_leak = self._stated_leak
        leak = np.where(chosen == BAR, stated_leak[:, BAR], stated_leak[:, CROSS])
        all_errors_rad = phase_errors(errors_rad, chosen)
        if self.arm_1_error_rad is not None or self.arm_2_error_rad is not None:
            drawn_rad = 0.0 if all_errors_rad is None else all_errors_rad
            all_errors_rad = np.broadcast_to(self.arm_errors_rad + drawn_rad, (*chosen.shape, 2))
        return mix_ways(chosen, loss_db, leak, all_errors_rad)


def _default(device: Device, name: str) -> float:
    """Return the value that a column has where nothing was measured.

    It is the figure of the device, `NO_LEAK_DB` for an extinction without a limit.
    """
    # A device has no phases, so these are those of an ideal cell.
    value = getattr(device, name, _IDEAL_PHASES_RAD.get(name, 0.0))
    if value is None:  # an extinction without a limit
        return NO_LEAK_DB
    return float(value)


def cells_of(device: Device | CellDevice | str, n_cells: int) -> CellDevice:
    """Return the device of each cell of a fabric.

    Parameters
    ----------
    device
        One device for all cells, the name of a preset, or a table with an entry for each cell.
    n_cells
        The number of cells of the fabric.

    Returns
    -------
    CellDevice
        A table with an entry for each cell.

    Raises
    ------
    InputError
        If there is no preset of that name, or a table is one of other cells.
    """
    if not isinstance(device, CellDevice):
        return CellDevice.of(device, n_cells)
    if device.n_cells != n_cells:
        raise InputError(
            f"a device of {device.n_cells} cells, a fabric of {n_cells}", where="device"
        )
    return device
