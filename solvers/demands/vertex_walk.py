r"""The fewest matchings of a few ports: a walk over the vertices of all decompositions.

The decompositions of a matrix D into the permutations :math:`P_k` of its ports are the points of a
polytope, :math:`\{w \ge 0 : \sum_k w_k P_k = D\}`. A vertex has at most :math:`(n - 1)^2 + 1`
weights other than zero (Marcus and Ree 1959), and fewer where it is degenerate. A step of the walk
is a pivot of the simplex method, to a neighbour that is drawn. Steps to vertices of more terms are
rarely taken, so the walk stays where many weights are zero at once.

The words are those of the simplex method. The *basis* is a set of permutations, one for each
equation, whose weights may be other than zero; the *tableau* tells how these weights change as the
weight of another permutation rises from zero: ``tableau[row, column]`` is by how much that of the
row falls for each tick of the column, and the last column has the weights themselves. A *pivot*
takes that one, the *entering* one, into the basis, in exchange for the one whose weight is zero
first, the *leaving* one.

References
----------
Marcus and Ree (1959). Diagonals of doubly stochastic matrices. *Quarterly Journal of Mathematics*
10, 296-302. https://doi.org/10.1093/qmath/10.1.296
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import uncounted
from optmatch.solvers.demands.plans import Plan, serve
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

_MOST_PORTS = 6
"""A step takes 5 us with the 720 permutations of so many ports, and 0.1 ms with those of seven."""

_LARGEST_TICKS = 10**9
"""Weights of larger sums would not be whole to `_ZERO` in float64."""

_ZERO = 1e-4
"""A weight below this, in ticks, is zero; weights of vertices are fractions of small divisors."""

_SMALLEST_PIVOT = 1e-7

_STEPS = 4000
"""Steps between two looks at the clock: 4 ms with five ports, 20 with six."""

_UPHILL = 0.001
"""How often a step that adds a term is taken, for each term that it adds. From 17 to 14 terms of a
dense matrix of 5 ports it takes 0.5 s with 0.001 and with 0.0002, 4 s with 0.03, and more than a
minute if all steps are taken."""

_WALKS_OF_A_START = 20
"""After so many walks the next one begins at another vertex."""


class _Walk(NamedTuple):
    """Where a walk is: the tableau of the simplex method, and the best vertex so far."""

    tableau: NDArray[np.float64]
    """``tableau[row, column]``: by how much the weight of the row's permutation falls for each
    tick that a column's rises; the last column has the weights. Shape (rows, permutations + 1)."""
    basis: NDArray[np.int64]
    """``basis[row]``: the permutation of each row."""
    row_of: NDArray[np.int64]
    """``row_of[permutation]``: its row, -1 if it is not in the basis."""
    best_basis: NDArray[np.int64]
    """`basis` at the best vertex."""
    best_weights: NDArray[np.float64]
    """The weights of its rows."""


@inner_kernel
def _leaving_row(walk, column):
    """Find the row whose weight is zero first as that of a column rises (the ratio test).

    Returns the row, -1 if no weight ever falls, and by how many ticks the column's weight has
    risen. For example, weights of 6 and 5 that fall by 2 and by 1 for each tick are 0 after 3 and
    5 ticks: the first row leaves, and the rise is 3.
    """
    weights = walk.tableau[:, -1]
    leaving = -1
    rise = np.inf
    for row in range(len(walk.basis)):
        if walk.tableau[row, column] > _SMALLEST_PIVOT:
            ratio = weights[row] / walk.tableau[row, column]
            if ratio < rise:
                rise = ratio
                leaving = row
    return leaving, rise


@inner_kernel
def _pivot(walk, column, leaving):
    """Exchange one permutation of the basis for another one (a pivot of the simplex method).

    Changes the tableau, `basis` and `row_of` of the walk: `column` enters, the permutation of the
    row `leaving` leaves. This is a step of Gauss-Jordan elimination: the column of the permutation
    that enters becomes 1 in the row that leaves, and 0 in all others.
    """
    # The row is divided by its number in the column.
    tableau = walk.tableau
    pivot_row = tableau[leaving]
    divisor = pivot_row[column]
    for other in range(len(pivot_row)):
        pivot_row[other] /= divisor

    # It is then taken off all other rows as often as makes their number 0.
    for row in range(len(walk.basis)):
        factor = tableau[row, column]
        if row != leaving and factor != 0.0:
            for other in range(len(pivot_row)):
                tableau[row, other] -= factor * pivot_row[other]
    walk.row_of[walk.basis[leaving]] = -1
    walk.row_of[column] = leaving
    walk.basis[leaving] = column


@inner_kernel
def _keep_if_whole(walk):
    """Keep the present vertex as the best one if its weights are whole; tell whether they are.

    Writes ``walk.best_basis`` and ``walk.best_weights``, by row of the tableau. At a vertex
    weights may be fractions, and slots of so many ticks do not exist.
    """
    weights = walk.tableau[:, -1]
    for weight in weights:
        if abs(weight - np.rint(weight)) >= _ZERO:
            return False
    for row in range(len(weights)):
        walk.best_basis[row] = walk.basis[row]
        walk.best_weights[row] = weights[row]
    return True


@kernel
def _walk_over_vertices(walk, entering, chances, fewest):
    """Look for a sum of few weighted permutations that is the demand, by a random walk.

    ``entering[step]`` are permutations and ``chances[step]`` random numbers from 0 to 1. The best
    vertex goes to ``walk.best_basis`` and ``walk.best_weights``; returns how many terms it has, or
    `fewest` if none has fewer. Each permutation of the ports has a weight >= 0 in ticks, such that
    the weighted sum of all is the demand. The permutations whose weights are above 0 are the
    terms; few are wanted, and their weights have to be whole numbers of ticks.

    The walk goes over the vertices of the simplex method. At a vertex a few permutations, the
    basis, have weights that may be above 0, and all others have the weight 0. A step (a pivot)
    takes one permutation into the basis and another one out. Steps that add no terms are always
    taken; one that adds k terms is taken with a chance of ``_UPHILL**k``.
    """
    # The vertex at which the walk begins counts, too.
    weights = walk.tableau[:, -1]
    n_terms = 0
    for weight in weights:
        n_terms += weight > _ZERO
    if n_terms < fewest and _keep_if_whole(walk):
        fewest = n_terms

    for step in range(len(entering)):
        # A permutation that is in the basis cannot enter. The row that leaves is the one whose
        # weight falls to 0 first, when that of the column has risen to `rise` ticks; -1 says that
        # no weight ever falls.
        column = entering[step]
        if walk.row_of[column] >= 0:
            continue
        leaving, rise = _leaving_row(walk, column)
        if leaving < 0:
            continue

        # The terms of the neighbour are known without going there.
        next_terms = 0
        for row in range(len(walk.basis)):
            weight = weights[row] - rise * walk.tableau[row, column]
            if row == leaving:
                weight = rise
            next_terms += weight > _ZERO
        n_more = next_terms - n_terms
        if n_more > 0 and chances[step] >= _UPHILL**n_more:
            continue
        _pivot(walk, column, leaving)
        n_terms = next_terms
        if n_terms < fewest and _keep_if_whole(walk):
            fewest = n_terms
    return fewest


def suits(demand: NDArray[np.int64]) -> bool:
    """Tell whether a walk can be made over the decompositions of a matrix.

    There must be so few ports that all permutations can be listed, and sums so small that weights
    are exact as floats.
    """
    return 2 <= len(demand) <= _MOST_PORTS and 0 < demand[0].sum() <= _LARGEST_TICKS


class VertexWalk:
    """A walk over the decompositions of one matrix.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, of which all lines have the same sum.
    rng
        The random numbers.
    """

    def __init__(self, demand: NDArray[np.int64], rng: np.random.Generator) -> None:
        """Prepare a search for few permutations whose weighted sum is a demand.

        Each permutation of the ports has a weight >= 0, which is for how many ticks its circuits
        are up. Here the permutations that may have a weight above 0 are listed, and the equations
        that say that the weighted sum is the demand are set up; the search itself is `walk`.
        """
        self._demand = demand
        self._rng = rng
        n_ports = len(demand)
        ports = np.arange(n_ports)

        # A permutation with a circuit where the demand is 0 can only have the weight 0.
        every = np.array(list(permutations(range(n_ports))), dtype=np.int32)
        self._permutations = every[(demand[ports, every] > 0).all(axis=1)]

        # Equations: the entries but those of the last row and column, which follow from the others
        # and the sum of all weights. The equations have a row each and a column by permutation.
        # ``holds[number, i, j]``: 1 if the permutation has a circuit from i to j.
        holds = np.zeros((len(self._permutations), n_ports, n_ports))
        for number, permutation in enumerate(self._permutations):
            holds[number, ports, permutation] = 1.0
        entries = holds[:, :-1, :-1].reshape(len(self._permutations), -1).T
        equations = np.vstack([entries, np.ones(len(self._permutations))])
        sums = np.append(demand[:-1, :-1].ravel(), demand[0].sum()).astype(np.float64)

        # Where the matrix is sparse, some equations follow from others.
        is_needed = _independent_rows(equations)
        self._equations = equations[is_needed]
        self._sums = sums[is_needed]
        self._walk: _Walk | None = None
        self._n_walks = 0

    def walk(self, fewest: int) -> Plan | None:
        """Look for a decomposition of the demand into fewer terms, by some thousand random steps.

        A step goes from one decomposition to another that differs by one permutation (a pivot of
        the simplex method); one that adds terms is rarely taken. The next call goes on where this
        one ended; after some calls the walk begins at another decomposition.

        Parameters
        ----------
        fewest
            Only a decomposition of fewer terms is of use.

        Returns
        -------
        Plan or None
            The best decomposition on the way; None if none has fewer terms.
        """
        if self._walk is None or self._n_walks % _WALKS_OF_A_START == 0:
            # A vertex is drawn: the best decomposition for random costs of permutations. Those of
            # the largest weights come first into the basis.
            with uncounted():
                from scipy.optimize import linprog

            costs = self._rng.random(len(self._permutations))
            vertex = linprog(costs, A_eq=self._equations, b_eq=self._sums, method="highs-ds").x
            by_weight = np.lexsort((costs, -vertex))
            is_basic = _independent_rows(self._equations[:, by_weight].T)
            self._walk = self._at_basis(by_weight[is_basic])
        self._n_walks += 1
        walk = self._walk
        entering = self._rng.integers(len(self._permutations), size=_STEPS)
        n_terms = _walk_over_vertices(walk, entering, self._rng.random(_STEPS), fewest)

        # The tableau anew, so that rounding does not add up.
        self._walk = self._at_basis(walk.basis)
        if n_terms >= fewest:
            return None
        ticks = np.rint(walk.best_weights).astype(np.int64)
        plan = Plan(self._permutations[walk.best_basis], ticks).take(ticks > 0)
        return plan if np.array_equal(serve(plan), self._demand) else None

    def _at_basis(self, basis: NDArray[np.int64]) -> _Walk:
        """Compute the tableau of a basis anew, from the equations.

        With the basis B and all equations A, the tableau is ``inv(B) @ A``, and the weights of the
        basis are ``inv(B) @ sums``.
        """
        inverse = np.linalg.inv(self._equations[:, basis])
        weights = inverse @ self._sums
        weights[np.abs(weights) < _ZERO] = 0.0
        row_of = np.full(len(self._permutations), -1, dtype=np.int64)
        row_of[basis] = np.arange(len(basis))
        return _Walk(
            np.ascontiguousarray(np.column_stack([inverse @ self._equations, weights])),
            basis.copy(),
            row_of,
            np.zeros_like(basis),
            np.zeros(len(basis)),
        )


def _independent_rows(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    """Choose rows that span all others, the first ones first (Gaussian elimination)."""
    remaining = matrix.copy()
    chosen: list[int] = []
    for row in range(len(remaining)):
        column = int(np.abs(remaining[row]).argmax())
        if abs(remaining[row, column]) < _SMALLEST_PIVOT:
            continue

        # The row's largest number becomes the only one of its column below it.
        chosen.append(row)
        factors = remaining[row + 1 :, column] / remaining[row, column]
        remaining[row + 1 :] -= factors[:, None] * remaining[row]
        remaining[row + 1 :, column] = 0.0
    return np.array(chosen, dtype=np.int64)
