r"""The light everywhere in a mesh whose cells are all set, with every leak and every turn.

Let x be the amplitudes that enter cells and y those that leave them, at all terminals. A cell
makes y of x (:math:`y = S x`), a waveguide leads what leaves one terminal to the joined one
(:math:`x = C y + b`), and b comes in from outside. Together :math:`(I - C S) x = b`: one sparse
system for each state and frequency, whose pattern is that of the cell graph.

It needs SciPy, and is loaded when optics are measured.
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
    """(terminals, inputs): the amplitude that enters the cell at a terminal."""
    leaving: NDArray[np.complex128]
    """(terminals, inputs): the amplitude that leaves the cell at a terminal."""


class _Pattern(NamedTuple):
    """The part that all systems of one cell graph share.

    Unknowns are the amplitudes that enter cells at joined terminals. Each has two entries of C S:
    light enters there that has entered the cell before at one of two terminals.
    """

    terminal_of_unknown: NDArray[np.int64]
    """(unknowns,): terminals in the order of elimination."""
    unknown_of_terminal: NDArray[np.int64]
    """(terminals,): the unknown of a terminal, -1 for a free one."""
    entered_next: NDArray[np.int64]
    """(entries,): the terminal where light enters after it has passed a cell and a waveguide."""
    entered_before: NDArray[np.int64]
    """(entries,): the terminal where it has entered that cell."""
    order: NDArray[np.int64]
    """(kept,): which are kept, column by column, as places in a list of the diagonal and then all
    entries. With 5 unknowns place 7 is entry 2. Entries without a column are not kept."""
    row_indices: NDArray[np.int32]
    """(kept,): rows of the sparse matrix, as SciPy has them."""
    column_starts: NDArray[np.int32]
    """(unknowns + 1,): where each column begins among the kept ones."""


def scatter(
    graph: CellGraph,
    cells: NDArray[np.complex128],
    waveguides: NDArray[np.complex128],
    inputs: NDArray[np.integer],
) -> Waves:
    """Compute the light everywhere on a chip, over all leaks and all loops.

    Light that enters a cell leaves it at the other end, divided between both sides; a waveguide
    leads it to the next cell. Light of each input is followed alone, as the solution of a linear
    system.

    Parameters
    ----------
    graph
        The cells, and which terminals waveguides join.
    cells
        (cells, side of end b, side of end a): matrices of light from end a to end b, by which no
        output is stronger than its inputs. Light from b to a has their transpose.
    waveguides
        (links,): the factor of the way from cell to cell. That of a stub is not used.
    inputs
        (inputs,): terminals at which light of amplitude 1 enters, each for itself: free ones or,
        to learn how light comes back to a cell, joined ones.

    Notes
    -----
    The order of elimination is found once for each graph. Without pivots the elimination is
    stable, since passive cells make :math:`I - CS` positive semidefinite. A loss-free loop makes
    it singular, but only for light that no port can send there: such light does not leak out, and
    by reciprocity none gets in. Terminals without light from any port are therefore left out. In a
    loop that loses next to nothing (leaks of -100 dB) digits are lost; the balance of energy
    tells. Time is about that of a nested dissection: O(c^1.5) for c cells of a mesh, O(c log c)
    for each input.
    """
    links = graph.links
    if cells.shape != (graph.n_cells, 2, 2) or waveguides.shape != (links.count,):
        raise InputError(f"cells {cells.shape}, waveguides {waveguides.shape}: not of this graph")
    pattern = _prepare_pattern(graph)

    # Entries of C S: the matrix of the cell that was passed, and the waveguide after it. Terminals
    # of a cell are 4 * cell + 2 * end + side, end a being 0 and b 1: bit 1 is the end, bit 0 the
    # side. Matrices are those from a to b, and are transposed for light that leaves at end a.
    left = graph.mate[pattern.entered_next]
    leaves_at_b = (left & 2) > 0
    side_left = left & 1
    side_entered = pattern.entered_before & 1
    side_of_b = np.where(leaves_at_b, side_left, side_entered)
    side_of_a = np.where(leaves_at_b, side_entered, side_left)
    after_waveguide = waveguides[links.of_terminal[pattern.entered_next]]
    entries = cells[left // 4, side_of_b, side_of_a] * after_waveguide

    # An input is a row here, as the elimination has it, and a column in the result.
    entering = np.zeros((len(inputs), len(graph.mate)), dtype=np.complex128)
    entering[np.arange(len(inputs)), inputs] = 1.0
    if len(pattern.terminal_of_unknown):
        solved = _solve_reached_terminals(pattern, entries, inputs)
        entering[:, pattern.terminal_of_unknown] = solved
    leaving = _pass_cells(cells, entering)
    return Waves(entering.T, leaving.T)


def _solve_reached_terminals(
    pattern: _Pattern, entries: NDArray[np.complex128], inputs: NDArray[np.integer]
) -> NDArray[np.complex128]:
    """Solve for the light that enters each cell; where light does not come, it is 0.

    A closed loop of cells without loss makes the system singular. It is left out if no light leads
    into it, and if the system is singular even so, ways into loops by which no more than `FAINT`
    (1e-6) of the amplitude passes are left out, too. ``entries[entry]`` are those of C S in the
    order of the pattern; entries that lead to dark terminals are set to 0 in place. Light of
    amplitude 1 comes in at one of the terminals `inputs` at a time, and the result is ``x[input,
    unknown]``. Raise `SolverError` if light grows without end.
    """
    strength = np.abs(entries)
    # At first only entries of exactly 0 are no way for light. If the system is singular even so,
    # or light much stronger than what comes in, a second time all faint ones are none either.
    for dark in (0.0, FAINT):
        if (strength <= dark).any():
            is_lit = _find_lit_terminals(pattern, strength > dark, inputs)
            entries[~is_lit[pattern.entered_next]] = 0.0
        try:
            solved = _eliminate(pattern, entries, inputs)
        except RuntimeError:  # SuperLU met a pivot of zero
            continue
        is_plausible = np.abs(solved).max(initial=0.0) < 1 / FAINT
        if dark or is_plausible:
            return solved
    raise SolverError("light grows without end: cells or waveguides amplify")


def _eliminate(
    pattern: _Pattern, entries: NDArray[np.complex128], inputs: NDArray[np.integer]
) -> NDArray[np.complex128]:
    """Solve :math:`(I - C S) x = b` for the light x that enters each cell at a joined terminal.

    Such light has either been sent in there (b), or has passed another cell (S) and then the
    waveguide (C): ``entries[entry]`` are those of C S. The system is sparse, and solved by LU
    elimination without pivots, once for all inputs: ``x[input, unknown]``. Raise `RuntimeError` if
    a pivot is 0.
    """
    n_unknowns = len(pattern.terminal_of_unknown)
    right_sides = np.zeros((len(inputs), n_unknowns), dtype=np.complex128)

    # Light that enters at a joined terminal is itself an unknown there.
    is_inside = pattern.unknown_of_terminal[inputs] >= 0
    inside = np.flatnonzero(is_inside)
    right_sides[inside, pattern.unknown_of_terminal[inputs[inside]]] = 1.0

    # Light that enters at a free terminal comes into the system after its first cell: the entries
    # `first` are ways through such a cell, each for light of the input `first_input`.
    input_of_terminal = np.full(len(pattern.unknown_of_terminal), -1)
    outside = np.flatnonzero(~is_inside)
    input_of_terminal[inputs[outside]] = outside
    first = input_of_terminal[pattern.entered_before] >= 0
    first_input = input_of_terminal[pattern.entered_before[first]]
    first_unknown = pattern.unknown_of_terminal[pattern.entered_next[first]]
    right_sides[first_input, first_unknown] = entries[first]

    # I - C S in compressed columns; the rows and columns are in the order of elimination already.
    diagonal = np.ones(n_unknowns, dtype=np.complex128)
    data = np.concatenate([diagonal, -entries])[pattern.order]
    matrix = csc_matrix(
        (data, pattern.row_indices, pattern.column_starts),
        shape=(n_unknowns, n_unknowns),
        copy=True,
    )
    matrix.sum_duplicates()  # where a cell leads to itself
    factors = splu(
        matrix,
        permc_spec="NATURAL",
        diag_pivot_thresh=0.0,
        panel_size=1,  # columns are short
        options={"SymmetricMode": True, "Equil": False},
    )

    # Right sides are replaced by their solutions, few at once.
    for start in range(0, len(inputs), AT_ONCE):
        chunk = slice(start, start + AT_ONCE)
        right_sides[chunk] = factors.solve(right_sides[chunk].T).T
    return right_sides


def _pass_cells(
    cells: NDArray[np.complex128], entering: NDArray[np.complex128]
) -> NDArray[np.complex128]:
    """Return ``leaving[input, terminal]``, given the light that enters, in both directions.

    ``cells[cell, side of b, side of a]`` are the matrices, and ``entering[input, terminal]`` are
    amplitudes.
    """
    entering_ends = entering.reshape(len(entering), len(cells), 2, 2)  # input, cell, end, side
    leaving_ends = np.empty_like(entering_ends)
    for end, matrices in enumerate((cells, cells.swapaxes(1, 2))):
        from_side_1 = entering_ends[:, :, end, 0]
        from_side_2 = entering_ends[:, :, end, 1]
        for side in (0, 1):
            leaving_ends[:, :, 1 - end, side] = (
                matrices[:, side, 0] * from_side_1 + matrices[:, side, 1] * from_side_2
            )
    return leaving_ends.reshape(entering.shape)


def _find_lit_terminals(
    pattern: _Pattern, is_bright: NDArray[np.bool_], inputs: NDArray[np.integer]
) -> NDArray[np.bool_]:
    """Find the terminals that light comes to from `inputs` over bright connections alone.

    ``is_bright[entry]`` says which entries of the pattern these are. Returns ``is_lit[terminal]``.
    """
    entered_next = pattern.entered_next[is_bright]
    entered_before = pattern.entered_before[is_bright]
    is_lit = np.zeros(len(pattern.unknown_of_terminal), dtype=bool)
    is_lit[inputs] = True
    # One step of light at a time, until no further terminal is lit.
    n_before = 0
    n_lit = int(np.count_nonzero(is_lit))
    while n_before < n_lit:
        is_lit[entered_next[is_lit[entered_before]]] = True
        n_before = n_lit
        n_lit = int(np.count_nonzero(is_lit))
    return is_lit


@lru_cache(maxsize=16)
def _prepare_pattern(graph: CellGraph) -> _Pattern:
    """Lay out the sparse linear system of the light on a chip, before its numbers are known.

    An unknown is the amplitude of light that enters a cell at a terminal which a waveguide joins
    to another cell. That light has entered the other cell at one of two terminals: two entries of
    the matrix. The unknowns are put into the order of minimum degree, in which elimination adds
    few entries; SuperLU finds it. The result depends on the waveguides alone, not on states or
    devices, and is kept for later calls.
    """
    # An unknown for each joined terminal. Light enters there that has left the cell of its mate,
    # after it has entered that cell at one of the two terminals of its other end. Cell c has the
    # terminals 4 c to 4 c + 3, and ``EXITS[k]`` are the two of 0 to 3 that face terminal k. If
    # only terminals 2 of cell 0 and 4 of cell 1 are joined, these are the unknowns 0 and 1. What
    # enters at 4 has left cell 0 at 2, and has entered it at 0 or 1; what enters at 2 has entered
    # cell 1 at 6 or 7: `entered_next` is [2, 2, 4, 4], and `entered_before` [6, 7, 0, 1].
    joined = np.flatnonzero(graph.mate >= 0)
    left = graph.mate[joined].astype(np.int64)
    entered_next = np.repeat(joined, 2)
    entered_before = (4 * (left // 4)[:, None] + EXITS[left % 4]).ravel()
    unknown_of_terminal = np.full(len(graph.mate), -1)
    unknown_of_terminal[joined] = np.arange(len(joined))

    # Unknowns are numbered anew in the order of elimination, which SuperLU chooses. Entries stay
    # as they are, since they name terminals. Those of light from outside, which has entered its
    # last cell at a free terminal, are no part of the matrix; in the example all four are.
    if len(joined):
        is_inside = graph.mate[entered_before] >= 0
        diagonal = np.arange(len(joined))
        rows = np.concatenate([diagonal, unknown_of_terminal[entered_next[is_inside]]])
        columns = np.concatenate([diagonal, unknown_of_terminal[entered_before[is_inside]]])
        # Any numbers with a dominant diagonal do: only their places count.
        numbers = np.where(np.arange(len(rows)) < len(joined), 1.0, -0.4)
        eliminated = splu(
            csc_matrix((numbers, (rows, columns))),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        joined = joined[np.argsort(eliminated.perm_c)]
        unknown_of_terminal[joined] = np.arange(len(joined))

    # Entries column by column, as SciPy has sparse matrices, in the new numbers: the diagonal is
    # listed first, then all entries. Light from outside has no column, which is -1 here.
    diagonal = np.arange(len(joined))
    rows = np.concatenate([diagonal, unknown_of_terminal[entered_next]])
    columns = np.concatenate([diagonal, unknown_of_terminal[entered_before]])
    inside = np.flatnonzero(columns >= 0)
    order = inside[np.lexsort((rows[inside], columns[inside]))]
    column_starts = np.searchsorted(columns[order], np.arange(len(joined) + 1))
    return _Pattern(
        terminal_of_unknown=joined,
        unknown_of_terminal=unknown_of_terminal,
        entered_next=entered_next,
        entered_before=entered_before,
        order=order,
        row_indices=rows[order].astype(np.int32),
        column_starts=column_starts.astype(np.int32),
    )
