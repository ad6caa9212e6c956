"""Matrices stuffed to equal line sums, and as sums of weighted permutations, exactly.

All numbers are whole, so each term makes a further entry zero, and no rounding leaves a rest.

*Stuffing* raises entries until all rows and columns have one sum, without which no such sum of
permutations exists (Birkhoff and von Neumann). *Peeling* takes one weighted permutation off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import InputError, counted_time, frozen
from optmatch.solvers.demands import peeling
from optmatch.solvers.demands.entries import Entries, LineSums
from optmatch.solvers.demands.listed_peeling import THRESHOLD, list_matrix, peel_listed
from optmatch.solvers.demands.peeling import BOTTLENECK, FIRST
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.workspace import set_up
from optmatch.solvers.kernels.decorators import kernel

Rule = Literal["first", "bottleneck"]


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
    """Return a square matrix of whole numbers >= 0 as a copy, int64; refuse any other.

    The sums of its lines have to be below 2**62.
    """
    # An array of floats is checked for its form and its signs first: an error names these before
    # it says that the numbers are not whole.
    table: Any = ticks
    if not (isinstance(ticks, np.ndarray) and ticks.ndim == 2 and ticks.dtype.kind == "f"):
        table = frozen("matrix", ticks, 2, np.int64)
    if table.shape[0] != table.shape[1]:
        raise InputError(f"matrix has shape {table.shape}: must be square", where="matrix")
    for i, j in np.argwhere(table < 0)[:1]:
        raise InputError(f"matrix[{i}, {j}] = {table[i, j]}: must be >= 0", where="matrix")
    matrix = frozen("matrix", table, 2, np.int64)

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


def _check_task(rule: Rule, sums: NDArray[np.int64]) -> None:
    """Refuse unknown rules, and sums of n rows and then n columns that are not all the same."""
    if rule not in get_args(Rule):
        raise InputError(f"rule = {rule!r}: one of {', '.join(get_args(Rule))}", where="rule")
    n = len(sums) // 2
    for k in np.flatnonzero(sums != sums[:1])[:1]:
        line = f"row {k}" if k < n else f"column {k - n}"
        raise InputError(
            f"matrix: {line} sums to {sums[k]}, row 0 to {sums[0]}: must be equal", where="matrix"
        )


@kernel
def _raise_entries(order, entries, rows, columns, added):
    """Raise entries by what both of their lines lack; add new ones for what is lacking still.

    Changes ``entries.ticks``; `order` lists the numbers of the entries. ``rows[row]`` and
    ``columns[column]`` are the ticks that lines lack, with the same sum, and are used up. The new
    entries go down the matrix in a staircase (north-west corner rule). Each of them ends a row or
    a column, hence `added`, to which they are written, has room for 2 n; returns how many there
    are. As an example, rows that lack 2 and 3 and columns that lack 4 and 1 get 2 at (0, 0), 2 at
    (1, 0) and 1 at (1, 1).
    """
    for entry in order:
        row = entries.row[entry]
        column = entries.column[entry]
        add = min(rows[row], columns[column])
        entries.ticks[entry] += add
        rows[row] -= add
        columns[column] -= add

    # The staircase, from the first row and column on. It pays no regard to the entries that are
    # listed: a new one may be at the place of one of them.
    n_added = 0
    row = 0
    column = 0
    while row < len(rows) and column < len(rows):
        add = min(rows[row], columns[column])
        if add > 0:
            added.row[n_added] = row
            added.column[n_added] = column
            added.ticks[n_added] = add
            n_added += 1

        # A line that lacks nothing more is passed over.
        rows[row] -= add
        columns[column] -= add
        if rows[row] == 0:
            row += 1
        else:
            column += 1
    return n_added


def _raise_lines(entries: Entries) -> tuple[Entries, Entries]:
    """Raise entries until the sum of each line is that of the largest, the largest entries first.

    Returns the listed entries, raised, and new ones that are added to them; some of these may be
    at the place of a listed entry.
    """
    n = entries.n_ports
    sums = LineSums.of(entries).ticks
    rows, columns = (sums.max(initial=0) - sums).reshape(2, n)
    raised = entries._replace(ticks=entries.ticks.copy())
    row, column = np.empty((2, 2 * n), dtype=np.int32)
    added = Entries(
        n_ports=n,
        row=row,
        column=column,
        ticks=np.empty(2 * n, dtype=np.int64),
    )
    order = np.argsort(-entries.ticks, kind="stable")
    n_added = _raise_entries(order, raised, rows, columns, added)
    return raised, Entries(
        n_ports=n,
        row=row[:n_added],
        column=column[:n_added],
        ticks=added.ticks[:n_added],
    )


def stuff_entries(entries: Entries) -> Entries:
    """Raise entries, and add some, until the sum of each line is that of the largest (`stuff`).

    The result has one entry for each place, row by row.
    """
    raised, added = _raise_lines(entries)
    n = entries.n_ports
    row = np.concatenate([raised.row, added.row])
    column = np.concatenate([raised.column, added.column])
    places, entry_of = np.unique(row.astype(np.int64) * n + column, return_inverse=True)
    ticks = np.zeros(len(places), dtype=np.int64)
    np.add.at(ticks, entry_of, np.concatenate([raised.ticks, added.ticks]))
    row, column = np.divmod(places, max(1, n))
    return Entries(
        n_ports=n,
        row=row.astype(np.int32),
        column=column.astype(np.int32),
        ticks=ticks,
    )


def stuff(ticks: ArrayLike) -> NDArray[np.int64]:
    """Raise entries until the sum of each line is that of the largest.

    A line is a row or a column. With all line sums the same, a matrix is a sum of weighted
    permutations. The result adds the least possible amount in total. As an example, rows of
    (3, 1) and (0, 1) become (3, 1) and (1, 3): all sums are 4.

    Each entry in turn is raised as far as both its lines allow: first those that are not zero, the
    largest first, then zeros.
    """
    raised, added = _raise_lines(Entries.of_matrix(whole_square(ticks)))
    matrix = raised.to_matrix()
    matrix[added.row, added.column] += added.ticks
    return matrix


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
    matrix = whole_square(ticks)

    # Only a matrix whose lines all have the same sum is a sum of weighted permutations.
    _check_task(rule, np.concatenate([matrix.sum(axis=1), matrix.sum(axis=0)]))
    chosen_rule = FIRST if rule == "first" else BOTTLENECK
    return peel_terms(matrix, chosen_rule, stop_ticks, max_terms, deadline)


def peel_terms(
    matrix: NDArray[np.int64],
    rule: int,
    stop_ticks: int = 0,
    max_terms: int | None = None,
    deadline: float = np.inf,
) -> Terms:
    """Write a matrix of equal line sums as a sum of terms, by a rule of `peel_permutations`.

    `rule` is FIRST, BOTTLENECK or HALVING. It ends when line sums are down to `stop_ticks`, after
    `max_terms` terms, at the deadline (in counted seconds), or by Ctrl-C; `Terms.residual` is then
    what is left. For example ((5, 2), (2, 5)) gives the identity with weight 5 and the exchange
    with weight 2, and no rest.
    """
    # Each term makes an entry zero, so there is room enough for as many terms as entries.
    term_limit = int(np.count_nonzero(matrix))
    if max_terms is not None:
        term_limit = min(term_limit, max_terms)
    n = len(matrix)
    space = set_up(matrix) if term_limit > 0 else None
    peel = partial(peeling.peel_permutations, space, rule, stop_ticks)
    terms, is_whole = _take_terms(peel, n, term_limit, deadline)

    # After Ctrl-C the kernel's own rest cannot be trusted, and is computed from the terms.
    if is_whole and space is not None:
        return Terms(terms.matchings, terms.ticks, space.remaining.reshape(n, n))
    taken = Terms(terms.matchings, terms.ticks, np.zeros_like(matrix))
    return taken._replace(residual=matrix - taken.total())


def decompose_entries(entries: Entries, rule: Rule = "bottleneck", stop_ticks: int = 0) -> Plan:
    """Write a matrix of few entries as a sum of weighted permutations, as `decompose` does.

    All line sums are the same, and it ends when they are down to `stop_ticks`. The slots of the
    plan are the terms, each with its weight as ticks. Ctrl-C is passed on.
    """
    _check_task(rule, LineSums.of(entries).ticks)
    n_entries = len(entries.ticks)
    if n_entries == 0:
        return Plan.of([], [], entries.n_ports)
    space = list_matrix(entries)
    if rule == "first":
        space.state[THRESHOLD] = 1
    peel = partial(peel_listed, space, stop_ticks)
    terms, is_whole = _take_terms(peel, entries.n_ports, n_entries, np.inf)
    if not is_whole:
        raise KeyboardInterrupt
    return terms


def _take_terms(
    peel: Callable[[NDArray[np.int32], NDArray[np.int64]], int],
    n_ports: int,
    n_wanted: int,
    deadline: float,
) -> tuple[Plan, bool]:
    """Fill block after block with terms, until there are no more, or `n_wanted`, or time is up.

    `peel` writes ``permutations[term, row]`` and ``weights[term]`` to two arrays, and returns how
    many terms there are. Returned are the terms as a plan, and False if Ctrl-C came: those of the
    last block are lost then, though taken off the matrix. `deadline` is a time of `counted_time`.
    """
    blocks = [Plan(np.empty((0, n_ports), dtype=np.int32), np.empty(0, dtype=np.int64))]
    is_whole = True
    try:
        # The kernel fills blocks of limited size, between which the clock and Ctrl-C come to their
        # turn; it keeps its matching from one block to the next.
        while n_wanted > 0:
            size = min(n_wanted, max(8, _SLICE // n_ports))
            block = Plan(np.empty((size, n_ports), np.int32), np.empty(size, np.int64))
            n_terms = peel(block.matchings, block.ticks)
            blocks.append(block.take(np.arange(n_terms)))
            n_wanted -= n_terms

            # Fewer terms than there was room for, or -1: the rest is small enough, or there is no
            # further permutation.
            if n_terms < size or counted_time() >= deadline:
                break
    except KeyboardInterrupt:
        is_whole = False
    permutations = np.concatenate([block.matchings for block in blocks])
    return Plan(permutations, np.concatenate([block.ticks for block in blocks])), is_whole
