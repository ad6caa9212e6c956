"""Random numbers inside kernels: numba's own generator, of which each thread has one."""

from __future__ import annotations

import numpy as np

from optmatch.solvers.kernels.decorators import inner_kernel

# Generators of NumPy cannot be made inside a kernel; these functions are compiled by numba.


@inner_kernel
def seed_draws(seed: int) -> None:
    """Begin the sequence of random numbers that belongs to a seed."""
    np.random.seed(seed)  # noqa: NPY002


@inner_kernel
def draw_below(count: int) -> int:
    """Draw a whole number from 0 to `count` - 1."""
    return int(np.random.randint(count))  # noqa: NPY002


@inner_kernel
def draw_share() -> float:
    """Draw a number from 0 to 1, 1 excluded."""
    return float(np.random.random())  # noqa: NPY002
