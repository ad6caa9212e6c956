"""The fewest toggles from set cells to a matching: an exact search.

As long as the light of a port goes astray, one of the cells that it passes has to be toggled. So
the search branches over the first of these cells, one toggle deeper each time.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric


def fewest_toggles(fabric: Fabric, states: NDArray[np.int8], matching: NDArray[np.int32]) -> int:
    """Count them; every cell is in bar or cross, a stuck one as it is. There is a setting."""
    graph: Any = fabric.graph
    mate, starts = graph.mate.tolist(), fabric.source_terminals.tolist()
    ends = fabric.destination_terminals.tolist()
    wanted = [(starts[i], ends[j]) for i, j in enumerate(matching.tolist()) if j >= 0]
    stuck = set(np.flatnonzero(graph.stuck >= 0).tolist())
    for most in range(fabric.n_cells + 1):
        if _search(mate, states.tolist(), set(stuck), wanted, most):
            return most
    raise AssertionError("no states hold the matching")


def _follow(mate: list[int], states: list[int], terminal: int) -> tuple[int, list[int]]:
    """Return where light comes out, and the cells that it passes."""
    cells: list[int] = []
    while True:
        cell = terminal // 4
        if cell not in cells:
            cells.append(cell)
        terminal = 4 * cell + ((terminal % 4) ^ 2 ^ states[cell])
        if mate[terminal] < 0:
            return terminal, cells
        terminal = mate[terminal]


def _search(mate: list[int], states: list[int], decided: set[int], wanted: Any, most: int) -> bool:
    """Tell whether at most so many toggles of cells that are not decided are enough."""
    astray, choices = 0, None
    for start, end in wanted:
        arrived, cells = _follow(mate, states, start)
        if arrived != end:
            astray += 1
            free = [cell for cell in cells if cell not in decided]
            if choices is None or len(free) < len(choices):
                choices = free
    if choices is None:
        return True
    if astray > 4 * most:  # a toggle changes two circuits, each of which is listed from both ends
        return False
    added: list[int] = []
    found = False
    for cell in choices:
        decided.add(cell)
        added.append(cell)
        states[cell] ^= 1
        found = _search(mate, states, decided, wanted, most - 1)
        states[cell] ^= 1
        if found:
            break
    decided.difference_update(added)
    return found
