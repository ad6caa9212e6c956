"""Ways for data through other ranks, over circuits that are up at the same time.

A *link* is a circuit at every rank of a class, to ranks of another class. Messages of one
direction are links one after another, a *chain* from one end of a pipeline to the other. One more
link, from the end of a chain to its beginning, closes it to rings. Which rank of the first stage
it leads to decides what they are good for: in the same pipeline, messages of the other direction
go around, through the ranks between; in the next replica, what goes around the replicas of a
stage goes through all stages. No other circuit is changed for either. On rails of few ranks, each
of a class of its own, all ways are listed.

A way passes each class once, so no port carries two operations at a time, and its hops take the
same lanes. It lasts as long as going straight, but for the latency of its hops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.rails.execution.plan import RailPlan, ranks_of_rails
from optmatch.problems.rails.training.step import ALL_TO_ALL, RECV, SEND
from optmatch.solvers.rails.order import Order, best_order, plan_in_order
from optmatch.solvers.rails.timetable import Draft
from optmatch.solvers.rails.transfers import Endpoint, Transfer, Transfers, face

MOST_LISTED = 4
"""On rails of so many ranks, each of a class of its own, all ways are listed."""


class Link(NamedTuple):
    """A circuit at every rank of a class."""

    one: int
    """The class that sends."""
    two: int
    """The class that receives."""
    to: NDArray[np.int64]
    """``to[rank]``: whom it reaches, -1 of ranks of other classes."""
    sends: Endpoint
    receives: Endpoint


Route = tuple[Link, ...]
"""The hops of data, one after another."""


class Relays(NamedTuple):
    """Who can do what in another way than straight."""

    transfers: Transfers
    """The folded job, with the links that nothing else needs as its bridges."""
    routes: dict[int, tuple[Route, ...]]
    """By node; those without a way around are left out."""
    around: tuple[dict[int, Route], ...]
    """For each direction of messages the ways around along its chains, by node."""
    complete: bool
    """Whether there are no other ways at all."""


class _Links:
    """All links of a job, each once."""

    def __init__(self, transfers: Transfers) -> None:
        self.transfers = transfers
        self.known: dict[tuple[int, bytes], Link] = {}
        self.bridges: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self.class_of = transfers.folded.class_of

    def add(self, one: int, two: int, to: NDArray[np.int64]) -> Link | None:
        """Return the link with a mapping, a new bridge if nothing else faces so.

        None if it does not lead from all ranks of the one class to all of the other.
        """
        key = one, to.tobytes()
        if key not in self.known:
            reached = to[to >= 0]
            whole = np.array_equal(np.sort(reached), np.flatnonzero(self.class_of == two))
            if not whole or len(reached) != (self.class_of == one).sum():
                return None
            back = np.full(len(to), -1)
            back[reached] = np.flatnonzero(to >= 0)
            number = len(self.bridges)
            self.bridges.append((to, back))
            peer = (len(to) + number,) * self.transfers.n_lanes
            spot = -1 - number, 0
            self.known[key] = Link(
                one, two, to, Endpoint(2 * one, peer, spot), Endpoint(2 * two + 1, peer, spot)
            )
        return self.known[key]

    def of_message(self, transfer: Transfer) -> Link:
        """Return the link that a message takes."""
        sends, receives = sorted(transfer.endpoints, key=lambda point: point.end % 2)
        to = whom(self.transfers, sends)
        link = Link(sends.end // 2, receives.end // 2, to, sends, receives)
        return self.known.setdefault((link.one, to.tobytes()), link)


def whom(transfers: Transfers, point: Endpoint) -> NDArray[np.int64]:
    """Return whom the ranks of a class send to in an operation; on a ring, the next member."""
    ranks = np.flatnonzero(transfers.folded.class_of == point.end // 2)
    to = np.full(len(transfers.folded.class_of), -1)
    place, turn = point.spot
    to[ranks] = face(transfers, transfers.job.step().rank_start[ranks] + place, 0, 0, turn)
    return to


def list_relays(transfers: Transfers) -> Relays:
    """List the ways around of every communication.

    There are none where ports are bidirectional, or a switch stops as a whole.
    """
    links, routes = _Links(transfers), dict[int, tuple[Route, ...]]()
    if transfers.duplex or transfers.job.network.switching == "all-stop":
        return Relays(transfers, routes, (), False)
    chains: dict[bool, dict[int, Link]] = {True: {}, False: {}}
    for transfer in transfers.by_node.values():
        if transfer.kind >= SEND:
            link = links.of_message(transfer)
            if link.one != link.two:  # as between opposite stages that do the same
                chains[transfer.ahead].setdefault(link.one, link)
    found = [list(_list_chains(onward)) for onward in chains.values()]
    around: tuple[dict[int, Route], ...] = tuple({} for _ in found)
    seats = _seats(transfers)
    for node, transfer in transfers.by_node.items():
        wanted = _wanted(transfers, transfer)
        if wanted is None:
            continue
        for way, several in zip(around, found, strict=True):
            for chain in several:
                detour = _around(links, chain, *wanted)
                if detour is not None and len(detour) > 1:
                    way[node] = detour
        ways = [way[node] for way in around if node in way]
        ways += [] if seats is None else _through(links, seats, *wanted[:2])
        distinct = {tuple(id(link) for link in way): way for way in ways}
        if distinct:
            routes[node] = tuple(distinct.values())
    bridged = transfers._replace(bridges=tuple(links.bridges))
    return Relays(bridged, routes, around, _is_complete(transfers, seats))


def _wanted(transfers: Transfers, transfer: Transfer) -> tuple[int, int, NDArray[np.int64]] | None:
    """Return from which class to which, and to whom, data have to go; None if not to one rank."""
    if transfer.rounds:
        return None
    sends = [point for point in transfer.endpoints if point.end % 2 == 0]
    (two, *more) = [point.end // 2 for point in transfer.endpoints if point.end % 2]
    step = transfers.job.step()
    part = int(transfers.folded.part[transfer.node])
    if len(sends) > 1 or more:  # a collective of ranks that are not alike
        return None
    if transfer.kind == ALL_TO_ALL and len(step.groups[step.group[part]].ranks) > 2:
        return None
    return sends[0].end // 2, two, whom(transfers, sends[0])


def _list_chains(onward: Mapping[int, Link]) -> Iterator[list[Link]]:
    """Put links together as long as each begins where the last one ends."""
    left = dict(onward)
    reached = {link.two for link in left.values()}
    for start in [*sorted(set(left) - reached), *sorted(left)]:
        chain: list[Link] = []
        while start in left and all(link.one != left[start].two for link in chain):
            chain.append(left.pop(start))
            start = chain[-1].two
        left.pop(start, None)  # of a ring, the link that closes it
        if chain:
            yield chain


def _around(
    links: _Links, chain: Sequence[Link], one: int, two: int, to: NDArray[np.int64]
) -> Route | None:
    """Go along a chain to its end, over a bridge to its beginning, and along it again."""
    stages = [chain[0].one, *(link.two for link in chain)]
    if one not in stages or two not in stages or stages.index(two) > stages.index(one):
        return None
    first, last = chain[stages.index(one) :], chain[: stages.index(two)]
    ranks = np.flatnonzero(to >= 0)
    tail = _compose(first, ranks)
    heads = np.flatnonzero(links.class_of == stages[0])
    from_ = np.full(len(to), -1)
    from_[_compose(last, heads)] = heads
    closing = np.full(len(to), -1)
    closing[tail] = from_[to[ranks]]
    bridge = links.add(stages[-1], stages[0], closing)
    if bridge is None:
        return None
    way = (*first, bridge, *last)
    return way if np.array_equal(_compose(way, ranks), to[ranks]) else None


def _compose(way: Sequence[Link], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where data of ranks come out."""
    for link in way:
        ranks = link.to[ranks]
    return ranks


def _seats(transfers: Transfers) -> NDArray[np.int64] | None:
    """Return ``seats[rail, class]``: its rank; None unless all rails have one of each class."""
    class_of = transfers.folded.class_of
    rows = []
    for ranks in ranks_of_rails(transfers.job.step()).values():
        if len(ranks) > MOST_LISTED:
            return None
        row = np.full(len(transfers.folded.first), -1)
        row[class_of[ranks]] = ranks
        if (row >= 0).sum() < len(ranks):
            return None
        rows.append(row)
    seats = np.array(rows, dtype=np.int64)
    alike = len(rows) and ((seats >= 0) == (seats[:1] >= 0)).all()
    return seats if alike else None


def _through(links: _Links, seats: NDArray[np.int64], one: int, two: int) -> Iterator[Route]:
    """List all ways through other ranks of the same rail."""
    here = [cls for cls in np.flatnonzero(seats[0] >= 0).tolist() if cls not in (one, two)]
    for length in range(1, len(here) + 1):
        for between in permutations(here, length):
            stops = [one, *between, two]
            way = []
            for a, b in pairwise(stops):
                to = np.full(len(links.class_of), -1)
                to[seats[:, a]] = seats[:, b]
                way.append(links.add(a, b, to))
            yield tuple(link for link in way if link is not None)


def _is_complete(transfers: Transfers, seats: NDArray[np.int64] | None) -> bool:
    """Tell whether all ways are listed: of two ranks on a rail, or of messages between few."""
    if all(len(ranks) <= 2 for ranks in ranks_of_rails(transfers.job.step()).values()):
        return True
    return seats is not None and all(
        transfer.kind >= SEND for transfer in transfers.by_node.values()
    )


def plan_around(transfers: Transfers, known: Draft) -> RailPlan | None:
    """Send data around where that saves changes of circuits; None if it is no better than `known`.

    Messages of one direction, collectives, or both go around along the messages of the other
    direction; all else goes straight, and circuits are set up early, in the order of `known` or
    of the step with all links.
    """
    relays = list_relays(transfers)
    found: list[tuple[Order, Transfers, dict[int, Route]]] = []
    for way in relays.around:
        messages = {
            node: route for node, route in way.items() if transfers.by_node[node].kind >= SEND
        }
        rings = {node: route for node, route in way.items() if node not in messages}
        for chosen in (messages, rings, way if messages and rings else {}):
            diverted = divert(relays, chosen)
            order = best_order(diverted, [known.start]) if chosen else None
            if order is not None and order.step_s < known.step_s:
                found.append((order, diverted, chosen))
    if not found:
        return None
    order, diverted, chosen = min(found, key=lambda choice: choice[0].step_s)
    return plan_diverted(diverted, chosen, order)


def plan_diverted(
    transfers: Transfers, chosen: Mapping[int, Route], order: Order
) -> RailPlan | None:
    """Make the plan of an order in which communications go the ways chosen for them."""
    draft = plan_in_order(transfers, order)
    relays = _relay_rows(transfers, chosen, order.lanes)
    return draft and replace(draft.build(), relays=relays)


def list_senders(transfers: Transfers) -> dict[int, int]:
    """Return for each node of the folded step one operation of it that does not receive."""
    folded = transfers.folded
    sends = np.flatnonzero(folded.step.kind[folded.own] != RECV)
    nodes, first = np.unique(folded.nodes[sends], return_index=True)
    return dict(zip(nodes.tolist(), folded.own[sends[first]].tolist(), strict=True))


def recognise(relays: Relays, plan: RailPlan) -> dict[int, int]:
    """Tell by node which way a plan takes: 0 straight on, k by the k-th way around."""
    step, sender = relays.transfers.job.step(), list_senders(relays.transfers)
    found = {}
    for node, routes in relays.routes.items():
        rows = slice(*np.searchsorted(plan.relays[:, 0], [sender[node], sender[node] + 1]))
        passed = plan.relays[rows, 1].tolist()
        start = step.rank[sender[node]][None]
        ways = [
            [int(_compose(route[:hop], start)[0]) for hop in range(1, len(route))]
            for route in routes
        ]
        found[node] = 1 + ways.index(passed) if passed in ways else 0
    return found


def divert(relays: Relays, chosen: Mapping[int, Route]) -> Transfers:
    """Return the folded job in which communications go the ways chosen for them."""
    transfers = relays.transfers
    changed = dict(transfers.by_node)
    for node, way in chosen.items():
        endpoints = tuple(point for link in way for point in (link.sends, link.receives))
        transfer = transfers.by_node[node]
        changed[node] = transfer._replace(
            endpoints=endpoints, latency_s=transfer.latency_s * len(way)
        )
    return transfers._replace(by_node=changed)


def _relay_rows(
    transfers: Transfers, chosen: Mapping[int, Route], lanes: Mapping[int, int]
) -> NDArray[np.int32]:
    """List who forwards what, as plans have it."""
    step = transfers.job.step()
    rows = [np.empty((0, 4), dtype=np.int64)]
    for node, way in chosen.items():
        operations = transfers.folded.list_sends(node)
        ranks = step.rank[operations].astype(np.int64)
        for hop, link in enumerate(way[:-1]):
            ranks = link.to[ranks]
            columns = operations, np.full(len(ranks), hop), ranks, np.full(len(ranks), lanes[node])
            rows.append(np.stack(columns, axis=1))
    table = np.concatenate(rows)
    in_order = np.lexsort([table[:, 1], table[:, 0]])
    return table[in_order][:, [0, 2, 3]].astype(np.int32)
