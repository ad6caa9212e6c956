"""Random numbers inside kernels: the combined generator of L'Ecuyer (1988).

Two multiplicative congruential generators are subtracted (doi 10.1145/62959.62969); the period is
about 2**61. The state is an array that the caller keeps, so a search that is interrupted goes on
with the same numbers, threads do not disturb each other, and no product exceeds 64 bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel

_MODULUS_1 = 2147483563
_MODULUS_2 = 2147483399
_FACTOR_1 = 40014
_FACTOR_2 = 40692
_N_VALUES = _MODULUS_1 - 1


def new_draws(rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the state of a fresh generator, int64, shape (2,)."""
    return rng.integers(1, [_MODULUS_1, _MODULUS_2], dtype=np.int64)


@inner_kernel
def _draw(draws: NDArray[np.int64]) -> int:
    """Draw a whole number from 0 to `_N_VALUES` - 1, by two linear congruential generators.

    Parameters
    ----------
    draws
        The state of both generators, shape (2,); it goes on.
    """
    draws[0] = draws[0] * _FACTOR_1 % _MODULUS_1
    draws[1] = draws[1] * _FACTOR_2 % _MODULUS_2
    return int((draws[0] - draws[1]) % _N_VALUES)


@inner_kernel
def draw_below(draws: NDArray[np.int64], count: int) -> int:
    """Draw a whole number from 0 to `count` - 1."""
    return _draw(draws) * count // _N_VALUES


@inner_kernel
def draw_share(draws: NDArray[np.int64]) -> float:
    """Draw a number from 0 to 1, 1 excluded."""
    return _draw(draws) / _N_VALUES
