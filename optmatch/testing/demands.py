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

    # Each matching becomes a matrix of 0 and 1, which can be taken off a demand.
    rows = list(permutations(range(n_ports))) if realisable is None else realisable
    matchings = []
    for row in rows:
        matching = np.zeros((n_ports, n_ports), dtype=np.int64)
        for source, destination in enumerate(row):
            if destination >= 0:
                matching[source, destination] = 1
        matchings.append(matching)
    if problem.objective == "matchings":
        return float(_fewest_matchings(problem.ticks, matchings))
    completion_ticks = _shortest_completion(
        problem.ticks,
        matchings,
        delay_ticks=problem.delay_ticks,
        min_slot_ticks=problem.min_slot_ticks,
    )
    return completion_ticks * problem.tick_s


def _shortest_completion(
    ticks: Matrix, matchings: Sequence[Matrix], *, delay_ticks: int, min_slot_ticks: int
) -> int:
    """Find the shortest schedule by Dijkstra's algorithm; states are the demand that is left.

    ``ticks[source, destination]`` is how many ticks a circuit needs for the demand. The result is
    in ticks, too, with a delay before each slot, which lasts `min_slot_ticks` at least. A matching
    is a matrix with 1 for each circuit.
    """
    n_ports = len(ticks)
    queue = [(0, tuple(ticks.ravel().tolist()))]
    done = set()
    while queue:
        time, state = heapq.heappop(queue)
        if not any(state):
            return time
        if state in done:
            continue
        done.add(state)

        # A slot lasts at most as long as one of its circuits has something to send.
        remaining = np.array(state, dtype=np.int64).reshape(n_ports, n_ports)
        for matching in matchings:
            longest = int((remaining * matching).max())
            if longest == 0:
                continue
            for duration in range(min_slot_ticks, max(longest, min_slot_ticks) + 1):
                after = np.maximum(remaining - duration * matching, 0)
                next_state = tuple(after.ravel().tolist())
                if next_state not in done:
                    heapq.heappush(queue, (time + delay_ticks + duration, next_state))
    raise InputError("demand between ports that no matching connects")


def _fewest_matchings(ticks: Matrix, matchings: Sequence[Matrix]) -> int:
    """Find the fewest weighted matchings whose sum is a matrix, by breadth-first search.

    Each step takes one matching off, a matrix with 1 for each circuit, with every weight that
    leaves nothing negative. The search does not end if no sum is the matrix.
    """
    n_ports = len(ticks)
    states = {tuple(ticks.ravel().tolist())}
    n_steps = 0

    # In each step every state loses every matching with every weight that it allows.
    while not any(sum(state) == 0 for state in states):
        next_states = set()
        for state in states:
            remaining = np.array(state, dtype=np.int64).reshape(n_ports, n_ports)
            for matching in matchings:
                largest_weight = int(remaining[matching == 1].min())
                for weight in range(1, largest_weight + 1):
                    after = remaining - weight * matching
                    next_states.add(tuple(after.ravel().tolist()))
        states = next_states
        n_steps += 1
    return n_steps
