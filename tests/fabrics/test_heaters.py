"""Drive tables: phases with heat of other cells, limits of power and voltage, files."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics.heaters import Heaters, HeaterStep, plan_heater_steps
from optmatch.fabrics.waveguides import heat_shares
from optmatch.io.cells import read_heaters
from optmatch.model import BAR, CellDevice
from optmatch.model.heaters import Heater
from tests.helpers.command import call, put, refused
from tests.helpers.oracles import solve_densely


def draw_table(
    fabric: om.Fabric, rng: np.random.Generator, *, crosstalk: float = 0.0, arms: int = 2
) -> tuple[Heaters, CellDevice]:
    """Draw calibrations of all cells, and a device of them."""
    heaters = {}
    for cell in range(fabric.n_cells):
        for arm in range(1, arms + 1):
            heaters[cell, arm] = Heater(
                cell=cell,
                arm=arm,
                a_rad=rng.uniform(-3, 3),
                b_rad_per_v2=rng.uniform(0.2, 0.5),
                resistance_ohm=rng.uniform(500, 2000),
            )
    device = om.Device(thermal_crosstalk=crosstalk, thermal_decay_cells=1.0)
    return heaters, CellDevice.of(device, fabric.n_cells)


def replay(steps: list[HeaterStep], n_cells: int, slot: int) -> np.ndarray:
    """Return ``volts[cell, arm]`` after a slot."""
    volts = np.zeros((n_cells, 2))
    for step in steps:
        if step.slot <= slot:
            volts[step.cell, step.arm - 1] = step.volts
    return volts


@pytest.mark.parametrize("arms", [1, 2])
@pytest.mark.parametrize("crosstalk", [0.0, 0.05])
def test_phases_are_right_with_all_heaters_on(arms: int, crosstalk: float) -> None:
    """Of each set cell: pi in bar, 0 in cross, whatever its neighbours are heated."""
    mesh = om.HexMesh(2, 2)
    rng = np.random.default_rng(arms)
    heaters, cells = draw_table(mesh, rng, crosstalk=crosstalk, arms=arms)
    states = rng.integers(-1, 2, (4, mesh.n_cells)).astype(np.int8)
    steps = plan_heater_steps(mesh, states, heaters, cells)
    middles = mesh.graph.ends.mean(axis=1)  # of cells, in lengths of one
    distance = np.linalg.norm(middles[:, None] - middles, axis=2)
    share = crosstalk * np.exp(-distance) * (1 - np.eye(mesh.n_cells))
    for slot, row in enumerate(states):
        volts = replay(steps, mesh.n_cells, slot)
        turn = np.zeros_like(volts)
        difference = np.zeros(mesh.n_cells)
        for (cell, arm), heater in heaters.items():
            turn[cell, arm - 1] = heater.b_rad_per_v2 * volts[cell, arm - 1] ** 2
            difference[cell] += (3 - 2 * arm) * (heater.a_rad + turn[cell, arm - 1])
        difference += share @ turn.sum(axis=1)
        wanted = np.where(row == BAR, np.pi, 0.0)
        off = np.angle(np.exp(1j * (difference - wanted)))
        assert np.abs(off[row >= 0]).max() < 1e-7


def test_no_step_exceeds_the_power() -> None:
    """Steps of 500 drawn changes, each from one slot to the next at the limit of both."""
    fabric = om.Benes(4)
    rng = np.random.default_rng(0)
    heaters, cells = draw_table(fabric, rng)
    for _ in range(100):
        states = rng.integers(0, 2, (6, fabric.n_cells)).astype(np.int8)
        free_steps = plan_heater_steps(fabric, states, heaters, cells)
        power_mw = []
        for slot in range(len(states)):
            volts = replay(free_steps, fabric.n_cells, slot)
            power_mw.append(
                sum(
                    1000 * volts[cell, arm - 1] ** 2 / float(heater.resistance_ohm or 0)
                    for (cell, arm), heater in heaters.items()
                )
            )
        most_mw = max(power_mw)
        steps = plan_heater_steps(fabric, states, heaters, cells, most_mw=most_mw)
        volts = np.zeros((fabric.n_cells, 2))
        for step in steps:
            volts[step.cell, step.arm - 1] = step.volts
            total_mw = sum(
                1000 * volts[cell, arm - 1] ** 2 / float(heater.resistance_ohm or 0)
                for (cell, arm), heater in heaters.items()
            )
            assert total_mw <= most_mw * (1 + 1e-9)
            assert step.total_mw == pytest.approx(total_mw, abs=1e-9)
        with pytest.raises(om.InputError, match=r"heaters take .* mW, at most"):
            plan_heater_steps(fabric, states, heaters, cells, most_mw=most_mw * 0.999)


def test_the_other_arm_takes_over() -> None:
    """Where the voltage of one arm runs out; if it does for both, the cell is named."""
    fabric = om.Benes(2)
    cells = CellDevice.of("ideal", fabric.n_cells)
    short = Heater(cell=0, arm=1, a_rad=1.0, b_rad_per_v2=1.0, max_v=1.0, settling_s=1e-5)
    other = Heater(cell=0, arm=2, b_rad_per_v2=1.0, max_v=2.2)
    states = np.array([[0]], dtype=np.int8)
    heaters = {(0, 1): short, (0, 2): other}
    (step,) = plan_heater_steps(fabric, states, heaters, cells)
    assert step.arm == 2 and step.turn_rad == pytest.approx(np.pi + 1.0)
    with pytest.raises(om.InputError, match=r"slot 0, cell 0: arm 1 reaches 1 of 2\.14 rad"):
        plan_heater_steps(fabric, states, {(0, 1): short}, cells)
    with pytest.raises(om.InputError, match="cell 0: no heater is calibrated"):
        plan_heater_steps(fabric, states, {}, cells)
    with pytest.raises(om.InputError, match="cell 0, arm 1: the resistance is not known"):
        plan_heater_steps(fabric, states, heaters, cells, most_mw=10.0)


def test_points_are_interpolated_in_squares(tmp_path: Path) -> None:
    """A table of v and phase, CSV or JSON; and the voltage of a phase comes back."""
    fabric = om.Benes(2)
    path = put(
        tmp_path, "heaters.csv", "cell,arm,v,phase\n0,1,0,0.5\n0,1,1,0.7\n0,1,2,1.5\n0,1,3,4.0\n"
    )
    (heater,) = read_heaters(path, fabric).values()
    assert heater.volts_for(0.2) == pytest.approx(1.0)
    assert heater.volts_for(0.6) == pytest.approx(np.sqrt(2.5))
    for turn in np.linspace(0, 3.5, 20):
        assert heater.turn_rad(heater.volts_for(turn)) == pytest.approx(turn)
    assert heater.largest_turn_rad == pytest.approx(3.5)
    tree = (
        '{"format": "optmatch/heaters/1", "heaters": [{"cell": 0, "v": [0, 1], "phase": [0, 2]}]}'
    )
    (tmp_path / "heaters.json").write_text(tree)
    (heater,) = read_heaters(tmp_path / "heaters.json", fabric).values()
    assert heater.arm == 1 and heater.turn_rad(1.0) == 2.0


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("cell,arm,a,b\n9,1,0,1\n", "line 2: cell '9': cells are 0 .. 0"),
        ("cell,arm,a,b\n0,3,0,1\n", "line 2: arm '3': arms are 1, 2"),
        ("cell,arm,a,b\n0,1,0,x\n", "line 2: b = 'x': a number"),
        ("cell,arm,a,b\n0,1,0,-1\n", "b_rad_per_v2 = -1: must be > 0"),
        ("cell,arm,a,b\n0,1,0,1\n0,1,0,1\n", "line 3: cell 0, arm 1: is there already, line 2"),
        ("cell,arm,a,colour\n0,1,0,1\n", "unknown column 'colour'"),
        ("cell,arm,v,phase\n0,1,0,1\n0,1,1,0.5\n", "phases rise with the voltage"),
        ("cell,arm,v,phase\n0,1,0,1\n", "voltages begin at 0 and rise; at least two"),
        ("cell,arm,v,phase\n0,1,1,1\n0,1,2,2\n", "voltages begin at 0 and rise"),
        ("cell,arm,v,phase\n0,1,0,1\n0,1,0,2\n", "voltages begin at 0 and rise"),
        ("cell,arm,v\n0,1,0\n", "v and phase_rad go together"),
        ("cell,arm,v,phase,a\n0,1,0,1,1\n0,1,1,2,1\n", "a_rad: points say the phase without"),
        ("cell,arm,a\n0,1,0\n", "either a coefficient b, or points"),
    ],
)
def test_what_is_refused(text: str, match: str, tmp_path: Path) -> None:
    path = put(tmp_path, "heaters.csv", text)
    with pytest.raises((om.FormatError, om.InputError), match=match) as caught:
        read_heaters(path, om.Benes(2))
    assert "heaters.csv" in str(caught.value)


def test_phases_are_those_of_points() -> None:
    with pytest.raises(om.InputError, match="phases_rad are those of points"):
        Heater(cell=0, arm=1, b_rad_per_v2=0.5, a_rad=0.5, phases_rad=np.array([0.9, 2.0]))


def test_from_a_schedule_to_a_drive_table(tmp_path: Path) -> None:
    """The command reads calibrations, and writes slot, cell, arm and voltage."""
    fabric = om.Benes(4)
    heaters, _ = draw_table(fabric, np.random.default_rng(1))
    path = tmp_path / "heaters.csv"
    lines = ["cell,arm,a_rad,b_rad_per_v2,resistance_ohm,max_v,settling_s"]
    for heater in heaters.values():
        entries = [heater.a_rad, heater.b_rad_per_v2, heater.resistance_ohm, heater.max_v]
        values = ["" if entry is None else repr(entry) for entry in (*entries, heater.settling_s)]
        lines.append(",".join([str(heater.cell), str(heater.arm), *values]))
    path.write_text("\n".join(lines) + "\n")
    assert read_heaters(path, fabric) == heaters
    schedule = tmp_path / "a.schedule.json"
    om.save(om.solve(om.Routing(fabric, [2, 0, 3, 1])), schedule)
    done = call("export", str(schedule), "--to", "heaters", "--heaters", str(path))
    lines = done.stdout.splitlines()
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[1:]))))
    assert lines[0].startswith("# lines are steps") and rows
    for row in rows:
        heater = heaters[int(row["cell"]), int(row["arm"])]
        assert heater.b_rad_per_v2 is not None
        turn_rad = heater.b_rad_per_v2 * float(row["v"]) ** 2
        assert turn_rad == pytest.approx(float(row["turn_rad"]))
    words = ("export", str(schedule), "--to", "heaters", "--heaters", str(path))
    refused("at most 0.1", *words, "--most-mw", "0.1", "-o", str(tmp_path / "drive.csv"))
    assert not (tmp_path / "drive.csv").exists()
    refused("--heaters", "export", str(schedule), "--to", "heaters")


def signal_to_crosstalk_db(
    fabric: om.Fabric,
    matching: np.ndarray,
    difference_rad: np.ndarray,
    sum_rad: np.ndarray,
) -> float:
    """Solve for all light densely, and return the worst ratio with all circuits loaded.

    Both couplers of every cell send 52 % of the power across, hence cells leak at -28 dB in cross
    even where phases are right. ``difference_rad[cell]`` and ``sum_rad[cell]`` are those of both
    arms' phases.
    """
    assert fabric.graph is not None
    coupler = np.array([[np.sqrt(0.48), 1j * np.sqrt(0.52)], [1j * np.sqrt(0.52), np.sqrt(0.48)]])
    cells = []
    for difference, total in zip(difference_rad, sum_rad, strict=True):
        arms_rad = (total + difference * np.array([1, -1])) / 2
        cells.append(0.95 * (coupler @ np.diag(np.exp(1j * arms_rad)) @ coupler))
    guides = np.ones(fabric.graph.links.count, dtype=complex)
    waves = solve_densely(fabric.graph, np.array(cells), guides, fabric.source_terminals)
    power = np.abs(waves.leaving[fabric.destination_terminals]) ** 2  # [destination, source]
    senders = np.flatnonzero(matching >= 0)
    arriving = power[np.ix_(matching[senders], senders)]
    signal = arriving.diagonal()
    crosstalk = np.maximum(arriving.sum(axis=1) - signal, 1e-30)  # 0 if one circuit is alone
    return float(10 * np.log10((signal / crosstalk).min()))


@pytest.mark.parametrize("fabric", [om.HexMesh(2, 2, ports=6), om.Benes(8)])
def test_light_is_as_good_as_without_heat(fabric: om.Fabric) -> None:
    """Pre-compensated phases: the worst crosstalk of each slot is no worse by 0.5 dB.

    Without compensation, the same heat makes it worse by far more.
    """
    assert fabric.graph is not None
    rng = np.random.default_rng(1)
    solution = om.solve(om.AllToAll(fabric), seed=0)
    schedule = solution.schedule
    states = om.settle_free_cells(solution.problem, schedule, "smartlight").astype(np.int8)
    heaters, cold = draw_table(fabric, rng)
    device = om.Device(thermal_crosstalk=0.03, thermal_decay_cells=1.0)
    warm = CellDevice.of(device, fabric.n_cells)
    shares = heat_shares(fabric.graph, device)
    plans = {
        "without heat": (plan_heater_steps(fabric, states, heaters, cold), 0.0),
        "uncompensated": (plan_heater_steps(fabric, states, heaters, cold), 1.0),
        "compensated": (plan_heater_steps(fabric, states, heaters, warm), 1.0),
    }
    worst_db: dict[str, list[float]] = {name: [] for name in plans}
    for slot, matching in enumerate(schedule.matchings):
        for name, (steps, heat) in plans.items():
            volts = replay(steps, fabric.n_cells, slot)
            arms_rad = np.zeros(volts.shape)
            turn_rad = np.zeros(volts.shape)
            for (cell, arm), heater in heaters.items():
                turn_rad[cell, arm - 1] = heater.b_rad_per_v2 * volts[cell, arm - 1] ** 2
                arms_rad[cell, arm - 1] = heater.a_rad + turn_rad[cell, arm - 1]
            warmed_rad = heat * (turn_rad.sum(axis=1) @ shares)
            difference_rad = arms_rad[:, 0] - arms_rad[:, 1] + warmed_rad
            ratio_db = signal_to_crosstalk_db(
                fabric, matching, difference_rad, arms_rad.sum(axis=1) + warmed_rad
            )
            worst_db[name].append(ratio_db)
    without = np.array(worst_db["without heat"])
    assert (np.array(worst_db["compensated"]) >= without - 0.5).all()
    assert min(worst_db["uncompensated"]) < without.min() - 3
