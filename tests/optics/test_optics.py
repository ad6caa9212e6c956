"""Optics: figures of a schedule, budgets, free cells, and the command."""

import json
import math
import os
import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.commands.verify import use_one_thread
from optmatch.fabrics import Faulty
from optmatch.fabrics.waveguides import measure_waveguides
from optmatch.model import BAR, DEVICES, CellDevice
from optmatch.model.device import frequency_of_nm
from optmatch.optics.figures import Margin
from tests.helpers.command import call, refused
from tests.verify.rules import schedule
from tests.verify.rules.routing import BACKWARDS

DATA = Path(__file__).resolve().parents[1] / "data"
ROUTED = DATA / "good" / "routed.schedule.json"


def solved(fabric: om.Fabric, matching: list[int]) -> tuple[om.Routing, om.Solution]:
    """Route one matching."""
    problem = om.Routing(fabric, np.array(matching, dtype=np.int32))
    return problem, om.solve(problem, seed=0)


@pytest.fixture(autouse=True)
def balance(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every test: what leaves and what is lost is what enters, to 1e-12.

    Or to 1e-14 of the strongest light, where loops gather a hundred times what enters or more.
    """
    measure = om.measure_optics

    def balanced(*args: Any, **options: Any) -> om.Optics:
        optics = measure(*args, **options)
        assert optics.energy_error < max(1e-12, 1e-14 * optics.loop_power.max(initial=0.0))
        return optics

    for module in (om, sys.modules["optmatch.optics"]):
        monkeypatch.setattr(module, "measure_optics", balanced)


def test_losses_add_up_to_a_hundredth_of_a_decibel() -> None:
    device = om.Device(
        bar_loss_db=0.48,
        cross_loss_db=0.48,
        waveguide_loss_db_per_m=200.0,
        bend_loss_db=0.01,
        crossing_loss_db=0.03,
        coupling_loss_db=3.34,
        cell_length_m=811e-6,
        cell_delay_s=11.25e-12,
        access_delay_s=48e-12,
    )
    mesh = om.HexMesh(3, 3, ports=[0, 7, 13, 20])
    problem, solution = solved(mesh, [2, 3, 0, 1])
    optics = om.measure_optics(problem, solution, device)
    assert solution.objective == optics.cells.sum() / 2
    expected = optics.cells * 0.48 + 2 * 3.34
    assert np.allclose(optics.insertion_loss_db, expected, atol=1e-9)
    assert np.allclose(optics.length_m, optics.cells * 811e-6)
    assert np.allclose(optics.delay_s, optics.cells * 11.25e-12 + 48e-12, atol=0)

    problem, solution = solved(om.Benes(4), [0, 1, 2, 3])
    optics = om.measure_optics(problem, solution, device)
    guides = measure_waveguides(problem.fabric.graph)
    per_link = guides.length * 811e-6 * 200 + 0.01 * guides.bends + 0.03 * guides.crossings
    assert per_link.max() > 0.05
    extra = optics.insertion_loss_db - 3 * 0.48 - 2 * 3.34
    assert np.isclose(extra.sum(), _lit_links(problem, solution, per_link), atol=1e-9)
    ways = 4 * 3 + _lit_links(problem, solution, guides.length)
    assert ways > 12.5
    assert np.isclose(optics.length_m.sum(), ways * 811e-6, atol=0)
    assert np.isclose(optics.delay_s.sum(), ways * 11.25e-12 + 4 * 48e-12, atol=0)


def _lit_links(problem: om.Routing, solution: om.Solution, per_link: Any) -> float:
    """Add up a figure of links over all circuits, by following each through its states."""
    graph: Any = problem.fabric.graph
    states: Any = solution.schedule.cell_states
    total = 0.0
    for terminal in problem.fabric.source_terminals:
        while True:
            left = 4 * (terminal // 4) + (terminal % 4 ^ 2 ^ int(states[0, terminal // 4]))
            total += per_link[graph.links.of_terminal[left]]
            terminal = graph.mate[left]
            if terminal < 0:
                break
    return total


def test_the_order_of_indices() -> None:
    """power[slot, frequency, source, perimeter]: one cell that leads sources 0, 1 to 1, 0."""
    problem, solution = solved(om.SpankeBenes(2), [1, 0])
    device = om.Device(cross_loss_db=1.0, cross_extinction_db=10.0)
    optics = om.measure_optics(problem, solution, device, frequencies_hz=[0.0, 1e9, 2e9])
    assert repr(optics) == (
        "<Optics of custom, 1 slots: insertion loss up to 1.00 dB,"
        " signal to crosstalk from 10.0 dB>"
    )
    assert optics.power.shape == (1, 3, 2, 4)
    graph: Any = problem.fabric.graph
    assert graph.perimeter[optics.exits].tolist() == problem.fabric.destination_terminals.tolist()
    signal = 10**-0.1
    assert np.allclose(optics.power[0, :, 0][:, optics.exits], [signal / 10, signal])
    assert np.allclose(optics.signal, signal)
    assert np.allclose(optics.crosstalk, signal / 10)
    assert np.allclose(optics.signal_to_crosstalk_db, 10.0)


@pytest.mark.parametrize("device", list(DEVICES.values()), ids=list(DEVICES))
@pytest.mark.parametrize("idle", ["cross", "bar", "keep"])
def test_energy_is_kept(device: om.Device, idle: Any) -> None:
    problem = om.AllToAll(om.HexMesh(3, 3, ports=6))
    solution = om.solve(problem, seed=0)
    optics = om.measure_optics(
        problem, solution, device, idle=idle, frequencies_hz=[-20e9, 0.0, 7e9], seed=1
    )
    assert (optics.lost >= 0).all()
    assert optics.figures["energy_error"] == optics.energy_error
    cells = optics.cells[optics.lit]
    assert optics.figures["longest_route_cells"] == cells.max() > cells.min()


def test_an_ideal_device_leads_all_light_to_the_partner() -> None:
    """No loss, no crosstalk; loops of free cells are named, and no light is in them."""
    problem = om.AllToAll(om.HexMesh(4, 4, ports=8))
    solution = om.solve(problem, seed=0)
    optics = om.measure_optics(problem, solution, "ideal", idle="bar")
    assert optics.figures["worst_insertion_loss_db"] == pytest.approx(0.0, abs=1e-12)
    assert optics.figures["worst_signal_to_crosstalk_db"] == np.inf
    slot = next(k for k, loops in enumerate(optics.loops) if loops)
    assert optics.figures["loops"] == sum(map(len, optics.loops))
    assert not optics.loop_power.any()
    leaky = om.measure_optics(problem, solution, "smartlight", idle="bar")
    assert leaky.loops == optics.loops
    assert leaky.loop_power[slot] > leaky.loop_power.min()
    most = 10 * np.log10(leaky.loop_power.max())
    assert leaky.figures["worst_loop_power_db"] == pytest.approx(most)
    assert not leaky.notes


def test_light_that_goes_round_almost_for_ever_is_noted() -> None:
    """A loop without loss that leaks next to nothing costs digits, and the notes say so."""
    mesh = om.SquareMesh(3, 3)
    idle = np.full((1, mesh.n_ports), -1, dtype=np.int32)
    states = np.zeros((1, mesh.n_cells), dtype=np.int8)
    schedule = om.Schedule(matchings=idle, durations_s=np.ones(1), cell_states=states)
    for extinction_db in (100.0, 160.0):
        device = om.Device(bar_extinction_db=extinction_db, cross_extinction_db=extinction_db)
        optics = om.measure_optics(om.Routing(mesh, idle[0]), schedule, device)
        noted = any("energy is off by" in note for note in optics.notes)
        assert noted == (extinction_db < 120)


def test_free_cells_are_put_where_one_says() -> None:
    problem = om.AllToAll(om.HexMesh(3, 3, ports=6))
    solution = om.solve(problem, seed=0)
    stated: Any = solution.schedule.cell_states
    for idle, state in (("cross", 1), ("bar", 0)):
        settled = om.measure_optics(problem, solution, "ideal", idle=idle).cell_states
        assert np.array_equal(settled, np.where(stated == -1, state, stated))
    kept = om.measure_optics(problem, solution, "ideal", idle="keep").cell_states
    for slot, cell in np.argwhere(stated == -1):
        assert kept[slot, cell] == (kept[slot - 1, cell] if slot else 1)
    assert np.array_equal(
        om.measure_optics(problem, solution, "ideal", idle=kept).cell_states, kept
    )
    with pytest.raises(om.InputError, match=r"idle\[\d+, \d+\] = \d: that cell is in"):
        om.measure_optics(problem, solution, "ideal", idle=np.where(stated == -1, 0, 1 - stated))
    with pytest.raises(om.InputError, match="a state 0 or 1 for each cell"):
        om.measure_optics(problem, solution, "ideal", idle=stated)
    with pytest.raises(om.InputError, match="a state 0 or 1 for each cell"):
        om.measure_optics(problem, solution, "ideal", idle=kept[:1])


def test_faults_are_seen_by_light() -> None:
    """A stuck cell acts as it is stuck, a dead one swallows what enters it."""
    mesh = om.HexMesh(2, 2, ports=[0, 5, 10, 15])
    graph = mesh.graph
    dead = int(mesh.source_terminals[0]) // 4
    stuck = (dead + 5) % graph.n_cells
    faulty = Faulty(mesh, stuck_bar=[stuck], dead_cells=[dead])
    matching = np.array([[1, 0, 3, 2]], dtype=np.int32)
    states = np.ones((1, graph.n_cells), dtype=np.int8)
    schedule = om.Schedule(matchings=matching, durations_s=np.ones(1), cell_states=states)
    whole = om.measure_optics(om.Routing(mesh, matching[0]), schedule, "smartlight")
    assert whole.lost[0, 0, 0] < 1
    broken = om.measure_optics(om.Routing(faulty, matching[0]), schedule, "smartlight")
    assert broken.lost[0, 0, 0] == 1.0
    assert broken.cell_states[0, stuck] == BAR


def test_figures_are_the_worst_of_all_circuits() -> None:
    """Circuit by circuit and frequency by frequency; two slots with idle ports, and a dark one."""
    fabric = om.Benes(4)
    rows, states = [[1, -1, 0, -1], [-1, 3, -1, 0], [-1] * 4], []
    for row in rows:
        problem, solution = solved(fabric, row)
        routed: Any = solution.schedule
        states.append(routed.cell_states[0])
    device = om.Device(
        bar_loss_db=0.5, cross_loss_db=0.3, bar_extinction_db=18.0, cross_extinction_db=25.0,
        phase_error_rad=0.1, waveguide_loss_db_per_m=200.0, coupling_loss_db=1.5,
        cell_length_m=8e-4, cell_delay_s=1e-11, heater_mw_per_pi=20.0, settling_s=1e-3,
        thermal_crosstalk=0.02,
    )  # fmt: skip
    given = schedule(rows, cell_states=states)
    optics = om.measure_optics(problem, given, device, frequencies_hz=[0.0, 2e10, 5e10])
    loss, ratio, place = [], [], []
    for k, row in enumerate(rows):
        for i, j in enumerate(row):
            if j >= 0:
                here = optics.power[k, :, :, optics.exits[j]]
                others = sum(here[:, s] for s in range(4) if row[s] >= 0 and s != i)
                loss.append(max(-10 * np.log10(here[:, i])) + 3.0)
                ratio.append(min(10 * np.log10(here[:, i] / others)))
                place.append((k, i))
    found, at = dict(optics.figures), tuple(zip(*place, strict=True))
    cells, length_m, delay_s = (
        getattr(optics, name)[at] for name in ("cells", "length_m", "delay_s")
    )
    assert len({*loss}) == len({*ratio}) == 4 and len({*delay_s}) > 1
    mw, settling_s = optics.heater_mw, optics.settling_s
    balance = optics.power.sum(axis=3) + optics.lost - 1
    assert found == pytest.approx(
        {
            "worst_insertion_loss_db": max(loss), "mean_insertion_loss_db": np.mean(loss),
            "best_insertion_loss_db": min(loss), "worst_signal_to_crosstalk_db": min(ratio),
            "longest_route_cells": max(cells), "longest_route_m": max(length_m),
            "longest_delay_s": max(delay_s), "delay_spread_s": max(delay_s) - min(delay_s),
            "largest_heater_mw": max(mw), "mean_heater_mw": np.mean(mw),
            "largest_heat_rad": np.max(optics.heat_rad), "longest_settling_s": 1e-3,
            "total_settling_s": 1e-3 * np.count_nonzero(settling_s),
            "switching_mj": mw @ settling_s, "loops": sum(map(len, optics.loops)),
            "worst_loop_power_db": -np.inf, "energy_error": np.abs(balance).max(),
        },
        rel=1e-9, abs=1e-18,
    )  # fmt: skip
    worst_db = [row["worst_insertion_loss_db"] for row in optics.band_rows()]
    assert len(worst_db) == 3 and max(worst_db) == pytest.approx(max(loss))
    for k, told in enumerate(optics.slot_rows()):
        mine = [n for n, (slot, _) in enumerate(place) if slot == k]
        if mine:
            faint, noisy = (max(mine, key=loss.__getitem__), min(mine, key=ratio.__getitem__))
            assert told["worst_insertion_loss_db"] == pytest.approx(loss[faint])
            assert told["worst_loss_circuit"] == [place[faint][1], rows[k][place[faint][1]]]
            assert told["worst_signal_to_crosstalk_db"] == pytest.approx(ratio[noisy])
            assert told["worst_crosstalk_circuit"] == [place[noisy][1], rows[k][place[noisy][1]]]
            assert told["longest_route_m"] == max(length_m[mine])
            assert told["longest_delay_s"] == max(delay_s[mine])
    for margin, ok in ((-0.1, False), (0.0, True), (0.1, True)):
        assert Margin("loss", 1.0, 1.0 + margin, margin, "here").ok == ok


def test_waveguides_lose_light_wherever_they_lead() -> None:
    """Here to terminal 0; energy is balanced as in every test."""
    device = om.Device(waveguide_loss_db_per_m=500.0, cell_length_m=1e-3)
    optics = om.measure_optics(BACKWARDS, schedule([[0]], cell_states=[[0, 0]]), device)
    assert 0.1 < optics.lost.max() < 1


def test_budgets_name_the_worst_circuit() -> None:
    """A margin is positive exactly where the limit is kept, and belongs to the worst circuit."""
    problem, solution = solved(om.Benes(4), [1, 0, 3, -1])
    optics = om.measure_optics(problem, solution, "silicon-electro-optic")
    loss, ratio = optics.insertion_loss_db, optics.signal_to_crosstalk_db
    for slack, ok in ((0.5, True), (-0.5, False)):
        budget = om.Budget(
            insertion_loss_db=float(np.nanmax(loss)) + slack,
            signal_to_crosstalk_db=float(np.nanmin(ratio)) - slack,
            delay_spread_s=1.0 if ok else 0.0,
        )
        margins = budget.margins(optics)
        assert [margin.ok for margin in margins[:2]] == [ok, ok]
        assert margins[0].margin == pytest.approx(slack)
        assert margins[1].margin == pytest.approx(slack)
        assert margins[2].margin == pytest.approx(margins[2].limit - margins[2].value)
        delay_s = optics.delay_s[optics.lit]
        assert margins[2].value == pytest.approx(delay_s.max() - delay_s.min())
        worst = int(np.nanargmax(loss[0]))
        assert margins[0].where == f"slot 0, from port {worst} to port {problem.matching[worst]}"
    assert om.Budget().margins(optics) == []
    with pytest.raises(om.InputError, match="insertion_loss_db = -1: must be >= 0"):
        om.Budget(insertion_loss_db=-1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "glass"}, "device = 'glass': unknown; presets are ideal, smartlight"),
        ({"idle": "open"}, "idle = 'open': cross, bar, keep or states of all cells"),
        ({"frequencies_hz": []}, "frequencies_hz: at least one"),
        ({"frequencies_hz": [float("nan")]}, "not a finite number"),
        ({"frequencies_hz": [0.0, -1e15]}, "frequencies_hz: -1e+15 from a light of 1.93414e+14"),
        ({"frequencies_hz": [-frequency_of_nm(1550.0)]}, "none is left"),
        ({"seed": -1}, "seed = -1: must be >= 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(changes: dict[str, Any], message: str) -> None:
    problem, solution = solved(om.Benes(2), [1, 0])
    arguments: dict[str, Any] = {"device": "ideal"} | changes
    with pytest.raises(om.InputError) as caught:
        om.measure_optics(problem, solution, **arguments)
    assert message in str(caught.value)


def test_there_must_be_light_to_measure() -> None:
    problem, solution = solved(om.IdealSwitch(2), [1, 0])
    for run in (om.measure_optics, om.settle_free_cells):
        with pytest.raises(om.InputError, match="ideal-switch has no cells, and no optics"):
            run(problem, solution, "ideal")
    other, _ = solved(om.Benes(2), [1, 0])
    with pytest.raises(om.InputError, match="with cell states"):
        om.measure_optics(other, solution, "ideal")
    cells = other.fabric.n_cells
    for ports, told, match in ((3, cells, "of the fabric's ports"), (2, cells + 1, "a fabric of")):
        wrong = schedule([[-1] * ports], cell_states=[[0] * told])
        with pytest.raises(om.InputError, match=match):
            om.measure_optics(other, wrong, "ideal")


def test_the_command_measures() -> None:
    """Figures, budget and slots as text and as JSON; code 5 if the budget is not kept."""
    plain = call("verify", ROUTED, "--optics", "--per-slot", "--max-loss-db", "60")
    assert "optics of smartlight:" in plain.stdout
    assert "budget ok: insertion loss, dB" in plain.stdout
    assert "slot 0: loss " in plain.stdout
    solution: Any = om.load(ROUTED)
    table = om.measure_optics(solution, "smartlight").to_dataframe()
    lines = [line.split() for line in plain.stdout.splitlines() if re.match(" {6,}[0-9]", line)]
    names = ["slot", "source", "destination", "cells"]
    assert [list(map(int, line[:4])) for line in lines] == table[names].to_numpy().tolist()
    losses_db = [float(line[8]) for line in lines]
    assert losses_db == pytest.approx(table.insertion_loss_db.tolist(), rel=1e-3)
    told = call("verify", ROUTED, "--optics", "--max-loss-db", "1", code=5).stdout
    assert "FAILED: an optical budget" in told.splitlines()[0]
    failed = call("verify", ROUTED, "--optics", "--max-loss-db", "1", "--json", code=5)
    report = json.loads(failed.stdout)
    assert report["ok"]
    assert not report["optics"]["budget_ok"]
    assert report["optics"]["budget"][0]["margin"] < 0
    assert len(report["optics"]["slots"]) == 1
    assert report["optics"]["circuits"]["cells"] == table.cells.tolist()
    for idle in ("cross", "bar", "keep"):
        done = call("verify", ROUTED, "--optics", "--idle", idle, "--frequencies=-1e9,0", "--json")
        found = json.loads(done.stdout)["optics"]
        assert found["frequencies_hz"] == [-1e9, 0.0]


def test_a_refused_schedule_is_not_measured(tmp_path: Path) -> None:
    """Light through wrong states means nothing: code 5, and the optics are said to be missing."""
    tree = json.loads(ROUTED.read_text())
    states = tree["schedule"]["cell_states"]
    states[0] = [-1] * len(states[0])
    (tmp_path / "dark.json").write_text(json.dumps(tree))
    done = call("verify", tmp_path / "dark.json", "--optics", code=5)
    assert "optics: not measured" in done.stdout
    done = call("verify", tmp_path / "dark.json", "--optics", "--json", code=5)
    assert json.loads(done.stdout)["optics"] is None


def test_the_command_keeps_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    use_one_thread()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    use_one_thread()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "ideal"], "--device: only with --optics"),
        (["--per-slot"], "--per-slot: only with --optics"),
        (["--max-loss-db", "0"], "--max-loss-db: only with --optics"),
        (["--optics", "--frequencies", "0,x"], "numbers, separated by commas"),
        (["--optics", "--wavelengths", "1550,-5"], "a wavelength of -5 nm: must be > 0"),
        (["--optics", "--device", "glass"], "device = 'glass': unknown"),
        (["--optics", "--device", "absent.json"], "absent.json: cannot be read"),
    ],
)
def test_wrong_options_are_refused(options: list[str], message: str) -> None:
    refused(message, "verify", ROUTED, *options)


def test_the_command_names_loops(tmp_path: Path) -> None:
    path = tmp_path / "mesh.schedule.json"
    om.save(om.solve(om.AllToAll(om.HexMesh(5, 5, ports=8)), seed=0), path)
    ideal = call("verify", path, "--optics", "--device", "ideal", "--idle", "bar", "--per-slot")
    assert " loops with at most -inf dB" in ideal.stdout


def test_a_schedule_without_circuits_has_only_loops(tmp_path: Path) -> None:
    problem = om.Routing(om.Benes(2), np.array([-1, -1], dtype=np.int32))
    solution = om.solve(problem, seed=0)
    optics = om.measure_optics(problem, solution, "smartlight")
    heaters = {"largest_heater_mw", "mean_heater_mw", "longest_settling_s", "switching_mj"}
    heaters |= {"largest_heat_rad", "total_settling_s"}
    assert set(optics.figures) == {"loops", "worst_loop_power_db", "energy_error"} | heaters
    assert om.Budget(insertion_loss_db=1.0).margins(optics) == []
    assert optics.band_rows() == []
    om.save(solution, tmp_path / "dark.json")
    assert (
        "slot 0: no circuit"
        in call("verify", tmp_path / "dark.json", "--optics", "--per-slot").stdout
    )


def test_states_and_schedules_must_fit() -> None:
    with pytest.raises(om.InputError, match=r"in bar \(0\) or in cross \(1\)"):
        om.Device().cell([0, 2])
    problem, solution = solved(om.Benes(2), [1, 0])
    wide, _ = solved(om.Crossbar(2), [1, 0])
    with pytest.raises(om.InputError, match="cell_states of 1 cells, a fabric of 4"):
        om.measure_optics(wide, solution, "ideal")
    for run in (om.measure_optics, om.settle_free_cells):
        with pytest.raises(om.InputError, match=r"(a Schedule or|optics need a schedule)"):
            run(problem, None, "ideal")  # type: ignore[arg-type, call-overload]


@pytest.mark.parametrize(("offset", "state_mw"), [(0.0, (20.0, 0.0)), (np.pi, (0.0, 20.0))])
def test_heaters_are_added_up(offset: float, state_mw: tuple[float, float]) -> None:
    """20 mW for bar or for cross, counted by hand, and the slowest cell of those that change."""
    mesh = om.HexMesh(2, 2, ports=4)
    device = om.Device(heater_mw_per_pi=20.0, settling_s=1e-3)
    table = {cell: {"phase_offset_rad": offset} for cell in range(mesh.n_cells)}
    table[3]["settling_s"] = 5e-3
    cells = CellDevice.of(device, mesh.n_cells, table)
    problem = om.AllToAll(mesh)
    solution = om.solve(problem, seed=0)
    optics = om.measure_optics(problem, solution, cells, idle="keep")
    waits = 0.0
    for slot, states in enumerate(optics.cell_states):
        by_hand = sum(state_mw[state] for state in states.tolist())
        assert optics.heater_mw[slot] == pytest.approx(by_hand, abs=1e-9)
        before = 1 - states if slot == 0 else optics.cell_states[slot - 1]
        changed = np.flatnonzero(states != before).tolist()
        slowest = max((5e-3 if cell == 3 else 1e-3 for cell in changed), default=0.0)
        assert optics.settling_s[slot] == slowest
        waits += slowest
        assert optics.switching_mj[slot] == pytest.approx(by_hand * slowest)
    assert optics.figures["total_settling_s"] == pytest.approx(waits)
    assert optics.figures["largest_heater_mw"] == optics.heater_mw.max()
    assert optics.slot_rows()[1]["heater_mw"] == optics.heater_mw[1]


@cache
def settle_without_power() -> tuple[om.AllToAll, om.Solution, Any]:
    """Solve an all-to-all, and settle its free cells where heaters take no power."""
    mesh = om.HexMesh(2, 2, ports=4)
    dark = {cell: {"heater_mw_per_pi": 0.0} for cell in range(mesh.n_cells)}
    problem = om.AllToAll(mesh)
    solution = om.solve(problem, seed=0)
    cells = CellDevice.of("smartlight", mesh.n_cells, dark)
    return problem, solution, om.settle_free_cells(problem, solution, cells)


@pytest.mark.parametrize("bar_is_free", [False, True])
def test_settled_cells_take_no_more_power(bar_is_free: bool) -> None:
    """Than without a price of power, and crosstalk stays where it was."""
    problem, solution, settled_in_the_dark = settle_without_power()
    n_cells = problem.fabric.n_cells
    offset = np.pi if bar_is_free else 0.0
    warm = {
        cell: {"heater_mw_per_pi": 20.0, "phase_offset_rad": offset} for cell in range(n_cells)
    }
    measured = CellDevice.of("smartlight", n_cells, warm)
    powers, ratios = [], []
    for settled in (settled_in_the_dark, om.settle_free_cells(problem, solution, measured)):
        optics = om.measure_optics(problem, solution, measured, idle=settled)
        powers.append(optics.heater_mw)
        ratios.append(optics.figures["worst_signal_to_crosstalk_db"])
    assert (powers[1] <= powers[0] + 1e-9).all()
    assert powers[1].sum() < powers[0].sum() or not bar_is_free
    assert ratios[1] == pytest.approx(ratios[0], abs=0.05)


def test_heat_reaches_other_cells() -> None:
    """By hand on a mesh, where neighbours in bar have turned by half a turn, and cross by none."""
    problem, solution = solved(om.HexMesh(2, 2, ports=4), [1, 0, 3, 2])
    cold = DEVICES["smartlight"]
    warm = replace(cold, thermal_crosstalk=0.05, thermal_decay_cells=1.5)
    optics = om.measure_optics(problem, solution, warm, idle="bar")
    graph: Any = problem.fabric.graph
    middles = graph.ends.mean(axis=1).tolist()
    for cell, (x, y) in enumerate(middles):
        turned = 0.0
        for near, (u, v) in enumerate(middles):
            if near != cell and optics.cell_states[0, near] == BAR:
                turned += math.pi * 0.05 * math.exp(-math.hypot(x - u, y - v) / 1.5)
        assert optics.heat_rad[0, cell] == pytest.approx(turned, rel=1e-12)
    assert optics.figures["largest_heat_rad"] == optics.heat_rad.max() > 0.0
    others = om.measure_optics(problem, solution, cold, idle="bar")
    assert not others.heat_rad.any()
    ratio = "worst_signal_to_crosstalk_db"
    assert optics.figures[ratio] < others.figures[ratio]


def test_light_feels_the_heat() -> None:
    """Where each way is the only one, it loses what the phases of its cells are off."""
    fabric = om.SwitchAndSelect(2)
    warm = om.Device(thermal_crosstalk=0.05, thermal_decay_cells=1.5, phase_error_rad=0.2)
    optics = om.measure_optics(*solved(fabric, [1, 0]), warm, seed=5)
    graph: Any = fabric.graph
    errors_rad = np.random.default_rng(5).normal(0.0, 0.2, (fabric.n_cells, 2))
    off_rad = optics.heat_rad[0] + errors_rad[:, 0] - errors_rad[:, 1]
    for source, at in enumerate(fabric.source_terminals.tolist()):
        kept = 1.0
        while at >= 0:
            kept *= math.cos(off_rad[at // 4] / 2) ** 2
            at = int(graph.mate[graph.exits[at, optics.cell_states[0, at // 4]]])
        assert optics.signal[0, 0, source] == pytest.approx(kept, rel=1e-9)
    assert optics.signal.min() < 0.999


def test_where_no_light_is_left_there_is_no_crosstalk_either() -> None:
    """Losses of a thousand dB a cell leave powers that no float can tell from zero."""
    problem = om.AllToAll(om.HexMesh(4, 4, ports=8))
    dark = om.Device(bar_loss_db=1000, cross_loss_db=1000)
    optics = om.measure_optics(problem, om.solve(problem, seed=0), dark)
    assert optics.figures["worst_insertion_loss_db"] == np.inf
    assert optics.figures["worst_signal_to_crosstalk_db"] == np.inf


def test_a_solution_takes_its_device_by_place_or_by_name() -> None:
    solution = om.solve(om.Routing(om.SwitchAndSelect(4), [1, 0, 3, 2]), seed=0)
    figures = om.measure_optics(solution, "ideal").figures
    assert om.measure_optics(solution, device="ideal").figures == figures
    assert om.measure_optics(solution).figures != figures
    with pytest.raises(om.InputError, match="two devices"):
        om.measure_optics(solution, "ideal", device="ideal")  # type: ignore[call-overload]


def test_circuits_of_a_netlist_have_the_names_of_its_ports() -> None:
    netlist = om.Netlist(
        ["m"], {}, [("west", "m,a1"), ("east", "m,b1")], open_pins=["m,a2", "m,b2"]
    )
    optics = om.measure_optics(om.solve(om.Routing(netlist, [1, 0])), "smartlight")
    table = optics.to_dataframe()
    assert (table["from"].tolist(), table["to"].tolist()) == (["west", "east"], ["east", "west"])
    mesh = om.measure_optics(om.solve(om.Routing(om.Crossbar(2), [0, 1])), "smartlight")
    assert "from" not in mesh.to_dataframe()
