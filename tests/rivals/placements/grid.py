"""Cells of placements: switches, patterns and held hosts drawn at random, and their races."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import optmatch as om
from tests.rivals.placements.swaps import exchange_worst, place_greedily
from tests.rivals.races import Race

SIZES = (3, 5, 8, 12, 20, 32)
BUDGETS_DB = (9.0, 9.0, 2.5)
LIMITS_S = (0.2, 1.0)
RIVAL_STARTS = 3


class Cell(NamedTuple):
    """A placement, and the time for it."""

    problem: om.HostPlacement
    limit_s: float
    seed: int


def draw_cells(rng: np.random.Generator, count: int, most_ports: int = 32) -> Iterator[Cell]:
    """Draw so many cells on switches of `most_ports` at most."""
    for _cell in range(count):
        n_ports = int(rng.choice([size for size in SIZES if size <= most_ports]))
        n_hosts = int(rng.integers(2, n_ports + 1))
        loss_db = rng.normal(1.5, 0.5, (n_ports, n_ports)).clip(0.1).round(3)
        switch: Any = om.IdealSwitch(n_ports, loss_db=loss_db, budget_db=rng.choice(BUDGETS_DB))
        if n_hosts < n_ports and rng.random() < 0.3:
            switch = om.Faulty(switch, dead_ports=[int(rng.integers(n_ports))])
        pattern: Any = rng.choice(["all-to-all", "ring", "demand"])
        demand = (rng.random((n_hosts, n_hosts)) < rng.choice([0.1, 0.3, 0.9])) * 1.0
        np.fill_diagonal(demand, 0.0)

        # A part of the hosts may have ports already.
        ports = rng.permutation(switch.live_ports)[:n_hosts]
        is_held = rng.random(n_hosts) < rng.choice([0.0, 0.0, 0.4])
        problem = om.HostPlacement(
            switch,
            n_hosts,
            pattern=pattern,
            demand_bytes=demand if pattern == "demand" else None,
            held=tuple(np.where(is_held, ports, -1).tolist()),
            objective=rng.choice(["worst-loss-db", "total-loss-db"]),
        )
        yield Cell(problem, float(rng.choice(LIMITS_S)), int(rng.integers(1 << 30)))


def race(cell: Cell) -> Race:
    """Answer a cell, and let its rivals try; no placement counts as infinitely bad."""
    om.solve(cell.problem, seed=0, time_limit_s=0.01)  # compiles what it needs
    began_s = time.process_time()
    solution = om.solve(cell.problem, seed=0, time_limit_s=cell.limit_s)
    cpu_s = time.process_time() - began_s
    ours = np.inf if solution.objective is None else float(solution.objective)

    rng = np.random.default_rng(cell.seed)
    rival = np.inf
    for _start in range(RIVAL_STARTS):
        port_of = exchange_worst(cell.problem, place_greedily(cell.problem, rng))
        rival = min(rival, cell.problem.objective_of(port_of))
    return Race(describe(cell), ours, rival, "greedy and exchanges", cpu_s)


def describe(cell: Cell) -> str:
    """Name what a cell says."""
    problem = cell.problem
    return (
        f"{problem.n_hosts} hosts on {problem.fabric.n_ports} ports, {problem.pattern},"
        f" {problem.objective}, {sum(port >= 0 for port in problem.held)} held,"
        f" {cell.limit_s} s, seed {cell.seed}"
    )
