"""Steps on arrays that kernels share: numba's own copies would need its memory management."""

from __future__ import annotations

from optmatch.solvers.kernels.decorators import inner_kernel


@inner_kernel
def copy_into(array, values):
    """Copy values to the first places of an array, which is as long as them or longer."""
    for place in range(len(values)):
        array[place] = values[place]
