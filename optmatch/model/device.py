r"""The device of a cell: the interferometer behind every 2x2 cell; and of each cell of a chip.

A cell is a Mach-Zehnder interferometer: a 50:50 coupler, two arms of phase ``phi_up`` (from side
1) and ``phi_low`` (from side 2), and another 50:50 coupler. With
:math:`\Delta = (\varphi_{up} + \varphi_{low}) / 2` and
:math:`\vartheta = (\varphi_{up} - \varphi_{low}) / 2` light that enters at one end, on side 1 and
side 2, leaves at the other end, on side 1 and side 2, by

.. math::

    T = j e^{j\Delta} \begin{pmatrix} \sin\vartheta & \cos\vartheta \\
    \cos\vartheta & -\sin\vartheta \end{pmatrix}

So :math:`\vartheta = 0`, the passive state, is cross, and :math:`\vartheta = \pi/2` is bar. A
phase grows along the way (:math:`e^{+j\varphi}`). T is symmetric: backwards it is the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model.declarations import (
    Amount,
    Count,
    Positive,
    Range,
    Value,
    check_fields,
    form_of,
)
from optmatch.model.errors import InputError
from optmatch.model.numbers import check_length, frozen, plain_array, real_array
from optmatch.model.schedule import BAR, CROSS


def transfer(theta_rad: ArrayLike, delta_rad: ArrayLike = 0.0) -> NDArray[np.complex128]:
    r"""Return the transfer matrices of lossless Mach-Zehnder interferometers.

    An interferometer is two arms between two 50:50 couplers. Light of amplitudes :math:`a_1, a_2`
    enters on side 1 and side 2 of one end, and leaves on side 1 and side 2 of the other end with
    the amplitudes :math:`b = T a`,

    .. math::

        T = j e^{j\Delta} \begin{pmatrix} \sin\vartheta & \cos\vartheta \\
        \cos\vartheta & -\sin\vartheta \end{pmatrix}

    A phase grows along the way (:math:`e^{+j\varphi}`). With :math:`\vartheta = 0` light changes
    its side (cross), with :math:`\vartheta = \pi/2` it stays on its side (bar). T is symmetric,
    hence it also holds for light in the opposite direction.

    Parameters
    ----------
    theta_rad
        :math:`\vartheta = (\varphi_{up} - \varphi_{low}) / 2`: half the difference of the phases
        of the arm from side 1 and the arm from side 2, in radians; any shape.
    delta_rad
        :math:`\Delta = (\varphi_{up} + \varphi_{low}) / 2`: half the sum of both phases, in
        radians. It is broadcast with `theta_rad`.

    Returns
    -------
    NDArray
        ``T[..., side left by, side entered]``, complex128: the shape of both arguments together,
        then 2 x 2. Amplitudes, hence powers are the squares of their absolute values.

    References
    ----------
    .. [1] Sanchez-Jacome (2025), thesis, chapter 2, repository ricarvid1/dsj-thesis.

    Examples
    --------
    The passive state swaps the sides:

    >>> np.abs(transfer(0.0)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    theta, delta = np.broadcast_arrays(theta_rad, delta_rad)
    return _matrix(np.sin(theta), np.cos(theta), delta)


def _matrix(
    bar_amplitude: NDArray[np.float64], cross_amplitude: NDArray[np.float64], delta_rad: ArrayLike
) -> NDArray[np.complex128]:
    """Return transfer matrices ``T[..., side left by, side entered]`` of cells.

    They come from the real amplitudes of light that stays on its side and of light that changes
    it, and from the mean phase of the arms.
    """
    rows = np.stack([bar_amplitude, cross_amplitude, cross_amplitude, -bar_amplitude], axis=-1)
    factor = 1j * np.exp(1j * np.asarray(delta_rad, dtype=np.float64))
    return np.asarray(factor[..., None, None] * rows.reshape(*rows.shape[:-1], 2, 2))


NO_LEAK_DB = 1000.0
"""An extinction from which on a cell does not leak."""

Loss = Annotated[float, Range(0, 1000)]
"""The loss of a part in a problem, in dB: what loses more passes no light."""
Power = Annotated[float, Range(0, 1e12)]
"""The power of a heater, in mW, that adds up over all cells and slots."""

_Slope = Annotated[float, Range(-0.5, 0.5)]
_Share = Annotated[float, Range(0, 1)]

SPEED_OF_LIGHT_M_PER_S = 299_792_458.0


def frequency_of_nm(wavelength_nm: float) -> float:
    """Return the optical frequency in Hz of a wavelength in nm in vacuum.

    Raises
    ------
    InputError
        If the wavelength is not above 0.

    Examples
    --------
    >>> f"{frequency_of_nm(1550.0) / 1e12:.3f} THz"
    '193.414 THz'
    """
    if not wavelength_nm > 0.0:
        raise InputError(f"a wavelength of {wavelength_nm:g} nm: must be > 0", where="wavelengths")
    return SPEED_OF_LIGHT_M_PER_S / wavelength_nm * 1e9


def distances_hz(
    center_nm: float, frequencies_hz: ArrayLike, wavelengths_nm: ArrayLike | None
) -> NDArray[np.float64]:
    """Return optical frequencies as distances from that of `center_nm`, finite and one at least.

    They are given as such distances, where ``(0.0,)`` stands for none given, or as wavelengths.
    """
    center_hz = frequency_of_nm(center_nm)
    if wavelengths_nm is not None:
        if np.ravel(frequencies_hz).tolist() != [0.0]:
            raise InputError("either frequencies_hz or wavelengths_nm", where="wavelengths_nm")
        wavelengths = frozen("wavelengths_nm", wavelengths_nm, 1, np.float64).tolist()
        frequencies_hz = [frequency_of_nm(nm) - center_hz for nm in wavelengths]
    frequencies = frozen("frequencies_hz", frequencies_hz, 1, np.float64)
    if not len(frequencies):
        raise InputError("frequencies_hz: at least one", where="frequencies_hz")
    if frequencies.min() <= -center_hz:
        raise InputError(
            f"frequencies_hz: {frequencies.min():g} from a light of {center_hz:g}: none is left",
            where="frequencies_hz",
        )
    return frequencies


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Device(Value):
    r"""The losses and leaks of one cell, one waveguide and one facet of a chip.

    Parameters
    ----------
    name
        The name of the device in reports.
    source
        Where the numbers come from, and which of them are assumed.
    bar_loss_db, cross_loss_db
        The loss of the wanted way through a cell in this state. Where more would come out of the
        cell than went in (no loss, but a leak), it loses just what leaks.
    bar_extinction_db, cross_extinction_db
        Power at the wanted over power at the other output; None for a cell that does not leak. It
        is an angle: :math:`\tan^2` of the distance of :math:`\vartheta` from its ideal value.
    phase_error_rad
        Root mean square of the error of the phase of each arm of each cell, drawn once for a chip.
    waveguide_loss_db_per_m, bend_loss_db, crossing_loss_db
        Loss of the waveguides between cells: per metre, for each bend, for each waveguide crossed.
    coupling_loss_db
        Between a fibre and the chip, at each facet. A circuit passes two.
    cell_length_m, cell_delay_s
        Length and delay of the way through one cell. Waveguides between cells are as fast.
    access_delay_s
        Delay of the ways between both facets and the mesh, together.
    heater_mw_per_pi
        The power that turns the phase of an arm by pi, in mW. Cross needs none, bar this much.
    settling_s
        How long a cell takes from one state to the other.
    thermal_crosstalk, thermal_decay_cells
        A heater at a distance of d lengths of a cell turns the phase of a cell, too, by its own
        turn times :math:`c\,e^{-d / l}`.
    wavelength_nm
        The wavelength at which losses and extinctions hold.
    coupler_slope_per_nm
        By how much the share of the power that crosses in each coupler of a cell grows with the
        wavelength, per nm: 0.002 is half of the light at `wavelength_nm` and 54 % at 20 nm more.
    coupler_wavelengths_nm, coupler_shares
        Instead of a slope a table: rising wavelengths, and the share of the power that crosses at
        each, from 0 to 1. It is interpolated, and counts by its difference from its value at
        `wavelength_nm`.

    Raises
    ------
    InputError
        If a number is negative or not finite, or there is a slope beside a table, or a table that
        does not rise or does not reach `wavelength_nm`.

    Examples
    --------
    >>> device = Device(bar_loss_db=0.5, bar_extinction_db=30.0)
    >>> power = np.abs(device.cell(BAR)) ** 2
    >>> print(f"{10 * np.log10(power[0, 0]):.2f} dB, {10 * np.log10(power[1, 0]):.2f} dB")
    -0.50 dB, -30.50 dB
    """

    name: str = "custom"
    source: str = ""
    bar_loss_db: Amount = 0.0
    cross_loss_db: Amount = 0.0
    bar_extinction_db: Amount | None = None
    cross_extinction_db: Amount | None = None
    phase_error_rad: Amount = 0.0
    waveguide_loss_db_per_m: Amount = 0.0
    bend_loss_db: Amount = 0.0
    crossing_loss_db: Amount = 0.0
    coupling_loss_db: Amount = 0.0
    cell_length_m: Amount = 0.0
    cell_delay_s: Amount = 0.0
    access_delay_s: Amount = 0.0
    heater_mw_per_pi: Power = 0.0
    settling_s: Amount = 0.0
    thermal_crosstalk: Amount = 0.0
    thermal_decay_cells: Positive = 1.0
    wavelength_nm: Positive = field(default=1550.0, metadata={"brief": True})
    coupler_slope_per_nm: _Slope = field(default=0.0, metadata={"brief": True})
    coupler_wavelengths_nm: tuple[Positive, ...] = field(default=(), metadata={"brief": True})
    coupler_shares: tuple[_Share, ...] = field(default=(), metadata={"brief": True})

    def __post_init__(self) -> None:
        """Check ranges, and that a table of couplers is one."""
        check_fields(self)
        wavelengths_nm = self.coupler_wavelengths_nm
        nouns = "coupler_wavelengths_nm"
        check_length("coupler_shares", self.coupler_shares, len(wavelengths_nm), nouns)
        if not wavelengths_nm:
            return
        if self.coupler_slope_per_nm:
            raise InputError(
                "coupler_slope_per_nm: either a slope or a table of wavelengths",
                where="coupler_slope_per_nm",
            )
        if any(next_nm <= last_nm for last_nm, next_nm in pairwise(wavelengths_nm)):
            raise InputError("coupler_wavelengths_nm: must rise", where="coupler_wavelengths_nm")
        # The wavelength of the device has to lie in the table, too.
        self._share_at(np.array([self.wavelength_nm]))

    @property
    def has_band(self) -> bool:
        """Whether couplers depend on the wavelength."""
        return bool(self.coupler_slope_per_nm) or bool(self.coupler_wavelengths_nm)

    def coupling_changes(self, frequencies_hz: ArrayLike) -> NDArray[np.float64]:
        """Return by how much more power crosses in a coupler than at the central wavelength.

        Parameters
        ----------
        frequencies_hz
            Optical frequencies, as distances from that of `wavelength_nm`; any shape.

        Returns
        -------
        NDArray
            The same shape: the change of the share of the power that crosses.

        Raises
        ------
        InputError
            If a wavelength is outside of the table, or a coupler with half of the light at the
            centre would send less than nothing or more than all across.

        Examples
        --------
        >>> device = Device(coupler_slope_per_nm=0.002)
        >>> offset_hz = frequency_of_nm(1570.0) - frequency_of_nm(1550.0)
        >>> f"{device.coupling_changes(offset_hz):.3f}"
        '0.040'
        """
        offsets_hz = real_array("frequencies_hz", frequencies_hz)
        if not self.has_band:
            return np.zeros(offsets_hz.shape)
        absolute_hz = frequency_of_nm(self.wavelength_nm) + offsets_hz
        if (absolute_hz <= 0).any():
            raise InputError("frequencies_hz: below minus the central frequency")
        wavelengths_nm = SPEED_OF_LIGHT_M_PER_S / absolute_hz * 1e9
        if self.coupler_wavelengths_nm:
            changes = self._share_at(wavelengths_nm) - self._share_at(self.wavelength_nm)
        else:
            changes = self.coupler_slope_per_nm * (wavelengths_nm - self.wavelength_nm)
        # A coupler that lets half across can give or take that half at most.
        if (np.abs(changes) > 0.5).any():
            largest = float(changes.flat[np.abs(changes).argmax()])
            raise InputError(
                f"couplers send {0.5 + largest:.3g} of the power across at the edge of the band:"
                " from 0 to 1"
            )
        return np.asarray(changes)

    def _share_at(self, wavelengths_nm: ArrayLike) -> NDArray[np.float64]:
        """Interpolate the table of couplers at wavelengths in nm, and refuse those outside of it.

        The result is the part of the light that a coupler lets across, in the shape of the
        wavelengths.
        """
        asked_nm = np.asarray(wavelengths_nm, dtype=np.float64)
        first_nm = self.coupler_wavelengths_nm[0]
        last_nm = self.coupler_wavelengths_nm[-1]
        # A wavelength that comes from a frequency misses the end of a table by rounding.
        outside = (asked_nm < first_nm * (1 - 1e-9)) | (asked_nm > last_nm * (1 + 1e-9))
        if outside.any():
            raise InputError(
                f"wavelength {asked_nm[outside].flat[0]:g} nm: the table of couplers is from"
                f" {first_nm:g} to {last_nm:g} nm",
                where="coupler_wavelengths_nm",
            )
        return np.asarray(np.interp(asked_nm, self.coupler_wavelengths_nm, self.coupler_shares))

    def cell(
        self, states: ArrayLike, errors_rad: NDArray[np.float64] | None = None
    ) -> NDArray[np.complex128]:
        """Return the matrices of cells in given states.

        Parameters
        ----------
        states
            0 bar, 1 cross; any shape.
        errors_rad
            ``errors_rad[..., arm]``: errors of the phases of the arms; None for none.

        Returns
        -------
        NDArray
            ``T[..., side left by, side entered]``, complex128: amplitudes, so powers are their
            squares. A leak of nothing is exactly zero.
        """
        matrices = CellDevice.of(self, 1).cell(states, errors_rad)
        return matrices.reshape(*np.shape(states), 2, 2)

    def draw_errors(self, n_cells: int, seed: int) -> NDArray[np.float64] | None:
        """Draw the phase errors of one chip: ``errors_rad[cell, arm]``; None if there are none."""
        if self.phase_error_rad == 0.0:
            return None
        return np.random.default_rng(seed).normal(0.0, self.phase_error_rad, (n_cells, 2))


def phase_errors(errors_rad: ArrayLike | None, states: NDArray[Any]) -> NDArray[np.float64] | None:
    """Check phase errors of the two arms of cells.

    Parameters
    ----------
    errors_rad
        ``errors_rad[..., arm]`` in rad: of each cell, or of one cell for all. None for none.
    states
        The states of the cells, of which the shape counts.

    Returns
    -------
    float64 array or None
        The errors in rad, shape (..., 2), which fit to the states by broadcasting.

    Raises
    ------
    InputError
        Unless ``errors_rad[..., arm]`` are numbers for two arms of each cell, or of one for all.
    """
    if errors_rad is None:
        return None
    errors = plain_array("errors_rad", errors_rad)
    fits = errors.dtype.kind in "fiu" and errors.ndim > 0 and errors.shape[-1] == 2
    if fits:
        try:
            np.broadcast_shapes(errors.shape[:-1], states.shape)
        except ValueError:
            fits = False
    if not fits:
        raise InputError(
            f"errors_rad of shape {errors.shape}: {(*states.shape, 2)} is expected",
            where="errors_rad",
        )
    return errors.astype(np.float64)


def mix_ways(
    states: NDArray[Any],
    loss_db: NDArray[np.float64],
    ratio: NDArray[np.float64],
    errors_rad: NDArray[np.float64] | None,
) -> NDArray[np.complex128]:
    """Return how much light goes from each input of a cell to each output, as amplitudes.

    A cell is a Mach-Zehnder interferometer, a switch with two inputs and two outputs. Light should
    leave by one output and leaks to the other. With an angle t, cos(t) and sin(t) are the
    amplitudes at the wanted output and at the other one; the leak, as a ratio of powers, is
    tan(t)**2.

    Parameters
    ----------
    states
        The state of each cell, of any shape: 0 bar (light goes straight on), 1 cross.
    loss_db
        The loss on the wanted way in dB; the shape of `states`.
    ratio
        The leak: power at the other output over power at the wanted one; the shape of `states`.
        Errors of phases are as of `Device.cell`.

    Returns
    -------
    NDArray
        ``T[..., side left by, side entered]``, complex128: amplitudes.
    """
    # The amplitudes straight on and across, without loss and errors.
    tilt_rad = np.arctan(np.sqrt(ratio))
    bar_amplitude = np.where(states == BAR, np.cos(tilt_rad), np.sin(tilt_rad))
    cross_amplitude = np.where(states == BAR, np.sin(tilt_rad), np.cos(tilt_rad))
    mean_error_rad: ArrayLike = 0.0
    if errors_rad is not None:
        # Half the difference of the arms turns the shares of power, their mean turns the phase.
        turn_rad = (errors_rad[..., 0] - errors_rad[..., 1]) / 2
        sine = np.sin(turn_rad)
        cosine = np.cos(turn_rad)
        exact_bar = bar_amplitude
        bar_amplitude = exact_bar * cosine + cross_amplitude * sine
        cross_amplitude = cross_amplitude * cosine - exact_bar * sine
        mean_error_rad = (errors_rad[..., 0] + errors_rad[..., 1]) / 2
    matrix = _matrix(bar_amplitude, cross_amplitude, mean_error_rad)

    # The stated loss is that of the wanted way; both outputs together give no more than came in.
    gain = np.sqrt(np.minimum(1.0, 10 ** (-loss_db / 10) * (1 + ratio)))
    return np.asarray(gain[..., None, None] * matrix)


_THESIS = "Sanchez-Jacome (2025), thesis, chapter 2, repository ricarvid1/dsj-thesis"

DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        Device(name="ideal", source="loses and leaks nothing, takes no time"),
        Device(
            name="smartlight",
            source=f"iPronics SmartLight, first generation, typical figures: {_THESIS};"
            " see also Nat. Commun. 15, 1563 (2024)",
            bar_loss_db=0.48,
            cross_loss_db=0.48,
            bar_extinction_db=33.0,
            cross_extinction_db=44.0,
            waveguide_loss_db_per_m=200.0,
            coupling_loss_db=3.34,
            cell_length_m=811e-6,
            cell_delay_s=11.25e-12,
            access_delay_s=48e-12,
            heater_mw_per_pi=1.34,
            settling_s=14e-3,
        ),
        Device(
            name="silicon-electro-optic",
            source="Lu et al., Opt. Express 24, 9295 (2016), 16x16 Benes: 14 dB all bar and 6.7 dB"
            " all cross over 7 cells, waveguides and their crossings included; assumed:"
            " extinction 20 dB, cells 1 mm long, group index 4",
            bar_loss_db=2.0,
            cross_loss_db=0.957,
            bar_extinction_db=20.0,
            cross_extinction_db=20.0,
            cell_length_m=1e-3,
            cell_delay_s=13.3e-12,
        ),
        Device(
            name="mems-crossbar",
            source="Henriksson (2025), UCB/EECS-2025-31753, 32x32: at most 4.6 dB on the chip,"
            " crosstalk below -80 dB; assumed: 0.5 dB of it where light turns (bar), the rest in"
            " the 62 cells that it passes (cross), 80 dB of extinction for one cell, cells"
            " 0.11 mm long, group index 4",
            bar_loss_db=0.5,
            cross_loss_db=0.066,
            bar_extinction_db=80.0,
            cross_extinction_db=80.0,
            cell_length_m=110e-6,
            cell_delay_s=1.47e-12,
        ),
    )
}
"""Presets by name; ``source`` says where their figures come from and what is assumed."""


DEFAULT_DEVICE = "smartlight"
"""The preset where nobody names a device."""


def find_device(device: Device | str) -> Device:
    """Return a preset by its name; a device is returned as it is.

    Parameters
    ----------
    device
        A device, or the name of a preset.

    Raises
    ------
    InputError
        If there is no preset of that name.

    Examples
    --------
    >>> find_device("smartlight").bar_loss_db
    0.48
    """
    if isinstance(device, Device):
        return device
    if not isinstance(device, str) or device not in DEVICES:
        raise InputError(
            f"device = {device!r:.60}: unknown; presets are {', '.join(DEVICES)}", where="device"
        )
    return DEVICES[device]


ON_CHIP = ("worst-loss-db", "worst-snr-db", "power-mw")
"""Objectives that need a chip of which each cell is known."""

Losses = Annotated[NDArray[np.float64], Range(0, 1000)]
Amounts = Annotated[NDArray[np.float64], Range(0)]
Powers = Annotated[NDArray[np.float64], Range(0, 1e12)]

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
    heater_mw_per_pi: Powers
    settling_s: Amounts
    arm_1_error_rad: NDArray[np.float64] | None = field(default=None, metadata={"brief": True})
    arm_2_error_rad: NDArray[np.float64] | None = field(default=None, metadata={"brief": True})
    bar_phase_rad: NDArray[np.float64] | None = field(default=None, metadata={"brief": True})
    cross_phase_rad: NDArray[np.float64] | None = field(default=None, metadata={"brief": True})

    def __post_init__(self) -> None:
        """Check ranges and lengths; columns that are ideal in all cells become None.

        ``bar_loss_db``, one of the columns, has an entry for each cell and counts them.
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
        columns = {}
        for name in CELL_FIELDS:
            # A device has no phases, so these are those of an ideal cell.
            value = getattr(chosen_device, name, _IDEAL_PHASES_RAD.get(name, 0.0))
            if value is None:  # an extinction without a limit
                value = NO_LEAK_DB
            columns[name] = np.full(n_cells, float(value))

        # Measured figures of a cell go before those of the device.
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
        return np.asarray(power[:, :, 1] / wanted_power)

    @property
    def loss_db(self) -> NDArray[np.float64]:
        """``loss_db[cell, state]``: what light loses on its way to the wanted output, in dB.

        Where no errors of phases are known it is the stated loss, or more if extinction says that
        more light leaves by the other output; else it follows from the phases.

        float64, shape (cells, 2), for bar (0) and cross (1).
        """
        if self.arm_1_error_rad is None and self.arm_2_error_rad is None:
            stated = np.stack([self.bar_loss_db, self.cross_loss_db], axis=1)
            return np.asarray(np.maximum(stated, 10 * np.log10(1 + self.leak)))
        wanted_power = np.maximum(self._power_by_state[:, :, 0], 1e-100)
        return np.asarray(-10 * np.log10(wanted_power))

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
        return np.asarray(self.heater_mw_per_pi[:, None] * self.turn_rad / np.pi)

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
