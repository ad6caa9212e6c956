"""A matrix with equal line sums as a sum of weighted permutations, exactly, by one of two rules.

All numbers are whole, so each term makes a further entry zero, and no rounding leaves a rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import InputError, counted_time
from optmatch.solvers.demands import peeling
from optmatch.solvers.demands.terms import Terms, equal_sums
from optmatch.solvers.demands.workspace import set_up

Rule = Literal["first", "bottleneck"]

_SLICE = 1 << 15  # rows of output between two looks at the clock

_Peel = Callable[[NDArray[np.int32], NDArray[np.int64]], int]


def decompose(
    ticks: ArrayLike,
    rule: Rule = "bottleneck",
    *,
    stop_ticks: int = 0,
    max_terms: int | None = None,
    deadline: float | None = None,
) -> Terms:
    r"""Write a matrix as a sum of weighted permutations, after Birkhoff and von Neumann.

    Finds :math:`D = \sum_k w_k P_k + R` with whole :math:`w_k > 0`, where each term makes an entry
    zero; so there are at most as many terms as entries are not zero. Terms are in the order found,
    which by ``"bottleneck"`` is that of weights, the heaviest first. Ctrl-C returns those found
    before it.

    Memory is :math:`O(n^2 + n k)` for k terms; the result is a function of the input, but for
    `deadline`.

    Parameters
    ----------
    ticks
        Whole numbers >= 0, shape (n, n), all line sums the same; `stuff` makes them so.
    rule
        Which permutation comes next. ``"first"``: the one at hand, with as few changes as
        possible: some n\ :sup:`2` terms in the shortest time. ``"bottleneck"``: one whose smallest
        entry is as large as can be, among these one of small entries: the fewest terms.
    stop_ticks
        Stop as soon as what is left of each line is at most this.
    deadline
        Stop soon after `counted_time` has reached this; at least some terms are found.
    """
    matrix = equal_sums(ticks)
    if rule not in get_args(Rule):
        raise InputError(f"rule = {rule!r}: one of {', '.join(get_args(Rule))}", where="rule")
    most = int(np.count_nonzero(matrix))
    if max_terms is not None:
        most = min(most, max_terms)
    n = len(matrix)
    blocks = [(np.empty((0, n), dtype=np.int32), np.empty(0, dtype=np.int64))]
    left = None
    try:
        if most > 0:
            left, peel = _start(matrix, rule, stop_ticks)
        while most > 0:
            size = min(most, max(8, _SLICE // n))
            block = np.empty((size, n), dtype=np.int32), np.empty(size, dtype=np.int64)
            found = peel(*block)
            blocks.append((block[0][:found], block[1][:found]))
            most -= found
            if found < size or (deadline is not None and counted_time() >= deadline):
                break
    except KeyboardInterrupt:
        left = None  # a slice may have been lost whose terms are subtracted
    permutations, weights = (np.concatenate(part) for part in zip(*blocks, strict=True))
    if left is not None:
        return Terms(permutations, weights, left.reshape(n, n))
    taken = Terms(permutations, weights, np.zeros_like(matrix))
    return taken._replace(residual=matrix - taken.total())


def _start(matrix: NDArray[np.int64], rule: Rule, stop: int) -> tuple[NDArray[np.int64], _Peel]:
    """Set up what a rule remembers: what is left, and what peels the next terms into arrays."""
    space = set_up(matrix)
    peel = peeling.peel_first if rule == "first" else peeling.peel_bottleneck
    return space.left, lambda rows, counts: peel(space, stop, rows, counts)
