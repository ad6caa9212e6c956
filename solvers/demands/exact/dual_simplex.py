"""Kernels of the dual simplex method: the shortest slots that serve enough.

A linear program asks for the durations of the slots, none below the shortest, with the least sum.
Each constraint says how long a set of slots must last together. The program is kept as a
dictionary (Chvatal 1983, *Linear programming*, chapter 2): every basic variable as a linear
function of the nonbasic ones. A new constraint can only make the sum larger, so the dual simplex
method goes on from the last dictionary. The search keeps one dictionary for each of its levels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernel import kernel

WIDTH = 16
"""Slots at most; fixed, so that loops over them are unrolled."""

ROUNDING = 1e-7
"""Ticks by which a constraint may be missed."""

_ZERO = 1e-9  # coefficients below it are rounding
_TIE = 1e-12
_MOST_PIVOTS = 500  # then a program counts as feasible, which excludes nothing
_SIZE, _OUTSIDE, _PLACE, _INSIDE = 0, 1, 1 + WIDTH, 1 + 2 * WIDTH  # parts of a basis


class LinearPrograms(NamedTuple):
    """Linear programs, one on each level; variables are slots (from 0) or slacks (-1).

    A row of a table is a basic variable as a function of the `WIDTH` nonbasic ones, its value
    where these are zero comes last. Row 0 is the sum of the durations. A basis has the number of
    rows, the nonbasic variables, where each slot is (its row, or ~column where it is nonbasic),
    and the basic variables.
    """

    table: NDArray[np.float64]  # (levels, rows, WIDTH + 1)
    basis: NDArray[np.int64]  # (levels, 1 + 2 * WIDTH + rows)
    form: NDArray[np.float64]  # (2, WIDTH + 1) the constraint that is being added, and a pivot
    shortest: NDArray[np.float64]  # (1,) no slot lasts less
    solved: NDArray[np.int64]  # (1,) linear programs so far


def make_programs(slots: int, shortest: int, levels: int, rows: int) -> LinearPrograms:
    """Make room for linear programs; the lowest has no constraints.

    Examples
    --------
    >>> p = make_programs(slots=2, shortest=1, levels=1, rows=3)
    >>> express(p, 0, 0b11, 7.0)  # both together last 7 ticks
    >>> add(p, 0)
    >>> settle(p, 0, 9.0), round(duration(p, 0, 0) + duration(p, 0, 1))
    (True, 7)
    """
    found = LinearPrograms(
        table=np.zeros((levels, rows, WIDTH + 1)),
        basis=np.zeros((levels, _INSIDE + rows), dtype=np.int64),
        form=np.zeros((2, WIDTH + 1)),
        shortest=np.array([float(shortest)]),
        solved=np.zeros(1, dtype=np.int64),
    )
    found.table[0, 0, :slots] = 1.0
    found.table[0, 0, WIDTH] = slots * shortest
    found.basis[0, _SIZE] = 1
    found.basis[0, _OUTSIDE : _OUTSIDE + slots] = np.arange(slots)
    found.basis[0, _PLACE : _PLACE + slots] = ~np.arange(slots)
    found.basis[0, _INSIDE] = -1
    return found


@kernel
def duplicate(p, source, target):
    """Copy a program to another level."""
    table, basis = p.table, p.basis
    rows = basis[source, _SIZE]
    for x in range(_INSIDE + rows):
        basis[target, x] = basis[source, x]
    for row in range(rows):
        for q in range(WIDTH + 1):
            table[target, row, q] = table[source, row, q]


@kernel
def express(p, level, mask, need):
    """Write how much longer than needed the slots of a mask last, in ``form[0]``."""
    table, basis, form = p.table, p.basis, p.form
    for q in range(WIDTH):
        form[0, q] = 0.0
    form[0, WIDTH] = -need
    slot = 0
    while mask:
        if mask & 1:
            form[0, WIDTH] += p.shortest[0]
            row = basis[level, _PLACE + slot]
            if row < 0:
                form[0, ~row] += 1.0
            else:
                for q in range(WIDTH + 1):
                    form[0, q] += table[level, row, q]
        mask >>= 1
        slot += 1


@kernel
def least_total(p, level):
    """Bound the sum of the durations with one more constraint: after one dual pivot."""
    table, form = p.table, p.form
    if form[0, WIDTH] >= -ROUNDING:
        return table[level, 0, WIDTH]
    rate = np.inf
    for q in range(WIDTH):
        if form[0, q] > _ZERO:
            rate = min(rate, table[level, 0, q] / form[0, q])
    return table[level, 0, WIDTH] - form[0, WIDTH] * rate


@kernel
def add(p, level):
    """Add the constraint in ``form[0]``."""
    table, basis, form = p.table, p.basis, p.form
    row = basis[level, _SIZE]
    if row == table.shape[1]:
        return  # without it less is excluded, but nothing wrongly
    basis[level, _SIZE] = row + 1
    basis[level, _INSIDE + row] = -1
    for q in range(WIDTH + 1):
        table[level, row, q] = form[0, q]


@kernel
def settle(p, level, most):
    """Solve by the dual simplex method; tell whether the durations can stay within `most`."""
    table, basis, pivot = p.table[level], p.basis[level], p.form[1]
    p.solved[0] += 1
    rows = basis[_SIZE]
    for _ in range(_MOST_PIVOTS):
        if table[0, WIDTH] > most:
            return False
        row, worst = -1, -ROUNDING
        for r in range(1, rows):
            if table[r, WIDTH] < worst:
                row, worst = r, table[r, WIDTH]
        if row < 0:
            return True
        column, rate = -1, np.inf
        for q in range(WIDTH):
            if table[row, q] > _ZERO:
                here = table[0, q] / table[row, q]
                steeper = here < rate + _TIE and table[row, q] > table[row, column]
                if here < rate - _TIE or steeper:
                    column, rate = q, here
        if column < 0:
            return False
        inverse = 1.0 / table[row, column]
        for q in range(WIDTH + 1):
            pivot[q] = -table[row, q] * inverse
        pivot[column] = inverse
        for r in range(rows):
            factor = table[r, column]
            if r != row and factor != 0.0:
                table[r, column] = 0.0
                for q in range(WIDTH + 1):
                    table[r, q] += factor * pivot[q]
        for q in range(WIDTH + 1):
            table[row, q] = pivot[q]
        entering, leaving = basis[_OUTSIDE + column], basis[_INSIDE + row]
        basis[_OUTSIDE + column], basis[_INSIDE + row] = leaving, entering
        if entering >= 0:
            basis[_PLACE + entering] = row
        if leaving >= 0:
            basis[_PLACE + leaving] = ~column
    return True


@kernel
def duration(p, level, slot):
    """How long a slot lasts in the solution."""
    row = p.basis[level, _PLACE + slot]
    return p.shortest[0] + (p.table[level, row, WIDTH] if row >= 0 else 0.0)
