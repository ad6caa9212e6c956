r"""Calibrations of heaters from sweeps of their voltage, by least squares.

While the heater of one arm is swept, the power at an output follows
:math:`P = m + A \cos(a + b V^2)`, where a is the phase of this arm less that of the other one
without voltage: an output of cross has most light where the phases are equal, and in an output of
bar A is negative. For a given b the rest is linear (variable projection), hence b is searched on a
grid, and everything is refined by Gauss and Newton. The covariance of the fit gives the confidence
interval.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import InputError
from optmatch.model.heaters import Heater

_GRID_POINTS = 400  # of b: ten for each fringe that 40 points resolve
_NEWTON_STEPS = 20
_LEAST_POINTS = 6


class SweepFit(NamedTuple):
    """The phase that a heater gives, as a sweep tells it."""

    a_rad: float
    """The phase of the swept arm less that of the other one without voltage, in (-pi, pi]."""
    b_rad_per_v2: float
    """By how much the phase of the swept arm grows with the square of the voltage."""
    visibility: tuple[float, ...]
    """(outputs,): (largest - least) / (largest + least) of the power."""
    covariance: NDArray[np.float64]
    """(2, 2): of a and b."""
    factor: float
    """Half the width of the 95 % confidence band, in standard deviations, see `band_factor`."""
    noise: float
    """The standard deviation of the powers, in their unit."""

    def phase_rad(self, volts: ArrayLike) -> NDArray[np.float64]:
        """Return the phase of the swept arm less that of the other one, at voltages."""
        phase: NDArray[np.float64] = self.a_rad + self.b_rad_per_v2 * np.square(volts)
        return phase

    def within_rad(self, volts: ArrayLike) -> NDArray[np.float64]:
        """Return half the width of the 95 % confidence band of the fitted phase at some voltages.

        Parameters
        ----------
        volts
            Voltages, of any shape.

        Returns
        -------
        float64 array
            In rad, of the same shape.
        """
        squares = np.square(np.asarray(volts, dtype=np.float64))
        (var_a, covariance), (_, var_b) = self.covariance
        # The variance of the phase a + b V**2.
        variance = var_a + 2 * squares * covariance + squares**2 * var_b
        within: NDArray[np.float64] = self.factor * np.sqrt(variance)
        return within


def fit_sweep(volts: ArrayLike, power: ArrayLike, is_cross: tuple[bool, ...]) -> SweepFit:
    """Find how the phase of a cell depends on the voltage of its heater, from measured powers.

    The voltage V is swept, and the powers P at outputs of the cell rise and fall. The curve
    ``P = m + s A cos(a + b V**2)`` is fitted by least squares. Its symbols are

    - a: the phase in rad without voltage, the same for all outputs;
    - b: the rate in rad per square volt, the same for all outputs;
    - m and A: the mean power and the amplitude, for each output its own;
    - s: 1 for an output that gets light when the cell is in cross, -1 for one in bar.

    Parameters
    ----------
    volts
        (points,): voltages, at least six; the phase should turn by pi at least.
    power
        (points, outputs): powers at outputs of the cell, in any unit.
    is_cross
        (outputs,): whether an output gets the light in cross, else in bar.

    Returns
    -------
    SweepFit
        With the fields

        - ``a_rad``, ``b_rad_per_v2``: the phase a, within -pi .. pi, and the rate b > 0;
        - ``covariance``: of a and b, in this order, shape (2, 2);
        - ``visibility``: abs(A) / m for each output;
        - ``noise``: the standard deviation of the residuals, in the unit of the powers;
        - ``factor``: times the standard deviation of the phase at a voltage, it is half the width
          of the 95 % confidence band there.

    Raises
    ------
    InputError
        If there are too few points, or the power does not change with the voltage.

    Examples
    --------
    >>> volts = np.linspace(0, 4, 41)
    >>> cross = 0.5 + 0.5 * np.cos(0.3 + 0.4 * volts**2)
    >>> fit = fit_sweep(volts, cross[:, None], (True,))
    >>> f"{fit.a_rad:.3f} {fit.b_rad_per_v2:.3f} {fit.visibility[0]:.2f}"
    '0.300 0.400 1.00'
    """
    squares = np.square(np.asarray(volts, dtype=np.float64))
    powers = np.asarray(power, dtype=np.float64)
    n_outputs = len(is_cross)
    if powers.shape != (len(squares), n_outputs):
        raise InputError(f"power {powers.shape}: not ({len(squares)} points, {n_outputs} outputs)")
    n_freedom = powers.size - 2 - 2 * n_outputs
    if len(squares) < _LEAST_POINTS or n_freedom < 1:
        raise InputError(f"a sweep of {len(squares)} points: at least {_LEAST_POINTS}")
    if np.ptp(squares) == 0 or (np.ptp(powers, axis=0) == 0).all():
        raise InputError("a sweep in which voltage or power does not change")
    # In bar the power is least where the difference is 0, as if its amplitude were negative.
    signs = np.where(is_cross, 1.0, -1.0)

    # For a given rate the best fit of all other values is linear, so the sum of squares is a
    # function of the rate alone. It has many local minima; hence a grid, from a quarter of a
    # fringe over the sweep up to as many as its points resolve (2.5 points a fringe). The cosine
    # is even, and of (a, b) and (-a, -b) the search takes b > 0: a heated arm gains phase.
    fringes = np.linspace(0.25, (len(squares) - 1) / 2.5, _GRID_POINTS)
    rates = 2 * math.pi * fringes / np.ptp(squares)
    residuals = [_project(squares, powers, signs, rate)[1] for rate in rates]
    rate = float(rates[int(np.argmin(residuals))])
    (mean, amplitude, phase), _ = _project(squares, powers, signs, rate)

    # Gauss and Newton for rate, phase, and mean and amplitude of each output. Residuals are
    # measured less modelled, hence the step is added.
    values = np.concatenate([[rate, phase], mean, amplitude])
    for _ in range(_NEWTON_STEPS):
        residual, jacobian = _sweep_model(values, squares, powers, signs)
        step = np.linalg.lstsq(jacobian, residual, rcond=None)[0]
        values = values + step
    residual, jacobian = _sweep_model(values, squares, powers, signs)
    variance = float(residual @ residual) / n_freedom
    # The covariance of all values in their order: rate, phase, means, amplitudes.
    covariance = variance * np.linalg.pinv(jacobian.T @ jacobian)

    rate, phase = values[:2]
    mean = values[2 : 2 + n_outputs]
    amplitude = values[2 + n_outputs :]
    # A negative amplitude is a positive one at the phase plus pi.
    if amplitude.sum() < 0:
        phase += math.pi
    # The rate comes first in the values, but the phase a in the result.
    covariance_of_phase = np.array(covariance[np.ix_([1, 0], [1, 0])], dtype=np.float64)
    return SweepFit(
        a_rad=math.remainder(phase, 2 * math.pi),
        b_rad_per_v2=float(rate),
        visibility=tuple(float(abs(a) / m) for a, m in zip(amplitude, mean, strict=True)),
        covariance=covariance_of_phase,
        factor=band_factor(n_freedom),
        noise=math.sqrt(variance),
    )


def _project(
    squares: NDArray[np.float64],
    powers: NDArray[np.float64],
    signs: NDArray[np.float64],
    rate: float,
) -> tuple[tuple[NDArray[np.float64], NDArray[np.float64], float], float]:
    """Fit means, amplitudes and a common phase to measured powers, for a given rate b.

    The powers P of several outputs of a cell are measured at several voltages V. The model is
    ``P = m + s A cos(a + b V**2)``, with a mean m, a sign s and an amplitude A for each output.
    With b given, least squares for all other values is a linear problem.

    Parameters
    ----------
    squares
        (points,): the squares of the voltages, in square volts.
    powers
        (points, outputs): measured powers, in any unit.
    signs
        (outputs,): 1 for an output that gets the light in cross, -1 for one in bar, whose power
        is least where that of cross is largest.
    rate
        The rate b, in rad per square volt.

    Returns
    -------
    values : tuple
        The mean of each output (outputs,), its amplitude (outputs,), both in the unit of the
        powers, and the common phase a in rad. An amplitude is negative if the output goes against
        its sign.
    residual : float
        The sum of the squared residuals, in the squared unit of the powers. Here each output still
        has a phase of its own: the sum is a lower bound of that with the common phase.
    """
    angle = rate * squares
    basis = np.stack([np.ones_like(angle), np.cos(angle), np.sin(angle)], axis=1)
    coefficients = np.linalg.lstsq(basis, powers, rcond=None)[0]
    left = float(((basis @ coefficients - powers) ** 2).sum())
    # P = m + A cos(phase + angle): the cosine gets A cos(phase), the sine -A sin(phase).
    # The wave of each output is A exp(j phase), and their sum has the phase of the strong ones.
    wave = signs * (coefficients[1] - 1j * coefficients[2])
    phase = float(np.angle(wave.sum()))
    amplitude: NDArray[np.float64] = (wave * np.exp(-1j * phase)).real
    return (coefficients[0], amplitude, phase), left


def _sweep_model(
    values: NDArray[np.float64],
    squares: NDArray[np.float64],
    powers: NDArray[np.float64],
    signs: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return measured less modelled powers, and the derivatives of the model.

    Parameters
    ----------
    values
        (2 + 2 * outputs,): the rate b in rad per square volt, the phase a in rad, the mean of each
        output and then the amplitude of each output, in the unit of the powers.
    squares
        (points,): the squares of the voltages, in square volts.
    powers
        (points, outputs): measured powers, in any unit.
    signs
        (outputs,): 1 for an output that gets the light in cross, -1 for one in bar.

    Returns
    -------
    residual
        (points * outputs,): measured less modelled powers.
    jacobian
        (points * outputs, values): derivatives of the modelled powers, not of the residuals.
    """
    n_outputs = len(signs)
    rate, phase = values[:2]
    mean = values[2 : 2 + n_outputs]
    amplitude = values[2 + n_outputs :]
    angle = phase + rate * squares
    cosine = np.cos(angle)[:, None] * signs
    sine = np.sin(angle)[:, None] * signs
    residual = powers - (mean + amplitude * cosine)

    # Derivatives of m + s A cos(a + b V^2): by b and a, then by the m and the A of each output,
    # which only that output depends on.
    jacobian = np.zeros((*powers.shape, len(values)))
    jacobian[..., 0] = -amplitude * sine * squares[:, None]
    jacobian[..., 1] = -amplitude * sine
    outputs = np.arange(n_outputs)
    jacobian[:, outputs, 2 + outputs] = 1.0
    jacobian[:, outputs, 2 + n_outputs + outputs] = cosine
    return residual.ravel(), jacobian.reshape(-1, len(values))


def band_factor(freedom: int) -> float:
    """Return half the width of a 95 % confidence band of a curve of two parameters.

    In standard deviations, and for all voltages at once (Working and Hotelling 1929): the root of
    2 F, where F is the 0.95 quantile with (2, `freedom`) degrees of freedom, in closed form. The
    degrees of freedom are the number of powers less that of all fitted values.
    """
    quantile = freedom / 2 * (0.05 ** (-2 / freedom) - 1)
    return math.sqrt(2 * quantile)


def heaters_of_fits(
    fits: dict[tuple[int, int], SweepFit],
    *,
    largest_volts: dict[tuple[int, int], float],
    resistance_ohm: dict[tuple[int, int], float | None],
) -> list[Heater]:
    """Turn fits of voltage sweeps into calibrations of heaters.

    A heater turns the phase of light in one of the two arms of a cell. In a sweep its voltage V
    rises, and the phase is fitted as a + b V**2. The phase a without voltage is the difference of
    both arms, which cannot be divided between them: the swept arm gets it, and the other one has
    0. If both arms were swept, arm 1 has that of its own sweep, and arm 2 has 0.

    Parameters
    ----------
    fits
        The fit of each swept heater, by (cell, arm); arms are 1 and 2.
    largest_volts
        The largest voltage of each sweep, by the same keys.
    resistance_ohm
        The resistance of each heater, by the same keys; None where it is not known.

    Returns
    -------
    list of Heater
        In the order of cells and arms, with 95 % intervals of both values.
    """
    heaters = []
    for (cell, arm), fit in sorted(fits.items()):
        both_swept = (cell, 1) in fits and (cell, 2) in fits
        a_rad = 0.0 if both_swept and arm == 2 else fit.a_rad
        heaters.append(
            Heater(
                cell=cell,
                arm=arm,
                a_rad=a_rad,
                b_rad_per_v2=fit.b_rad_per_v2,
                max_v=largest_volts[cell, arm],
                resistance_ohm=resistance_ohm[cell, arm],
                a_within_rad=fit.factor * math.sqrt(fit.covariance[0, 0]),
                b_within_rad_per_v2=fit.factor * math.sqrt(fit.covariance[1, 1]),
            )
        )
    return heaters
