"""Steps on arrays that kernels share: numba's own copies would need its memory management."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel


def make_read_only(*arrays: NDArray[Any]) -> None:
    """Make arrays read-only: kernels are compiled for that, and for no other type."""
    for array in arrays:
        array.flags.writeable = False


@inner_kernel
def copy_into(array, values):
    """Copy values to the first places of an array, which is as long as them or longer."""
    for place in range(len(values)):
        array[place] = values[place]
