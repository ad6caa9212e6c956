"""All routes of a matching, looked at one after the other: exact, and quick on small fabrics.

Light of one circuit after the other is followed. In a cell that is set it has one way, in others
both are tried. A way is left where circuits so far and the cheapest ways of those to come cannot
be better than the best answer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.reach import cheapest_ways
from optmatch.model import FREE, Clock, Limit, NewBest, OnEvent, Tick, TimeUp
from optmatch.problems import Routing
from optmatch.problems.routing import split_power
from optmatch.solvers.frame import limit_of

_ROUNDING = 1e-9  # of floats that are sums of the same parts
_LOOK = 1024  # nodes between two looks at the clock


class Found(NamedTuple):
    """What a search found."""

    states: NDArray[np.int8] | None
    """None if nothing is better than what was known before."""
    objective: float
    limit: Limit | None
    """Why it stopped before the end."""
    nodes: int


class _Stopped(Exception):
    def __init__(self, limit: Limit) -> None:
        self.limit = limit


def search_all(
    problem: Routing, known: tuple[float, int], clock: Clock, on_event: OnEvent
) -> Found:
    """Find the routes of the least objective, and of these some of the fewest cells.

    `known` are the objective and the cells of an answer that is there already.
    """
    limit = None
    try:
        search = _Search(problem, known, clock, on_event)
    except (KeyboardInterrupt, TimeUp) as stop:
        return Found(None, known[0], limit_of(stop), 0)
    try:
        search.enter(0)
    except _Stopped as exc:
        limit = exc.limit
    except (KeyboardInterrupt, TimeUp) as stop:
        limit = limit_of(stop)
    return Found(search.states, search.best[0], limit, search.nodes)


class _Search:
    """The state of the search: cells as they are set now, and beams of circuits so far."""

    def __init__(
        self, problem: Routing, known: tuple[float, int], clock: Clock, on_event: OnEvent
    ) -> None:
        fabric, cells = problem.fabric, problem.cells
        graph = fabric.graph
        assert graph is not None
        assert cells is not None
        self.clock, self.on_event, self.best = clock, on_event, known
        self.states: NDArray[np.int8] | None = None
        self.nodes = 0
        self.mate: list[int] = graph.mate.tolist()
        self.exits: list[list[int]] = graph.exits.tolist()
        self.power = problem.objective == "power-mw"
        dark_mw, extra_mw = split_power(fabric, cells)
        self.extra: list[list[float]] = extra_mw.tolist()
        weights = extra_mw / 2 if self.power else cells.loss_db
        self.loss: list[list[float]] = weights.tolist()
        self.leak: list[list[float]] = cells.leak.tolist()
        self.crosstalk = problem.objective == "worst-snr-db"
        self.mutual = fabric.bidirectional
        starts, ends = fabric.source_terminals, fabric.destination_terminals
        self.to_go = []
        for costs in (weights, np.ones_like(weights)):
            # light comes back as it went, so ways from the end are those to it
            ways = cheapest_ways(graph, ends, costs)
            left = np.where(graph.mate >= 0, ways[:, graph.mate], np.inf)
            left[np.arange(len(ends)), ends] = 0.0
            self.to_go.append(left.tolist())
        loss, count = (
            cheapest_ways(graph, starts, costs) for costs in (weights, np.ones_like(weights))
        )
        circuits = sorted(
            problem.circuits.tolist(), key=lambda pair: -loss[pair[0], ends[pair[1]]]
        )
        self.circuits = [(int(starts[i]), int(ends[j]), j) for i, j in circuits]
        # the least of the circuits from the k-th on: worst loss or all halves of power, and cells
        self.rest = [(0.0, 0.0)]
        for i, j in reversed(circuits):
            worst, total = self.rest[-1]
            least = loss[i, ends[j]]
            least = worst + least if self.power else max(worst, least)
            self.rest.append((least, total + count[i, ends[j]]))
        self.rest.reverse()
        self.set = graph.stuck.tolist()  # a dead cell is never entered
        self.beams: list[list[tuple[int, float]]] = []  # terminals entered, and loss before
        self.worst, self.cells = (dark_mw if self.power else 0.0), 0
        self.halves = self.worst  # of power, as if two circuits passed each cell

    def hopeless(self, worst: float, cells: float) -> bool:
        """Tell whether nothing that has at least this is better than the best."""
        least, fewest = self.best
        if worst > least * (1 + _ROUNDING):
            return True
        return worst >= least * (1 - _ROUNDING) and cells >= fewest

    def enter(self, k: int) -> None:
        """Route the k-th circuit and all after it, in every way."""
        if k == len(self.circuits):
            self._keep()
            return
        start, end, port = self.circuits[k]
        before = self.worst, self.cells, self.halves
        self._follow(k, start, end, port, [], 0.0)
        self.worst, self.cells, self.halves = before

    def _follow(
        self, k: int, at: int, end: int, port: int, beam: list[tuple[int, float]], lost: float
    ) -> None:
        self.nodes += 1
        if self.nodes % _LOOK == 0:
            self._look()
        cell = at >> 2
        states = (0, 1) if self.set[cell] == FREE else (self.set[cell],)
        beam.append((at, lost))
        for state in states:
            left = self.exits[at][state]
            now = lost + self.loss[cell][state]
            least, cells = self.to_go[0][port][left], self.to_go[1][port][left]
            if least == np.inf:
                continue
            fresh = self.set[cell] == FREE
            worst = self.worst
            if self.power:
                heat = self.extra[cell][state] if fresh else 0.0
                worst = max(worst + heat, self.halves + now + least + self.rest[k + 1][0])
            elif not self.crosstalk:
                worst = max(worst, now + least, self.rest[k + 1][0])
            if self.hopeless(worst, self.cells + len(beam) + cells + self.rest[k + 1][1]):
                continue
            self.set[cell] = state
            if self.power:
                self.worst += heat
            if left == end:
                self._arrive(k, beam, now)
            elif self.mate[left] >= 0:
                self._follow(k, self.mate[left], end, port, beam, now)
            if fresh:
                self.set[cell] = FREE
            if self.power:
                self.worst -= heat
        beam.pop()

    def _arrive(self, k: int, beam: list[tuple[int, float]], lost: float) -> None:
        """Go on with the next circuit, unless what is there is too bad already."""
        before = self.worst, self.cells, self.halves
        added = 1
        self.beams.append(list(beam))
        if self.mutual:
            added = 2
            back = []
            for at, so_far in beam:
                state = self.set[at >> 2]
                back.append((self.exits[at][state], lost - so_far - self.loss[at >> 2][state]))
            self.beams.append(back)
        self.cells += len(beam)
        if self.power:
            self.halves += lost
        else:
            self.worst = self._ratio() if self.crosstalk else max(self.worst, lost)
        if not self.hopeless(self.worst, self.cells + self.rest[k + 1][1]):
            self.enter(k + 1)
        self.worst, self.cells, self.halves = before
        del self.beams[-added:]

    def _ratio(self) -> float:
        """Return the largest crosstalk over signal of the circuits so far."""
        entered = {
            at: (number, lost) for number, beam in enumerate(self.beams) for at, lost in beam
        }
        worst = 0.0
        for number, beam in enumerate(self.beams):
            ratio = 0.0
            for at, lost in beam:
                beside = entered.get(at ^ 1)
                if beside is not None and beside[0] != number:
                    share = self.leak[at >> 2][self.set[at >> 2]]
                    ratio += share * 10 ** ((lost - beside[1]) / 10)
            worst = max(worst, ratio)
        return worst

    def _keep(self) -> None:
        is_better = self.worst < self.best[0] * (1 - _ROUNDING)
        self.best = self.worst, self.cells
        lit = np.zeros(len(self.set), dtype=bool)
        for beam in self.beams:
            lit[[at >> 2 for at, _ in beam]] = True
        self.states = np.where(lit, self.set, FREE).astype(np.int8)
        if is_better:  # told once it is kept: the listener may interrupt
            self.on_event(NewBest(self.worst))

    def _look(self) -> None:
        limit = self.clock.exceeded(0)
        if limit is not None:
            raise _Stopped(limit)
        self.on_event(Tick("nodes", self.nodes))
