"""Kernels for small linear programmes that ask how short slots can be and yet hold enough.

A programme asks for the durations of some slots, none below the shortest, whose sum is least;
each constraint says how long some of the slots must last together. It is kept as a dictionary
(Chvatal 1983, *Linear programming*, chapter 2): every basic variable as a linear function of the
nonbasic ones. The sum only grows as constraints are added, so the dual simplex method goes on from
the dictionary that there is, and a search keeps one for each of its levels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernel import bare_kernel

WIDTH = 16
"""Slots at most; fixed, so that loops over them are unrolled."""

ROUNDING = 1e-7
"""Ticks by which a constraint may be missed."""

_ZERO = 1e-9  # coefficients below it are rounding
_TIE = 1e-12
_MOST_PIVOTS = 500  # then a programme counts as feasible, which excludes nothing
_SIZE, _OUTSIDE, _PLACE, _INSIDE = 0, 1, 1 + WIDTH, 1 + 2 * WIDTH  # parts of a basis


class Programmes(NamedTuple):
    """Programmes, one on each level; variables are slots (from 0) or slacks (codes below 0).

    A row of a table is a basic variable as a function of the `WIDTH` nonbasic ones, its value
    where these are zero comes last. Row 0 is the sum of the durations. A basis has the number of
    rows, the nonbasic variables, where each slot is (its row, or ~column where it is nonbasic),
    and the basic variables.
    """

    table: NDArray[np.float64]  # (levels, rows, WIDTH + 1)
    basis: NDArray[np.int64]  # (levels, 1 + 2 * WIDTH + rows)
    form: NDArray[np.float64]  # (4, WIDTH + 1) constraints that are being added, and a pivot
    shortest: NDArray[np.float64]  # (1,) no slot lasts less
    solved: NDArray[np.int64]  # (1,) programmes so far


def stack(slots: int, shortest: int, levels: int, rows: int) -> Programmes:
    """Make room for programmes; the lowest has no constraints.

    Examples
    --------
    >>> p = stack(slots=2, shortest=1, levels=1, rows=3)
    >>> express(p, 0, 0b11, 7.0, 0)  # both together last 7 ticks
    >>> add(p, 0, 0, -1)
    >>> settle(p, 0, 9.0), round(duration(p, 0, 0) + duration(p, 0, 1))
    (True, 7)
    """
    found = Programmes(
        table=np.zeros((levels, rows, WIDTH + 1)),
        basis=np.zeros((levels, _INSIDE + rows), dtype=np.int64),
        form=np.zeros((4, WIDTH + 1)),
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


@bare_kernel
def duplicate(p, source, target):
    """Copy a programme to another level."""
    table, basis = p.table, p.basis
    rows = basis[source, _SIZE]
    for x in range(_INSIDE + rows):
        basis[target, x] = basis[source, x]
    for row in range(rows):
        for q in range(WIDTH + 1):
            table[target, row, q] = table[source, row, q]


@bare_kernel
def express(p, level, mask, need, at):
    """Write how much longer than needed the slots of a mask last, in ``form[at]``."""
    table, basis, form = p.table, p.basis, p.form
    for q in range(WIDTH):
        form[at, q] = 0.0
    form[at, WIDTH] = -need
    slot = 0
    while mask:
        if mask & 1:
            form[at, WIDTH] += p.shortest[0]
            row = basis[level, _PLACE + slot]
            if row < 0:
                form[at, ~row] += 1.0
            else:
                for q in range(WIDTH + 1):
                    form[at, q] += table[level, row, q]
        mask >>= 1
        slot += 1


@bare_kernel
def least_total(p, level, at):
    """Bound the sum of the durations with one more constraint: after one dual pivot."""
    table, form = p.table, p.form
    if form[at, WIDTH] >= -ROUNDING:
        return table[level, 0, WIDTH]
    rate = np.inf
    for q in range(WIDTH):
        if form[at, q] > _ZERO:
            rate = min(rate, table[level, 0, q] / form[at, q])
    return table[level, 0, WIDTH] - form[at, WIDTH] * rate


@bare_kernel
def add(p, level, at, code):
    """Add the constraint in ``form[at]``."""
    table, basis, form = p.table, p.basis, p.form
    row = basis[level, _SIZE]
    if row == table.shape[1]:
        return  # without it less is excluded, but nothing wrongly
    basis[level, _SIZE] = row + 1
    basis[level, _INSIDE + row] = code
    for q in range(WIDTH + 1):
        table[level, row, q] = form[at, q]


@bare_kernel
def drop(p, level, code):
    """Drop constraints of a code that are not tight."""
    table, basis = p.table, p.basis
    row = 1
    while row < basis[level, _SIZE]:
        if basis[level, _INSIDE + row] != code:
            row += 1
            continue
        last = basis[level, _SIZE] - 1
        basis[level, _SIZE] = last
        if last != row:
            slot = basis[level, _INSIDE + last]
            basis[level, _INSIDE + row] = slot
            for q in range(WIDTH + 1):
                table[level, row, q] = table[level, last, q]
            if slot >= 0:
                basis[level, _PLACE + slot] = row


@bare_kernel
def settle(p, level, most):
    """Solve by the dual simplex method; tell whether the durations can stay within `most`."""
    table, basis, pivot = p.table[level], p.basis[level], p.form[3]
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


@bare_kernel
def duration(p, level, slot):
    """How long a slot lasts in the solution."""
    row = p.basis[level, _PLACE + slot]
    return p.shortest[0] + (p.table[level, row, WIDTH] if row >= 0 else 0.0)
