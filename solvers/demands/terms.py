"""Weighted permutations, and the matrices of which they can be the sum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import InputError, frozen


class Terms(NamedTuple):
    """A matrix as a sum of weighted permutations and a rest."""

    permutations: NDArray[np.int32]
    """``permutations[term, row] = column``, shape (terms, n)."""
    weights: NDArray[np.int64]
    """How often each permutation counts, > 0."""
    residual: NDArray[np.int64]
    """What they leave, shape (n, n); all zero if the decomposition is complete."""

    def total(self) -> NDArray[np.int64]:
        """Add everything up again: the matrix."""
        total = self.residual.copy()
        n = total.shape[1]
        places = self.permutations + n * np.arange(n)
        np.add.at(total.reshape(-1), places, self.weights[:, None])
        return total


def whole_square(ticks: ArrayLike) -> NDArray[np.int64]:
    """Check a square matrix of whole numbers >= 0 of which line sums fit int64."""
    given = frozen("matrix", ticks, 2, np.int64)
    if given.shape[0] != given.shape[1]:
        raise InputError(f"matrix has shape {given.shape}: must be square", where="matrix")
    for i, j in np.argwhere(given < 0)[:1]:
        raise InputError(f"matrix[{i}, {j}] = {given[i, j]}: must be >= 0", where="matrix")
    if int(given.max(initial=0)) * len(given) >= 2**62:
        for axis, line in ((1, "row"), (0, "column")):
            rough = given.astype(np.float64).sum(axis=axis)
            for k in np.flatnonzero(rough >= 2.0**62)[:1]:
                raise InputError(
                    f"matrix: {line} {k} sums to about {rough[k]:.3g}, beyond 2**62",
                    where="matrix",
                )
    return given.copy()


def equal_sums(ticks: ArrayLike) -> NDArray[np.int64]:
    """Check further that all lines have the same sum, as weighted permutations have."""
    whole = whole_square(ticks)
    for axis, line in ((1, "row"), (0, "column")):
        sums = whole.sum(axis=axis)
        for k in np.flatnonzero(sums != whole[:1].sum())[:1]:
            raise InputError(
                f"matrix: {line} {k} sums to {sums[k]}, row 0 to {whole[0].sum()}: must be equal",
                where="matrix",
            )
    return whole
