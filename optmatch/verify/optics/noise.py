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
"""Pairs of which so much of the level is light, not floor (those above -50 dB), show the noise of
lit pairs."""

DARK_RATIOS = tuple(0.3 * 1.5**power for power in range(20))
"""The ratios of the noise of dark pairs to that of lit ones that are tried."""


class Noise(NamedTuple):
    """The noise of measured powers."""

    lit_db: float
    """The standard deviation in dB of powers far above the floor."""
    dark_ratio: float
    """The deviation of a pair without any light, over the former."""


def relative_spread(light_share: NDArray[np.float64], dark_ratio: float) -> NDArray[np.float64]:
    """Return the noise of pairs in dB, over that of pairs far above the floor.

    ``light_share[pair]`` is the part of the level that is light, not floor.
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

    Parameters
    ----------
    deviation_db
        (pairs,): modelled less measured powers, as fitted.
    light_share
        (pairs,): the part of the level of each pair that is light, not floor.
    is_lit
        (pairs,): which pairs show the noise of lit pairs.
    dark_ratio
        The ratio that the fit has assumed.
    parameters
        How many degrees of freedom of lit pairs the fit has used up.

    Returns
    -------
    Noise
        Of lit pairs the root of the mean square; the ratio is the most likely one of
        `DARK_RATIOS`, given normal errors.
    """
    lit_spread = relative_spread(light_share[is_lit], dark_ratio)
    freedom = max(1.0, int(is_lit.sum()) - parameters)
    variance = ((deviation_db[is_lit] / lit_spread) ** 2).sum() / freedom
    lit_db = max(LEAST_NOISE_DB, float(np.sqrt(variance)))
    likelihoods = []
    for ratio in DARK_RATIOS:
        spread = relative_spread(light_share[~is_lit], ratio)
        standard = deviation_db[~is_lit] / (lit_db * spread)
        likelihoods.append(-(standard**2).sum() / 2 - np.log(spread).sum())
    return Noise(lit_db, DARK_RATIOS[int(np.argmax(likelihoods))])
