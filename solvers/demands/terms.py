"""Weighted permutations, and the matrices of which they can be the sum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import InputError


class Terms(NamedTuple):
    """A matrix as a sum of weighted permutations and a rest.

    Examples
    --------
    >>> terms = Terms(np.array([[0, 1], [1, 0]]), np.array([2, 5]), np.zeros((2, 2), int))
    >>> terms.total().tolist(), terms.weights.tolist()
    ([[2, 5], [5, 2]], [2, 5])
    """

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


def whole_square(name: str, ticks: ArrayLike) -> NDArray[np.int64]:
    """Check a square matrix of whole numbers >= 0 of which line sums fit int64.

    Raises
    ------
    InputError
        Naming the entry, the line or the shape that is wrong.
    """
    given = np.asarray(ticks)
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise InputError(f"{name} has shape {given.shape}: must be square", where=name)
    if given.dtype.kind not in "biu":
        whole = np.isfinite(given) & (given == np.floor(given)) & (np.abs(given) < 2.0**63)
        for i, j in np.argwhere(~whole)[:1]:
            raise InputError(
                f"{name}[{i}, {j}] = {given[i, j]}: not a whole number of 64 bits", where=name
            )
    elif given.size and given.max() > np.iinfo(np.int64).max:
        raise InputError(f"{name} has an entry {given.max()}: above 64 bits", where=name)
    whole_ticks = given.astype(np.int64)
    if not given.size:
        return whole_ticks
    if whole_ticks.min() < 0:
        i, j = np.argwhere(whole_ticks < 0)[0]
        raise InputError(f"{name}[{i}, {j}] = {given[i, j]}: must be >= 0", where=name)
    if int(whole_ticks.max()) * len(whole_ticks) < 2**62:
        return whole_ticks
    for axis, line in ((1, "row"), (0, "column")):
        rough = whole_ticks.astype(np.float64).sum(axis=axis)
        for k in np.flatnonzero(rough >= 2.0**62)[:1]:
            raise InputError(
                f"{name}: {line} {k} sums to about {rough[k]:.3g}, beyond 2**62", where=name
            )
    return whole_ticks


def equal_sums(name: str, ticks: ArrayLike) -> NDArray[np.int64]:
    """Check further that all lines have the same sum, as weighted permutations have.

    Raises
    ------
    InputError
        Naming the first line that differs, and both sums.

    Examples
    --------
    >>> equal_sums("ticks", [[2, 0], [1, 1]])
    Traceback (most recent call last):
        ...
    optmatch.model.errors.InputError: ticks: column 0 sums to 3, row 0 to 2; stuff it first
    """
    whole = whole_square(name, ticks)
    for axis, line in ((1, "row"), (0, "column")):
        sums = whole.sum(axis=axis)
        for k in np.flatnonzero(sums != whole[:1].sum())[:1]:
            raise InputError(
                f"{name}: {line} {k} sums to {sums[k]}, row 0 to {whole[0].sum()}; stuff it first",
                where=name,
            )
    return whole
