"""The coding of terminals, for kernels: which cell, which state, which terminal beside.

A cell has the terminals a1 and a2 on one side and b1 and b2 on the other. They are numbered
``4 * cell + 0, 1, 2, 3`` in this order. Light crosses from one side to the other: bar (state 0)
joins a1 with b1 and a2 with b2, cross (state 1) joins a1 with b2 and a2 with b1. The two highest
numbers of a cell differ from the two lowest in the second bit, which is the side; the first bit is
the place on the side. A route is in bar where that first bit stays, in cross where it changes.

A route is kept as the terminals by which light *leaves* its cells. Light enters the first cell at
``graph.source[port]``, and each further one at ``graph.mate[leaving]``, the terminal at the other
end of the link.
"""

from __future__ import annotations

from optmatch.solvers.kernels.decorators import inner_kernel


@inner_kernel
def cell_of(terminal):
    """Return the cell that a terminal belongs to."""
    return terminal >> 2


@inner_kernel
def state_between(entering, leaving):
    """Return the state, 0 bar or 1 cross, that leads light from a terminal to another one.

    Both are terminals of the same cell, on different sides of it.
    """
    return (entering ^ leaving) & 1


@inner_kernel
def terminal_beside(terminal):
    """Return the other terminal on the same side of the cell."""
    return terminal ^ 1
