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

import numpy as np
from numpy.typing import NDArray

from optmatch.model import uncounted
from optmatch.solvers.demands.plans import Plan, serve
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

_MOST_PORTS = 6
"""A step takes 5 us with the 720 permutations of so many ports, and 0.1 ms with those of seven
(``benchmarks/demand_constants.py vertex_walk._MOST_PORTS 5 7 --kind matchings --ports 6 7``)."""

_LARGEST_TICKS = 10**9
"""Weights of larger sums would not be whole to `_ZERO` in float64."""

_ZERO = 1e-4
"""A weight below this, in ticks, is zero; weights of vertices are fractions of small divisors."""

_SMALLEST_PIVOT = 1e-7

_STEPS = 4000
"""Steps between two looks at the clock: 4 ms with five ports, 20 with six
(``benchmarks/demand_constants.py vertex_walk._STEPS 2000 8000 --kind matchings --ports 5 6``)."""

_UPHILL = 0.001
"""How often a step that adds a term is taken, for each term that it adds. From 17 to 14 terms of a
dense matrix of 5 ports it takes 0.5 s with 0.001 and with 0.0002, 4 s with 0.03, and more than a
minute if all steps are taken (``benchmarks/demand_constants.py vertex_walk._UPHILL 0.0002 0.03
--kind matchings --ports 5``)."""

_WALKS_OF_A_START = 20
"""After so many walks the next one begins at another vertex."""


@inner_kernel
def _pivot(tableau, column, leaving):
    """Let the permutation of `column` enter the basis, and that of the row `leaving` leave it.

    Changes the tableau by a step of Gauss-Jordan elimination: the column becomes 1 in the row that
    leaves, and 0 in all others.
    """
    # The row is divided by its number in the column.
    pivot_row = tableau[leaving]
    divisor = pivot_row[column]
    for other in range(len(pivot_row)):
        pivot_row[other] /= divisor

    # It is then taken off all other rows as often as makes their number 0.
    for row in range(len(tableau)):
        factor = tableau[row, column]
        if row != leaving and factor != 0.0:
            for other in range(len(pivot_row)):
                tableau[row, other] -= factor * pivot_row[other]


@kernel
def _walk_over_vertices(tableau, basis, entering, chances, fewest, best_basis, best_weights):
    """Look for a sum of few weighted permutations that is the demand, by a random walk.

    Changes the tableau and ``basis[row]``, the permutation of each row. ``entering[step]`` are
    permutations and ``chances[step]`` random numbers from 0 to 1. The best vertex is written to
    `best_basis` and `best_weights`, by row of the tableau; returns how many terms it has, or
    `fewest` if none has fewer. The terms are the permutations whose weights are above 0. Few are
    wanted, and their weights have to be whole numbers of ticks: at a vertex they may be fractions.

    A step is a pivot. Steps that add no terms are always taken; one that adds k terms is taken
    with a chance of ``_UPHILL**k``. A permutation that is in the basis takes its own place.
    """
    weights = tableau[:, -1]
    n_terms = 0
    for weight in weights:
        n_terms += weight > _ZERO
    for step in range(len(entering)):
        # The present vertex is the best one so far if its terms are fewer, and whole.
        if n_terms < fewest:
            is_whole = True
            for weight in weights:
                is_whole = is_whole and abs(weight - np.rint(weight)) < _ZERO
            if is_whole:
                for row in range(len(basis)):
                    best_basis[row] = basis[row]
                    best_weights[row] = weights[row]
                fewest = n_terms

        # The row that leaves is the one whose weight falls to 0 first as that of the column rises
        # (the ratio test). Weights of 6 and 5 that fall by 2 and by 1 for each tick are 0 after 3
        # and 5 ticks: the first row leaves, and the rise is 3. -1: no weight ever falls.
        column = entering[step]
        leaving = -1
        rise = np.inf
        for row in range(len(basis)):
            falls = tableau[row, column]
            if falls > _SMALLEST_PIVOT and weights[row] / falls < rise:
                rise = weights[row] / falls
                leaving = row
        if leaving < 0:
            continue

        # The terms of the neighbour are known without going there.
        next_terms = 0
        for row in range(len(basis)):
            weight = weights[row] - rise * tableau[row, column]
            if row == leaving:
                weight = rise
            next_terms += weight > _ZERO
        n_more = next_terms - n_terms

        # More terms are seldom accepted, as many or fewer always.
        if n_more > 0 and chances[step] >= _UPHILL**n_more:
            continue
        _pivot(tableau, column, leaving)
        basis[leaving] = column
        n_terms = next_terms
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

    Notes
    -----
    ``_permutations[number, source]`` are those that may have a weight above 0. The equations that
    the weighted sum is the demand have the coefficients ``_equations[equation, number]`` and the
    right sides ``_sums[equation]``, in ticks. ``_basis[row]`` is the number of the permutation in
    each row of the tableau, of which there are as many as equations.
    """

    def __init__(self, demand: NDArray[np.int64], rng: np.random.Generator) -> None:
        """Prepare a search for few permutations whose weighted sum is a demand.

        Each permutation of the ports has a weight >= 0, which is for how many ticks its circuits
        are up. Here permutations are listed and equations set up; the search itself is `walk`.
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

        # Where the matrix is sparse, some equations follow from others. `is_needed` lists the
        # numbers of those that do not: equations are the columns of the transpose. The first walk
        # sets the basis; until then any numbers stand for it, one for each equation.
        is_needed = _independent_columns(equations.T)
        self._equations = equations[is_needed]
        self._sums = sums[is_needed]
        self._basis = is_needed
        self._n_walks = 0

    def walk(self, fewest: int) -> Plan | None:
        """Look for a decomposition of the demand into fewer terms, by some thousand random steps.

        The next call goes on where this one ended; after some calls the walk begins at another
        decomposition. Returned is the best decomposition of less than `fewest` terms on the way;
        None if there is none.
        """
        if self._n_walks % _WALKS_OF_A_START == 0:
            # A vertex is drawn: the best decomposition for random costs of permutations. Its terms
            # are put into the basis first, as their columns are made the longest.
            with uncounted():
                from scipy.optimize import linprog

            costs = self._rng.random(len(self._permutations))
            vertex = linprog(costs, A_eq=self._equations, b_eq=self._sums, method="highs-ds").x
            self._basis = _independent_columns(self._equations * np.where(vertex > _ZERO, 1e3, 1))
        self._n_walks += 1

        # The tableau anew, so that rounding does not add up: with the basis B and all equations A
        # it is ``inv(B) @ A``, and the weights of the basis are ``inv(B) @ sums``.
        inverse = np.linalg.inv(self._equations[:, self._basis])
        weights = inverse @ self._sums
        weights[np.abs(weights) < _ZERO] = 0.0
        tableau = np.column_stack([inverse @ self._equations, weights])

        # The walk itself, which overwrites `weights` by those of the best vertex.
        entering = self._rng.integers(len(self._permutations), size=_STEPS)
        chances = self._rng.random(_STEPS)
        best_basis = self._basis.copy()
        n_terms = _walk_over_vertices(
            tableau, self._basis, entering, chances, fewest, best_basis, weights
        )
        if n_terms >= fewest:
            return None
        ticks = np.rint(weights).astype(np.int64)
        plan = Plan(self._permutations[best_basis], ticks).take(ticks > 0)
        return plan if np.array_equal(serve(plan), self._demand) else None


def _independent_columns(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the numbers of columns that span all others (QR with pivoting, the longest first)."""
    with uncounted():
        from scipy.linalg import qr

    triangle, order = qr(matrix, mode="r", pivoting=True)
    rank = int((np.abs(triangle.diagonal()) > _SMALLEST_PIVOT).sum())
    chosen: NDArray[np.int64] = order[:rank].astype(np.int64)
    return chosen
