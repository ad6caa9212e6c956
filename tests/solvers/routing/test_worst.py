"""Matchings on a known chip: against all states, simple rivals, and the exact optics."""

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import CellDevice, Event, Limits, NewBest, find_device
from optmatch.solvers.routing.worst import search_all
from tests.helpers.chips import LOSS, POWER, SNR, draw_chip, draw_partial_matching, try_all_states
from tests.helpers.modes import examples

FABRICS = [
    om.HexMesh(1, 1),
    om.SquareMesh(1, 2),
    om.HexMesh(1, 2, tx=(0, 3, 7), rx=(10, 13, 5)),
    om.Benes(4),
    om.SpankeBenes(4),
    om.Crossbar(3),
    om.Piloss(3),
    om.Clements(4),
    om.Reck(4),
    om.DilatedBenes(2),
    om.SwitchAndSelect(2),
]


def break_some(fabric: om.Fabric, rng: np.random.Generator) -> om.Fabric:
    """Break two cells, or three, in half of the cases."""
    cells = [int(cell) for cell in rng.permutation(fabric.n_cells)]
    if rng.random() < 0.5:
        return fabric
    dead = cells[2:3] if rng.random() < 0.3 else []
    return om.Faulty(fabric, stuck_bar=cells[:1], stuck_cross=cells[1:2], dead_cells=dead)


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
def test_ilp_finds_the_best_of_all_states(fabric: om.Fabric) -> None:
    """Objective and cells; no other method is better, and no bound is above."""
    rng = np.random.default_rng(fabric.n_cells)
    for turn in range(examples(2, plain=2)):
        broken = break_some(fabric, rng)
        matching, chip = draw_partial_matching(broken, rng), draw_chip(fabric.n_cells, turn)
        best = try_all_states(broken, matching, chip)
        objective: Any
        for objective in (LOSS, SNR, POWER):
            problem = om.Routing(broken, matching, objective=objective, cells=chip)
            exact = om.solve(problem, "ilp", seed=0)
            report = om.verify(problem, exact)
            if best is None:
                assert exact.status is om.Status.INFEASIBLE
                assert om.solve(problem, seed=0).status is om.Status.INFEASIBLE
                continue
            assert exact.status is om.Status.OPTIMAL
            assert exact.objective == pytest.approx(best[objective].objective, rel=1e-9)
            assert report.figures["total_cells"] == best[objective].cells
            assert problem.lower_bound() <= best[objective].objective * (1 + 1e-9)
            for method in (None, "negotiated"):
                found: Any = om.solve(problem, method, seed=0)
                assert found.objective >= best[objective].objective * (1 - 1e-9)


def test_the_model_is_that_of_the_optics() -> None:
    """Where leaks are small, exact optics with free cells out of the way find the same."""
    fabric = om.HexMesh(4, 4, ports=8)
    chip = draw_chip(fabric.n_cells, 5)
    chip = replace(
        chip,
        bar_extinction_db=chip.bar_extinction_db + 60,
        cross_extinction_db=chip.cross_extinction_db + 60,
    )
    problem = om.Routing(fabric, [4, 3, 6, 1, 0, 7, 2, 5], objective=SNR, cells=chip)
    solution = om.solve(problem, seed=0)
    figures = om.verify(problem, solution).figures
    settled = om.settle_free_cells(problem, solution, chip)
    optics = om.measure_optics(problem, solution, chip, idle=settled)
    ratio = optics.figures["worst_signal_to_crosstalk_db"]
    assert ratio == pytest.approx(figures["worst_snr_db"], abs=0.01)
    loss = optics.figures["worst_insertion_loss_db"]
    assert loss == pytest.approx(figures["worst_loss_db"], abs=1e-3)


@pytest.mark.parametrize(("extinction_db", "ratio"), [(1000.0, 0.0), (30.0, 1e297)])
def test_powers_may_differ_by_more_than_a_float_holds(extinction_db: float, ratio: float) -> None:
    """Light of 4,000 dB less meets other light: where a cell leaks nothing, that is nothing."""
    cells = [f"m{k}" for k in range(5)]
    joined = {f"m{k},b1": f"m{k + 1},a1" for k in range(4)}
    pins = {"i0": "m0,a1", "i1": "m4,a2", "o0": "m4,b1", "o1": "m4,b2"}
    open_pins = [f"m{k},{side}" for k in range(4) for side in ("a2", "b2")]
    fabric = om.Netlist(
        cells, joined, [*pins.items()], tx=["i0", "i1"], rx=["o0", "o1"], open_pins=open_pins
    )
    chip = replace(
        CellDevice.of("smartlight", 5),
        bar_loss_db=np.array([1000.0] * 4 + [0.5]),
        bar_extinction_db=np.full(5, extinction_db),
    )
    problem = om.Routing(fabric, [0, 1], objective=SNR, cells=chip)
    for method in ("ilp", "negotiated"):
        solution = om.solve(problem, method, seed=0)
        assert solution.objective == pytest.approx(ratio)
        for claimed in (77.0, 1e9):
            wrong = om.Solution(
                problem=problem,
                schedule=solution.schedule,
                status=om.Status.OPTIMAL,
                objective=claimed,
                lower_bound=claimed,
                method=method,
            )
            assert not om.verify(problem, wrong).valid


@pytest.mark.parametrize("objective", [LOSS, SNR])
def test_a_chip_of_perfect_cells_has_no_crosstalk(objective: Any) -> None:
    """Nothing is lost and nothing leaks: zero, proved."""
    fabric = om.HexMesh(3, 3, ports=4)
    cells = CellDevice.of("ideal", fabric.n_cells)
    problem = om.Routing(fabric, [2, 3, 0, 1], objective=objective, cells=cells)
    solution = om.solve(problem, seed=0)
    assert (solution.status, solution.objective) == (om.Status.OPTIMAL, 0.0)


def test_a_limit_of_iterations_is_kept() -> None:
    """One start gives an answer; more of them are never worse."""
    fabric = om.HexMesh(5, 5, ports=16)
    chip = draw_chip(fabric.n_cells, 1)
    matching = [int(port) for port in np.arange(16) ^ 8]
    problem = om.Routing(fabric, matching, objective=SNR, cells=chip)
    objectives: Any = [
        om.solve(problem, "negotiated", seed=0, limits=Limits(iterations=most)).objective
        for most in (1, 4, 16)
    ]
    assert objectives == sorted(objectives, reverse=True)


@pytest.mark.parametrize(
    ("objective", "cells", "words"),
    [
        ("worst-cells", 38, "cells: a device of each cell is of no use for worst-cells"),
        (SNR, 37, "cells: a device of 37 cells, a fabric of 38"),
    ],
)
def test_cells_must_fit(objective: Any, cells: int, words: str) -> None:
    """They are there where they are of use, for as many cells as there are."""
    chip = draw_chip(cells, 0)
    with pytest.raises(om.InputError, match=words):
        om.Routing(om.HexMesh(3, 3, ports=4), [2, 3, 0, 1], objective=objective, cells=chip)


@pytest.mark.parametrize("objective", [LOSS, SNR, POWER])
@pytest.mark.parametrize(
    "fabric",
    [om.HexMesh(5, 5, ports=12), om.Benes(6), om.Faulty(om.Crossbar(4), stuck_bar=[3])],
    ids=lambda fabric: fabric.type,
)
def test_a_router_prefers_it(fabric: om.Fabric, objective: Any) -> None:
    """Answers are checked; in all they are better than those for few cells; batches agree."""
    rng = np.random.default_rng(0)
    chip = draw_chip(fabric.n_cells, 2)
    plain, router = om.Router(fabric), om.Router(fabric, prefer=objective, cells=chip, check=True)
    rows = np.array([draw_partial_matching(fabric, rng) for _ in range(12)], dtype=np.int32)
    batch, totals = router.route_batch(rows), np.zeros(2)
    for row, held, states in zip(rows, batch.held, batch.states, strict=True):
        problem = om.Routing(fabric, row, objective=objective, cells=chip)
        if not held:
            assert om.solve(problem, seed=0).status is om.Status.INFEASIBLE
            continue
        assert np.array_equal(router.route(row).states, states)
        for k, found in enumerate((states, plain.route(row).states)):
            schedule = om.Schedule(
                matchings=row[None], durations_s=np.ones(1), cell_states=found[None]
            )
            report = om.verify(problem, schedule)
            assert report.valid, report.complaint
            totals[k] += report.figures["objective"]
    assert totals[0] <= totals[1] * (1 + 1e-9)
    with pytest.raises(om.InputError, match="prefer = 'loss'"):
        om.Router(fabric, prefer="loss", cells=chip)  # type: ignore[arg-type]


@pytest.mark.parametrize("objective", [LOSS, SNR, POWER])
@pytest.mark.parametrize(
    "fabric",
    [om.HexMesh(4, 4, ports=8), om.Benes(4), om.Faulty(om.Benes(4), dead_ports=[1])],
    ids=str,
)
def test_all_to_alls_count_their_worst_circuit(fabric: om.Fabric, objective: Any) -> None:
    """The largest over all slots, no worse than in the slots for few cells."""
    chip = draw_chip(fabric.n_cells, 4)
    problem = om.AllToAll(fabric, objective=objective, cells=chip)
    solution = om.solve(problem, seed=0)
    plain = om.solve(om.AllToAll(fabric), seed=0)
    assert plain.schedule is not None
    assert solution.objective <= om.verify(problem, plain.schedule).figures["objective"] + 1e-12
    with pytest.raises(om.InputError, match="not for all-to-all"):
        om.solve(problem, "ilp")


@pytest.mark.parametrize(
    "fabric",
    [om.HexMesh(4, 4, ports=8), om.Benes(8), om.Crossbar(3), om.SquareMesh(1, 2)],
    ids=str,
)
def test_power_breaks_ties_of_cells(fabric: om.Fabric) -> None:
    """No cell more, never more power, less where there is a choice; the proof is still one."""
    chip, saved = draw_chip(fabric.n_cells, 8), 0.0
    for seed in range(4):
        matching = draw_partial_matching(fabric, np.random.default_rng(seed))
        asked = om.Routing(fabric, matching, cells=chip)
        for method in (None, "ilp"):
            plain: Any = om.solve(om.Routing(fabric, matching), method, seed=0)
            found: Any = om.solve(asked, method, seed=0)
            report = om.verify(asked, found)
            assert (found.status, found.lower_bound) == (plain.status, plain.lower_bound)
            if found.schedule is not None:
                assert found.objective == plain.objective
                before = om.verify(asked, plain.schedule).figures["power_mw"]
                assert report.figures["power_mw"] <= before * (1 + 1e-12)
                saved += before - report.figures["power_mw"]
    assert saved > 0.0 or fabric.type in ("crossbar", "square-mesh")
    pairs = om.AllToAll(fabric, cells=chip)
    solved: Any = om.solve(pairs, seed=0)
    others: Any = om.solve(om.AllToAll(fabric), seed=0)
    assert solved.objective == others.objective


def test_an_empty_matching_takes_what_dark_cells_take() -> None:
    """No light at all: all cells in the cheaper state, proved."""
    chip, fabric = draw_chip(38, 0), om.HexMesh(3, 3, ports=4)
    problem = om.Routing(fabric, [-1] * 4, objective=POWER, cells=chip)
    solution = om.solve(problem, seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert solution.objective == pytest.approx(chip.power_mw.min(axis=1).sum(), rel=1e-12)


@pytest.mark.parametrize("objective", [LOSS, SNR, POWER])
def test_without_a_device_all_cells_are_alike(objective: Any) -> None:
    """They have the two losses of the problem, and else are as those of SmartLight."""
    mesh = om.HexMesh(3, 3, ports=4)
    losses: dict[str, Any] = {"bar_loss_db": 0.3, "cross_loss_db": 0.7}
    device = dataclasses.replace(find_device("smartlight"), **losses)
    chip = CellDevice.of(device, mesh.n_cells)
    short = om.Routing(mesh, [2, 3, 0, 1], objective=objective, **losses)
    assert short == om.Routing(mesh, [2, 3, 0, 1], objective=objective, cells=chip, **losses)
    assert om.solve(short, seed=0).objective > 0
    assert om.AllToAll(mesh, objective=objective).cells is not None
    with pytest.raises(om.InputError, match="is needed for"):
        om.Routing(om.IdealSwitch(4), [2, 3, 0, 1], objective=objective)


def interrupt_at_bests(event: Event) -> None:
    """Listen as a command does to which a signal has come."""
    if isinstance(event, NewBest):
        raise KeyboardInterrupt


@pytest.mark.parametrize("objective", [LOSS, SNR, POWER])
def test_the_search_of_all_routes_keeps_what_it_tells(objective: Any) -> None:
    """It told of a best and was interrupted before it kept the states."""
    benes = om.Benes(4)
    chip = draw_chip(benes.n_cells, 0)
    problem = om.Routing(benes, [2, 3, 0, 1], objective=objective, cells=chip)
    clock = Limits().start()
    found = search_all(problem, (np.inf, 10**6), clock, interrupt_at_bests)
    assert found.limit is om.Limit.INTERRUPTED
    assert found.states is not None
    states: Any = found.states[None]
    schedule = om.Schedule(matchings=[[2, 3, 0, 1]], durations_s=[1.0], cell_states=states)
    report = om.verify(problem, schedule)
    assert report.valid, report.complaint
    assert report.figures["objective"] == pytest.approx(found.objective, rel=1e-9)


def test_bests_are_of_the_objective_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no start has routes, any routes are asked for; their cells were told as decibels."""
    monkeypatch.setattr("optmatch.solvers.routing.worst._starts", lambda *_: iter(()))
    mesh = om.HexMesh(4, 4, ports=8)
    chip = draw_chip(mesh.n_cells, 0)
    problem = om.Routing(mesh, [4, 3, 6, 1, 0, 7, 2, 5], objective=LOSS, cells=chip)
    heard: list[Event] = []
    found: Any = om.solve(problem, "negotiated", seed=0, on_event=heard.append)
    told = [event.objective for event in heard if isinstance(event, NewBest)]
    assert all(objective >= found.objective for objective in told)
    assert not told or told[-1] == found.objective


def test_an_interrupt_while_ties_are_chosen_keeps_the_routes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("optmatch.solvers.routing.worst.save_power_among_ties", interrupted)
    mesh = om.HexMesh(4, 4, ports=8)
    chip = draw_chip(mesh.n_cells, 0)
    problem = om.Routing(mesh, [4, 3, 6, 1, 0, 7, 2, 5], cells=chip)
    found = om.solve(problem, seed=0)
    assert found.objective is not None and om.verify(problem, found).valid
