"""Cells of meshes: meshes, ports, faults and objectives drawn at random, and their races."""

import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import optmatch as om
from tests.rivals.meshes.bounds import bound_slots_by_flows
from tests.rivals.meshes.routes import (
    Pairs,
    fewest_cells,
    first_fit,
    negotiate,
    set_cells,
    total_cells,
)
from tests.rivals.races import Race, describe

SIZES = (2, 3, 4, 5, 6, 7, 9, 12, 17, 20)
FAULTY_SHARES = (0.0, 0.0, 0.01, 0.05)
LIMITS_S = (0.2, 1.0, 3.0)
QUESTIONS = ("route", "reroute", "all-to-all", "bound", "free cells")
LAYOUTS = ("spread", "one side", "corner", "random", "tx and rx")
MOST_SIDE = {"route": 20, "reroute": 20, "all-to-all": 7, "bound": 4, "free cells": 4}
"""Rows of the largest mesh of a question: plain Python has to end within seconds."""
RANDOM_CHOICES = 120


class Cell(NamedTuple):
    """A fabric, and what is asked about it."""

    question: str
    fabric: om.Fabric
    layout: str
    limit_s: float
    seed: int


def draw_cells(rng: np.random.Generator, count: int, most_rows: int = 20) -> Iterator[Cell]:
    """Draw cells of the grid: a mesh with ports and faults, a question and a time limit each.

    Meshes whose ports cannot all meet, or that have fewer than four live ports, are drawn again.

    Parameters
    ----------
    rng
        Draws all of it.
    count
        The number of cells.
    most_rows
        The most rows of a mesh; each question has its own limit as well.

    Yields
    ------
    Cell
    """
    drawn = 0
    while drawn < count:
        question = str(rng.choice(QUESTIONS))
        most = min(most_rows, MOST_SIDE[question])
        rows = int(rng.choice([size for size in SIZES if size <= most]))
        layout = str(rng.choice(LAYOUTS))
        fabric = _draw_fabric(rng, rows, layout)
        if fabric is None or fabric.dead_pairs() or len(fabric.live_ports) < 4:
            continue
        drawn += 1
        limit_s = float(rng.choice(LIMITS_S))
        yield Cell(question, fabric, layout, limit_s, int(rng.integers(1 << 30)))


def _draw_fabric(rng: np.random.Generator, rows: int, layout: str) -> om.Fabric | None:
    """Draw a mesh with ports and faults; None if it has too little room for them.

    Parameters
    ----------
    rng
        Draws the kind of the mesh, the number of ports and the cells that are stuck.
    rows
        The number of rows and of columns.
    layout
        Where the ports are on the rim: spread evenly ("spread", and "tx and rx" with separate
        terminals for sending and receiving), side by side from the first place on ("one side") or
        from anywhere ("corner"), or at random ("random").

    Returns
    -------
    Fabric or None
    """
    kind: Any = (om.HexMesh, om.SquareMesh, om.TriangularMesh)[int(rng.integers(3))]
    n_places = len(kind(rows, rows).graph.perimeter)
    n_ports = 2 * int(rng.integers(2, max(3, min(n_places, 6 * rows) // 4 + 1)))
    if layout == "tx and rx":
        try:
            mesh = kind(rows, rows, tx=n_ports // 2, rx=n_ports // 2)
        except om.InputError:
            return None
    elif layout == "spread":
        try:
            mesh = kind(rows, rows, ports=n_ports)
        except om.InputError:  # not so many places can all meet each other
            return None
    else:
        first = 0 if layout == "one side" else int(rng.integers(n_places))
        places = (first + np.arange(n_ports)) % n_places
        if layout == "random":
            places = rng.permutation(n_places)[:n_ports]
        mesh = kind(rows, rows, ports=places.tolist())
    share = float(rng.choice(FAULTY_SHARES))
    n_faulty = round(share * mesh.n_cells)
    faulty = rng.permutation(mesh.n_cells)[:n_faulty].tolist()
    return om.Faulty(mesh, stuck_bar=faulty) if faulty else mesh


def race(cell: Cell) -> Race:
    """Answer a cell, and let its rival try; the first of two runs compiles and is not timed."""
    rng = np.random.default_rng(cell.seed)
    races = {
        "route": _race_route,
        "reroute": _race_reroute,
        "all-to-all": _race_all_to_all,
        "bound": _race_bound,
        "free cells": _race_free_cells,
    }
    races[cell.question](cell, rng)  # compiles what it needs
    began_s = time.process_time()
    ours, rival, name = races[cell.question](cell, np.random.default_rng(cell.seed))
    return Race(describe(cell), ours, rival, name, time.process_time() - began_s)


def draw_matching(fabric: om.Fabric, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw a matching of all live ports, or of all but one."""
    matching = np.full(fabric.n_ports, -1, dtype=np.int32)
    live = rng.permutation(fabric.live_ports)
    if fabric.bidirectional:
        pairs = live[: len(live) // 2 * 2].reshape(-1, 2)
        matching[pairs] = pairs[:, ::-1]
    else:
        matching[live] = np.roll(live, 1)
    return matching


def pairs_of(fabric: om.Fabric, matching: NDArray[np.int32]) -> Pairs:
    """List the circuits of a matching, of bidirectional ports each once."""
    once = fabric.bidirectional
    return [(i, j) for i, j in enumerate(matching.tolist()) if j > (i if once else -1)]


def _race_route(cell: Cell, rng: np.random.Generator) -> tuple[float, float, str]:
    """Compare the cells on all routes of a random matching; no routes are infinitely many.

    The rival is an exact model on small meshes without faults, else plain negotiation.

    Returns
    -------
    (float, float, str)
        The cells of our routes, those of the rival, and the name of the rival.
    """
    matching = draw_matching(cell.fabric, rng)
    solution = om.solve(om.Routing(cell.fabric, matching), seed=0, time_limit_s=cell.limit_s)
    ours = math.inf if solution.objective is None else float(solution.objective)
    pairs = pairs_of(cell.fabric, matching)
    if cell.fabric.n_cells <= 80 and not isinstance(cell.fabric, om.Faulty):
        fewest = fewest_cells(cell.fabric, pairs)
        return ours, math.inf if fewest is None else fewest, "CP-SAT"
    routes = negotiate(cell.fabric, pairs, rounds=20)
    return ours, math.inf if routes is None else total_cells(routes), "negotiation"


def _race_reroute(cell: Cell, rng: np.random.Generator) -> tuple[float, float, str]:
    """Compare the cells that are driven to their other state when all circuits are changed.

    The rival routes the new circuits as if no cell had a state. An error of ours counts as
    infinitely many toggles.

    Returns
    -------
    (float, float, str)
        Our toggles, those of the rival, and the name of the rival.
    """
    before = draw_matching(cell.fabric, rng)
    after = draw_matching(cell.fabric, rng)
    standing = negotiate(cell.fabric, pairs_of(cell.fabric, before), rounds=20)
    anew = negotiate(cell.fabric, pairs_of(cell.fabric, after), rounds=20)
    states = set_cells(cell.fabric, standing or {})
    router = om.Router(cell.fabric, check=True, time_limit_s=cell.limit_s)
    try:
        ours = _count_toggles(states, router.reroute(states, after).states)
    except (om.LimitReached, om.InfeasibleError):
        ours = math.inf
    rival = math.inf if anew is None else _count_toggles(states, set_cells(cell.fabric, anew))
    return ours, rival, "routes anew"


def _count_toggles(before: NDArray[np.int8], after: NDArray[np.int8]) -> float:
    """Count lit cells that are driven to the other state."""
    return float(((before >= 0) & (after >= 0) & (before != after)).sum())


def _race_all_to_all(cell: Cell, rng: np.random.Generator) -> tuple[float, float, str]:
    """Compare the slots of our all-to-all with those of `first_fit`; fewer are better."""
    problem = om.AllToAll(cell.fabric)
    solution = om.solve(problem, seed=0, time_limit_s=cell.limit_s)
    ours = math.inf if solution.schedule is None else float(solution.schedule.n_slots)
    slots = first_fit(cell.fabric, [(i, j) for i, j in problem.pairs.tolist()])
    served = sum(len(slot) for slot in slots) == len(problem.pairs)
    return ours, float(len(slots)) if served else math.inf, "first fit"


def _race_bound(cell: Cell, rng: np.random.Generator) -> tuple[float, float, str]:
    """Compare our bound on slots with that of flows, each as the slots of our plan by the bound.

    Returns
    -------
    (float, float, str)
        The ratio by our bound, that by the rival's, and the name of the rival; less is better.
    """
    problem = om.AllToAll(cell.fabric)
    solution = om.solve(problem, seed=0, time_limit_s=cell.limit_s)
    if solution.schedule is None:
        return math.inf, math.inf, "flows"
    n_slots = solution.schedule.n_slots
    by_flows = bound_slots_by_flows(cell.fabric, [(i, j) for i, j in problem.pairs.tolist()])
    ours = solution.stats.get("slots_lower_bound", problem.min_slots)
    return n_slots / ours, n_slots / max(1, math.ceil(by_flows - 1e-6)), "flows"


def _race_free_cells(cell: Cell, rng: np.random.Generator) -> tuple[float, float, str]:
    """Compare the worst ratio of crosstalk to signal, by the states of cells without light.

    Such cells lead stray light on, and their states are free. The rival is the best of some random
    choices of these states.

    Returns
    -------
    (float, float, str)
        The ratio of powers with our states, that of the rival, and the name of the rival.
    """
    problem = om.Routing(cell.fabric, draw_matching(cell.fabric, rng))
    solution = om.solve(problem, seed=0, time_limit_s=cell.limit_s)
    if solution.schedule is None or solution.schedule.cell_states is None:
        return math.inf, math.inf, "random states"
    states = solution.schedule.cell_states

    def crosstalk(idle: NDArray[np.int8]) -> float:
        optics = om.measure_optics(problem, solution, "smartlight", idle=idle)
        return float(10 ** (-optics.figures["worst_signal_to_crosstalk_db"] / 10))

    ours = crosstalk(om.settle_free_cells(problem, solution, "smartlight"))
    stuck = cell.fabric.graph.stuck  # type: ignore[union-attr]
    rival = math.inf
    for _ in range(RANDOM_CHOICES):
        choice = np.where(stuck >= 0, stuck, rng.integers(0, 2, states.shape))
        rival = min(rival, crosstalk(np.where(states >= 0, states, choice).astype(np.int8)))
    return ours, rival, "random states"
