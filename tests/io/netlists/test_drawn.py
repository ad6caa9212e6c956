"""The chip is what is drawn: places, arms, settings, pins and heaters count, or are named."""

import json
import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import netlist_from_tree
from optmatch.fabrics.light import trace
from optmatch.fabrics.netlists.wiring import Place
from optmatch.fabrics.waveguides import measure_waveguides
from optmatch.io.cells import read_cells, read_heaters
from optmatch.model import CellDevice
from tests.helpers.command import call, put
from tests.helpers.modes import examples

MZI: dict[str, Any] = {
    "instances": {
        "c1": "mmi2x2",
        "c2": "mmi2x2",
        "h": {"component": "straight_heater_metal"},
        "w": {"component": "straight"},
    },
    "connections": {"c1,o3": "h,o1", "h,o2": "c2,o2", "c1,o4": "w,o1", "w,o2": "c2,o1"},
    "ports": {"in0": "c1,o2", "in1": "c1,o1", "out0": "c2,o3", "out1": "c2,o4"},
}
PAIR: dict[str, Any] = {
    "instances": {"m": "mzi2x2", "n": "mzi2x2"},
    "connections": {"m,o3": "n,o2", "m,o4": "n,o1"},
    "ports": {"in0": "m,o2", "in1": "m,o1", "out0": "n,o3", "out1": "n,o4"},
}
WARM = om.Device(
    thermal_crosstalk=0.05,
    heater_mw_per_pi=20.0,
    waveguide_loss_db_per_m=100.0,
    cell_length_m=3e-4,
)


def changed(tree: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(tree)), **keys}


def with_settings(**settings: dict[str, Any]) -> dict[str, Any]:
    tree = changed(MZI)
    for name, entry in settings.items():
        former = tree["instances"][name]
        component = former if isinstance(former, str) else former["component"]
        tree["instances"][name] = {"component": component, "settings": entry}
    return tree


def write(folder: Path, tree: dict[str, Any]) -> str:
    path = put(folder, "chip.json", json.dumps(tree))
    return str(path)


def solve_routing(folder: Path, tree: dict[str, Any], matching: list[int]) -> str:
    """Solve for a matching on a netlist, and return the file of the schedule."""
    schedule = folder / "s.json"
    om.save(om.solve(om.Routing(netlist_from_tree(tree), matching), seed=0), schedule, force=True)
    return str(schedule)


def drive(folder: Path, tree: dict[str, Any], heaters: str, *words: str, code: int = 0) -> Any:
    table = put(folder, "heaters.csv", heaters)
    schedule = solve_routing(folder, tree, [0, 1])
    return call("export", schedule, "--to", "heaters", "--heaters", table, *words, code=code)


# Distances are those of the places of cells.


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("place", [(450.0, 0.0), (0.0, 450.0), (-450.0, 0.0)])
def test_heat_has_one_distance(place: tuple[float, float], rotation: float) -> None:
    """Two cells of 300 um, 450 um apart: 0.05 exp(-1.5) of half a turn, in all directions."""
    x, y = place
    placements = {"m": {"x": 0, "y": 0, "rotation": rotation}}
    placements["n"] = {"x": x, "y": y, "rotation": rotation}
    fabric = netlist_from_tree(changed(PAIR, placements=placements, info={"cell_length": 300.0}))
    schedule = om.Schedule(matchings=[[0, 1]], durations_s=[1.0], cell_states=[[0, 0]])
    optics = om.measure_optics(om.Routing(fabric, [0, 1]), schedule, WARM)
    assert optics.heat_rad[0] == pytest.approx(0.05 * np.exp(-1.5) * np.pi, rel=1e-12)


def draw_layout(rng: np.random.Generator) -> dict[str, Any]:
    """Draw a row of cells in a random order and with random places, on a grid or off it."""
    n_cells = int(rng.integers(2, 7))
    names = [f"m{cell}" for cell in range(n_cells)]
    joins: dict[str, str] = {}
    for first, second in pairwise(names):
        pins = ("o2", "o1") if rng.random() < 0.5 else ("o1", "o2")
        joins |= {f"{first},o3": f"{second},{pins[0]}", f"{first},o4": f"{second},{pins[1]}"}
    scale = float(rng.choice([1.0, 250.0]))
    places = rng.permutation(36)[:n_cells]
    mixed = rng.random() < 0.5
    placements = {}
    for name, place in zip(names, places.tolist(), strict=True):
        x, y = 1.5 * scale * (place % 6), 1.5 * scale * (place // 6)
        if rng.random() < 0.3:
            x += scale * rng.uniform(-0.2, 0.2)
        rotation = 90 * int(rng.integers(0, 4)) if mixed else 0
        placements[name] = {"x": x, "y": y, "rotation": rotation}
    last = names[-1]
    ports = {"in0": "m0,o2", "in1": "m0,o1", "out0": f"{last},o3", "out1": f"{last},o4"}
    return {
        "instances": dict.fromkeys(names, "mzi2x2"),
        "connections": joins,
        "ports": ports,
        "placements": placements,
        "info": {"cell_length": scale} if rng.random() < 0.5 else {},
    }


def turned(tree: dict[str, Any], quarter_turns: int, mirror: bool) -> dict[str, Any]:
    """Turn a layout by quarters, after it was mirrored at the x axis."""
    placements = {}
    for name, place in tree["placements"].items():
        x, y, rotation = place["x"], place["y"], place["rotation"]
        if mirror:
            y, rotation = -y, -rotation
        for _ in range(quarter_turns):
            x, y, rotation = -y, x, rotation + 90
        placements[name] = {"x": x, "y": y, "rotation": rotation, "mirror": mirror}
    return changed(tree, placements=placements)


def figures_of(tree: dict[str, Any]) -> list[Any]:
    """Return heat, losses, lengths and delays of all circuits, and the waveguides of the chip."""
    fabric = netlist_from_tree(tree)
    states = (np.arange(fabric.n_cells) % 2).astype(np.int8)
    light = trace(fabric.graph, states[None], fabric.source_terminals[None])
    receivers = fabric.destination_terminals.tolist()
    matching = [receivers.index(terminal) for terminal in light.arrived[0].tolist()]
    schedule = om.Schedule(matchings=[matching], durations_s=[1.0], cell_states=[states])
    device = om.Device(
        thermal_crosstalk=0.05,
        heater_mw_per_pi=20.0,
        waveguide_loss_db_per_m=100.0,
        bend_loss_db=0.02,
        crossing_loss_db=0.03,
        cell_length_m=3e-4,
        cell_delay_s=1e-12,
    )
    optics = om.measure_optics(om.Routing(fabric, matching), schedule, device, idle="bar")
    guides = measure_waveguides(fabric.graph)
    return [
        optics.heat_rad,
        optics.insertion_loss_db,
        optics.length_m,
        optics.delay_s,
        guides.length,
        guides.bends,
        guides.crossings,
    ]


@pytest.mark.slow
def test_a_layout_may_be_turned_and_mirrored() -> None:
    """Of drawn layouts all figures are as before to 1e-9."""
    rng = np.random.default_rng(0)
    for number in range(examples(60, plain=60)):
        tree = draw_layout(rng)
        before = figures_of(tree)
        quarter_turns, mirror = ((1, False), (2, False), (3, False), (0, True), (1, True))[
            number % 5
        ]
        for found, figure in zip(
            figures_of(turned(tree, quarter_turns, mirror)), before, strict=True
        ):
            np.testing.assert_allclose(found, figure, rtol=1e-9, atol=1e-9, err_msg=str(number))


def test_couplers_tell_where_their_cell_lies() -> None:
    """Between them; and without all places nothing is measured by some of them."""
    double = changed(MZI)
    for name in ("c1", "c2", "h", "w"):
        double["instances"][f"d{name}"] = double["instances"][name]
    for first, second in MZI["connections"].items():
        double["connections"][f"d{first}"] = f"d{second}"
    double["connections"] |= {"c2,o3": "dc1,o2", "c2,o4": "dc1,o1"}
    double["ports"] = {"in0": "c1,o2", "in1": "c1,o1", "out0": "dc2,o3", "out1": "dc2,o4"}
    placements = {
        name: {"x": x, "y": 100.0, "rotation": 0}
        for name, x in (("c1", 0), ("c2", 300), ("dc1", 450), ("dc2", 750))
    }
    fabric = netlist_from_tree(changed(double, placements=placements))
    assert fabric.ends is not None
    assert fabric.ends[1] - fabric.ends[0] == pytest.approx(np.array([[1.5, 0.0]] * 2))
    negative = changed(double, placements=placements, info={"cell_length": -3})
    assert netlist_from_tree(negative).ends is None
    del placements["dc2"]
    assert netlist_from_tree(changed(double, placements=placements)).ends is None


def test_a_turn_within_a_mirrored_instance_goes_the_other_way() -> None:
    mirrored = Place(0.0, 0.0, mirror=True)
    assert Place(1.0, 2.0, 90.0).within(mirrored) == Place(1.0, -2.0, -90.0, mirror=True)


def test_places_within_an_instance_go_with_it() -> None:
    """Mirrored, then turned, then moved, as gdsfactory does; arrays have a pitch."""
    block = changed(PAIR, placements={"m": {"x": 100, "y": 50}, "n": {"x": 550, "y": 50}})
    block["ports"] = {"w1": "m,o2", "w2": "m,o1", "e1": "n,o3", "e2": "n,o4"}
    top = {
        "instances": {"s": "block", "t": "block"},
        "connections": {"s,e1": "t,w1", "s,e2": "t,w2"},
        "ports": {"in0": "s,w1", "in1": "s,w2", "out0": "t,e1", "out1": "t,e2"},
        "placements": {"s": {"x": 10}, "t": {"x": 2000, "y": 5, "rotation": 90, "mirror": True}},
        "info": {"cell_length": 100.0},
    }
    # `e1` looks electrical unless pins are said to carry light.
    tree = json.loads(json.dumps({"top": top, "block": block}).replace('e1"', 'x1"'))
    tree = json.loads(json.dumps(tree).replace('e2"', 'x2"'))
    ends = netlist_from_tree(tree).ends
    assert ends is not None
    middle = 100 * ends.mean(axis=1)
    assert middle == pytest.approx(np.array([[110, 50], [560, 50], [2050, 105], [2050, 555]]))
    assert 100 * (ends[2, 1] - ends[2, 0]) == pytest.approx([0, 100])

    renamed = json.dumps(PAIR).replace("m,", "s<0.0>,").replace("n,", "s<0.1>,")
    array = {"component": "mzi2x2", "array": {"columns": 1, "rows": 2, "row_pitch": 150}}
    tree = changed(json.loads(renamed), instances={"s": array}, placements={"s": {"x": 7}})
    tree["info"] = {"cell_length": 100.0}
    ends = netlist_from_tree(tree).ends
    assert ends is not None
    assert 100 * ends.mean(axis=1) == pytest.approx(np.array([[7, 0], [7, 150]]))


# Arms, settings and pins are used, or named.


def warnings_of(caplog: pytest.LogCaptureFixture, tree: dict[str, Any], **options: Any) -> str:
    """Return what is said of a netlist, in one warning at most."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="optmatch"):
        netlist_from_tree(tree, **options)
    assert len(caplog.records) <= 1
    return " ".join(record.getMessage() for record in caplog.records)


def test_arms_of_unlike_length_are_named(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """And have no phases: nobody knows the state without power."""
    tree = with_settings(h={"length": 100.0}, w={"length": 110.0})
    assert "c1+c2 differ by 10 um" in warnings_of(caplog, tree)
    circuit = netlist_from_tree(tree).circuits[0]
    assert circuit is not None and circuit.longer_um == pytest.approx(-10.0)
    schedule = solve_routing(tmp_path, tree, [0, 1])
    text = call("export", schedule, "--to", "csv").stdout
    assert text.splitlines()[2] == "0,c1+c2,bar,,"
    (row,) = json.loads(call("export", schedule, "--to", "json").stdout)["slots"][0]
    assert row["theta_rad"] is None and "shifters_rad" not in row

    # Their heaters have to say what the phase without power is.
    header = "cell,arm,a_rad,b_rad_per_v2,max_v\n"
    done = drive(tmp_path, tree, header + "c1+c2,h,0,0.39,5\n", code=2)
    assert "differ by 10 um" in done.stderr
    drive(tmp_path, tree, header + "c1+c2,h,0.4,0.39,5\n")


def test_arms_of_equal_length_are_not(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(caplog, with_settings(h={"length": 100.0}, w={"length": 100})) == ""
    assert warnings_of(caplog, MZI) == ""
    one = with_settings(w={"length": 110.0})
    assert "only some parts state their lengths" in warnings_of(caplog, one)
    switch = changed(PAIR)
    switch["instances"]["m"] = {"component": "mzi2x2", "settings": {"delta_length": 10.0}}
    assert "arms of m differ by 10 um" in warnings_of(caplog, switch)


def test_couplers_split_as_their_settings_say(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """0.4 across twice: 0.96 in cross, 0.04 to the other side."""
    understood: tuple[dict[str, Any], ...] = (
        {"splitting_ratio_cross": 0.4, "splitting_ratio_thru": 0.6},
        {"splitting_ratio_cross": 0.4},
        {"splitting_ratio_thru": 0.6},
        {"coupling": 0.4},
    )
    for settings in understood:
        tree = with_settings(c1=settings, c2=settings)
        assert warnings_of(caplog, tree) == ""
        schedule = om.Schedule(matchings=[[1, 0]], durations_s=[1.0], cell_states=[[1]])
        problem = om.Routing(netlist_from_tree(tree), [1, 0])
        optics = om.measure_optics(problem, schedule, "ideal")
        assert optics.insertion_loss_db[0] == pytest.approx(-10 * np.log10(0.96))
        assert optics.crosstalk[0, 0] == pytest.approx(0.04)
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"splitting_ratio_cross": 0.4, "splitting_ratio_thru": 0.7}, "more than all"),
        ({"splitting_ratio_cross": 0.4, "coupling": 0.5}, "coupling = 0.5"),
        ({"coupling": True}, "a number from 0 to 1"),
        ({"coupling": "half"}, "settings of c1: coupling = "),
        ({"coupling": 1.5}, "settings of c1: coupling = "),
    )
    for settings, match in refused:
        with pytest.raises(om.InputError, match=match):
            netlist_from_tree(with_settings(c1=settings))
    with pytest.raises(om.InputError, match=r"c1, c2 are no switch: no phase .* sets cross"):
        netlist_from_tree(with_settings(c1={"coupling": 0.1}, c2={"coupling": 0.1}))


@pytest.mark.parametrize(
    ("part", "settings", "words"),
    [
        ("c1", {"kappa": 0.4}, "unknown setting of couplers: kappa (c1)"),
        ("c1", {"length": 14.5}, "length (c1)"),
        ("w", {"loss_dB_cm": 3.0}, "loss_dB_cm (w)"),
        ("h", {"phase": 1.0}, "phase (h)"),
    ],
)
def test_unknown_settings_are_named(
    part: str, settings: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert words in warnings_of(caplog, with_settings(**{part: settings}))
    drawing = dict.fromkeys(settings)  # null: nothing is stated
    assert warnings_of(caplog, with_settings(**{part: drawing})) == ""


OWN: dict[str, Any] = {
    "instances": {"c1": "yb", "c2": "bdc", "h": "th", "w": "wg"},
    "connections": {"c1,o2": "h,o1", "h,o2": "c2,o2", "c1,o3": "w,o1", "w,o2": "c2,o1"},
    "ports": {"in0": "c1,o1", "out0": "c2,o3", "out1": "c2,o4"},
}
KINDS = {"yb": "coupler", "bdc": "coupler", "th": "shifter", "wg": "pass"}


def test_declared_components_have_the_pins_that_are_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A 1x2 splitter of another name is one, and pins may have any names."""
    assert "yb is taken for one of three pins" in warnings_of(caplog, OWN, components=KINDS)
    circuit = netlist_from_tree(OWN, components=KINDS).circuits[0]
    assert circuit is not None and circuit.difference_rad == pytest.approx((np.pi / 2, -np.pi / 2))
    named = json.loads(
        json.dumps(OWN)
        .replace("c1,o1", "c1,west")
        .replace("c1,o2", "c1,up")
        .replace("c1,o3", "c1,low")
    )
    pins = {"west": "a1", "up": "b1", "low": "b2"}
    other = netlist_from_tree(named, components=KINDS, pins=pins).circuits[0]
    assert other is not None and other.difference_rad == pytest.approx(circuit.difference_rad)


def test_columns_and_rows_stand_in_the_instance_too() -> None:
    tree: dict[str, Any] = {
        "instances": {"s": {"component": "mzi2x2", "columns": 2, "rows": 1, "column_pitch": 500}},
        "connections": {"s<0.0>,o3": "s<1.0>,o2", "s<0.0>,o4": "s<1.0>,o1"},
        "ports": {
            "in0": "s<0.0>,o2",
            "in1": "s<0.0>,o1",
            "out0": "s<1.0>,o3",
            "out1": "s<1.0>,o4",
        },
        "placements": {"s": {"x": 7}},
        "info": {"cell_length": 100.0},
    }
    fabric = netlist_from_tree(tree)
    assert fabric.instances == ("s<0.0>", "s<1.0>") and fabric.ends is not None
    assert 100 * fabric.ends.mean(axis=1) == pytest.approx(np.array([[7, 0], [507, 0]]))
    tree["instances"]["s"] = {"component": "mzi2x2", "array": [2, 1]}
    with pytest.raises(om.InputError, match="a mapping with columns and rows"):
        netlist_from_tree(tree)


def test_info_says_what_was_read(tmp_path: Path) -> None:
    tree = with_settings(h={"length": 100.0, "width": 0.5}, w={"length": 110.0})
    done = call("info", write(tmp_path, tree))
    assert "read: setting of waveguides and phase shifters length: used" in done.stdout
    assert "width: passed over: how it is drawn" in done.stdout
    assert "read: assumed: arms of c1+c2 differ" in done.stdout
    read = json.loads(call("info", write(tmp_path, tree), "--json").stdout)["read"]
    assert any("passed over" in line for line in read)


# Heaters and tables of cells.


def test_drive_tables_begin_where_cells_are_without_power(tmp_path: Path) -> None:
    """As `verify` counts: bar without power takes no voltage."""
    table = tmp_path / "cells.csv"
    heaters = "cell,arm,a_rad,b_rad_per_v2,max_v\nm,1,0.0,0.39,5\nn,1,0.0,0.39,5\n"
    for text, volts in (
        ("cell,bar_phase_rad,cross_phase_rad\nm,0,3.141592653589793\n1,0,3.141592653589793\n", 0),
        ("cell,phase_offset_rad\nm,3.141592653589793\nn,3.141592653589793\n", 0),
        ("cell,bar_loss_db\nm,0.9\n", np.sqrt(np.pi / 0.39)),
        ("cell,phase_offset_rad\nm,1\nn,1\n", np.sqrt((np.pi - 1) / 0.39)),
    ):
        table.write_text(text)
        done = drive(tmp_path, PAIR, heaters, "--device-cells", str(table))
        rows = [line.split(",") for line in done.stdout.splitlines()[2:]]
        assert [float(row[5]) for row in rows] == pytest.approx([volts] * 2 if volts else [])
    stated = heaters.replace("1,0.0", "1,0.5")
    done = drive(tmp_path, PAIR, stated, "--device-cells", str(table), code=2)
    assert "0.5 rad by its heaters and 1 rad by the table" in done.stderr


def test_cells_without_a_stated_phase_have_that_of_the_netlist(tmp_path: Path) -> None:
    """A table that states the phases of one cell changes no other one."""
    path = put(tmp_path, "cells.csv", "cell,bar_phase_rad\n0,0.25\n")
    phases_rad = np.array([[1.0, -1.0], [0.5, -0.5]])
    cells = read_cells(path, 2, "ideal", phases_rad=phases_rad)
    assert cells.column("bar_phase_rad").tolist() == [0.25, 0.5]
    assert cells.column("cross_phase_rad").tolist() == [-1.0, -0.5]
    path.write_text("cell,bar_loss_db\n0,0.25\n")
    assert read_cells(path, 2, "ideal", phases_rad=phases_rad) == CellDevice.of(
        "ideal", 2, {0: {"bar_loss_db": 0.25}}
    )


def test_a_heater_is_where_the_netlist_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "heaters.csv"
    fabric = netlist_from_tree(MZI)
    for arm in ("1", "h", ""):
        path.write_text(f"cell,arm,a_rad,b_rad_per_v2\nc1+c2,{arm},0.3,0.39\n")
        assert list(read_heaters(path, fabric)) == [(0, 1)]
    for arm in ("2", "w"):
        path.write_text(f"cell,arm,a_rad,b_rad_per_v2\nc1+c2,{arm},0.3,0.39\n")
        with pytest.raises(om.FormatError, match=r"heaters of cell c1\+c2 are on arms 1 \(h\)"):
            read_heaters(path, fabric)
    path.write_text("cell,arm,a_rad,b_rad_per_v2,b_rad_per_v2\nc1+c2,1,0.3,0.39,0.4\n")
    with pytest.raises(om.FormatError, match="there twice"):
        read_heaters(path, fabric)
    path.write_text("cell,a_rad,b_rad_per_v2\nm,0.3,0.39\n")
    with caplog.at_level(logging.WARNING, logger="optmatch"):
        assert list(read_heaters(path, netlist_from_tree(PAIR))) == [(0, 1)]
    assert "no arm is stated, and arm 1 is taken" in caplog.text
