"""A rail job as a model of CP-SAT: starts, orders, lanes, and which way data go.

At each end of a class a lane serves one communication at a time. Between two communications with
different peers there is a reconfiguration. The model does not say when circuits change: what is
not in use may be changed early. A step begins with the circuits that it ends with, since steps
repeat; which ones, the model chooses. A communication that may be forwarded uses other ends on
each of its ways, and is on all of them for its whole time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.rails.order import Order
from optmatch.solvers.rails.relays import (
    Relays,
    Route,
    divert,
    list_senders,
    plan_diverted,
    recognise,
)
from optmatch.solvers.rails.transfers import Transfers

_TICKS = 1 << 43
"""Ticks of the time that a known plan takes: rounding stays below all tolerances."""


class User(NamedTuple):
    """Who uses an end."""

    node: int
    way: int
    """0 straight on, k by its k-th way around."""
    peers: tuple[int, ...]
    """Whom it faces there, by lane."""


class Conflict(NamedTuple):
    """Two communications at the same ends, each on one of its ways."""

    one: tuple[int, int]
    """Node and way."""
    two: tuple[int, int]
    gaps: tuple[bool, ...]
    """By lane, whether its circuit changes between them."""
    ordered: bool
    """Whether the second waits for the first anyway."""


def list_conflicts(relays: Relays) -> list[Conflict]:
    """List the pairs at one end; a communication that waits for the other comes second."""
    transfers = relays.transfers
    reach = _reach(transfers)
    found: dict[tuple[tuple[int, int], tuple[int, int]], list[bool]] = {}
    for users in list_users(relays).values():
        for a, b in combinations(users, 2):
            if a.node == b.node:
                continue
            one, two = (a, b) if a.node < b.node else (b, a)
            if reach[one.node] >> two.node & 1:
                one, two = two, one
            key = one[:2], two[:2]
            gaps = found.setdefault(key, [False] * transfers.n_lanes)
            for lane, peers in enumerate(zip(a.peers, b.peers, strict=True)):
                gaps[lane] = gaps[lane] or peers[0] != peers[1]
    return [
        Conflict(one, two, tuple(gaps), bool(reach[two[0]] >> one[0] & 1))
        for (one, two), gaps in sorted(found.items())
    ]


def list_users(relays: Relays) -> dict[int, list[User]]:
    """List for each end who uses it."""
    found: dict[int, list[User]] = {}
    for node, transfer in sorted(relays.transfers.by_node.items()):
        for point in transfer.endpoints:
            found.setdefault(point.end, []).append(User(node, 0, point.peers))
        for way, route in enumerate(relays.routes.get(node, ()), 1):
            for link in route:
                for point in (link.sends, link.receives):
                    found.setdefault(point.end, []).append(User(node, way, point.peers))
    return found


def _reach(transfers: Transfers) -> list[int]:
    """Return for each node a bit for each node that it waits for, directly or not."""
    reach = [0] * len(transfers.place)
    before: list[list[int]] = [[] for _ in reach]
    for one, two in transfers.pairs.tolist():
        before[two].append(one)
    for node in np.argsort(transfers.place).tolist():
        for one in before[node]:
            reach[node] |= reach[one] | 1 << one
    return reach


class RailModel:
    """The model, its variables, and how a solution is read; it starts from a known plan."""

    def __init__(self, relays: Relays, known: RailPlan) -> None:
        self.relays, self.transfers, self.model = relays, relays.transfers, cp_model.CpModel()
        self.tick_s = max(known.step_s, 1e-12) / _TICKS
        self.delay = int(self.transfers.job.network.delay_s / self.tick_s)
        model, horizon = self.model, _TICKS + 1
        n = len(self.transfers.duration_s)
        self.start = [model.new_int_var(0, horizon, "") for _ in range(n)]
        self.true = model.new_constant(1)
        n_lanes, routes = self.transfers.n_lanes, relays.routes
        self.lane = {
            node: self._choose(n_lanes, model.add_bool_or) for node in self.transfers.by_node
        }
        self.way = {
            node: self._choose(1 + len(routes.get(node, ())), model.add_exactly_one)
            for node in self.transfers.by_node
        }
        self.lasts: list[Any] = [self._duration(node) for node in range(n)]
        self.total = model.new_int_var(0, horizon, "")
        for one, two in self.transfers.pairs.tolist():
            model.add(self.start[two] >= self.start[one] + self.lasts[one])
        for node in range(n):
            model.add(self.total >= self.start[node] + self.lasts[node])
        self.orders: dict[tuple[int, int], Any] = {}
        self._keep_apart()
        self.users = list_users(relays)
        self.standing = dict(self._stand())
        model.minimize(self.total)
        self._hint(known)

    def _choose(self, number: int, rule: Callable[[list[Any]], Any]) -> list[Any]:
        """Return a literal for each of several choices; of one alone it is true."""
        if number == 1:
            return [self.true]
        literals = [self.model.new_bool_var("") for _ in range(number)]
        rule(literals)
        return literals

    def _duration(self, node: int) -> Any:
        """Return how long a node lasts, in ticks, rounded down: bounds stay bounds."""
        transfers = self.transfers
        if node not in transfers.by_node:
            return int(transfers.duration_s[node] / self.tick_s)
        by_lanes = [
            int(transfers.seconds(node, lanes) / self.tick_s)
            for lanes in range(1, transfers.n_lanes + 1)
        ]
        more: Any = 0
        for way, route in zip(self.way[node][1:], self.relays.routes.get(node, ()), strict=True):
            late_s = (len(route) - 1) * transfers.by_node[node].latency_s
            more += int(late_s / self.tick_s) * way
        if transfers.n_lanes == 1:
            return by_lanes[0] + more
        chosen = [self.model.new_bool_var("") for _ in by_lanes]
        self.model.add_exactly_one(chosen)
        number = sum(k * literal for k, literal in enumerate(chosen, 1))
        self.model.add(sum(self.lane[node]) == number)
        return more + sum(t * literal for t, literal in zip(by_lanes, chosen, strict=True))

    def _keep_apart(self) -> None:
        """Order what needs the same lane at an end, and leave time to change its circuit."""
        for one, two, gaps, ordered in list_conflicts(self.relays):
            pair = one[0], two[0]
            if not ordered and pair not in self.orders:
                self.orders[pair] = self.model.new_bool_var("")
            order = self.true if ordered else self.orders[pair]
            for lane in range(self.transfers.n_lanes):
                gap = self.delay if gaps[lane] else 0
                if ordered and not gap:
                    continue
                shared = [*self._uses(*one, lane), *self._uses(*two, lane)]
                self._after(*pair, gap, [*shared, order])
                if not ordered:
                    self._after(*pair[::-1], gap, [*shared, ~order])

    def _uses(self, node: int, way: int, lane: int) -> list[Any]:
        """Return the literals that say that a node goes this way on this lane."""
        return [self.way[node][way], self.lane[node][lane]]

    def _after(self, one: int, two: int, gap: int, conditions: list[Any]) -> None:
        rule = self.model.add(self.start[two] >= self.start[one] + self.lasts[one] + gap)
        rule.only_enforce_if([c for c in conditions if c is not self.true])

    def _stand(self) -> Iterator[tuple[tuple[int, int], dict[int, Any]]]:
        """Choose whom each end faces when a step begins and ends; others need a change."""
        for end, users in self.users.items():
            for lane in range(self.transfers.n_lanes):
                peers = sorted({user.peers[lane] for user in users})
                faces = {peer: self.model.new_bool_var("") for peer in peers}
                self.model.add_exactly_one(faces.values())
                for node, way, peer in users:
                    away = [~faces[peer[lane]], *self._uses(node, way, lane)]
                    ended = self.start[node] + self.lasts[node]
                    self.model.add(self.start[node] >= self.delay).only_enforce_if(away)
                    self.model.add(self.total >= ended + self.delay).only_enforce_if(away)
                yield (end, lane), faces

    def _hint(self, known: RailPlan) -> None:
        """Start from a known plan."""
        transfers, parts = self.transfers, self.transfers.folded.part
        starts, ends = known.start_s[parts].tolist(), known.end_s[parts].tolist()
        times = [int(at / self.tick_s) for at in starts]
        for variable, at in zip(self.start, times, strict=True):
            self.model.add_hint(variable, min(at, _TICKS))
        for (one, two), order in self.orders.items():
            self.model.add_hint(order, times[one] <= times[two])
        self.model.add_hint(self.total, _TICKS)
        ways = dict.fromkeys(transfers.by_node, 0) | recognise(self.relays, known)
        sender = list_senders(transfers)
        lanes = {node: int(known.ports[sender[node]]) for node in transfers.by_node}
        for node in transfers.by_node:
            self._hint_one(
                self.way[node], [way == ways[node] for way in range(len(self.way[node]))]
            )
            taken = [bool(lanes[node] >> lane & 1) for lane in range(transfers.n_lanes)]
            self._hint_one(self.lane[node], taken)
        for (end, lane), faces in self.standing.items():
            used = [
                (starts[user.node], ends[user.node], user.peers[lane])
                for user in self.users[end]
                if user.way == ways[user.node] and lanes[user.node] >> lane & 1
            ]
            if used:
                face = _first_face(used, transfers.job.network.delay_s)
                self._hint_one(list(faces.values()), [peer == face for peer in faces])

    def _hint_one(self, literals: list[Any], values: list[bool]) -> None:
        for literal, value in zip(literals, values, strict=True):
            if literal is not self.true:  # a variable may have one hint
                self.model.add_hint(literal, value)

    def lower_bound_s(self, outcome: Outcome) -> float:
        """Return what CP-SAT has proved, in seconds."""
        return outcome.lower_bound * self.tick_s

    def read(self, outcome: Outcome) -> RailPlan | None:
        """Return the plan of a solution, with exact times."""
        lanes = {
            node: sum(1 << k for k, literal in enumerate(literals) if outcome.holds(literal))
            for node, literals in self.lane.items()
        }
        ways = {
            node: next(k for k, literal in enumerate(literals) if outcome.holds(literal))
            for node, literals in self.way.items()
        }
        start = [outcome.value(variable) for variable in self.start]
        faces = self._faces(outcome, start, lanes, ways)
        chosen: dict[int, Route] = {
            node: self.relays.routes[node][way - 1] for node, way in ways.items() if way
        }
        order = Order(outcome.value(self.total) * self.tick_s, start, lanes, faces)
        return plan_diverted(divert(self.relays, chosen), chosen, order)

    def _faces(
        self, outcome: Outcome, start: list[int], lanes: Mapping[int, int], ways: Mapping[int, int]
    ) -> dict[tuple[int, int], int]:
        """Return whom ends face when the step begins: of what nobody needs, what is used last."""
        found = {}
        for (end, lane), choice in self.standing.items():
            used = [
                (start[user.node], user.peers[lane])
                for user in self.users[end]
                if ways[user.node] == user.way and lanes[user.node] >> lane & 1
            ]
            face = next(peer for peer, literal in choice.items() if outcome.holds(literal))
            if used:
                needed = face in {peer for _, peer in used}
                found[end, lane] = face if needed else max(used)[1]
        return found


def _first_face(used: list[tuple[float, float, int]], delay_s: float) -> int:
    """Tell whom an end faces when a step begins: whom it serves last, unless there is no time."""
    last = max(used)[2]
    late = all(start >= delay_s for start, _, peer in used if peer != last)
    return last if late else min(used)[2]
