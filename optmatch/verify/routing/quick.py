"""The rules of light, compiled: for checks of thousands of settings a second.

It shares nothing with methods, and says only whether all is well; `optmatch.verify` says what is
wrong. The one module of the verifier that needs numba, so it is imported where it is used.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import DEAD, Fabric
from optmatch.model import CROSS, FREE, IDLE


class Wires(NamedTuple):
    """The wiring of a fabric, as light meets it."""

    mate: NDArray[np.int32]  # by terminal
    link: NDArray[np.int32]  # by terminal
    starts: NDArray[np.int32]  # by port
    ends: NDArray[np.int32]
    stuck: NDArray[np.int8]  # by cell
    mutual: bool


def wires_of(fabric: Fabric) -> Wires:
    """Collect the wiring of a fabric with cells."""
    graph: Any = fabric.graph
    ends = fabric.source_terminals, fabric.destination_terminals
    return Wires(graph.mate, graph.links.of_terminal, *ends, graph.stuck, fabric.bidirectional)


def new_marks(fabric: Fabric) -> NDArray[np.int32]:
    """Make room in which a check marks who uses each link; one for each thread."""
    return np.empty(0 if fabric.graph is None else fabric.graph.links.count, dtype=np.int32)


def _find_dark(wires, marks, matchings, states):  # type: ignore[no-untyped-def]
    """Return the first row whose circuits do not all have their own light, -1 if there is none.

    Each circuit starts at its source, comes out at its partner, and no other is on its links. Back
    it goes the same way, as a set cell leads light out where it would lead it in. A stuck cell is
    stated as it is, or free.
    """
    for row in range(len(matchings)):
        marks[:] = -1
        for cell in range(len(wires.stuck)):
            state, stuck = states[row, cell], wires.stuck[cell]
            if state < FREE or state > CROSS:
                return row
            if stuck != FREE and stuck != DEAD and state != FREE and state != stuck:
                return row
        for source in range(matchings.shape[1]):
            partner = matchings[row, source]
            if partner == IDLE:
                continue
            circuit = min(source, partner) if wires.mutual else source
            at = wires.starts[source]
            while True:
                cell = at >> 2
                if states[row, cell] == FREE or wires.stuck[cell] == DEAD:
                    return row
                left = (at ^ 2) ^ states[row, cell]  # the other end; in cross the other side, too
                for link in (wires.link[at], wires.link[left]):
                    if marks[link] != -1 and marks[link] != circuit:
                        return row
                    marks[link] = circuit
                if wires.mate[left] < 0:
                    break
                at = wires.mate[left]
            if left != wires.ends[partner]:
                return row
    return -1


find_dark: Any = _find_dark
if os.environ.get("OPTMATCH_JIT") != "0":
    import numba

    try:
        find_dark = numba.njit(cache=True, nogil=True)(_find_dark)
    except RuntimeError:  # "cannot cache function": numba finds no place for it
        find_dark = numba.njit(nogil=True)(_find_dark)
