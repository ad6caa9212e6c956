"""What no answer to a failure can beat: hit circuits change, and routes are not too short."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric, RackFabric

FAR = int(UNREACHED)


class Asked(NamedTuple):
    """What the bound is asked of: a `Reroute`, which lies above this module."""

    fabric: Fabric | RackFabric
    circuits: NDArray[np.int32]
    hit: NDArray[np.bool_]
    lost: tuple[int, ...]
    spares: tuple[int, ...]
    loss_units: tuple[int, int]


def bound_levels(asked: Asked) -> tuple[int, int, int, int, int] | None:
    """Bound the five levels of the objective from below; None where a circuit has no way at all.

    Notes
    -----
    Every hit circuit changes. Its new route passes at least as many cells, or fibres, as the
    shortest way between its ends, where an end that is lost may be any spare.

    Examples
    --------
    >>> rack = RackFabric()
    >>> circuits, hit = np.array([[0, 24]]), np.array([True])
    >>> bound_levels(Asked(rack, circuits, hit, (0,), (63,), (48, 360)))
    (0, 1, 0, 720, 2)
    """
    fabric = asked.fabric
    per_unit = fabric.ports_per_chip if isinstance(fabric, RackFabric) else 1
    far = distances(fabric)
    worst = length = 0
    for ends in (asked.circuits[asked.hit] // per_unit).tolist():
        tails, heads = (list(asked.spares) if end in asked.lost else [end] for end in ends)
        hops = int(far[np.ix_(tails, heads)].min(initial=FAR))
        if hops == FAR:
            return None
        cells, fibres = hops, 0
        if isinstance(fabric, RackFabric):
            fibres, cells = hops, hops + 1 if fabric.n_cells else 0
        worst = max(worst, cells * asked.loss_units[0] + fibres * asked.loss_units[1])
        length += cells + fibres
    return 0, int(np.count_nonzero(asked.hit)), 0, worst, length


def distances(fabric: Fabric | RackFabric) -> NDArray[Any]:
    """Count cells between ports, or fibres between the servers of chips.

    Returns
    -------
    NDArray
        ``far[unit, unit]``; `FAR` where there is no way.

    Examples
    --------
    >>> distances(RackFabric())[0, [1, 4, 20]].tolist()
    [0, 1, 2]
    """
    if not isinstance(fabric, RackFabric):
        return fabric.route_cells()
    n = fabric.n_servers
    hops = np.full((n, n), FAR, dtype=np.int64)
    tails, heads = fabric.edges[fabric.edge_fibres > 0].T
    reached = np.eye(n, dtype=bool)
    for step in range(n):
        new = reached & (hops == FAR)
        if not new.any():
            break
        hops[new] = step
        reached = np.zeros((n, n), dtype=bool)
        np.logical_or.at(reached.T, heads, new[:, tails].T)
    return hops[np.ix_(fabric.server_of_chip, fabric.server_of_chip)]
