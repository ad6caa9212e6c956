"""The noise of measured powers, in dB above the floor of -60 dB.

Far above the floor an instrument repeats to a constant part of the power: a standard deviation
that is constant in dB. Near the floor it has a constant power instead, from other light and from
its own electronics. Between both the variances add up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAST_NOISE_DB = 0.01
"""No instrument repeats to better than this."""

LIT_SHARE = 0.9
"""A pair is lit if at least this part of its level is light, not floor: if its power is above
about -50 dB."""

DARK_RATIOS = tuple(0.3 * 1.5**power for power in range(20))
"""The dark ratios that are tried: standard deviations in dB of a pair without any light, over that
of a pair far above the floor."""


class Noise(NamedTuple):
    """The noise of measured levels, which are 10 log10(power + floor)."""

    lit_db: float
    """The standard deviation in dB of powers far above the floor."""
    dark_ratio: float
    """The standard deviation in dB of a pair without any light, over `lit_db`."""


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
    """Estimate the noise from what a fit leaves.

    First the noise of lit pairs, by the mean of their squares; then the dark ratio that makes the
    deviations of all other pairs most likely.

    Parameters
    ----------
    deviation_db
        (pairs,): modelled less measured powers, as fitted.
    light_share
        (pairs,): the part of the level of each pair that is light, not floor.
    is_lit
        (pairs,): whether a pair is far enough above the floor to show the noise of light.
    dark_ratio
        The dark ratio that the fit has assumed, see `Noise`.
    parameters
        The number of values that lit pairs have determined in the fit. The mean square is taken
        over so many pairs fewer.

    Returns
    -------
    Noise
        At least `LEAST_NOISE_DB`, and one of `DARK_RATIOS`.
    """
    # Lit pairs have a little noise of the instrument too, which is divided out.
    lit_spread = relative_spread(light_share[is_lit], dark_ratio)
    freedom = max(1.0, int(is_lit.sum()) - parameters)
    variance = ((deviation_db[is_lit] / lit_spread) ** 2).sum() / freedom
    lit_db = max(LEAST_NOISE_DB, float(np.sqrt(variance)))

    # Logarithms of likelihoods for normal errors, but for a constant.
    likelihoods = []
    for ratio in DARK_RATIOS:
        spread = relative_spread(light_share[~is_lit], ratio)
        standard = deviation_db[~is_lit] / (lit_db * spread)
        likelihoods.append(-(standard**2).sum() / 2 - np.log(spread).sum())
    return Noise(lit_db, DARK_RATIOS[int(np.argmax(likelihoods))])
