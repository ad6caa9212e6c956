"""Small demands with all options, and the best answers to tiny ones by exhaustive search."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric, HexMesh, IdealSwitch
from optmatch.model import InputError
from optmatch.problems import Demand

Matrix = NDArray[np.int64]

_TINY: tuple[Fabric, ...] = (
    *(IdealSwitch(n) for n in (3, 2, 1)),
    HexMesh(1, 2, ports=[0, 1, 3, 10]),
    HexMesh(1, 1, tx=[0, 3], rx=[5, 8]),
)
_SMALL: tuple[Fabric, ...] = (
    *(IdealSwitch(n) for n in (5, 8, 3, 2, 1)),
    HexMesh(3, 3, ports=6),
    HexMesh(3, 3, tx=3, rx=3),
)


@st.composite
def demand_problems(
    draw: st.DrawFn,
    *,
    tiny: bool = False,
    objectives: Sequence[str] = ("completion-s",),
    fabrics: Sequence[Fabric] | None = None,
) -> Demand:
    """Draw a demand; not tiny ones may have planes, packets, short slots and circuits that go on.

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether `brute_force` is to be able to solve it.
    objectives
        The objectives to draw.
    fabrics
        Switches to draw from; None for ideal ones and small meshes.

    Examples
    --------
    >>> demand_problems(tiny=True)
    demand_problems(tiny=True)
    """
    if fabrics is None:
        fabrics = _TINY if tiny else _SMALL
    fabric = draw(st.sampled_from(list(fabrics)))
    objective: Any = draw(st.sampled_from(list(objectives)))
    n = fabric.n_ports
    most = 3 if tiny else 9
    options: dict[str, Any] = {"objective": objective}
    options["delay_s"] = float(draw(st.integers(0, 3)))
    if objective == "matchings":
        ticks = np.zeros((n, n))
        for weight in draw(st.lists(st.integers(1, most), max_size=3 if tiny else 6)):
            ticks[np.arange(n), draw(st.permutations(range(n)))] += weight
        return Demand(IdealSwitch(n), ticks, **options)
    entries = st.lists(st.integers(0, most), min_size=n * n, max_size=n * n)
    ticks = np.array(draw(entries), dtype=np.float64).reshape(n, n)
    ticks[fabric.route_cells() == UNREACHED] = 0
    if fabric.bidirectional:
        np.fill_diagonal(ticks, 0)
    if draw(st.booleans()):
        options["min_slot_s"] = float(draw(st.integers(1, 3)))
    if not tiny:
        options["switching"] = draw(st.sampled_from(("all-stop", "per-circuit")))
        options["planes"] = draw(st.sampled_from((1, 1, 2, 3)))
        options["packet_bytes_per_s"] = draw(st.sampled_from((0.0, 0.0, 0.25)))
        options["rate_bytes_per_s"] = draw(st.sampled_from((1.0, 0.5)))
    return Demand(fabric, ticks, quantum_s=1.0, **options)


def smallest_demands() -> list[Demand]:
    """List demands with next to nothing in them."""
    two = HexMesh(1, 1, ports=[0, 5])
    return [
        Demand(IdealSwitch(1), np.zeros((1, 1))),
        Demand(IdealSwitch(1), np.ones((1, 1)), delay_s=1.0),
        Demand(IdealSwitch(3), np.zeros((3, 3)), delay_s=1.0),
        Demand(HexMesh(1, 1, ports=[0]), np.zeros((1, 1))),
        Demand(two, np.array([[0.0, 2.0], [0.0, 0.0]]), delay_s=1.0),
    ]


def best_demand(problem: Demand, realisable: Sequence[Sequence[int]] | None) -> float:
    """Find the best objective of a tiny demand: all-stop, one plane, no packet network.

    `realisable` are the largest matchings that the fabric holds; None for all.
    """
    if problem.planes > 1 or problem.packet_share or problem.switching != "all-stop":
        raise InputError("brute force is for all-stop demands on one plane, without packets")
    n = problem.fabric.n_ports
    rows = list(permutations(range(n))) if realisable is None else realisable
    matchings = []
    for row in rows:
        matching = np.zeros((n, n), dtype=np.int64)
        for source, destination in enumerate(row):
            if destination >= 0:
                matching[source, destination] = 1
        matchings.append(matching)
    if problem.objective == "matchings":
        return float(_fewest(problem.ticks, matchings))
    shortest = problem.min_slot_ticks
    return _earliest(problem.ticks, matchings, problem.delay_ticks, shortest) * problem.tick_s


def _earliest(ticks: Matrix, matchings: Sequence[Matrix], delay: int, shortest: int) -> int:
    """Find the shortest way from everything to nothing left, by Dijkstra."""
    n = len(ticks)
    waiting = [(0, tuple(ticks.ravel().tolist()))]
    done = set()
    while waiting:
        cost, state = heapq.heappop(waiting)
        if not any(state):
            return cost
        if state in done:
            continue
        done.add(state)
        left = np.array(state, dtype=np.int64).reshape(n, n)
        for matching in matchings:
            largest = int((left * matching).max())
            for duration in range(shortest, max(largest, shortest) + 1) if largest else ():
                after = tuple(np.maximum(left - duration * matching, 0).ravel().tolist())
                if after not in done:
                    heapq.heappush(waiting, (cost + delay + duration, after))
    raise InputError("demand between ports that no matching connects")


def _fewest(ticks: Matrix, matchings: Sequence[Matrix]) -> int:
    """Take off one matching after the other, with every weight, until something is empty."""
    n = len(ticks)
    states = {tuple(ticks.ravel().tolist())}
    count = 0
    while not any(sum(state) == 0 for state in states):
        following = set()
        for state in states:
            left = np.array(state, dtype=np.int64).reshape(n, n)
            for matching in matchings:
                for weight in range(1, int(left[matching == 1].min()) + 1):
                    following.add(tuple((left - weight * matching).ravel().tolist()))
        states = following
        count = count + 1
    return count
