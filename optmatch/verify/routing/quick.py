"""The rules of light, compiled: for checks of thousands of settings a second.

It shares nothing with methods. It says only whether all is well; `optmatch.verify` says what is
wrong. It is the one module of the verifier that needs numba, and is imported where it is used.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import DEAD, Fabric
from optmatch.model import CROSS, FREE, IDLE


class Wires(NamedTuple):
    """The wiring of a fabric, as light meets it; cell k has the terminals 4 k to 4 k + 3."""

    mate: NDArray[np.int32]
    """``mate[terminal]``: the terminal that it is joined to, -1 if it is free."""
    link: NDArray[np.int32]
    """``link[terminal]``: the link at the terminal."""
    starts: NDArray[np.int32]
    """``starts[port]``: the terminal at which its light enters."""
    ends: NDArray[np.int32]
    """``ends[port]``: the terminal at which light for it comes out."""
    stuck: NDArray[np.int8]
    """``stuck[cell]``: 0 bar, 1 cross, `FREE` if it can be set, `DEAD` if it leads nowhere."""
    mutual: bool
    """Whether ports are bidirectional: a circuit is then listed from both of its ends."""


def wires_of(fabric: Fabric) -> Wires:
    """Collect the wiring of a fabric with cells as plain arrays, for compiled kernels."""
    graph = fabric.graph
    assert graph is not None
    return Wires(
        mate=graph.mate,
        link=graph.links.of_terminal,
        starts=fabric.source_terminals,
        ends=fabric.destination_terminals,
        stuck=graph.stuck,
        mutual=fabric.bidirectional,
    )


def new_marks(fabric: Fabric) -> NDArray[np.int32]:
    """Allocate the array in which `find_dark` marks the circuit on each link.

    Each thread needs one of its own. It is empty for a fabric without cells.
    """
    return np.empty(0 if fabric.graph is None else fabric.graph.links.count, dtype=np.int32)


def _find_dark(wires, marks, matchings, states):  # type: ignore[no-untyped-def]
    """Find the first row that breaks a rule of light; -1 if there is none.

    A row is a matching with the states of all cells. It breaks a rule if the light of a source
    does not come out at its destination, a link has the light of two circuits, a state is none of
    those below, or a stuck cell is stated in another one. Light is followed from cell to cell, and
    from sources alone. A terminal is the number ``4 * cell + 2 * end + side``: light that enters
    cell 0 at terminal 0 leaves it by terminal 2 in bar, and by 3 in cross.

    Parameters
    ----------
    wires : Wires
    marks : int32 array, shape (links,)
        Scratch: the circuit that uses each link of the current row.
    matchings : int32 array, shape (rows, ports)
        ``matchings[row, source]``: the destination, -1 where idle.
    states : int8 array, shape (rows, cells)
        0 bar, 1 cross, -1 free.
    """
    for row in range(len(matchings)):
        marks[:] = -1

        # States are 0, 1 or free, and those of stuck cells the states that they have.
        for cell in range(len(wires.stuck)):
            state = states[row, cell]
            stuck = wires.stuck[cell]
            if state < FREE or state > CROSS:
                return row
            if stuck != FREE and stuck != DEAD and state != FREE and state != stuck:
                return row

        # Light is followed from cell to cell, and marks its links with the number of its circuit;
        # both directions of a mutual circuit have the same number.
        for source in range(matchings.shape[1]):
            destination = matchings[row, source]
            if destination == IDLE:
                continue
            circuit = min(source, destination) if wires.mutual else source
            terminal = wires.starts[source]
            while True:
                # A free or dead cell leads nowhere.
                cell = terminal >> 2
                if states[row, cell] == FREE or wires.stuck[cell] == DEAD:
                    return row

                # Light leaves by the other end (bit 1), and in cross, which is state 1, on the
                # other side (bit 0). Both links, behind and ahead, serve this circuit alone.
                leaving = (terminal ^ 2) ^ states[row, cell]
                for link in (wires.link[terminal], wires.link[leaving]):
                    if marks[link] != -1 and marks[link] != circuit:
                        return row
                    marks[link] = circuit

                # It goes on to the next cell, or comes out of the switch.
                if wires.mate[leaving] < 0:
                    break
                terminal = wires.mate[leaving]
            if leaving != wires.ends[destination]:
                return row
    return -1


find_dark: Any = _find_dark
if os.environ.get("OPTMATCH_JIT") != "0":
    import numba

    try:
        find_dark = numba.njit(cache=True, nogil=True)(_find_dark)
    except RuntimeError:  # "cannot cache function": numba finds no place for it
        find_dark = numba.njit(nogil=True)(_find_dark)
