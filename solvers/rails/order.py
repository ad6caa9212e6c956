"""Plans from orders: each end serves in a given order, and changes as soon as it is free.

Nothing is asked for: a circuit that is used next is set up while its ports are idle, which hides
the delay wherever that is possible in the given order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from optmatch.model import check_time
from optmatch.problems.rails.plan import RailPlan
from optmatch.solvers.rails.policies import usual_lanes
from optmatch.solvers.rails.timetable import Timed, Turn, build_plan, longest_paths
from optmatch.solvers.rails.transfers import Spot, Transfers


class Order(NamedTuple):
    """What makes a plan: the order at each end, lanes, and what a step begins with."""

    step_s: float
    start: Sequence[float]
    """Times by node, of which the order counts alone."""
    lanes: Mapping[int, int]
    """By node, a bit for each lane."""
    faces: Mapping[tuple[int, int], int]
    """By end and lane the peer that it faces when the step begins, and ends."""


def plan_ahead(transfers: Transfers, starts: Sequence[Sequence[float]] = ()) -> RailPlan | None:
    """Set up circuits early: the best of a few orders; None if no order can be kept.

    Tried are the order in which communications would start with all circuits there, and those of
    known plans, of which `starts` are those of nodes; and steps that begin with the circuits that
    they use first, or used last.
    """
    order = best_order(transfers, starts)
    return order and plan_in_order(transfers, order)


def best_order(transfers: Transfers, starts: Sequence[Sequence[float]] = ()) -> Order | None:
    """Choose what `plan_ahead` makes a plan of; `starts` are those of nodes in known plans."""
    lanes = usual_lanes(transfers)
    everything = dict.fromkeys(lanes, (1 << transfers.n_lanes) - 1)
    free = longest_paths(transfers.lasting(everything), transfers.pairs())
    tried = []
    for start in [*([] if free is None else [free.start_s]), *starts]:
        for which in (-1, 0):
            check_time()
            order = Order(0.0, start, lanes, _first_faces(transfers, start, lanes, which))
            found = _time_order(transfers, order)
            if found is not None:
                tried.append(order._replace(step_s=max(found.timed.end_s, default=0.0)))
    return min(tried, key=lambda order: order.step_s, default=None)


def _first_faces(
    transfers: Transfers, start: Sequence[float], lanes: Mapping[int, int], which: int
) -> dict[tuple[int, int], int]:
    """Let each end face whom it faces first (0) or last (-1) in a step."""
    found: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
    for node, transfer in transfers.by_node.items():
        for point in transfer.endpoints:
            for lane in range(transfers.n_lanes):
                if lanes[node] >> lane & 1:
                    entry = *transfers.key(node, start), point.peers[lane]
                    found.setdefault((point.end, lane), []).append(entry)
    return {at: sorted(entries)[which][-1] for at, entries in found.items()}


def plan_in_order(transfers: Transfers, order: Order) -> RailPlan | None:
    """Make the plan in which each end serves its communications in an order.

    Every change begins as soon as the port is free; None if the order contradicts itself.
    """
    found = _time_order(transfers, order)
    if found is None:
        return None
    times = found.timed.start_s
    turns = [Turn(times[n], times[n], end, lane, spot) for n, end, lane, spot in found.turned]
    return build_plan(transfers, found.timed, order.lanes, found.standing, turns)


class _Found(NamedTuple):
    """Times in a given order."""

    timed: Timed
    standing: list[Turn]
    turned: list[tuple[int, int, int, Spot]]
    """Numbers of the changes among the nodes, end, lane, and what says whom."""


def _time_order(transfers: Transfers, order: Order) -> _Found | None:
    """Find when everything starts, and what is turned."""
    _, start, lanes, faces = order
    waits = longest_paths([0.0] * len(transfers.duration_s), transfers.pairs())
    if waits is None:
        return None
    durations, pairs = transfers.lasting(lanes), transfers.pairs()
    turned: list[tuple[int, int, int, Spot]] = []
    standing: list[Turn] = []
    users = transfers.users()
    for points in users.values():
        points.sort(key=lambda user: transfers.key(user[0], start, waits.order))
    for (end, lane), peer in faces.items():
        points = users[end]
        place = {point.peers[lane]: point.spot for _, point in points}
        standing.append(Turn(0.0, 0.0, end, lane, place[peer]))
        facing, last = peer, -1
        served = [
            (node, point.peers[lane], point.spot)
            for node, point in points
            if lanes[node] >> lane & 1
        ]
        for node, wanted, where in [*served, (-1, peer, place[peer])]:
            if wanted != facing:
                number = len(durations)
                durations.append(transfers.job.network.delay_s)
                turned.append((number, end, lane, where))
                pairs += [(last, number)] if last >= 0 else []
                pairs += [(number, node)] if node >= 0 else []
            elif last >= 0 and node >= 0:
                pairs.append((last, node))
            facing, last = wanted, node
    timed = longest_paths(durations, pairs)
    return None if timed is None else _Found(timed, standing, turned)
