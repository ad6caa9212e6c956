r"""The light everywhere in a mesh whose cells are all set, with every leak and every turn.

Let x be the amplitudes that enter cells and y those that leave them, at all terminals. A cell
makes y of x (:math:`y = S x`), a waveguide leads what leaves one terminal to the joined one
(:math:`x = C y + b`), and b comes in from outside. Together :math:`(I - C S) x = b`: one sparse
system for each state and frequency, whose pattern is that of the cell graph.

This is the one module of the verifier that needs SciPy.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix
from scipy.sparse.linalg import splu

from optmatch.fabrics.cellgraph import EXITS, CellGraph
from optmatch.model import InputError, SolverError

AT_ONCE = 8
"""Inputs that are solved for together: so few that BLAS starts no threads, which would only wait
for each other."""

FAINT = 1e-6
"""Where light would become stronger than the inverse of this, weaker amplitudes do not count as a
way in: what a loop loses by them in a turn drowns in rounding."""


class Waves(NamedTuple):
    """Amplitudes for light of amplitude 1 that enters at one terminal at a time."""

    entering: NDArray[np.complex128]
    """``entering[terminal, input]``: the amplitude that enters the cell there."""
    leaving: NDArray[np.complex128]
    """``leaving[terminal, input]``: the amplitude that leaves the cell there."""


class _Pattern(NamedTuple):
    """The part that all systems of one cell graph share; unknowns are joined terminals."""

    unknowns: NDArray[np.int64]
    """The terminals whose entering amplitudes are sought, in the order of elimination."""
    row: NDArray[np.int64]
    """``row[k]`` of entry k of C S: the terminal where light enters next."""
    column: NDArray[np.int64]
    """... and the terminal of the cell before, where it has entered."""
    place: NDArray[np.int64]
    """``place[terminal]``: its place among the unknowns, -1 for a free one."""
    order: NDArray[np.int64]
    """Ones of the diagonal, then entries of C S, in the order of the sparse matrix."""
    indices: NDArray[np.int32]
    starts: NDArray[np.int32]


def scatter(
    graph: CellGraph,
    cells: NDArray[np.complex128],
    waveguides: NDArray[np.complex128],
    inputs: NDArray[np.integer],
) -> Waves:
    """Solve for the light everywhere; no light is where none can get, even in a loop free of loss.

    ``cells[cell, side of end b, side of end a]`` are matrices by which no output is stronger than
    its inputs, transposed for light from end b to end a; ``waveguides[link]`` the factor of the
    way from cell to cell, that of a stub is not used; `inputs` the terminals at which light
    enters, each for itself: free ones or, to learn how light comes back to a cell, joined ones.
    Where shapes disagree, `InputError` is raised; where light grows without end, which takes a
    cell that amplifies, `SolverError`.

    The order of elimination is found once for each graph. Without pivots the elimination is
    stable, since passive cells make :math:`I - CS` positive semidefinite. A loss-free loop makes
    it singular, but only for light that no port can send there: such light does not leak out, so
    by reciprocity none gets in. Terminals without light from any port are therefore left out. In a
    loop that loses next to nothing (leaks of -100 dB) digits are lost; the balance of energy
    tells. Time is about that of a nested dissection: O(c^1.5) for c cells of a mesh, O(c log c)
    for each input.
    """
    if cells.shape != (graph.n_cells, 2, 2) or waveguides.shape != (graph.links.count,):
        raise InputError(f"cells {cells.shape}, waveguides {waveguides.shape}: not of this graph")
    pattern = _prepare(graph)
    before = graph.mate[pattern.row]
    leaves_at_b = (before & 2) > 0  # light from b to a has the transposed matrix
    b_side = np.where(leaves_at_b, before & 1, pattern.column & 1)
    a_side = np.where(leaves_at_b, pattern.column & 1, before & 1)
    values = cells[before // 4, b_side, a_side]
    values = values * waveguides[graph.links.of_terminal[pattern.row]]
    # an input is a row here, as the elimination has it, and a column in the result
    entering = np.zeros((len(inputs), len(graph.mate)), dtype=np.complex128)
    entering[np.arange(len(inputs)), inputs] = 1.0
    if len(pattern.unknowns):
        entering[:, pattern.unknowns] = _solve_lit(pattern, values, inputs)
    return Waves(entering.T, _leave(cells, entering).T)


def _solve_lit(
    pattern: _Pattern, values: NDArray[np.complex128], inputs: NDArray[np.integer]
) -> NDArray[np.complex128]:
    """Solve for the unknowns that light reaches; the others are zero."""
    size = np.abs(values)
    for dark in (0.0, FAINT):
        if (size <= dark).any():
            values[~_reached(pattern, size > dark, inputs)[pattern.row]] = 0.0
        try:
            solved = _solve(pattern, values, inputs)
        except RuntimeError:  # from SuperLU: a pivot is zero
            continue
        if dark or np.abs(solved).max(initial=0.0) < 1 / FAINT:
            return solved
    raise SolverError("light grows without end: cells or waveguides amplify")


def _solve(
    pattern: _Pattern, values: NDArray[np.complex128], inputs: NDArray[np.integer]
) -> NDArray[np.complex128]:
    """Eliminate the unknowns: ``solved[input, unknown]``."""
    n = len(pattern.unknowns)
    number = np.full(len(pattern.place), -1)
    number[inputs] = np.arange(len(inputs))
    solved = np.zeros((len(inputs), n), dtype=np.complex128)
    inside = np.flatnonzero(pattern.place[inputs] >= 0)
    solved[inside, pattern.place[inputs[inside]]] = 1.0
    number[inputs[inside]] = -1  # light is among the unknowns there
    first = number[pattern.column] >= 0  # entries by which light comes from outside
    solved[number[pattern.column[first]], pattern.place[pattern.row[first]]] = values[first]
    data = np.concatenate([np.ones(n, dtype=np.complex128), -values])[pattern.order]
    matrix = csc_matrix((data, pattern.indices, pattern.starts), shape=(n, n), copy=True)
    matrix.sum_duplicates()  # where a cell leads to itself
    factors = splu(
        matrix,
        permc_spec="NATURAL",
        diag_pivot_thresh=0.0,
        panel_size=1,  # columns are short
        options={"SymmetricMode": True, "Equil": False},
    )
    for k in range(0, len(inputs), AT_ONCE):
        solved[k : k + AT_ONCE] = factors.solve(solved[k : k + AT_ONCE].T).T
    return solved


def _leave(
    cells: NDArray[np.complex128], entering: NDArray[np.complex128]
) -> NDArray[np.complex128]:
    """Apply the matrix of every cell, in both directions."""
    at_ends = entering.reshape(len(entering), cells.shape[0], 2, 2)  # input, cell, end, side
    leaving = np.empty_like(at_ends)
    for end, matrices in enumerate((cells, cells.swapaxes(1, 2))):
        x = at_ends[:, :, end]
        for side in (0, 1):
            leaving[:, :, 1 - end, side] = (
                matrices[:, side, 0] * x[..., 0] + matrices[:, side, 1] * x[..., 1]
            )
    return leaving.reshape(entering.shape)


def _reached(
    pattern: _Pattern, bright: NDArray[np.bool_], inputs: NDArray[np.integer]
) -> NDArray[np.bool_]:
    """Find the terminals at which light enters, if it goes only where entries are bright."""
    row, column = pattern.row[bright], pattern.column[bright]
    lit = np.zeros(len(pattern.place), dtype=bool)
    lit[inputs] = True
    count = 0
    while count < (count := int(np.count_nonzero(lit))):
        lit[row[lit[column]]] = True
    return lit


@lru_cache(maxsize=16)
def _prepare(graph: CellGraph) -> _Pattern:
    """Lay out the sparse system of a graph, and choose the order of elimination."""
    joined = np.flatnonzero(graph.mate >= 0)
    before = graph.mate[joined].astype(np.int64)
    row = np.repeat(joined, 2)
    column = (4 * (before // 4)[:, None] + EXITS[before % 4]).ravel()
    place = np.full(len(graph.mate), -1)
    place[joined] = np.arange(len(joined))
    inside = graph.mate[column] >= 0
    if len(joined):
        entries = np.concatenate([np.ones(len(joined)), np.full(int(inside.sum()), -0.4)])
        rows = np.concatenate([np.arange(len(joined)), place[row[inside]]])
        columns = np.concatenate([np.arange(len(joined)), place[column[inside]]])
        matrix = csc_matrix((entries, (rows, columns)))
        chosen = splu(
            matrix,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        joined = joined[np.argsort(chosen.perm_c)]
        place[joined] = np.arange(len(joined))
    n = len(joined)
    rows = np.concatenate([np.arange(n), place[row]])
    columns = np.concatenate([np.arange(n), place[column]])
    numbers = np.arange(len(rows))
    kept = columns >= 0
    order = numbers[kept][np.lexsort((rows[kept], columns[kept]))]
    starts = np.searchsorted(columns[order], np.arange(n + 1))
    return _Pattern(
        joined, row, column, place, order, rows[order].astype(np.int32), starts.astype(np.int32)
    )
