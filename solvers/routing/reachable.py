"""How many matchings a fabric can hold: for few ports, all are tried."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import Limits, Status, ignore
from optmatch.problems import Routing
from optmatch.solvers.demands.plans import matching_of
from optmatch.solvers.demands.small_meshes import Pairs, pair_up
from optmatch.solvers.routing.branch_and_price import search
from optmatch.solvers.routing.methods import route_by_negotiation

MOST_MATCHINGS = 1000
"""All permutations of 6 ports, or all pairings of 10 bidirectional ones."""

_TRIES = 2  # negotiations of a matching, before branch and price
_CASES = 50  # cases of branch and price for a matching, before it stays open


class Reachable(NamedTuple):
    """How many of the matchings with all live ports in use can be held."""

    total: int
    """All permutations, or all pairings, of the live ports."""
    held: int
    """Those with routes that were found."""
    refuted: int
    """Proved to have no routing; the rest stays open."""


def count_matchings(fabric: Fabric) -> Reachable | None:
    """Try all permutations of the live ports, or all pairings if they are bidirectional.

    Most matchings are routed at once; the others are decided by branch and price. None if there
    are more than `MOST_MATCHINGS`.
    """
    # Four ports have 1 * 3 pairings, five with one idle 1 * 3 * 5; four one-way ports have 4!
    # permutations.
    n = len(fabric.live_ports)
    total = math.factorial(n)
    if fabric.bidirectional:
        total = math.prod(range(1, n + n % 2, 2))
    if total > MOST_MATCHINGS:
        return None
    n_held = 0
    refuted = 0

    # Negotiation holds most of them; branch and price decides the others, within a few cases.
    for matching in _list_matchings(fabric):
        problem = Routing(fabric, matching)
        rng = np.random.default_rng(0)
        solution = route_by_negotiation(problem, Limits(iterations=_TRIES), rng, ignore)
        if solution.status is Status.UNKNOWN:
            solution = search(problem, Limits(iterations=_CASES), rng, ignore)
        n_held += solution.schedule is not None
        refuted += solution.status is Status.INFEASIBLE
    return Reachable(total, n_held, refuted)


def _list_matchings(fabric: Fabric) -> Iterator[NDArray[np.int32]]:
    """Yield all matchings of the live ports as ``matching[source] = destination``, -1 where idle.

    They are all permutations, or all pairings of bidirectional ports, in which of an odd number of
    ports each stays idle in its turn.
    """
    live = fabric.live_ports.tolist()
    ways: Iterable[Pairs] = (
        tuple(zip(live, order, strict=True)) for order in itertools.permutations(live)
    )
    if fabric.bidirectional:
        ways = (pairs for pairs in pair_up(tuple(live)) if len(pairs) == len(live) // 2)
    for pairs in ways:
        yield matching_of(pairs, fabric.n_ports, is_mutual=fabric.bidirectional)
