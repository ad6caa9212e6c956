"""The noise of measured powers, in dB above the floor of -60 dB.

Far above the floor an instrument repeats to a constant part of the power: a standard deviation
that is constant in dB. Near the floor it has a constant power instead, from other light and from
its own electronics. Between both the variances add up.

No instrument shows a power below 0, hence readings of dark pairs are cut off there. The noise of
the instrument is therefore estimated from readings above the model alone, and levels are compared
only as far as they are above that noise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAST_NOISE_DB = 0.01
"""No instrument repeats to better than this."""

LIT_SHARE = 0.9
"""A pair is lit if at least this part of its level is light, not floor: if its power is above
about -50 dB."""

FLOOR = 1e-6
"""Power that is added before powers are compared in dB. What is fainter (-60 dB) are leaks of
leaks, and the noise of instruments."""

DARK_RATIOS = tuple(0.3 * 1.1**power for power in range(96))
"""The dark ratios that are tried: standard deviations in dB of a pair without any light, over that
of a pair far above the floor. They reach from next to nothing to 10 % of noise power at 0.01 dB of
noise of light. A step of a tenth is what hundreds of dark pairs tell; with steps of a half, the
squares of dark pairs are wrong by up to a half, and false alarms grow from 4 to 8 %."""

DARK_DEVIATIONS = 3.0
"""Levels are compared from so many standard deviations of the instrument's noise on. Below, the
logarithm and readings cut off at 0 bias a level by up to half a standard deviation."""

_DB_PER_PART = 10 / math.log(10)
"""A change of a power by a small part x changes its level by so many dB times x."""


class Noise(NamedTuple):
    """The noise of measured levels, which are 10 log10(power + floor)."""

    lit_db: float
    """The standard deviation in dB of powers far above the floor."""
    dark_ratio: float
    """The standard deviation in dB of a pair without any light, over `lit_db`."""

    @property
    def least_power(self) -> float:
        """The power from which on light stands out from the instrument's noise."""
        dark_power = self.lit_db * self.dark_ratio * FLOOR / _DB_PER_PART
        return DARK_DEVIATIONS * dark_power


def relative_spread(light_share: NDArray[np.float64], dark_ratio: float) -> NDArray[np.float64]:
    """Return the standard deviation of each pair's level over that of pairs far above the floor.

    Two independent errors add up: that of the light, which is a constant part of it, and that of
    the instrument, which is a constant power.

    Parameters
    ----------
    light_share
        (pairs,): the part of the level that is light, not floor; 1 far above the floor.
    dark_ratio
        The standard deviation of a pair without any light over that of a pair far above the floor.

    Returns
    -------
    NDArray
        (pairs,): 1 where all is light, `dark_ratio` where all is floor.
    """
    spread: NDArray[np.float64] = np.hypot(light_share, dark_ratio * (1 - light_share))
    return spread


def estimate_noise(
    deviation_db: NDArray[np.float64],
    light_share: NDArray[np.float64],
    is_lit: NDArray[np.bool_],
    *,
    dark_ratio: float,
    parameters: float,
) -> Noise:
    """Estimate the noise of measured powers from what a fit leaves unexplained.

    Powers were measured for pairs of a source and a destination of a chip. There are two kinds of
    noise, and each is estimated where it shows:

    - the noise of light, a constant part of the power. It is the root mean square of what is left
      at *lit* pairs, those with much light;
    - the noise of the instrument, a constant power that shows at all other pairs. Instruments show
      no power below 0. Therefore only pairs count that read more than the fit says, and of several
      values the one is taken that makes them most likely.

    Levels are 10 log10(power + floor) in dB; the *floor* is a small constant power.

    Parameters
    ----------
    deviation_db
        (pairs,): modelled less measured levels, as fitted.
    light_share
        (pairs,): power / (power + floor) of each pair, from 0 to 1; of the modelled and the
        measured power the larger one.
    is_lit
        (pairs,): whether a pair is far enough above the floor to show the noise of light.
    dark_ratio
        The value that the fit has assumed: the standard deviation in dB of a pair without any
        light, over that of a pair far above the floor.
    parameters
        The number of values that lit pairs have determined in the fit. The mean square is taken
        over so many pairs fewer.

    Returns
    -------
    Noise
        ``lit_db``, the noise of light in dB, at least `LEAST_NOISE_DB`; and ``dark_ratio``, as
        above, one of `DARK_RATIOS`.
    """
    # Lit pairs have a little noise of the instrument too, which is divided out.
    lit_spread = relative_spread(light_share[is_lit], dark_ratio)
    freedom = max(1.0, int(is_lit.sum()) - parameters)
    variance = ((deviation_db[is_lit] / lit_spread) ** 2).sum() / freedom
    lit_db = max(LEAST_NOISE_DB, float(np.sqrt(variance)))

    # Of the stronger, the measured light, the difference is the part 1 - (modelled + floor) /
    # (measured + floor). Unlike the difference in dB, it is proportional to the error.
    is_above = ~is_lit & (deviation_db < 0)
    excess_db = _DB_PER_PART * (1 - 10 ** (deviation_db[is_above] / 10))

    # Logarithms of likelihoods for normal errors, but for a constant.
    likelihoods = []
    for ratio in DARK_RATIOS:
        spread = relative_spread(light_share[is_above], ratio)
        standard = excess_db / (lit_db * spread)
        likelihoods.append(-(standard**2).sum() / 2 - np.log(spread).sum())
    return Noise(lit_db, DARK_RATIOS[int(np.argmax(likelihoods))])
