"""Slots that wait for their own cells: recounted, against all orders and a naive rival."""

from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.io.exports import exported
from optmatch.model import CellDevice, Clock, Limits
from optmatch.plotting.slots import schedule_data
from optmatch.solvers.all_to_all.slot_order import (
    bound_settling,
    find_larger_clique,
    search_order,
    set_ahead,
)
from optmatch.studies.all_to_all import study_yield
from tests.helpers.chips import LOSS, POWER, SNR

CLOCK: Clock = Limits().start()


def wait(states: Any, settling_s: Any) -> list[float]:
    """Follow each cell: it moves where a slot states what it was not stated to be last."""
    delays = [0.0] * len(states)
    for cell, column in enumerate(np.asarray(states).T.tolist()):
        last = None
        for slot, state in enumerate(column):
            if state >= 0 and state != last:
                delays[slot] = max(delays[slot], float(settling_s[cell]))
                last = state
    return delays


def wait_least(states: Any, settling_s: Any) -> float:
    """Try every slot, from the last that held a cell, to move a dark cell in."""
    ways = []
    for cell, column in enumerate(np.asarray(states).T.tolist()):
        last, free = None, 0
        for slot, state in enumerate(column):
            if state >= 0 and state != last:
                ways.append([(at, settling_s[cell]) for at in range(free, slot + 1)])
            last, free = (state, slot + 1) if state >= 0 else (last, free)
    best = np.inf
    for moves in product(*ways):
        delays = np.zeros(len(states))
        for at, time_s in moves:
            delays[at] = max(delays[at], time_s)
        best = min(best, float(delays.sum()))
    return best


def draw(seed: int, slots: int, cells: int, free: float = 1 / 3) -> tuple[Any, Any]:
    """Draw states, some of them free, and times of which few are long."""
    rng = np.random.default_rng(seed)
    states = rng.integers(0, 2, size=(slots, cells)).astype(np.int8)
    states[rng.random(states.shape) < free] = -1
    return states, np.round(rng.lognormal(0, 1.5, cells), 3) * (rng.random(cells) < 0.9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 7), st.integers(1, 9), st.floats(0, 0.9))
def test_dark_cells_move_where_others_wait(seed: int, slots: int, cells: int, free: float) -> None:
    states, settling_s = draw(seed, slots, cells, free)
    ahead, delays_s = set_ahead(states, settling_s)
    assert (ahead[states >= 0] == states[states >= 0]).all()
    assert delays_s.tolist() == wait(ahead, settling_s)
    assert delays_s.sum() <= sum(wait(states, settling_s)) + 1e-12


def test_dark_cells_move_nearly_at_the_best_time() -> None:
    above = []
    for seed in range(30):
        states, settling_s = draw(seed, 4, 4, 0.5)
        best = wait_least(states, settling_s)
        above.append(float(set_ahead(states, settling_s)[1].sum()) - best)
        assert above[-1] >= -1e-9
    assert sum(extra < 1e-9 for extra in above) > 20


def test_orders_are_near_the_best_and_the_bound_is_below_all() -> None:
    best_of = 0
    for seed in range(12):
        states, settling_s = draw(seed, 5, 8, 0.3)
        all_s = [
            float(set_ahead(states[list(order)], settling_s)[1].sum())
            for order in permutations(range(5))
        ]
        assert bound_settling(states, settling_s) <= min(all_s) + 1e-9
        order = search_order(states, settling_s, np.random.default_rng(seed), CLOCK)
        found = float(set_ahead(states[order], settling_s)[1].sum())
        best_of += found <= min(all_s) * 1.05
    assert best_of >= 9


def test_the_bound_of_two_slots_is_reached() -> None:
    states, settling_s = (
        np.array([[0, 1, -1], [0, 0, 1]], dtype=np.int8),
        np.array([4.0, 2.0, 1.0]),
    )
    assert bound_settling(states, settling_s) == 6.0
    assert set_ahead(states, settling_s)[1].tolist() == [4.0, 2.0]
    assert bound_settling(states[:0], settling_s) == 0.0


def chip(fabric: om.Fabric, seed: int) -> CellDevice:
    """Draw cells of which some are ten times as slow."""
    rng = np.random.default_rng(seed)
    times = rng.uniform(0.5, 1.0, fabric.n_cells) * np.where(
        rng.random(fabric.n_cells) < 0.1, 10, 1
    )
    measured = {cell: {"settling_s": float(time_s)} for cell, time_s in enumerate(times)}
    return CellDevice.of("smartlight", fabric.n_cells, measured)


@pytest.mark.parametrize("objective", ["total-cells", LOSS, SNR, POWER])
@pytest.mark.parametrize(
    "fabric",
    [
        om.Benes(4),
        om.Faulty(om.HexMesh(3, 3, ports=6), stuck_bar=[9]),
        om.Faulty(om.Crossbar(3), stuck_cross=[1]),
    ],
    ids=["benes", "mesh", "crossbar"],
)
def test_slots_wait_no_longer_than_in_the_order_found(fabric: Any, objective: Any) -> None:
    cells = chip(fabric, 1)
    problem = om.AllToAll(fabric, delay_s="cells", objective=objective, cells=cells)
    solution = om.solve(problem, seed=0)
    schedule, report = solution.schedule, om.verify(problem, solution)
    assert report.valid
    assert schedule is not None and schedule.delays_s is not None
    assert schedule.makespan_s == pytest.approx(report.figures["makespan_s"])
    total_s = report.figures["total_settling_s"]
    assert solution.stats["total_settling_lower_bound_s"] <= total_s * (1 + 1e-12)
    assert total_s <= solution.stats["total_settling_unordered_s"]
    if objective == POWER:  # dark cells are where they take less, so that they move
        return
    plain = om.AllToAll(
        fabric, objective=objective, cells=None if objective == "total-cells" else cells
    )
    rival = om.solve(plain, seed=0)
    assert (solution.objective, solution.status) == (rival.objective, rival.status)
    times = np.where(fabric.graph.stuck < 0, cells.settling_s, 0.0)
    assert total_s <= sum(wait(rival.schedule.cell_states, times)) + 1e-9


def test_delays_of_slots_are_checked_and_kept_in_files(tmp_path: Any) -> None:
    fabric = om.HexMesh(2, 2, ports=4)
    problem = om.AllToAll(fabric, delay_s="cells", cells=chip(fabric, 3))
    solution = om.solve(problem, seed=0)
    om.save(solution, tmp_path / "a.json")
    again: Any = om.load(tmp_path / "a.json")
    assert again == solution and again.problem == problem
    schedule = solution.schedule
    assert schedule is not None and schedule.delays_s is not None
    ends = np.cumsum(schedule.durations_s + schedule.delays_s)
    rows = [line.split(",") for line in str(exported(solution, "timeline")).splitlines()]
    at = rows[0].index("end_s")
    circuits = {float(row[at]) for row in rows if row[0] == "circuit"}
    assert sorted(circuits) == pytest.approx(ends.tolist())
    assert (schedule_data(solution).start_s + schedule.durations_s == ends).all()
    assert study_yield(solution, samples=2, seed=0).survived <= 2
    assert schedule.ends_s.tolist() == ends.tolist()
    assert schedule.makespan_s == pytest.approx(ends[-1])
    given: Any = {"matchings": [[1, 0]], "durations_s": [1.0]}
    for delays, delay_s, says in (([1.0, 2.0], 2.0, "2 entries"), ([3.0], 2.0, "longest")):
        with pytest.raises(om.InputError, match=says):
            om.Schedule(**given, delays_s=delays, delay_s=delay_s)


def test_delays_of_cells_need_cells_with_times() -> None:
    mesh = om.HexMesh(2, 2, ports=4)
    for cells, says in (
        (None, "a device of each cell"),
        (CellDevice.of("ideal", 19), "no cell has a settling time"),
    ):
        with pytest.raises(om.InputError, match=f"delay_s = 'cells': {says}"):
            om.AllToAll(mesh, delay_s="cells", cells=cells)
    with pytest.raises(om.InputError, match="delay_s = 'slots': a number or cells is expected"):
        om.AllToAll(mesh, delay_s="slots")  # type: ignore[arg-type]


def test_the_bound_counts_groups_of_slots_that_agree() -> None:
    """Three slots that each need a slow cell otherwise than some other wait for it three times."""
    # Slots 0 and 1 differ in cell 0, slots 1 and 2 in cell 1, slots 2 and 0 in cell 2.
    states = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], dtype=np.int8)
    settling_s = np.array([5.0, 5.0, 5.0])
    assert bound_settling(states, settling_s) == 15.0
    waits_s = [
        float(set_ahead(states[list(order)], settling_s)[1].sum())
        for order in permutations(range(3))
    ]
    assert min(waits_s) == 15.0


@pytest.mark.parametrize("seed", range(6))
def test_cliques_are_the_largest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 9
    joined = np.triu(rng.random((n, n)) < 0.5, 1)
    joined |= joined.T
    neighbours = [sum(1 << int(k) for k in np.flatnonzero(row)) for row in joined]
    largest = max(
        len(chosen)
        for size in range(n + 1)
        for chosen in combinations(range(n), size)
        if all(joined[a, b] for a, b in combinations(chosen, 2))
    )
    assert find_larger_clique(neighbours, 0, 10**6)[0] == largest
    assert find_larger_clique(neighbours, largest, 10**6)[0] == largest
    assert find_larger_clique(neighbours, 0, 1)[0] <= largest


def test_orders_of_a_mesh_are_close_to_the_bound() -> None:
    """Five cells in a hundred are five times as slow: the tree of changes gave half as much."""
    mesh = om.HexMesh(5, 5, ports=12)
    rng = np.random.default_rng(0)
    times_s = np.where(rng.random(mesh.n_cells) < 0.05, 70e-3, 14e-3)
    cells = CellDevice.of(
        "smartlight",
        mesh.n_cells,
        {cell: {"settling_s": float(time_s)} for cell, time_s in enumerate(times_s)},
    )
    stats = om.solve(om.AllToAll(mesh, delay_s="cells", cells=cells), seed=0).stats
    assert stats["total_settling_s"] <= 1.25 * stats["total_settling_lower_bound_s"]
