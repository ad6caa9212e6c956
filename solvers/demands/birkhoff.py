"""Matrices stuffed to equal line sums, and as sums of weighted permutations, exactly.

All numbers are whole, so each term makes a further entry zero, and no rounding leaves a rest.

*Stuffing* raises entries until all rows and columns have one sum, without which no such sum of
permutations exists (Birkhoff and von Neumann). *Peeling* takes one weighted permutation off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import InputError, counted_time, frozen
from optmatch.solvers.demands import peeling
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.workspace import set_up
from optmatch.solvers.kernels.decorators import kernel

Peel = Callable[[Any, int, NDArray[np.int32], NDArray[np.int64]], int]
"""A kernel that takes terms off the matrix of a workspace, until line sums are down to a number or
the arrays of permutations and weights are full; it returns how many terms it has written, or -1
if there is no further permutation."""


class Terms(NamedTuple):
    """A matrix as a sum of weighted permutations and a rest."""

    permutations: NDArray[np.int32]
    """``permutations[term, row] = column``, shape (terms, n)."""
    weights: NDArray[np.int64]
    """How often each permutation counts, > 0."""
    residual: NDArray[np.int64]
    """The rest of the matrix, shape (n, n); all zero if the decomposition is complete."""

    def total(self) -> NDArray[np.int64]:
        """Add everything up again: the matrix."""
        total = self.residual.copy()
        n = total.shape[1]

        # The place of an entry in the matrix as one vector, row by row.
        places = self.permutations + n * np.arange(n)
        np.add.at(total.reshape(-1), places, self.weights[:, None])
        return total


def whole_square(ticks: ArrayLike) -> NDArray[np.int64]:
    """Check a square matrix of whole numbers >= 0 of which line sums fit int64."""
    matrix = frozen("matrix", ticks, 2, np.int64)
    if matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"matrix has shape {matrix.shape}: must be square", where="matrix")
    for i, j in np.argwhere(matrix < 0)[:1]:
        raise InputError(f"matrix[{i}, {j}] = {matrix[i, j]}: must be >= 0", where="matrix")

    # Only large entries can overflow, and only then is it worth while to add them up as floats.
    if int(matrix.max(initial=0)) * len(matrix) >= 2**62:
        for axis, line in ((1, "row"), (0, "column")):
            rough = matrix.astype(np.float64).sum(axis=axis)
            for k in np.flatnonzero(rough >= 2.0**62)[:1]:
                raise InputError(
                    f"matrix: {line} {k} sums to about {rough[k]:.3g}, beyond 2**62",
                    where="matrix",
                )
    return matrix.copy()


@kernel
def _raise_entries(places, matrix, rows, columns):
    """Raise entries one by one by the amount that both of their lines lack, and then all others.

    Changes ``matrix[row, column]`` in place, in ticks. `places` are row * n + column; `rows` and
    `columns` are what lines lack, and are used up. The others come row by row, in a staircase
    (north-west corner rule) of which each step ends a line.
    """
    n = len(matrix)
    for place in places:
        row = place // n
        column = place - row * n
        add = min(rows[row], columns[column])
        matrix[row, column] += add
        rows[row] -= add
        columns[column] -= add

    # All others in a staircase: each step ends a row or a column.
    row = 0
    column = 0
    while row < n and column < n:
        add = min(rows[row], columns[column])
        matrix[row, column] += add
        rows[row] -= add
        columns[column] -= add
        if rows[row] == 0:
            row += 1
        else:
            column += 1


def stuff(ticks: ArrayLike) -> NDArray[np.int64]:
    """Raise entries until the sum of each line is that of the largest.

    A line is a row or a column. With all line sums the same, a matrix is a sum of weighted
    permutations. The result adds the least possible amount in total. As an example, rows of
    (3, 1) and (0, 1) become (3, 1) and (1, 3): all sums are 4.

    Each entry in turn is raised as far as both its lines allow: first those that are not zero, the
    largest first, then zeros.
    """
    matrix = whole_square(ticks)
    if not matrix.any():
        return matrix
    row_sums = matrix.sum(axis=1)
    column_sums = matrix.sum(axis=0)
    most = max(row_sums.max(), column_sums.max())
    places = np.flatnonzero(matrix)
    by_size = places[np.argsort(-matrix.ravel()[places], kind="stable")]
    _raise_entries(by_size, matrix, most - row_sums, most - column_sums)
    return matrix


Rule = Literal["first", "bottleneck"]

_SLICE = 1 << 15  # rows of output between two looks at the clock


def decompose(
    ticks: ArrayLike,
    rule: Rule = "bottleneck",
    *,
    stop_ticks: int = 0,
    max_terms: int | None = None,
    deadline: float = np.inf,
) -> Terms:
    r"""Write a matrix as a sum of weighted permutations, after Birkhoff and von Neumann.

    For the matrix D it finds :math:`D = \sum_k w_k P_k + R`: the permutations :math:`P_k` with
    whole weights :math:`w_k > 0` are the terms, and R is the rest, zero in the end. Each term is
    taken off the matrix and makes an entry zero, so that there are no more terms than entries
    above zero. Terms are in the order found, which by ``"bottleneck"`` is that of weights, the
    heaviest first. Ctrl-C returns those found before it.

    Memory is :math:`O(n^2 + n k)` for k terms; the result is a function of the input, but for
    `deadline`.

    Parameters
    ----------
    ticks
        Whole numbers >= 0, shape (n, n), all line sums the same; `stuff` makes them so.
    rule
        Which permutation comes next. ``"first"``: the permutation at hand, with as few changes as
        possible: some n\ :sup:`2` terms in the shortest time. ``"bottleneck"``: one whose smallest
        entry is as large as can be, among these one of small entries: the fewest terms.
    stop_ticks
        Stop as soon as the rest of each line is at most this.
    max_terms
        The most terms; None for no limit.
    deadline
        Stop soon after `counted_time` has reached this; at least some terms are found.

    Returns
    -------
    Terms
        The permutations with their weights, and the rest that they leave, which is zero unless one
        of the three limits or Ctrl-C has stopped the search.

    Raises
    ------
    InputError
        If lines have different sums, or if the matrix or the rule is not valid.
    """
    if rule not in get_args(Rule):
        raise InputError(f"rule = {rule!r}: one of {', '.join(get_args(Rule))}", where="rule")
    matrix = whole_square(ticks)

    # Only a matrix whose lines all have the same sum is a sum of weighted permutations.
    for axis, line in ((1, "row"), (0, "column")):
        sums = matrix.sum(axis=axis)
        for k in np.flatnonzero(sums != matrix[:1].sum())[:1]:
            raise InputError(
                f"matrix: {line} {k} sums to {sums[k]}, row 0 to {matrix[0].sum()}: must be equal",
                where="matrix",
            )
    peel = peeling.peel_first if rule == "first" else peeling.peel_bottleneck
    return peel_terms(matrix, peel, stop_ticks, max_terms, deadline)


def peel_terms(
    matrix: NDArray[np.int64],
    peel: Peel,
    stop_ticks: int = 0,
    max_terms: int | None = None,
    deadline: float = np.inf,
) -> Terms:
    """Write a matrix of equal line sums as a sum of terms by one of the kernels of `peeling`.

    It ends when line sums are down to `stop_ticks`, after `max_terms` terms, at the deadline (in
    counted seconds), or by Ctrl-C; `Terms.residual` is then what is left. For example ((5, 2), (2,
    5)) gives the identity with weight 5 and the exchange with weight 2, and no rest.
    """
    # Each term makes an entry zero, so there is room enough for as many terms as entries.
    most = int(np.count_nonzero(matrix))
    if max_terms is not None:
        most = min(most, max_terms)

    # The kernel fills blocks of limited size, between which the clock and Ctrl-C come to their
    # turn; it keeps its matching from one block to the next.
    n = len(matrix)
    blocks = [Plan(np.empty((0, n), dtype=np.int32), np.empty(0, dtype=np.int64))]
    space = None
    try:
        if most > 0:
            space = set_up(matrix)
        while most > 0:
            size = min(most, max(8, _SLICE // n))
            block = Plan(np.empty((size, n), dtype=np.int32), np.empty(size, dtype=np.int64))
            n_terms = peel(space, stop_ticks, block.matchings, block.ticks)
            blocks.append(block.take(np.arange(n_terms)))
            most -= n_terms

            # Fewer terms than there was room for: the rest is small enough.
            if n_terms < size or counted_time() >= deadline:
                break
    except KeyboardInterrupt:
        space = None  # the terms of a lost slice may be subtracted already

    # After Ctrl-C the kernel's own rest cannot be trusted, and is computed from the terms.
    permutations = np.concatenate([block.matchings for block in blocks])
    weights = np.concatenate([block.ticks for block in blocks])
    if space is not None:
        return Terms(permutations, weights, space.remaining.reshape(n, n))
    taken = Terms(permutations, weights, np.zeros_like(matrix))
    return taken._replace(residual=matrix - taken.total())
