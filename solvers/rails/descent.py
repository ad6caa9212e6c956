"""Local search: other ways for data, and later starts of collectives, while the step gets shorter.

CP-SAT decides on ways and orders together, but for a few dozen communications only. Here one
choice is changed at a time and times are longest paths, which is fast enough for hundreds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from optmatch.model import Clock
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import SEND
from optmatch.solvers.rails.order import Order, best_order
from optmatch.solvers.rails.relays import Relays, Route, divert, plan_diverted, recognise

_LEAST = 1e-12
"""Relative gain that counts as one."""

Move = tuple[Mapping[int, Route], list[float]]
"""Ways by node, and times of which the order counts."""


def descend(relays: Relays, known: RailPlan, clock: Clock) -> RailPlan | None:
    """Change ways and order of a plan as long as the step gets shorter.

    First all communications of one kind of a class go another way together; then collectives wait
    for a message that they would have kept waiting, so that circuits are changed less often; and
    where neither helps, each communication goes another way by itself.

    Iterations of `clock` limit the choices that are tried. None if no better plan is found.
    """
    descent = _Descent(relays, known)
    tried, gained = 0, descent.order is not None
    while gained:
        for moves in (descent.kinds(), descent.deferrals(), descent.singles()):
            gained = False
            for move in moves:
                if clock.exceeded(tried):
                    return descent.better_than(known)
                tried += 1
                gained |= descent.take(*move)
            if gained:  # then what is cheap comes first again
                break
    return descent.better_than(known)


class _Descent:
    """The best choice so far."""

    def __init__(self, relays: Relays, known: RailPlan) -> None:
        self.relays, self.transfers = relays, relays.transfers
        ways = recognise(relays, known)
        self.chosen: Mapping[int, Route] = {
            node: relays.routes[node][way - 1] for node, way in ways.items() if way
        }
        start = known.start_s[self.transfers.folded.part].tolist()
        self.order: Order | None = best_order(divert(relays, self.chosen), [start])

    def take(self, chosen: Mapping[int, Route], start: list[float]) -> bool:
        """Keep a choice if it is better; tell whether it is."""
        found = best_order(divert(self.relays, chosen), [start])
        if found is None or self.order is None:
            return False
        if found.step_s >= self.order.step_s * (1 - _LEAST):
            return False
        self.chosen, self.order = chosen, found
        return True

    def better_than(self, known: RailPlan) -> RailPlan | None:
        """Return the plan of the choice, if it is better."""
        if self.order is None or self.order.step_s >= known.step_s * (1 - _LEAST):
            return None
        return plan_diverted(divert(self.relays, self.chosen), self.chosen, self.order)

    def kinds(self) -> Iterator[Move]:
        """Let all communications of one kind of a class go another way."""
        kinds: dict[tuple[int, ...], list[int]] = {}
        for node in self.relays.routes:
            transfer = self.transfers.by_node[node]
            kinds.setdefault(
                (transfer.endpoints[0].end, transfer.kind, transfer.ahead), []
            ).append(node)
        for nodes in kinds.values():
            yield from self._change(dict.fromkeys(nodes, ()))
            for way in self.relays.around:
                yield from self._change({node: way[node] for node in nodes if node in way})

    def singles(self) -> Iterator[Move]:
        """Let one communication go another way."""
        for node, routes in self.relays.routes.items():
            for route in ((), *routes):
                yield from self._change({node: route})

    def _change(self, change: Mapping[int, Route]) -> Iterator[Move]:
        both = {**self.chosen, **change}
        trial = {node: route for node, route in both.items() if route}
        if _names(trial) != _names(self.chosen):
            yield trial, self._start()

    def deferrals(self) -> Iterator[Move]:
        """Let a run of collectives at an end wait for the message after it."""
        users: dict[int, list[int]] = {}
        for transfer in divert(self.relays, self.chosen).by_node.values():
            for point in transfer.endpoints if transfer.turn == 0 else ():
                users.setdefault(point.end, []).append(transfer.node)
        for nodes in users.values():
            nodes.sort(key=self._start().__getitem__)
            run: list[int] = []
            for node in nodes:
                if self.transfers.by_node[node].kind < SEND:
                    run.append(node)
                elif run:
                    start = self._start()
                    for late in run:
                        start[late] = math.nextafter(start[node], math.inf)
                    yield self.chosen, start
                    run = []

    def _start(self) -> list[float]:
        return list(self.order.start) if self.order is not None else []


def _names(chosen: Mapping[int, Route]) -> dict[int, tuple[int, ...]]:
    """Return what tells choices apart; links hold arrays, and each is there once."""
    return {node: tuple(id(link) for link in route) for node, route in chosen.items()}
