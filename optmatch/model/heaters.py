"""Heaters of a chip: what voltage turns the phase of an arm by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optmatch.model.declarations import Amount, Index, Positive, Value
from optmatch.model.errors import InputError

ARMS = (1, 2)
"""The arms of a cell: its difference of phases is that of arm 1 less that of arm 2."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Heater(Value):
    r"""The calibration of the heater on one arm of a cell.

    The phase of the arm at a voltage V is :math:`a + b V^2`, since a phase grows with the power of
    its heater; or it is interpolated, linearly in :math:`V^2`, between measured points.

    Parameters
    ----------
    cell
        The number of the cell.
    arm
        1 or 2.
    a_rad
        The phase of the arm without voltage.
    b_rad_per_v2
        By how much it grows with the square of the voltage; None if there are points.
    volts, phases_rad
        Measured points instead: voltages from 0 on, rising, and phases that rise with them.
    max_v
        The largest voltage that the heater may get; None: that of the last point, or no limit.
    resistance_ohm
        Of the heater, for its power; None if it is not known.
    settling_s
        How long the phase takes to settle; None if it is not known.

    Raises
    ------
    InputError
        If a value is out of range, or there are neither a coefficient nor points.

    Examples
    --------
    >>> heater = Heater(cell=3, arm=1, a_rad=0.2, b_rad_per_v2=0.5, resistance_ohm=1000.0, max_v=4)
    >>> volts = heater.volts_for(2.0)
    >>> volts, heater.power_mw(volts)
    (2.0, 4.0)
    """

    cell: Index
    arm: int
    a_rad: float = 0.0
    b_rad_per_v2: Positive | None = None
    volts: NDArray[np.float64] | None = None
    phases_rad: NDArray[np.float64] | None = None
    max_v: Positive | None = None
    resistance_ohm: Positive | None = None
    settling_s: Amount | None = None

    def __post_init__(self) -> None:
        """Refuse an arm that does not exist, and phases that are not given or do not rise."""
        Value.__post_init__(self)

        # The phase follows from the voltage by a coefficient, or by points between which it rises.
        if self.arm not in ARMS:
            raise InputError(f"arm = {self.arm}: arms are 1 and 2", where="arm")
        if (self.b_rad_per_v2 is None) == (self.volts is None):
            raise InputError("either a coefficient b, or points of volts and phases")
        if self.volts is None:
            if self.phases_rad is not None:
                raise InputError("phases_rad are those of points, not of a coefficient b")
            return
        if self.a_rad != 0:
            raise InputError("a_rad: points say the phase without voltage", where="a_rad")

        if self.phases_rad is None or self.phases_rad.shape != self.volts.shape:
            raise InputError("volts and phases_rad are equally many points", where="volts")
        if len(self.volts) < 2 or self.volts[0] != 0 or (np.diff(self.volts) <= 0).any():
            raise InputError("voltages begin at 0 and rise; at least two", where="volts")
        if (np.diff(self.phases_rad) <= 0).any():
            raise InputError("phases rise with the voltage", where="phases_rad")

    @property
    def phase_at_rest_rad(self) -> float:
        """The phase of the arm without voltage."""
        if self.phases_rad is None:
            return self.a_rad
        return float(self.phases_rad[0])

    @property
    def largest_volts(self) -> float:
        """The largest voltage that the heater may get; infinite without a limit.

        In V: the stated limit or the last measured point, whichever is less.
        """
        limits_v = [math.inf]
        if self.max_v is not None:
            limits_v.append(self.max_v)
        if self.volts is not None:  # nothing is known of the phase beyond the last point
            limits_v.append(float(self.volts[-1]))
        return min(limits_v)

    @property
    def largest_turn_rad(self) -> float:
        """By how much the largest voltage turns the phase; infinite without a limit."""
        return self.turn_rad(self.largest_volts)

    def turn_rad(self, volts: float) -> float:
        """Return by how much a voltage in V turns the phase, in rad, from that without voltage.

        It is a coefficient times the square of the voltage, or interpolated between measured
        points, linearly in that square.
        """
        if self.volts is None or self.phases_rad is None:
            assert self.b_rad_per_v2 is not None
            return self.b_rad_per_v2 * volts**2
        phase_rad = np.interp(volts**2, self.volts**2, self.phases_rad)
        return float(phase_rad - self.phases_rad[0])

    def volts_for(self, turn_rad: float) -> float:
        """Return the voltage in V that turns the phase by this much: the inverse of `turn_rad`.

        Beyond the measured points it is the first or the last of them.
        """
        if self.volts is None or self.phases_rad is None:
            assert self.b_rad_per_v2 is not None
            return math.sqrt(max(0.0, turn_rad) / self.b_rad_per_v2)
        wanted_rad = self.phases_rad[0] + turn_rad
        return math.sqrt(float(np.interp(wanted_rad, self.phases_rad, self.volts**2)))

    def power_mw(self, volts: float) -> float:
        """Return the power at a voltage, in mW; NaN if the resistance is not known."""
        if self.resistance_ohm is None:
            return math.nan
        return 1000 * volts**2 / self.resistance_ohm
