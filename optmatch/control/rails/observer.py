"""An observer beside ranks and controllers, for what is sent while its circuits are dark.

It hears from switches what they were told, from ranks when they sent, and nothing else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf

from optmatch.model import IDLE
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.orders import Graph
from optmatch.problems.rails.execution.triggers import TriggerPlan

_SLACK_S = 1e-10
_LONG_AGO = 256
"""So many changes of a port are remembered."""


class Observer:
    """Compares each send with what its switch has been told."""

    def __init__(self, job: RailJob, plan: TriggerPlan, graph: Graph) -> None:
        self.delay_s, self.rate = job.network.delay_s, job.network.port_bytes_per_s
        self.whole = job.network.switching == "all-stop"
        self.sent_bytes = self.dark_bytes = 0.0
        self._told: list[list[list[tuple[float, int]]]] = []
        self._stops: list[list[tuple[float, int]]] = [[(-inf, IDLE)] for _ in plan.rails]
        self._rings: list[list[tuple[int, int]]] = []
        self._wanted: list[tuple[int, list[tuple[int, int]]]] = [(-1, []) for _ in graph.place]
        for k, (rail, uses) in enumerate(zip(plan.rails, graph.uses, strict=True)):
            fallback = [] if rail.fallback is None else rail.fallback.tolist()
            self._rings.append(list(enumerate(fallback)))
            self._told.append([[(-inf, to)] for to in rail.circuits.tolist()])
            states, places = rail.states().tolist(), rail.place.tolist()
            events = graph.events.event_of[uses.operation].tolist()
            for event, port in zip(events, uses.port.tolist(), strict=True):
                for node in graph.parts.of(event):
                    to = states[bisect_right(places, int(graph.place[node]))][port]
                    self._wanted[node] = k, self._wanted[node][1]
                    if to != IDLE:
                        self._wanted[node][1].append((port, to))

    def note_change(self, rail: int, at_s: float, circuits: Iterable[Sequence[int]]) -> None:
        """Note what the switch of a rail was told."""
        histories = [(self._told[rail][port], to) for port, to in circuits]
        for history, to in [*histories, (self._stops[rail], IDLE)]:
            history.append((at_s, to))
            if len(history) > 2 * _LONG_AGO:
                del history[:_LONG_AGO]

    def judge(self, node: int, start_s: float, end_s: float, *, ring: bool) -> None:
        """Judge a communication that ends now, over its circuits or over all of the ring."""
        rail, wanted = self._wanted[node]
        wanted = self._rings[rail] if ring else wanted
        n_bytes = (end_s - start_s) * self.rate
        self.sent_bytes += n_bytes * len(wanted)
        told = [(self._told[rail][port], to) for port, to in wanted]
        for history, to in [*told, *([(self._stops[rail], IDLE)] if self.whole else [])]:
            if not self._is_lit(history, to, start_s, end_s):
                self.dark_bytes += n_bytes

    def _is_lit(
        self, history: list[tuple[float, int]], to: int, start_s: float, end_s: float
    ) -> bool:
        """Tell whether a port led to another for the whole time, and was there before it."""
        place = bisect_right(history, start_s + _SLACK_S, key=lambda entry: entry[0])
        at_s, leads_to = history[place - 1]
        ends = history[place][0] if place < len(history) else inf
        up_s = at_s + self.delay_s
        return leads_to == to and up_s <= start_s + _SLACK_S and end_s - _SLACK_S <= ends
