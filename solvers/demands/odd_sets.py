"""Odd sets of bidirectional ports whose demands take longest: at any time one port idles.

The best set is hard to find. Those on the way from all ports to three are looked at, the port with
least to do within the set leaving each time, and heavy triangles.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Demand, OddSetProof

_FEW = 7  # ports, up to which all sets are tried
_PAIRS = 1000  # the heaviest ones, for which triangles are looked for
_SEEDS = 12  # triangles that are looked at

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
    best: tuple[Members, float] | None = None
    for members in _starts(weight):
        bound = _bound(problem, held[members][:, members])
        if best is None or bound > best[1]:
            best = members.copy(), bound
    if best is None:
        return None
    return OddSetProof(tuple(np.flatnonzero(best[0]).tolist())), best[1]


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


def _starts(weight: NDArray[np.float64]) -> Iterator[Members]:
    """Yield the best of the sets on the way from all ports to three, and heavy triangles.

    Of few ports, all sets.
    """
    if len(weight) <= _FEW:
        for size in range(3, len(weight) + 1, 2):
            for ports in combinations(range(len(weight)), size):
                members = np.zeros(len(weight), dtype=bool)
                members[list(ports)] = True
                yield members
        return
    members = np.ones(len(weight), dtype=bool)
    degree = weight.sum(axis=1)
    best, value = members.copy(), -1.0
    for size in range(len(weight), 2, -1):
        if size % 2 and degree[members].sum() / (size // 2) > value:
            best, value = members.copy(), degree[members].sum() / (size // 2)
        port = int(np.where(members, degree, np.inf).argmin())
        members[port] = False
        degree = degree - weight[port]
    yield best
    first, second = np.nonzero(np.triu(weight, 1))
    heaviest = np.argsort(-weight[first, second], kind="stable")[:_PAIRS]
    first, second = first[heaviest], second[heaviest]
    together = weight[first, second][:, None] + weight[first] + weight[second]
    together[np.arange(len(first)), first] = together[np.arange(len(first)), second] = -1.0
    third, total = together.argmax(axis=1), together.max(axis=1)
    for k in np.argsort(-total, kind="stable")[:_SEEDS]:
        members = np.zeros(len(weight), dtype=bool)
        members[[first[k], second[k], third[k]]] = True
        yield members
