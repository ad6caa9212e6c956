"""Loss, crosstalk and heater power on a chip of which each cell is known, and their bounds."""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.fabrics.light import Light
from optmatch.fabrics.reach import fit_stuck
from optmatch.model import FREE, CellDevice
from optmatch.problems import AllToAll, Routing


class Quality(NamedTuple):
    """Loss and crosstalk of the beams of a schedule, by slot and source."""

    loss_db: NDArray[np.float64]
    """``loss_db[slot, source]``: of all cells passed."""
    crosstalk: NDArray[np.float64]
    """``crosstalk[slot, source]``: power that leaks into the circuit once, over its signal."""


def measure_quality(light: Light, cells: CellDevice) -> Quality:
    """Compute the loss and the crosstalk of each beam of a schedule.

    Two beams in one cell leak into each other. A leak loses the same as the beam that it has
    joined, so its share of that beam stays what it is in the cell: if a cell leaks 1 %, and the
    other beam has twice the power there, it adds 2 %.
    """
    # The loss of each beam: the sum over the cells that it passes.
    shape = light.arrived.shape
    n_sources = shape[1]
    beam = light.slot * n_sources + light.beam
    cell = light.entered // 4
    state = (light.entered ^ light.left) & 1  # sides differ in cross: 1
    loss_db = cells.loss_db[cell, state]
    total_db = np.zeros(shape[0] * n_sources)
    np.add.at(total_db, beam, loss_db)

    # What a beam has lost before each of its cells; the cells of a beam stand together, in order.
    before_db = np.cumsum(loss_db) - loss_db
    first_of_beam = np.flatnonzero(np.diff(beam, prepend=-1))
    n_cells_of_beam = np.diff(np.append(first_of_beam, len(beam)))
    before_db -= np.repeat(before_db[first_of_beam], n_cells_of_beam)

    # For each passage the one, if any, that enters the same cell beside it: in the same slot, at
    # the other terminal of the same end, whose number differs in bit 0. A beam that meets itself
    # makes no crosstalk.
    place = light.slot * (4 * cells.n_cells) + light.entered
    receiver_of = _find_places(place, place ^ 1)
    leaker = np.flatnonzero(receiver_of >= 0)
    receiver = receiver_of[leaker]
    different = beam[leaker] != beam[receiver]
    leaker = leaker[different]
    receiver = receiver[different]

    # Both beams start with the same power; their losses before the cell decide the ratio.
    power_ratio = 10 ** ((before_db[receiver] - before_db[leaker]) / 10)
    crosstalk = np.zeros_like(total_db)
    np.add.at(crosstalk, beam[receiver], cells.leak[cell[leaker], state[leaker]] * power_ratio)
    return Quality(total_db.reshape(shape), crosstalk.reshape(shape))


def _find_places(places: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of each target in a list of different numbers; -1 if it is not there."""
    if not len(places):
        return np.full(len(targets), -1)
    order = np.argsort(places)
    position = np.minimum(np.searchsorted(places[order], targets), len(places) - 1)
    index = order[position]
    return np.where(places[index] == targets, index, -1)


def signal_to_crosstalk_db(ratio: float) -> float:
    """Return a ratio of crosstalk to signal as signal to crosstalk, in dB; infinite for 0."""
    return -10 * math.log10(ratio) if ratio > 0 else math.inf


def sum_least(fabric: Fabric, cost: NDArray[np.float64], pairs: NDArray[np.bool_]) -> list[float]:
    """Return the least cost of each circuit as if it were alone, by source and destination.

    ``cost[cell, state]`` is added for each cell passed. Infinite without a way; empty without
    cells.
    """
    graph = fabric.graph
    sums: list[float] = []
    if graph is None:
        return sums
    for source in np.flatnonzero(pairs.any(axis=1)).tolist():
        cost_at = _least_costs(graph, int(fabric.source_terminals[source]), cost.tolist())
        for destination in np.flatnonzero(pairs[source]).tolist():
            sums.append(cost_at.get(int(fabric.destination_terminals[destination]), math.inf))
    return sums


def _least_costs(graph: CellGraph, start: int, cost: list[list[float]]) -> dict[int, float]:
    """Find the least cost at which light can leave a cell by each terminal, by Dijkstra.

    ``cost[cell][state]`` is 0 or more. Terminals out of reach are absent.
    """
    mate = graph.mate.tolist()
    exits = graph.exits.tolist()
    stuck = graph.stuck.tolist()
    waiting: list[tuple[float, int]] = []
    settled: dict[int, float] = {}

    def enter(terminal: int, cost_before: float) -> None:
        """Put all exits of a cell that is entered at a terminal into the queue."""
        # Each cell has four terminals, numbered in a row.
        cell = terminal // 4
        for state in (0, 1):
            if stuck[cell] in (FREE, state):
                heapq.heappush(waiting, (cost_before + cost[cell][state], exits[terminal][state]))

    enter(start, 0.0)
    while waiting:
        least_cost, left = heapq.heappop(waiting)
        if left in settled:
            continue
        settled[left] = least_cost
        if mate[left] >= 0:
            enter(mate[left], least_cost)
    return settled


def sum_power(
    graph: CellGraph | None, cells: CellDevice, states: NDArray[np.int8] | None
) -> list[float]:
    """Add up the power of all heaters in mW, by slot; a free cell is in its cheaper state."""
    if graph is None:
        return []
    assert states is not None
    power_mw = fit_stuck(graph, cells.power_mw)  # (cells, states)
    least_mw = power_mw.min(axis=1)
    every_cell = np.arange(graph.n_cells)
    slots_mw = []
    for row in states:
        stated_mw = power_mw[every_cell, np.maximum(row, 0)]
        slots_mw.append(math.fsum(np.where(row == FREE, least_mw, stated_mw)))
    return slots_mw


def bound_power(fabric: Fabric, cells: CellDevice, pairs: NDArray[np.bool_], slots: int) -> float:
    """Bound the heater power in mW of all slots together; infinite if a circuit has no route.

    It is the power of all dark cells, and what each circuit adds alone on its cheapest route. Two
    circuits may pass a cell, so each counts half of what light in the cell adds.
    """
    if fabric.graph is None:
        return 0.0
    power_mw = fit_stuck(fabric.graph, cells.power_mw)
    dark_mw = power_mw.min(axis=1)
    half_added_mw = (power_mw - dark_mw[:, None]) / 2
    circuits_mw = sum_least(fabric, half_added_mw, pairs)
    return slots * math.fsum(dark_mw) + math.fsum(circuits_mw)


def bound_crosstalk(
    graph: CellGraph, cells: CellDevice, passed_twice: int, circuits: int
) -> float:
    """Bound the worst crosstalk over signal by the mean, if two circuits pass every cell; else 0.

    Two circuits whose powers have the ratio g leak r g and r / g into each other in a cell of leak
    r, at least 2 r together.
    """
    if not circuits or passed_twice < graph.n_cells:
        return 0.0
    least_leak = 0.0
    for leaks, stuck in zip(cells.leak.tolist(), graph.stuck.tolist(), strict=True):
        # No cell is dead here: one that is lets no circuit pass.
        least_leak += min(leaks) if stuck == FREE else leaks[stuck]
    return 2 * least_leak / circuits


def chip_figures(
    problem: AllToAll | Routing, quality: Quality, power_mw: list[float]
) -> dict[str, float]:
    """Name the figures of the worst circuit and the heaters; one may be the objective."""
    worst_loss_db = float(quality.loss_db.max(initial=0.0))
    worst_ratio = float(quality.crosstalk.max(initial=0.0))
    total_mw = math.fsum(power_mw)
    figures = {
        "worst_loss_db": worst_loss_db,
        "worst_snr_db": signal_to_crosstalk_db(worst_ratio),
        "power_mw": total_mw,
    }
    objectives = {
        "worst-loss-db": worst_loss_db,
        "worst-snr-db": worst_ratio,
        "power-mw": total_mw,
    }
    if problem.objective in objectives:
        figures["objective"] = objectives[problem.objective]
    return figures
