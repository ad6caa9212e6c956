"""Fabrics that are routed without a choice: crossbars, trees of switches, planar networks.

In a `Crossbar` and in `Piloss` each input has a row and each output a column, along which light
runs as long as cells are in cross; the one cell where the two meet is put in bar. In
`SwitchAndSelect` the number of the output is the address in the tree of the input, and the other
way round. Hence no circuit ever moves for another one.

A cell that exchanges two neighbours only if they are out of order makes the fewest exchanges there
are: each undoes one inversion, and no exchange undoes two. The columns of `SpankeBenes` and
`Clements` are those of odd-even transposition sort, the diagonals of `Reck` the passes of bubble
sort; both sort every input. Idle inputs are taken to go to idle outputs in order. Thus they never
cross each other, and light crosses as few of them as it can.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FREE
from optmatch.solvers.kernels.decorators import inner_kernel, kernel


def route_crossbar(matchings: NDArray[np.int32], *, ring: bool = False) -> NDArray[np.int8]:
    """Route matchings on a crossbar, or on the `ring` of a `Piloss`, in O(n squared) each.

    ``matchings[k, source]`` is a destination, -1 where idle. Returns ``states[k, cell]``, 0 bar, 1
    cross, -1 where no light passes.
    """
    n = matchings.shape[1]
    states = np.full((len(matchings), n * n), FREE, dtype=np.int8)
    if ring:
        ports = np.arange(n)  # by the flat fold of the ring: 0, n - 1, 1, n - 2, ...
        meet_on_ring(matchings, np.where(ports % 2, n - 1 - ports // 2, ports // 2), states)
    else:
        set_crossbar(matchings, states)
    return states


def route_trees(matchings: NDArray[np.int32]) -> NDArray[np.int8]:
    """Route matchings, shape (k, n), on switches and selectors, in O(n squared) each.

    The result is ``states[k, cell]``, 0 bar, which leads to the first half of the leaves, 1 cross,
    or -1 for cells without light. To clear these takes nearly all of the time.
    """
    n = matchings.shape[1]
    states = np.full((len(matchings), 2 * n * (n - 1)), FREE, dtype=np.int8)
    set_trees(matchings, states)
    return states


@kernel
def set_crossbar(matchings, states):
    """Set the cells of a crossbar, that of row i and column j being ``i * n + j``.

    ``matchings[row, input]`` is an output, -1 if idle; ``states[row, cell]`` is written, 0 bar and
    1 cross. Light of input i crosses its row up to column j, turns there (bar), and crosses the
    rest of the column. Cells without light stay as they are.

    Example: of three lines, from input 0 to output 1, cell 1 is in bar, and cells 0, 4 and 7 are
    in cross.
    """
    n = matchings.shape[1]
    for row in range(len(matchings)):
        state = states[row]
        for i in range(n):
            j = matchings[row, i]
            if j < 0:
                continue
            state[i * n : i * n + j] = 1
            state[i * n + j] = 0
            state[(i + 1) * n + j :: n] = 1


@kernel
def meet_on_ring(matchings, place, states):
    """Set the cells of a ring, where row i meets column ``i + stage`` in ``stage * n + i``.

    ``matchings[row, input]`` is an output, -1 if idle; ``states[row, cell]`` is written, 0 bar and
    1 cross. Columns are counted modulo n. Input k is row ``place[k]``, output k the column that
    meets this row last. Light crosses its row up to the stage in which it meets the column of its
    output, turns there (bar), and crosses the rest of that column. Cells without light stay as
    they are. With the places 0, 3, 1, 2 of four inputs, the circuit from input 0 to output 1
    sets cells 0, 4 and 15 to cross and cell 8 to bar.
    """
    n = matchings.shape[1]
    for row in range(len(matchings)):
        state = states[row]
        for source in range(n):
            if matchings[row, source] < 0:
                continue

            # The row of the input, the column of the output, and the stage in which they meet.
            i = place[source]
            j = (place[matchings[row, source]] - 1) % n
            meeting = (j - i) % n
            state[i : meeting * n : n] = 1
            state[meeting * n + i] = 0
            for stage in range(meeting + 1, n):
                state[stage * n + (j - stage) % n] = 1


_SPLITS = False
_JOINS = True
"""What a tree of cells does with the light; arguments of kernels have no names in plain Python."""


@inner_kernel
def _lead_to_leaf(state, first, lines, leaf, joins):
    """Set the cells of one tree between its root and a leaf.

    Writes ``state[cell]``, 0 to lead to the first half of the leaves, else 1. A tree with so many
    `lines`, its leaves, has one cell less, numbered from `first` on. If it splits, its root comes
    first, then the cells of the first half of the leaves, then those of the second half; if it
    `joins`, the root comes last. A tree of four lines that splits, for example, has its root in
    cell `first`; to leaf 2 this is set to 1, and cell ``first + 2``, that of leaves 2 and 3, to 0.
    """
    while lines > 1:
        half = (lines + 1) // 2
        root = first
        if joins:
            root = first + lines - 2
        else:
            first += 1

        # Down to the half of the leaves in which the leaf is.
        if leaf < half:
            state[root] = 0
            lines = half
        else:
            state[root] = 1
            first += half - 1
            lines -= half
            leaf -= half


@kernel
def set_trees(matchings, states):
    """Set the cells of trees: the number of a port is the address of a leaf.

    ``matchings[row, input]`` is an output, -1 if idle; ``states[row, cell]`` is written. Each
    input has a binary tree of n - 1 cells that splits, in which the output is the leaf, and then
    each output has a tree that joins, in which the input is the leaf. The only link between the
    tree of an input and that of an output is their leaf, hence no two circuits meet. Cells without
    light stay as they are.
    """
    n = matchings.shape[1]
    for row in range(len(matchings)):
        state = states[row]
        for i in range(n):
            j = matchings[row, i]
            if j >= 0:
                _lead_to_leaf(state, i * (n - 1), n, j, _SPLITS)
                _lead_to_leaf(state, (n + j) * (n - 1), n, i, _JOINS)


@lru_cache(maxsize=64)
def lines_of_cells(n: int, *, triangle: bool = False) -> NDArray[np.int32]:
    """List the upper line of each cell, in a `Reck` triangle or else as in `SpankeBenes`.

    With four lines a triangle has 0, 1, 2, 0, 1, 0, and the other network 0, 2, 1, 0, 2, 1.
    """
    if triangle:
        lines = [k for stop in range(n - 1, 0, -1) for k in range(stop)]
    else:
        lines = [k for column in range(n) for k in range(column % 2, n - 1, 2)]
    table = np.array(lines, dtype=np.int32)
    table.flags.writeable = False
    return table


def route_by_sorting(matchings: NDArray[np.int32], *, triangle: bool = False) -> NDArray[np.int8]:
    """Route matchings, shape (k, n), on a planar network with the fewest cells in cross.

    The result is ``states[k, cell]``. O(n squared) for each matching. As many cells with light are
    in cross as there are inversions with light in them: no routes need fewer.
    """
    lines = lines_of_cells(matchings.shape[1], triangle=triangle)
    states = np.empty((len(matchings), len(lines)), dtype=np.int8)
    space = np.empty((2, matchings.shape[1]), dtype=np.int32)
    sort_lines(lines, matchings, states, space)
    return states


@kernel
def sort_lines(lines, matchings, states, space):
    """Route matchings by compare and exchange: a cell is in cross if its lines are out of order.

    ``matchings[row, input]`` is an output, -1 if idle. Writes ``states[row, cell]``, 0 bar, 1
    cross, -1 for a cell without light. Each cell of a sorting network joins two neighbouring
    lines, ``lines[cell]`` and the one below it. Every line carries the number of the output that
    it is to reach, and cells sort these numbers as they pass. `space`, shape (2, n), is scratch.

    Example: two lines with light to the outputs 1 and 0 carry 3 and 1. Their cell is in cross, and
    behind it they carry 1 and 3.
    """
    taken, line = space[0], space[1]  # line[k]: twice the output of line k, plus 1 if it has light
    for row in range(len(matchings)):
        taken[:] = 0
        for o in matchings[row]:
            if o >= 0:
                taken[o] = 1

        # Idle inputs go to the idle outputs in order, so that their lines never cross.
        idle = 0
        for i in range(len(line)):
            if matchings[row, i] >= 0:
                line[i] = 2 * matchings[row, i] + 1
            else:
                while taken[idle]:
                    idle += 1
                line[i] = 2 * idle
                idle += 1

        # Compare and exchange: the smaller output goes to the upper line. The last bit of what a
        # line carries says whether it has light.
        for cell in range(len(lines)):
            k = lines[cell]
            above = line[k]
            below = line[k + 1]
            line[k] = min(above, below)
            line[k + 1] = max(above, below)
            states[row, cell] = -1
            if (above | below) & 1:
                states[row, cell] = above > below  # cross if they are out of order, else bar
