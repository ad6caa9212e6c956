"""Branch and bound over all routes of a matching: exact, and quick on small fabrics.

A depth-first search follows the light of one circuit after the other, cell by cell. In a cell that
an earlier circuit has set it has one way; in others both states are tried. A branch is pruned
where the circuits so far, with the cheapest ways of those to come, cannot be better than the best
answer.

Terminals are those by which light enters a cell; ``terminal >> 2`` is the cell, and ``terminal ^
1`` the other terminal on the same side (`terminals`).
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

_ROUNDING = 1e-9
"""Objectives that differ by this share are equal: they are sums of the same parts."""

_NODES_PER_LOOK = 1024
"""Nodes of the search between two looks at the clock."""


class Found(NamedTuple):
    """What a search found."""

    states: NDArray[np.int8] | None
    """None if nothing is better than what was known before."""
    objective: float  # of these states or of what was known: in dB, as a ratio, or in mW
    limit: Limit | None
    """Why it stopped before the end."""
    nodes: int  # cells that were tried, over all branches


class _Stopped(Exception):
    """A limit was met at a look at the clock."""

    def __init__(self, limit: Limit) -> None:
        """Keep the limit that was met."""
        self.limit = limit


def search_all(
    problem: Routing, best_known: tuple[float, int], clock: Clock, on_event: OnEvent
) -> Found:
    """Find the routes of the least objective, and of these some of the fewest cells.

    If ``limit`` of the result is None the search has ended, and its objective is the least one.
    """
    limit = None
    try:
        search = _Search(problem, best_known, clock, on_event)
    except (KeyboardInterrupt, TimeUp) as stop:
        return Found(None, best_known[0], limit_of(stop), 0)
    try:
        search.enter(0)
    except _Stopped as exc:
        limit = exc.limit
    except (KeyboardInterrupt, TimeUp) as stop:
        limit = limit_of(stop)
    return Found(search.states, search.best[0], limit, search.nodes)


class _Search:
    """The state of the search: cells as they are set now, and beams of circuits so far.

    ``to_go[0][port][terminal]`` is the least cost from leaving a cell there to the port: its loss
    in dB, or half of the heater power in mW. ``to_go[1]`` is the same in cells. ``rest[k]`` is the
    least cost and the fewest cells of the circuits from the k-th on. A beam is a list of terminals
    with the loss before each.

    ``set[cell]`` is the state of a cell at present: 0 bar, 1 cross, -1 free. ``loss[cell][state]``
    is the loss in dB; if the objective is the heater power, it is half of the power above that of
    a dark cell in mW, and ``extra[cell][state]`` is the whole.

    ``worst`` is the objective of the circuits so far: the largest loss in dB, the largest ratio of
    crosstalk to signal, or the power of all heaters in mW. ``cells`` counts the cells on their
    routes. ``halves`` adds up power as if two circuits shared each cell. ``best`` is the objective
    and the number of cells of the best answer, and ``states`` are its states; None if it is the
    one that was known before.
    """

    def __init__(
        self, problem: Routing, best_known: tuple[float, int], clock: Clock, on_event: OnEvent
    ) -> None:
        """Look up what all branches of the search need, in plain lists, for speed.

        Circuits are sorted by their least cost alone, the dearest first, because they prune most;
        each is kept as (terminal of its source, terminal of its destination, number of its
        destination). The suffix bounds `rest` follow this order: the worst of the least losses
        that are to come or, for heater power, their sum; and the sum of the fewest cells.
        """
        fabric = problem.fabric
        cells = problem.cells
        graph = fabric.graph
        assert graph is not None
        assert cells is not None
        self.clock = clock
        self.on_event = on_event

        # The best answer so far; `states` are its states once the search has found a better one.
        self.best = best_known
        self.states: NDArray[np.int8] | None = None
        self.nodes = 0

        # The fabric: the joined terminal, -1 for none, and the exits of each in bar and in cross.
        self.mate: list[int] = graph.mate.tolist()
        self.exits: list[list[int]] = graph.exits.tolist()
        self.mutual = fabric.bidirectional

        # What a cell costs a circuit, ``[cell][state]``: its loss or, for power, half of what it
        # takes beyond a dark cell, as two circuits may share it.
        self.power = problem.objective == "power-mw"
        self.crosstalk = problem.objective == "worst-snr-db"
        dark_mw, extra_mw = split_power(fabric, cells)
        self.extra: list[list[float]] = extra_mw.tolist()
        weights = cells.loss_db
        if self.power:
            weights = extra_mw / 2
        self.loss: list[list[float]] = weights.tolist()
        self.leak: list[list[float]] = cells.leak.tolist()

        # The least costs from a terminal to the end of a circuit, by cost and by number of cells.
        # Light comes back as it went, hence ways from the end are those to it.
        starts = fabric.source_terminals
        ends = fabric.destination_terminals
        cell_counts = np.ones_like(weights)
        self.to_go = []
        for costs in (weights, cell_counts):
            costs_from_end = cheapest_ways(graph, ends, costs)
            still_to_pay = np.where(graph.mate >= 0, costs_from_end[:, graph.mate], np.inf)
            still_to_pay[np.arange(len(ends)), ends] = 0.0
            self.to_go.append(still_to_pay.tolist())
        loss = cheapest_ways(graph, starts, weights)
        count = cheapest_ways(graph, starts, cell_counts)

        # Circuits with the largest least loss come first: they prune most.
        circuits = sorted(
            problem.circuits.tolist(), key=lambda pair: -loss[pair[0], ends[pair[1]]]
        )
        self.circuits = [(int(starts[i]), int(ends[j]), j) for i, j in circuits]

        # Lower bounds for the circuits from the k-th on: worst loss or sum of power, and cells.
        self.rest = [(0.0, 0.0)]
        for i, j in reversed(circuits):
            worst, total = self.rest[-1]
            least = loss[i, ends[j]]
            least = worst + least if self.power else max(worst, least)
            self.rest.append((least, total + count[i, ends[j]]))
        self.rest.reverse()

        # What is set at present, and what that comes to.
        self.set = graph.stuck.tolist()  # a dead cell is never entered
        self.beams: list[list[tuple[int, float]]] = []  # terminals entered, and loss before
        self.worst = dark_mw if self.power else 0.0
        self.cells = 0
        # The power of the circuits so far if two passed each cell: each pays half of a heater.
        # With the halves of those to come it is a lower bound of the power.
        self.halves = self.worst

    def hopeless(self, worst: float, cells: float) -> bool:
        """Return whether nothing with at least this objective and these cells beats the best."""
        best_objective, best_cells = self.best
        if worst > best_objective * (1 + _ROUNDING):
            return True
        return worst >= best_objective * (1 - _ROUNDING) and cells >= best_cells

    def enter(self, k: int) -> None:
        """Route the k-th circuit and all after it, in every way that may beat the best answer."""
        if k == len(self.circuits):
            self._keep()
            return
        start, end, port = self.circuits[k]
        before = self.worst, self.cells, self.halves
        self._follow(k, start, end, port, [], 0.0)
        self.worst, self.cells, self.halves = before

    def _follow(
        self,
        k: int,
        entering: int,
        end: int,
        port: int,
        beam: list[tuple[int, float]],
        lost: float,
    ) -> None:
        """Follow the light of the k-th circuit from a cell on, in every state that is possible.

        `entering` is the terminal at which light enters the cell, `end` the one at which it has to
        leave the fabric, to `port`; `beam` gets an entry for the cell, and loses it in the end.
        Branch and bound: cells are set one after the other along the way of each circuit, and a
        branch is given up as soon as a lower bound of the objective, or of the cells where that is
        equal, is no better than the best answer. `lost` is the loss before the cell in dB; for
        heater power half of the power of its heaters in mW, the least that it pays, as at most two
        circuits share a cell. All that is set here is undone before it returns.
        """
        self.nodes += 1
        if self.nodes % _NODES_PER_LOOK == 0:
            self._look()

        # A cell that another circuit set before keeps its state; a free one takes both in turn.
        cell = entering // 4
        is_unset = self.set[cell] == FREE
        states = (0, 1) if is_unset else (self.set[cell],)
        beam.append((entering, lost))
        rest_cost, rest_cells = self.rest[k + 1]
        for state in states:
            leaving = self.exits[entering][state]
            lost_here = lost + self.loss[cell][state]
            least_to_go = self.to_go[0][port][leaving]
            cells_to_go = self.to_go[1][port][leaving]
            if least_to_go == np.inf:
                continue

            # Prune by a lower bound of the objective and of the cells. Power: the larger one of
            # what the lit cells take, and of half of each heater for every circuit that passes,
            # those to come at their least. Loss: the largest of all circuits, those to come again
            # at their least.
            # Crosstalk may stay 0, hence its bound is that of the circuits so far.
            bound = self.worst
            heat_mw = 0.0
            if self.power:
                if is_unset:
                    heat_mw = self.extra[cell][state]
                bound = max(bound + heat_mw, self.halves + lost_here + least_to_go + rest_cost)
            elif not self.crosstalk:
                bound = max(bound, lost_here + least_to_go, rest_cost)
            if self.hopeless(bound, self.cells + len(beam) + cells_to_go + rest_cells):
                continue

            # Set the cell, go on, and undo it.
            self.set[cell] = state
            if self.power:
                self.worst += heat_mw
            if leaving == end:
                self._arrive(k, beam, lost_here)
            elif self.mate[leaving] >= 0:
                self._follow(k, self.mate[leaving], end, port, beam, lost_here)
            if is_unset:
                self.set[cell] = FREE
            if self.power:
                self.worst -= heat_mw
        beam.pop()

    def _arrive(self, k: int, beam: list[tuple[int, float]], lost: float) -> None:
        """Go on with the next circuit, unless the circuits so far are too bad already.

        `lost` is the loss of the whole route in dB, or half of the power of its heaters in mW.
        `beam` is, for each cell on the way, the terminal by which light enters and what it has
        lost before. The state of the search is as before again when this returns.
        """
        before = self.worst, self.cells, self.halves
        added = 1
        self.beams.append(list(beam))
        if self.mutual:
            # The beam from the other end enters each cell where this one leaves it.
            added = 2
            back = []
            for terminal, so_far in beam:
                state = self.set[terminal >> 2]
                back.append(
                    (self.exits[terminal][state], lost - so_far - self.loss[terminal >> 2][state])
                )
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
        """Return the largest ratio of crosstalk to signal of the circuits so far.

        Two beams that enter a cell side by side, at terminals that differ in the last bit, leak
        into each other: the ratio at that place is the leaked share times the ratio of their
        powers there. The ratios of a beam add up.
        """
        beam_at = {
            entered: (number, loss_db)
            for number, beam in enumerate(self.beams)
            for entered, loss_db in beam
        }
        worst = 0.0
        for number, beam in enumerate(self.beams):
            ratio = 0.0
            for entered, loss_db in beam:
                neighbour = beam_at.get(entered ^ 1)
                if neighbour is None or neighbour[0] == number:
                    continue
                cell = entered // 4
                share = self.leak[cell][self.set[cell]]
                ratio += share * 10 ** ((loss_db - neighbour[1]) / 10)
            worst = max(worst, ratio)
        return worst

    def _keep(self) -> None:
        """Keep the routes of all circuits as the best answer; cells without light are free."""
        is_better = self.worst < self.best[0] * (1 - _ROUNDING)
        self.best = self.worst, self.cells
        lit = np.zeros(len(self.set), dtype=bool)
        for beam in self.beams:
            lit[[terminal >> 2 for terminal, _ in beam]] = True
        self.states = np.where(lit, self.set, FREE).astype(np.int8)
        if is_better:  # told once it is kept: the listener may interrupt
            self.on_event(NewBest(self.worst))

    def _look(self) -> None:
        """Report the number of nodes, and stop the search where a limit is reached."""
        limit = self.clock.exceeded(0)
        if limit is not None:
            raise _Stopped(limit)
        self.on_event(Tick("nodes", self.nodes))
