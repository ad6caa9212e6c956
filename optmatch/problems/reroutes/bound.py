"""What no answer to a failure can beat: hit circuits change, and routes are not too short."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric

MOST_HANDOVERS = 720
"""Of more choices of spares the bound does not look at each."""


class Asked(NamedTuple):
    """What the bound is asked of: a `Reroute`, which lies above this module."""

    fabric: Fabric
    circuits: NDArray[np.int32]
    hit: NDArray[np.bool_]
    lost: tuple[int, ...]
    spares: tuple[int, ...]
    loss_units: tuple[int, int]


def bound_levels(asked: Asked) -> tuple[int, int, int, int, int] | None:
    """Bound the five levels of the objective from below; None where a circuit has no way at all.

    Every hit circuit changes. Its new route passes at least as many cells, or fibres, as the
    shortest route between its ends. Every choice of spares for lost units is tried, and the best
    one counts; where there are more than 720 of them, each end may be any spare by itself.
    """
    pairs = asked.circuits[asked.hit] // asked.fabric.ports_per_unit
    cells, fibres = (_of_handovers(asked, table, pairs) for table in asked.fabric.route_lengths())
    reached = (np.maximum(cells, fibres) < UNREACHED).all(axis=1)
    if not reached.any():
        return None
    cells, fibres = cells[reached], fibres[reached]
    worst = (cells * asked.loss_units[0] + fibres * asked.loss_units[1]).max(axis=1, initial=0)
    length = (cells + fibres).sum(axis=1)
    best = np.lexsort((length, worst))[0]
    return 0, len(pairs), 0, int(worst[best]), int(length[best])


def _of_handovers(asked: Asked, table: NDArray[Any], pairs: NDArray[Any]) -> NDArray[np.int64]:
    """Return the entries for the ends of hit circuits, a row for each handover."""
    lost, spares = list(asked.lost), list(asked.spares)
    if math.perm(len(spares), len(lost)) > MOST_HANDOVERS:
        every = [
            table[np.ix_(*(spares if end in lost else [end] for end in ends))].min(
                initial=UNREACHED
            )
            for ends in pairs.tolist()
        ]
        return np.array([every], dtype=np.int64)
    rows = []
    for handover in permutations(spares, len(lost)):
        after = np.arange(len(table))
        after[lost] = handover
        rows.append(table[after[pairs[:, 0]], after[pairs[:, 1]]])
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(pairs))
