"""Many steps of a simulated job, its rails run by controllers, all on one simulated clock.

The run depends on the seed alone. An observer looks on, for data that are sent while circuits are
dark.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.control.rails.controller import Controller
from optmatch.control.rails.ranks import Faults, Ranks
from optmatch.entrances import verify
from optmatch.model import IDLE, Index, InputError, OnEvent, Value, ignore, integer
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.orders import Graph, check_triggers, retime
from optmatch.problems.rails.execution.triggers import TriggerPlan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Execution(Value):
    """The events and figures of one execution of a plan.

    Parameters
    ----------
    step_s
        ``step_s[step]``: from when the last rank ended the step before to when it ended this one.
    sent_bytes, dark_bytes
        What went over circuits, and what was sent while they were dark: none, or it is a defect.
    messages, lost
        Messages between ranks and controllers, and the lost ones among them.
    fallbacks
        How often a rail went to its fall-back state.
    """

    step_s: NDArray[np.float64]
    sent_bytes: float
    dark_bytes: float
    messages: Index
    lost: Index
    fallbacks: Index


def execute(
    job: RailJob,
    plan: TriggerPlan,
    *,
    steps: int = 1,
    faults: Faults | None = None,
    seed: int = 0,
    on_event: OnEvent = ignore,
) -> Execution:
    """Play a trigger plan against a simulated job, with some `faults`."""
    steps, seed = integer("steps", steps, at_least=1), integer("seed", seed, at_least=0)
    graph = check_triggers(job, plan)
    for violation in verify(job, retime(job, graph, plan)).violations[:1]:
        raise InputError(f"no valid plan follows from its order: {violation}", where="place")
    observer, given = Observer(job, plan, graph), Faults() if faults is None else faults
    controllers = [
        Controller(job, plan, rail, partial(observer.note_change, k))
        for k, rail in enumerate(plan.rails)
    ]
    options: dict[str, Any] = {"steps": steps, "faults": given, "seed": seed}
    ranks = Ranks(job, plan, graph, controllers, observer.judge, **options)
    ranks.run(on_event)
    return Execution(
        step_s=np.diff(ranks.end_s, prepend=0.0),
        sent_bytes=observer.sent_bytes,
        dark_bytes=observer.dark_bytes,
        messages=ranks.n_sent,
        lost=ranks.n_lost,
        fallbacks=sum(each.n_fallbacks for each in controllers),
    )


_SLACK_S = 1e-10
_MANY = 16
"""The number of past changes of a port that are kept; none comes while the port is in use."""
_ALL = -1
"""Stands for the ports of a rail that stops as a whole."""


class Observer:
    """Compares each send with the state that its switch has been told."""

    def __init__(self, job: RailJob, plan: TriggerPlan, graph: Graph) -> None:
        self.delay_s, self.rate = job.network.delay_s, job.network.port_bytes_per_s
        self.whole = job.network.switching == "all-stop"
        self.sent_bytes = self.dark_bytes = 0.0
        self._told: dict[tuple[int, int], deque[tuple[float, int]]] = {}
        self._rings: list[list[tuple[int, int]]] = []
        self._wanted: list[tuple[int, list[tuple[int, int]]]] = [(-1, []) for _ in graph.place]
        for k, (rail, uses) in enumerate(zip(plan.rails, graph.uses, strict=True)):
            fallback = [] if rail.fallback is None else rail.fallback.tolist()
            self._rings.append(list(enumerate(fallback)))
            for port, to in [*enumerate(rail.circuits.tolist()), (_ALL, IDLE)]:
                self._told[k, port] = deque([(-inf, to)], maxlen=_MANY)
            states, places = rail.states().tolist(), rail.place.tolist()
            events = graph.events.event_of[uses.operation].tolist()
            for event, port in zip(events, uses.port.tolist(), strict=True):
                for node in graph.parts.of(event):
                    to = states[bisect_right(places, int(graph.place[node]))][port]
                    self._wanted[node] = k, self._wanted[node][1]
                    if to != IDLE:
                        self._wanted[node][1].append((port, to))

    def note_change(self, rail: int, at_s: float, circuits: Iterable[Sequence[int]]) -> None:
        """Note the state that the switch of a rail was told."""
        for port, to in [*circuits, (_ALL, IDLE)]:
            self._told[rail, port].append((at_s, to))

    def judge(self, node: int, start_s: float, end_s: float, ring: bool) -> None:
        """Judge a communication that ends now, over its circuits or over all of the ring."""
        rail, wanted = self._wanted[node]
        wanted = self._rings[rail] if ring else wanted
        n_bytes = (end_s - start_s) * self.rate
        self.sent_bytes += n_bytes * len(wanted)
        for port, to in [*wanted, *([(_ALL, IDLE)] if self.whole else [])]:
            if not self._is_lit(self._told[rail, port], to, start_s, end_s):
                self.dark_bytes += n_bytes

    def _is_lit(
        self, history: Sequence[tuple[float, int]], to: int, start_s: float, end_s: float
    ) -> bool:
        """Tell whether a port led to another for the whole time, and was there before it."""
        place = bisect_right(history, start_s + _SLACK_S, key=lambda entry: entry[0])
        if not place:
            return False
        at_s, leads_to = history[place - 1]
        ends = history[place][0] if place < len(history) else inf
        up_s = at_s + self.delay_s
        return leads_to == to and up_s <= start_s + _SLACK_S and end_s - _SLACK_S <= ends
