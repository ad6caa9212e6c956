"""Chips that differ from cell to cell, and all their states written down: an oracle."""

from typing import Literal, NamedTuple

import numpy as np

import optmatch as om
from optmatch.fabrics import DEAD
from optmatch.model import IDLE, CellDevice

LOSS: Literal["worst-loss-db"] = "worst-loss-db"
SNR: Literal["worst-snr-db"] = "worst-snr-db"
POWER: Literal["power-mw"] = "power-mw"


def draw_chip(n_cells: int, seed: int) -> CellDevice:
    """Draw cells with losses, extinctions and heaters of their own."""
    device = om.Device(
        bar_loss_db=0.48,
        cross_loss_db=0.3,
        bar_extinction_db=25,
        cross_extinction_db=22,
        heater_mw_per_pi=10.0,
    )
    sigmas = {"bar_loss_db": 0.2, "cross_loss_db": 0.1}
    sigmas |= {"bar_extinction_db": 3.0, "cross_extinction_db": 3.0}
    sigmas |= {"phase_offset_rad": 2.0, "heater_mw_per_pi": 3.0}
    return CellDevice.of(device, n_cells).draw(sigmas, seed)


def draw_partial_matching(fabric: om.Fabric, rng: np.random.Generator) -> list[int]:
    """Draw a matching of some live ports."""
    live = rng.permutation(fabric.live_ports)
    matching = np.full(fabric.n_ports, IDLE)
    if fabric.bidirectional:
        for k in range(int(rng.integers(1, len(live) // 2 + 1))):
            i, j = live[2 * k : 2 * k + 2]
            matching[i], matching[j] = j, i
    else:
        count = int(rng.integers(1, len(live) + 1))
        matching[live[:count]] = rng.permutation(live)[:count]
    return [int(port) for port in matching]


class Best(NamedTuple):
    """The best of all states."""

    objective: float
    cells: int


def try_all_states(
    fabric: om.Fabric, matching: list[int], chip: CellDevice
) -> dict[str, Best] | None:
    """Follow all light in every state of all cells, side by side; None if none holds the matching.

    Of each beam and terminal the loss before it is kept; two beams that enter a cell at the same
    end leak into each other. A cell without light takes as little power as it can.
    """
    graph = fabric.graph
    assert graph is not None
    n = graph.n_cells
    states = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    works = (graph.stuck < 0) | (graph.stuck == DEAD)
    states = np.unique(np.where(works, states, graph.stuck), axis=0)
    rows, loss, leak = np.arange(len(states)), chip.loss_db, chip.leak
    sources = [port for port, other in enumerate(matching) if other != IDLE]
    entered, lost, holds = [], [], np.ones(len(states), dtype=bool)
    for source in sources:
        before = np.full((len(states), 4 * n), np.nan)
        at = np.full(len(states), fabric.source_terminals[source])
        so_far, going, end = np.zeros(len(states)), np.ones(len(states), dtype=bool), at * 0 - 1
        while going.any():
            going &= graph.stuck[at >> 2] != DEAD
            before[rows[going], at[going]] = so_far[going]
            state = states[rows, at >> 2]
            left = graph.exits[at, state]
            so_far = np.where(going, so_far + loss[at >> 2, state], so_far)
            end = np.where(going & (graph.mate[left] < 0), left, end)
            going &= graph.mate[left] >= 0
            at = np.where(going, graph.mate[left], at)
        holds &= end == fabric.destination_terminals[matching[source]]
        entered.append(before)
        lost.append(so_far)
    if not holds.any():
        return None
    ratio = np.zeros((len(sources), int(holds.sum())))
    cells = np.zeros(int(holds.sum()), dtype=int)
    for k, source in enumerate(sources):
        mine = entered[k][holds]
        if not fabric.bidirectional or source < matching[source]:
            cells += (~np.isnan(mine)).sum(axis=1)
        beside = np.arange(4 * n) ^ 1
        share = leak[np.arange(4 * n) >> 2, states[holds][:, np.arange(4 * n) >> 2]]
        for other in (entered[j][holds][:, beside] for j in range(len(sources)) if j != k):
            ratio[k] += np.nansum(share * 10 ** ((mine - other) / 10), axis=1)
    power_mw = chip.power_mw
    for state in (0, 1):
        stuck = graph.stuck == state
        power_mw[stuck, 1 - state] = power_mw[stuck, state]
    dark = np.all([np.isnan(beam[holds]) for beam in entered], axis=0)
    lit = ~dark.reshape(-1, n, 4).all(axis=2)
    taken = np.where(lit, power_mw[np.arange(n), states[holds]], power_mw.min(axis=1))
    found: dict[str, Best] = {}
    worst_loss, worst_ratio = np.max(lost, axis=0)[holds], ratio.max(axis=0)
    for name, values in (
        (LOSS, worst_loss),
        (SNR, worst_ratio),
        (POWER, taken.sum(axis=1)),
        ("total-cells", cells.astype(np.float64)),
    ):
        least = float(values.min())
        found[name] = Best(least, int(cells[values <= least * (1 + 1e-9)].min()))
    return found
