"""Odd sets of bidirectional ports whose demands take longest: at any time one port idles.

The best set is hard to find. Those on the way from all ports to three are looked at, the port with
least to do within the set leaving each time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Demand, OddSetProof

Members = NDArray[np.bool_]


def bound_by_odd_set(problem: Demand) -> tuple[OddSetProof, float] | None:
    """Find a set of ports that bounds the objective from below.

    Returns
    -------
    proof, bound
        In the unit of the objective; None on fabrics whose ports have inputs and outputs, beside a
        packet network, or where no three ports want to meet.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> problem = Demand(HexMesh(2, 2, ports=3), 1.0 - np.eye(3), delay_s=1.0)
    >>> proof, bound = bound_by_odd_set(problem)
    >>> proof.ports, bound, problem.lower_bound()
    ((0, 1, 2), 6.0, 4.0)
    """
    if not problem.fabric.bidirectional or problem.packet_share > 0:
        return None
    ticks = problem.ticks
    held = np.where(ticks > 0, np.maximum(ticks, problem.min_slot_ticks), 0)
    delay = problem.delay_ticks
    wants = ticks > 0 if problem.objective == "matchings" else held + delay * (ticks > 0)
    weight = wants.astype(np.float64)
    if np.count_nonzero(weight.any(axis=0)) < 3:
        return None
    sets = [(_bound(problem, held[members][:, members]), members) for members in _peel(weight)]
    bound, members = max(sets, key=lambda found: found[0])
    return OddSetProof(tuple(np.flatnonzero(members).tolist())), bound


def bound_demand(problem: Demand) -> tuple[float, OddSetProof | None]:
    """Bound a demand by its lines and, with a proof, by an odd set of ports if that is more."""
    bound, found = problem.lower_bound(), bound_by_odd_set(problem)
    if found is None or found[1] <= bound:
        return bound, None
    return found[1], found[0]


def _bound(problem: Demand, held: NDArray[np.int64]) -> float:
    """Evaluate a set by the demands within it, after `OddSetProof`."""
    pairs, time = np.count_nonzero(held) // 2, int(held.sum()) // 2
    most = len(held) // 2
    if problem.objective == "matchings":
        return float(-(-pairs // most))
    if problem.switching == "per-circuit":
        busy = -(-(time + pairs * problem.delay_ticks) // most)
    else:
        busy = -(-time // most) + -(-pairs // most) * problem.delay_ticks
    return float(-(-busy // problem.planes) * problem.tick_s)


def _peel(weight: NDArray[np.float64]) -> Iterator[Members]:
    """Yield the odd sets on the way from all ports to three."""
    members = np.ones(len(weight), dtype=bool)
    degree = weight.sum(axis=1)
    for size in range(len(weight), 2, -1):
        if size % 2:
            yield members.copy()
        port = int(np.where(members, degree, np.inf).argmin())
        members[port] = False
        degree = degree - weight[port]
