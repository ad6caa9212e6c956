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

_TINY: tuple[Fabric, ...] = (
    *(IdealSwitch(n) for n in (3, 2, 1)),
    HexMesh(1, 2, ports=[0, 1, 3, 10]),
    HexMesh(1, 1, tx=[0, 3], rx=[5, 8]),
)
_SMALL: tuple[Fabric, ...] = (
    *(IdealSwitch(n) for n in (5, 8, 3, 2, 1)),
    IdealSwitch(5, bidirectional=True),
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
    """Draw a demand: amounts to be sent between ports, in ticks, the smallest unit of time.

    Demands that are not tiny may have planes (switches in parallel), a packet network, short
    slots, and circuits that go on while others change.

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether `brute_force` is to be able to solve it.
    objectives
        The names of the objectives to draw.
    fabrics
        Switches to draw from; None for ideal ones and small meshes.

    Returns
    -------
    Demand
        With the objective "matchings", a sum of weighted permutations on an ideal switch; else any
        matrix of small numbers without the pairs that the fabric cannot connect.

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

    # Any matrix, of shape (ports, ports), without pairs that no state of the cells connects.
    entries = st.lists(st.integers(0, most), min_size=n * n, max_size=n * n)
    ticks = np.array(draw(entries), dtype=np.float64).reshape(n, n)
    ticks[fabric.route_cells() == UNREACHED] = 0
    if fabric.bidirectional:
        np.fill_diagonal(ticks, 0)
    if draw(st.booleans()):
        options["min_slot_s"] = float(draw(st.integers(1, 3)))

    # Brute force knows one plane without packets, which all stops.
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

    A row of `realisable` is a matching that the fabric can hold, ``row[source] = destination``, -1
    for none; only the largest ones are needed. None stands for all permutations. A demand with
    more to it is an `InputError`.
    """
    if problem.planes > 1 or problem.packet_share or problem.switching != "all-stop":
        raise InputError("brute force is for all-stop demands on one plane, without packets")
    n_ports = problem.fabric.n_ports

    # Each matching becomes a matrix that is true where it has a circuit.
    rows = list(permutations(range(n_ports))) if realisable is None else realisable
    matchings = [np.equal.outer(row, np.arange(n_ports)) for row in rows]
    cost = _cheapest_sequence(problem, matchings)
    return float(cost) if problem.objective == "matchings" else cost * problem.tick_s


def _cheapest_sequence(problem: Demand, matchings: Sequence[NDArray[np.bool_]]) -> int:
    """Find the cheapest sequence of matchings that serves a demand, by Dijkstra's algorithm.

    States are the demand that is left, in ticks. A slot costs its delay and its duration. With the
    objective ``"matchings"`` each costs 1, and the sum of all is the demand exactly. A matching is
    true at ``[source, destination]`` for each circuit.
    """
    is_exact = problem.objective == "matchings"
    n_ports = problem.fabric.n_ports
    queue = [(0, tuple(problem.ticks.ravel().tolist()))]
    done = set()
    while queue:
        cost, state = heapq.heappop(queue)
        if not any(state):
            return cost
        if state in done:
            continue
        done.add(state)

        # A slot lasts at most as long as one of its circuits has something to send, and one of an
        # exact sum as long as all have.
        remaining = np.array(state, dtype=np.int64).reshape(n_ports, n_ports)
        for matching in matchings:
            sent = remaining[matching]
            if not sent.any():
                continue
            shortest = problem.min_slot_ticks
            durations = range(shortest, max(int(sent.max()), shortest) + 1)
            if is_exact:
                durations = range(1, int(sent.min()) + 1)
            for duration in durations:
                after = np.maximum(remaining - duration * matching, 0)
                next_state = tuple(after.ravel().tolist())
                slot_cost = 1 if is_exact else problem.delay_ticks + duration
                if next_state not in done:
                    heapq.heappush(queue, (cost + slot_cost, next_state))
    raise InputError("demand between ports that no matching connects")
