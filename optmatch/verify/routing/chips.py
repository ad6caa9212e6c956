"""Loss, crosstalk and heater power on a chip of which each cell is known, and their bounds."""

from __future__ import annotations

import heapq
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.fabrics.cellgraph import DEAD
from optmatch.fabrics.light import Light
from optmatch.fabrics.reach import fit_stuck
from optmatch.model import FREE, CellDevice


class Quality(NamedTuple):
    """What the light of a schedule suffers, by slot and source."""

    loss_db: NDArray[np.float64]
    """``loss_db[slot, source]``: of all cells passed."""
    crosstalk: NDArray[np.float64]
    """``crosstalk[slot, source]``: what leaks into the circuit once, over its signal."""


def measure_quality(light: Light, cells: CellDevice) -> Quality:
    """Follow the beams, and add up at each cell what its other beam leaks into this one.

    A beam leaks to the other output at the end by which it leaves. There it joins the beam that
    entered beside it, and loses from there on what that beam loses. So of its leak counts how
    strong both beams are as they enter.
    """
    shape = light.arrived.shape
    cell, state = light.entered // 4, (light.entered ^ light.left) & 1
    lost = cells.loss_db[cell, state]
    beam = light.slot * shape[1] + light.beam
    total = np.zeros(shape[0] * shape[1])
    np.add.at(total, beam, lost)
    before = np.cumsum(lost) - lost
    starts = np.flatnonzero(np.diff(beam, prepend=-1))
    before -= np.repeat(before[starts], np.diff(np.append(starts, len(beam))))
    place = light.slot * (4 * cells.n_cells) + light.entered
    order = np.argsort(place)
    at = np.searchsorted(place[order], place ^ 1)  # 4 terminals a cell: the same slot and end
    at = np.minimum(at, len(order) - 1)
    leaker = np.flatnonzero((place[order][at] == place ^ 1) if len(order) else [])
    other = order[at[leaker]]
    leaker, other = (array[beam[leaker] != beam[other]] for array in (leaker, other))
    stronger_db = before[other] - before[leaker]
    gained = cells.leak[cell[leaker], state[leaker]] * 10 ** (stronger_db / 10)
    crosstalk = np.zeros_like(total)
    np.add.at(crosstalk, beam[other], gained)
    return Quality(total.reshape(shape), crosstalk.reshape(shape))


def signal_to_crosstalk_db(ratio: float) -> float:
    """Return a ratio of crosstalk to signal as signal to crosstalk, in dB."""
    return -10 * math.log10(ratio) if ratio > 0 else math.inf


def sum_least(fabric: Fabric, cost: NDArray[np.float64], wanted: NDArray[np.bool_]) -> list[float]:
    """Add up ``cost[cell, state]`` on the way of each circuit that costs least, as if alone.

    ``wanted[source, destination]``; infinite where there is no way.
    """
    graph, sums = fabric.graph, list[float]()
    if graph is None:
        return sums
    for source in np.flatnonzero(wanted.any(axis=1)).tolist():
        found = _least_losses(graph, int(fabric.source_terminals[source]), cost.tolist())
        for destination in np.flatnonzero(wanted[source]).tolist():
            sums.append(found.get(int(fabric.destination_terminals[destination]), math.inf))
    return sums


def sum_power(
    graph: CellGraph | None, cells: CellDevice, states: NDArray[np.int8] | None
) -> list[float]:
    """Add up what all heaters take in each slot; a free cell is in the state that takes less."""
    if graph is None:
        return []
    assert states is not None
    power_mw = fit_stuck(graph, cells.power_mw)
    least, every = power_mw.min(axis=1), np.arange(graph.n_cells)
    return [
        math.fsum(np.where(row == FREE, least, power_mw[every, np.maximum(row, 0)]))
        for row in states
    ]


def bound_power(fabric: Fabric, cells: CellDevice, wanted: NDArray[np.bool_], slots: int) -> float:
    """Bound the power of so many slots: all dark cells, and what each circuit adds if alone.

    Two circuits may pass a cell, so each of them counts half of what its light adds.
    """
    if fabric.graph is None:
        return 0.0
    power_mw = fit_stuck(fabric.graph, cells.power_mw)
    least = power_mw.min(axis=1)
    added = sum_least(fabric, (power_mw - least[:, None]) / 2, wanted)
    return slots * math.fsum(least) + math.fsum(added)


def _least_losses(graph: CellGraph, start: int, loss_db: list[list[float]]) -> dict[int, float]:
    """Find by Dijkstra what light loses at least until it leaves a cell by each terminal."""
    mate, exits, stuck = graph.mate.tolist(), graph.exits.tolist(), graph.stuck.tolist()
    waiting: list[tuple[float, int]] = []
    settled: dict[int, float] = {}

    def enter(at: int, lost: float) -> None:
        cell = at // 4
        for state in (
            (0, 1) if stuck[cell] == FREE else (stuck[cell],) if stuck[cell] < DEAD else ()
        ):
            heapq.heappush(waiting, (lost + loss_db[cell][state], exits[at][state]))

    enter(start, 0.0)
    while waiting:
        lost, left = heapq.heappop(waiting)
        if left not in settled:
            settled[left] = lost
            if mate[left] >= 0:
                enter(mate[left], lost)
    return settled


def bound_crosstalk(
    graph: CellGraph, cells: CellDevice, passed_twice: int, circuits: int
) -> float:
    """Bound the worst ratio of crosstalk by the mean, if two circuits pass every cell.

    Two circuits that leak into each other in one cell get r g and r / g, of which the sum is at
    least 2 r.
    """
    if not circuits or passed_twice < graph.n_cells:
        return 0.0
    least = 0.0
    for (bar, cross), stuck in zip(cells.leak.tolist(), graph.stuck.tolist(), strict=True):
        least += min(bar, cross) if stuck == FREE else (bar, cross)[stuck]
    return 2 * least / circuits


def chip_figures(problem: Any, quality: Quality, power_mw: list[float]) -> dict[str, float]:
    """Name the figures of the worst circuit and of the heaters, and the objective if it is one."""
    loss_db = float(quality.loss_db.max(initial=0.0))
    ratio = float(quality.crosstalk.max(initial=0.0))
    total_mw = math.fsum(power_mw)
    figures = {
        "worst_loss_db": loss_db,
        "worst_snr_db": signal_to_crosstalk_db(ratio),
        "power_mw": total_mw,
    }
    values = {"worst-loss-db": loss_db, "worst-snr-db": ratio, "power-mw": total_mw}
    if problem.objective in values:
        figures["objective"] = values[problem.objective]
    return figures
