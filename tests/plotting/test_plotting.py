"""Pictures: data functions, drawings, and refused files."""

import json
import re
import sys
import tempfile
import webbrowser
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import optmatch as om
from optmatch.fabrics import Fabric, netlist_from_tree
from optmatch.fabrics.light import trace_circuits
from optmatch.io.exports import exported
from optmatch.plotting import (
    SlotData,
    all_slots_data,
    fabric_svg,
    mesh_data,
    plot_contact_sheet,
    plot_matchings,
    plot_slot,
    save_picture,
    schedule_data,
    slot_data,
    solution_html,
    toggles_data,
    viewer_page,
)
from optmatch.plotting.drawing import blank_figure
from optmatch.plotting.palette import CIRCUIT_COLOURS
from optmatch.plotting.rails import LOOKS as LOOKS_OF_RAILS
from optmatch.plotting.scenes import LOWER_HALF, label_time
from optmatch.plotting.viewer import draw_in_width, page_data
from tests.helpers.answers import answer_named, problem_named
from tests.helpers.command import python
from tests.helpers.pictures import SIZED, sized_answer
from tests.helpers.traced import schedule_of, traced_schedule
from tests.plotting.test_every_kind import check_texts

MESHES = [
    om.HexMesh(4, 4, ports=8),
    om.HexMesh(3, 4),
    om.HexMesh(5, 5, tx=6, rx=6),
    om.HexMesh.smartlight(),
    om.SquareMesh(4, 3),
    om.TriangularMesh(3, 4, ports=range(0, 28, 2)),
]
"""Each kind of mesh; bidirectional ports and pairs of terminals; all terminals and some."""


def shift_schedule(n: int) -> om.Schedule:
    """All shifts of n ports, for a switch without cells."""
    shifts = [[(port + k) % n for port in range(n)] for k in range(1, n)]
    return schedule_of(shifts, slot_s=1e-3)


def names_in(folder: Path) -> list[str]:
    """All names in a folder, hidden ones too."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: type(mesh).__name__)
def test_everything_lies_inside_the_bounds(mesh: Fabric) -> None:
    """Terminals, joins, ports and light, of each kind of mesh."""
    data = mesh_data(mesh)
    left, lower, right, upper = data.bounds
    curves = [
        c.curve
        for light in all_slots_data((mesh, traced_schedule(mesh, 3)))
        for c in light.circuits
    ]
    ports = np.array([mark.position for mark in data.ports])
    drawn = [data.terminals, data.links.reshape(-1, 2), ports, *curves]
    for points in drawn:
        assert (points >= (left, lower)).all() and (points <= (right, upper)).all()


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: type(mesh).__name__)
def test_ports_stand_outside_and_apart(mesh: Fabric) -> None:
    data, graph = mesh_data(mesh), mesh.graph
    assert graph is not None
    places = np.array([mark.position for mark in data.ports])
    between = np.linalg.norm(places[:, None] - places[None], axis=2)
    assert between[~np.eye(len(places), dtype=bool)].min() > 2 * data.port_radius
    along = np.linspace(0, 1, 9)[:, None, None]
    on_cells = (graph.ends[:, 0] * (1 - along) + graph.ends[:, 1] * along).reshape(-1, 2)
    away = np.linalg.norm(places[:, None] - on_cells[None], axis=2)
    assert away.min() > data.port_radius


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: type(mesh).__name__)
def test_light_goes_from_port_to_port_through_its_cells(mesh: Fabric) -> None:
    """The points on a curve are the two ports and, in between, the terminals of the route."""
    schedule, data = traced_schedule(mesh, 4, seed=1), mesh_data(mesh)
    seen = 0
    for light, routes in zip(
        all_slots_data((mesh, schedule)), trace_circuits(mesh, schedule), strict=True
    ):
        lit = set()
        for circuit, route in zip(light.circuits, routes, strict=True):
            way = circuit.curve[::3]  # what lies between are handles
            np.testing.assert_array_equal(way[0], data.port(circuit.source, "in").position)
            np.testing.assert_array_equal(way[-1], data.port(circuit.destination, "out").position)
            np.testing.assert_array_equal(way[1:-1], data.terminals[list(route.terminals)])
            assert circuit.cells.tolist() == list(route.cells)
            assert circuit.arrives
            lit.update(circuit.cells.tolist())
            seen += 1
        assert lit == set(np.flatnonzero(light.states >= 0).tolist())
        assert light.cells_used == len(lit)
    assert seen > 4


def test_curves_are_smooth() -> None:
    """Where two pieces meet, the handles on both sides lie on one line through the point."""
    mesh = om.HexMesh(4, 4, ports=8)
    for circuit in slot_data((mesh, traced_schedule(mesh, 1)), 0).circuits:
        inner = circuit.curve[3:-3:3]
        before, after = inner - circuit.curve[2:-4:3], circuit.curve[4:-2:3] - inner
        across = before[:, 0] * after[:, 1] - before[:, 1] * after[:, 0]
        along = (before * after).sum(axis=1)
        np.testing.assert_allclose(across, 0, atol=1e-12)
        assert (along > 0).all()


def test_light_that_is_lost_is_said_to_be_lost() -> None:
    """A curve into a free cell ends at the last terminal that was passed."""
    mesh = om.HexMesh(4, 4, ports=8)
    good = traced_schedule(mesh, 1, seed=3)
    assert good.cell_states is not None
    circuit = slot_data((mesh, good)).circuits[0]
    assert len(circuit.cells) > 2
    states = good.cell_states.copy()
    states[0, circuit.cells[-1]] = -1
    broken = schedule_of(good.matchings, cell_states=states)
    lost = slot_data((mesh, broken)).circuits[0]
    assert not lost.arrives
    assert set(lost.cells) < set(circuit.cells)
    assert len(lost.curve) < len(circuit.curve)
    assert "light lost: " in plot_slot((mesh, broken)).get_title()


def test_a_free_cell_keeps_its_state() -> None:
    """A first setting is no toggle; what was free meanwhile toggles against its last state."""
    states = [[0, -1, 1], [-1, -1, 1], [1, 0, -1], [1, -1, 0]]
    schedule = schedule_of([[-1]] * 4, cell_states=states)
    toggles = toggles_data(schedule)
    assert toggles.counts.tolist() == [0, 0, 1, 1]
    assert toggles.held.tolist() == [[0, -1, 1], [0, -1, 1], [1, 0, 1], [1, 0, 0]]


def test_schedule_data_of_a_mesh() -> None:
    """Circuits of bidirectional ports count once; times include the delay before each slot."""
    mesh = om.HexMesh(4, 4, ports=8)
    schedule = traced_schedule(mesh, 3)
    data = schedule_data((mesh, schedule))
    slots = all_slots_data((mesh, schedule))
    assert data.circuits.tolist() == [len(light.circuits) for light in slots]
    assert data.cells_used.tolist() == [light.cells_used for light in slots]
    np.testing.assert_allclose(data.start_s, [0.015, 1.03, 2.045])
    first: dict[tuple[int, int], int] = {}
    for slot, matching in enumerate(schedule.matchings.tolist()):
        for i, j in enumerate(matching):
            if j >= 0:
                first.setdefault((i, j), slot)
    assert {
        (i, j): int(data.meets[i, j]) for i, j in np.argwhere(data.meets >= 0).tolist()
    } == first


def test_the_first_sixteen_colours_differ_for_every_reader() -> None:
    to_lms = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.63]])
    to_lab = np.array(
        [[0.2105, 0.7936, -0.0041], [1.978, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    )
    protan = np.array(
        [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.052]]
    )
    deutan = np.array(
        [[0.3673, 0.8606, -0.228], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]
    )
    of_rails = [look.colour for look in LOOKS_OF_RAILS if look.lane == LOWER_HALF]
    for colours, least in ((CIRCUIT_COLOURS[:16], 0.06), (of_rails, 0.1)):
        rgb = np.array([[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in colours]) / 255
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        for sight in (np.eye(3), protan, deutan):
            lab = np.cbrt(np.clip(linear @ sight.T, 0, 1) @ to_lms.T) @ to_lab.T
            apart = np.linalg.norm(lab[:, None] - lab[None], axis=2)
            assert (apart + np.eye(len(lab))).min() > least
            assert np.linalg.norm(np.diff(lab, axis=0), axis=1).min() > 0.1  # neighbours contrast


def drawn(light: SlotData) -> Counter[str]:
    """How many strokes of each kind a slot needs: two for each cell, one for each circuit."""
    states = Counter(light.states.tolist())
    light_curves = len(light.circuits)
    return Counter(bar=2 * states[0], cross=2 * states[1], light=light_curves, halo=light_curves)


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: type(mesh).__name__)
def test_a_slot_is_drawn_in_full(mesh: Fabric) -> None:
    """Strokes of each kind, a mark and a number for each port, limits and a title."""
    schedule, data = traced_schedule(mesh, 2), mesh_data(mesh)
    light = slot_data((mesh, schedule), 1)
    ax = plot_slot((mesh, schedule), 1)
    assert ax.get_figure() is not None
    paths = {str(artist.get_label()): len(artist.get_paths()) for artist in ax.collections}
    assert {name: paths[name] for name in drawn(light)} == drawn(light)
    joins = len(data.links)
    assert paths["free"] == joins + 2 * int((light.states < 0).sum())
    (marks,) = (artist for artist in ax.collections if artist.get_label() == "ports")
    assert len(np.asarray(marks.get_offsets())) == len(data.ports)
    numbers = [text.get_text() for text in ax.texts if text.get_fontweight() == "bold"]
    assert numbers == [str(mark.port) for mark in data.ports]
    names = [text.get_text() for text in ax.texts if text.get_fontweight() != "bold"]
    assert set(names) <= {mark.name for mark in data.ports}  # none where there is no room
    assert "two strokes: a cell in bar; X: in cross" in ax.get_xlabel()
    assert ax.get_title().startswith(f"slot 1 (slots 0 to 1): {len(light.circuits)} circuit")
    assert f"{light.cells_used} of {mesh.n_cells} cells" in ax.get_title()


def test_circuits_are_drawn_as_curves_of_their_colours() -> None:
    """The paths in the axes are the curves of the data."""
    mesh = om.HexMesh(4, 4, ports=8)
    shown = mesh, traced_schedule(mesh, 1)
    ax = plot_slot(shown)
    (light,) = (artist for artist in ax.collections if artist.get_label() == "light")
    for path, circuit in zip(light.get_paths(), slot_data(shown).circuits, strict=True):
        np.testing.assert_array_equal(path.vertices, circuit.curve)
        assert set(np.asarray(path.codes)[1:].tolist()) == {4}  # cubic
    assert len({tuple(colour) for colour in np.asarray(light.get_edgecolor())}) == len(
        light.get_paths()
    )


def test_drawing_takes_the_axes_it_is_given() -> None:
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    before = dict(rcParams)
    figure = Figure()
    ax = figure.add_subplot()
    switch = om.IdealSwitch(4), shift_schedule(4)
    assert plot_slot(switch, ax=ax) is ax
    assert plot_matchings(switch, ax=figure.add_subplot()).get_figure() is figure
    sheet = Figure()
    assert plot_contact_sheet(switch, fig=sheet) is sheet
    assert dict(rcParams) == before
    assert (
        "matplotlib.pyplot" not in sys.modules
        or not sys.modules["matplotlib.pyplot"].get_fignums()
    )


def test_a_contact_sheet_has_all_slots() -> None:
    mesh = om.HexMesh(4, 4, ports=8)
    schedule = traced_schedule(mesh, 5)
    figure = plot_contact_sheet((mesh, schedule))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["0", "1", "2", "3", "4"]
    toggles = [ax.get_title(loc="right") for ax in figure.axes]
    counts = toggles_data(schedule).counts.tolist()
    assert toggles == ["", *(f"{k} toggle{'s' * (k != 1)}" for k in counts[1:])]
    assert f"{sum(counts):,} toggle" in figure.get_suptitle()


def test_broken_cells_are_marked() -> None:
    """Where they are, with their numbers; the page tells of each what is wrong with it."""
    mesh = om.Faulty(om.HexMesh(2, 2, ports=4), stuck_bar=[3], dead_cells=[7], dead_ports=[1])
    states = np.full((1, mesh.n_cells), -1, dtype=np.int8)
    idle = np.full((1, 4), -1, dtype=np.int32)
    dark = om.Schedule(matchings=idle, durations_s=np.ones(1), cell_states=states)
    ax = plot_slot((mesh, dark))
    spots: Any = next(line for line in ax.get_lines() if line.get_label() == "faults")
    graph: Any = mesh.graph
    np.testing.assert_allclose(spots.get_xydata(), graph.ends[[3, 7]].mean(axis=1), atol=1e-9)
    assert {"3", "7"} <= {text.get_text() for text in ax.texts if text.get_color() == "white"}
    page = page_data((mesh, dark))
    assert page["faults"] == {"3": "cell 3 stuck in bar", "7": "dead cell 7"}
    assert page["subtitle"] == "hex mesh 2 x 2 with 3 faults · 4 ports · 19 cells"


def test_the_footer_of_a_slot_is_no_wider_than_its_axes() -> None:
    """Beside each other, two slots do not write over each other's footers."""
    mesh = om.HexMesh(4, 4, ports=8)
    figure = blank_figure(8.0, 4.0)
    for ax in figure.subplots(1, 2):
        plot_slot((mesh, traced_schedule(mesh, 1, seed=3)), ax=ax)
        footer = ax.xaxis.label.get_window_extent()
        assert footer.width <= ax.get_window_extent().width


def test_a_switch_without_cells_is_drawn_as_two_columns() -> None:
    switch = om.IdealSwitch(5), shift_schedule(5)
    for circuit in slot_data(switch, 2).circuits:
        assert circuit.curve[0].tolist() == [0.0, -circuit.source]
        assert circuit.curve[-1, 1] == -circuit.destination and circuit.curve[-1, 0] > 0
        assert circuit.cells.size == 0 and circuit.arrives
    ax = plot_slot(switch, 2)
    assert ax.get_title() == "slot 2 (slots 0 to 3): 5 circuits"
    assert sorted(text.get_text() for text in ax.texts) == sorted("0123401234")


def test_the_table_of_matchings_says_when_ports_meet() -> None:
    """The entry of a pair is its slot, from 0; no pair without an entry but port and itself."""
    ax = plot_matchings((om.IdealSwitch(4), shift_schedule(4)))
    entries = {
        (int(t.get_position()[1]), int(t.get_position()[0])): t.get_text() for t in ax.texts
    }
    assert entries == {(i, (i + k) % 4): str(k - 1) for i in range(4) for k in (1, 2, 3)}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("destination port", "source port")


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".html"])
def test_pictures_are_written_by_suffix(tmp_path: Path, suffix: str) -> None:
    mesh = om.HexMesh(2, 2, ports=4)
    path = save_picture((mesh, traced_schedule(mesh, 2)), tmp_path / f"a{suffix}")
    heads = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF", ".html": b"<!DOCTYPE html>"}
    assert path.read_bytes().startswith(heads[suffix])
    assert names_in(tmp_path) == [f"a{suffix}"]
    (tmp_path / "usual").touch()
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_pictures_repeat_byte_for_byte(tmp_path: Path) -> None:
    shown = om.IdealSwitch(3), shift_schedule(3)
    for suffix in (".pdf", ".png", ".html"):
        one, two = (save_picture(shown, tmp_path / f"{k}{suffix}") for k in (1, 2))
        assert one.read_bytes() == two.read_bytes(), suffix


def test_text_of_files_is_text(tmp_path: Path) -> None:
    """Type 42 fonts in PDF, which journals ask for, and text in SVG, which programs can edit."""
    shown = om.IdealSwitch(2), shift_schedule(2)
    pdf = save_picture(shown, tmp_path / "x.pdf").read_bytes()
    assert b"/CIDFontType2" in pdf and b"/Type3" not in pdf
    assert re.search(r"<text[^>]*>2 circuits", save_picture(shown, tmp_path / "x.svg").read_text())


def test_ticks_of_time_are_steps_of_one_two_and_five() -> None:
    for span_s in (3e-3, 7.0, 11.0, 24.0, 90.0):
        axes = Figure().add_subplot()
        label_time(axes, span_s, 1)
        step = f"{np.diff(axes.get_xticks())[0]:.0e}"[0]
        assert step in "125"


def test_a_fabric_draws_itself_into_given_axes() -> None:
    axes = Figure().add_subplot()
    mesh = om.HexMesh(2, 2, ports=4)
    assert mesh.plot(ax=axes) is axes.figure
    assert axes.get_title() == mesh.title
    assert mesh.plot(title="chip A").axes[0].get_title() == "chip A"


@pytest.mark.parametrize("mesh", [om.HexMesh.smartlight(), om.SquareMesh(4, 4)])
def test_ports_of_a_netlist_without_placements_have_numbers(mesh: Fabric) -> None:
    """Ports of corners that are nearly one overlapped, and no port had a number."""
    pair = [1, 0, *[-1] * (mesh.n_ports - 2)]
    solution = om.solve(om.Routing(mesh, pair), seed=0)
    tree = json.loads(str(exported(solution, "netlist")))
    del tree["placements"]
    fabric = netlist_from_tree(tree)
    places = np.array([mark.position for mark in mesh_data(fabric).ports])
    apart = np.linalg.norm(places[:, None] - places, axis=2) + np.eye(len(places))
    assert apart.min() > 0.49
    texts = {text.get_text() for text in fabric.plot().axes[0].texts}
    assert {str(port) for port in range(fabric.n_ports)} <= texts


def test_lines_do_not_hide_numbers_of_boxes() -> None:
    """Circuits of a rack were drawn through the numbers of its chips."""
    (ax,) = answer_named("reroute").plot().axes
    assert all(text.get_bbox_patch() is not None for text in ax.texts)


def test_many_ports_without_cells_are_a_table() -> None:
    """Twelve sheets of 40 lines each named no port."""
    (ax,) = om.solve(om.AllToAll(om.IdealSwitch(40)), seed=0).plot().axes
    assert len(ax.texts) == 40 * 39


@pytest.mark.parametrize("width_mm", [85.0, 180.0])
@pytest.mark.parametrize("kind", [*SIZED, "all-to-all problem", "straggler"])
def test_a_picture_has_the_width_of_a_column(kind: str, width_mm: float, tmp_path: Path) -> None:
    """With letters that can be read, and no text that is cut off or on another one."""
    shown: Any
    if kind == "straggler":
        late = om.Collective("all-reduce", 8, 1e9, delay_s=1e-3, late_s={"7": 0.02})
        shown = om.solve(late, "stragglar", seed=0)
    else:
        shown = problem_named("all-to-all") if " " in kind else answer_named(kind)
    figure = draw_in_width(partial(shown.plot, title="A title in a paper"), width_mm)
    assert figure.get_figwidth() == pytest.approx(width_mm / 25.4)
    check_texts(figure)
    options: Any = {"width_mm": width_mm, "title": "mine"}
    assert save_picture(shown, tmp_path / "x.pdf", **options).read_bytes().startswith(b"%PDF")


def test_one_slot_or_all(tmp_path: Path) -> None:
    """A chosen slot, and a schedule of one slot, have the title of a single drawing."""
    text = {}
    for name, shown, slot in (
        ("all", (om.IdealSwitch(3), shift_schedule(3)), None),
        ("second", (om.IdealSwitch(3), shift_schedule(3)), 1),
        ("only", (om.IdealSwitch(2), shift_schedule(2)), None),
    ):
        text[name] = save_picture(shown, tmp_path / f"{name}.svg", slot=slot).read_text()
    assert "slot 1 (slots 0 to 1): 3 circuits" in text["second"]
    assert "2 circuits" in text["only"] and "slot 0" not in text["only"], "there is one alone"
    assert "circuits" not in text["all"]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("a.jpg", r"a\.jpg: its name has to end in \.png, \.svg, \.pdf, \.html"),
        ("a", r"a: its name has to end in"),
        ("missing/a.html", "the folder .* is not there"),
        ("folder.png", "is a folder, not a file to write"),
    ],
)
def test_bad_places_are_refused(tmp_path: Path, name: str, rule: str) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(om.InputError, match=rule) as caught:
        save_picture((om.IdealSwitch(2), shift_schedule(2)), tmp_path / name)
    assert name in str(caught.value)
    assert names_in(tmp_path) == ["folder.png"]


def test_what_does_not_fit_is_refused() -> None:
    """A slot that is not there, a schedule of another fabric, and one without cell states."""
    mesh, switch = om.HexMesh(2, 2, ports=4), om.IdealSwitch(4)
    with pytest.raises(om.InputError, match=r"slot = 3: slots are 0 \.\. 2"):
        slot_data((switch, shift_schedule(4)), 3)
    with pytest.raises(om.InputError, match=r"slot = -1"):
        plot_slot((switch, shift_schedule(4)), -1)
    with pytest.raises(om.InputError, match="the schedule has 3 ports, the fabric 4"):
        plot_slot((switch, shift_schedule(3)))
    with pytest.raises(om.InputError, match="cell_states has no cells, the fabric 19"):
        viewer_page((mesh, shift_schedule(4)))
    empty = schedule_of(np.empty((0, 4)))
    with pytest.raises(om.InputError, match="no slots"):
        plot_contact_sheet((switch, empty))
    with pytest.raises(om.InputError, match="the viewer has all slots"):
        save_picture((switch, shift_schedule(4)), "never.html", slot=1)
    with pytest.raises(om.InputError, match="cell_loss_db = -1"):
        viewer_page((switch, shift_schedule(4)), cell_loss_db=-1)


def test_without_a_schedule_there_is_nothing_to_draw() -> None:
    """Drawing refuses with the status; in a notebook the status is shown."""
    problem = om.Routing(om.HexMesh(2, 2, ports=4), np.array([1, 0, -1, -1], dtype=np.int32))
    solution = om.Solution(
        problem=problem, status=om.Status.INFEASIBLE, method="m", stats={"reason": "a <dead> pair"}
    )
    with pytest.raises(om.InputError, match="the status is infeasible"):
        plot_slot(solution)
    assert solution_html(solution) == "<p><b>infeasible</b> a &lt;dead&gt; pair</p>"


def test_a_missing_matplotlib_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The viewer needs no matplotlib; a drawing says how to get it."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    shown = om.IdealSwitch(2), shift_schedule(2)
    with pytest.raises(om.SolverUnavailable, match=r"pip install 'optmatch\[plot\]'"):
        plot_slot(shown)
    assert "<svg" in viewer_page(shown)


def test_pictures_are_imported_without_matplotlib() -> None:
    said = (
        "import sys, optmatch as om, optmatch.plotting as p\n"
        "s = om.Schedule(matchings=[[1, 0]], durations_s=[1.0])\n"
        "p.viewer_page((om.IdealSwitch(2), s))\n"
        "print([name for name in ('matplotlib', 'numba', 'scipy') if name in sys.modules])"
    )
    assert python("-c", said).stdout == "[]\n"


def test_explore_shows_the_page_below_the_cell_or_in_a_browser(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import IPython
    import IPython.display

    solution = om.solve(om.Routing(om.IdealSwitch(2), [1, 0]), seed=0)
    opened: list[str] = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(webbrowser, "open", opened.append)
    om.explore(solution)
    (page,) = tmp_path.glob("*/solution.html")
    assert opened == [page.as_uri()] and page.read_text(encoding="utf-8") == viewer_page(solution)

    shown: list[IPython.display.HTML] = []
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel="one"))
    monkeypatch.setattr(IPython.display, "display", shown.append)
    om.explore(solution, height_px=300)
    assert [each.data for each in shown] == [solution_html(solution, height_px=300)]
    assert len(opened) == 1


@pytest.mark.parametrize("draw", [fabric_svg, om.HexMesh._repr_svg_])
def test_fabrics_draw_themselves_as_svg(draw: Any) -> None:
    text = draw(om.HexMesh(2, 2, ports=4))
    assert text.startswith("<svg") and text.rstrip().endswith("</svg>")
    assert len(text) < 200_000


def test_solutions_show_their_viewer_in_a_frame() -> None:
    mesh = om.HexMesh(4, 4, ports=8)
    schedule = traced_schedule(mesh, 1, seed=3)
    problem = om.Routing(mesh, schedule.matchings[0])
    solution = om.Solution(
        problem=problem,
        schedule=schedule,
        status=om.Status.FEASIBLE,
        limit=om.Limit.EXHAUSTED,
        objective=100.0,
        lower_bound=80.0,
        method="traced",
        seed=3,
    )
    text = solution_html(solution)
    assert text.startswith('<div><iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert 'sandbox="allow-scripts"' in text and text.count("<") == 4
    page = viewer_page(solution)
    for said in ('["Status","feasible",true]', '["Gap","20 %"]', '["Method","traced, seed 3"]'):
        assert said in page


# `plot(ax=, title=)`: pictures of every kind go into given axes, with the title of the user.


@pytest.mark.parametrize("what", ["problem", "answer"])
@pytest.mark.parametrize("kind", SIZED)
def test_a_picture_goes_into_given_axes(kind: str, what: str) -> None:
    """The axes get the drawing and the title; the axes beside them stay empty."""
    shown: Any = problem_named(kind) if what == "problem" else answer_named(kind)
    figure = blank_figure(12.0, 5.0)
    ours, beside = figure.subplots(1, 2)
    assert shown.plot(ax=ours, title="(a) ours") is figure
    assert ours.get_title() == "(a) ours"
    assert ours.collections or ours.images or ours.patches or ours.lines
    assert not (beside.collections or beside.images or beside.patches or beside.lines)
    assert beside.get_title() == ""


@pytest.mark.parametrize("kind", ["all-to-all", "routing", "demand", "slice-allocation"])
def test_large_pictures_go_into_given_axes(kind: str) -> None:
    (ax,) = blank_figure(6.0, 5.0).subplots(1, 1, squeeze=False)[0]
    sized_answer(kind, "100").plot(ax=ax, title="many")
    assert ax.get_title() == "many"


@pytest.mark.parametrize("kind", SIZED)
def test_what_are_no_axes_is_refused(kind: str) -> None:
    with pytest.raises(om.InputError, match="axes of matplotlib are expected"):
        answer_named(kind).plot(ax=3)


def test_optics_draw_losses_and_crosstalk() -> None:
    """Losses and crosstalk side by side; given axes get the losses alone."""
    solution = answer_named("all-to-all")
    optics = om.measure_optics(solution, "smartlight")
    left, right = optics.plot().axes
    n_slots = len(optics.matchings)
    assert [tick.get_text() for tick in left.get_yticklabels()] == [str(k) for k in range(n_slots)]
    worst = [
        f"{row:.1f}" for row in optics.insertion_loss_db.max(axis=1, initial=0.0, where=optics.lit)
    ]
    assert [text.get_text() for text in left.texts] == worst
    assert len(right.texts) == n_slots
    ax = blank_figure(5.0, 4.0).add_subplot()
    assert optics.plot(ax=ax, title="losses").axes == [ax]
    assert ax.get_title() == "losses"
    with pytest.raises(om.InputError, match="axes of matplotlib are expected"):
        optics.plot(ax=3)


# Objects show themselves in Jupyter, and plain reprs stay what they are.


def test_a_figure_is_a_picture_without_pyplot() -> None:
    """The last line of a cell shows it, though nobody has loaded pyplot or said %matplotlib."""
    shells = pytest.importorskip("IPython.core.interactiveshell", reason="needs IPython")
    shell = shells.InteractiveShell.instance()
    try:
        figure = om.AllToAll(om.HexMesh(2, 2, ports=4)).plot()
        shown, _ = shell.display_formatter.format(figure)
    finally:
        shells.InteractiveShell.clear_instance()
    assert shown["image/png"].startswith(b"\x89PNG")


def test_without_matplotlib_a_fabric_is_its_repr() -> None:
    """Jupyter takes None for no picture and falls back to the text."""
    code = (
        "import sys; sys.modules['matplotlib'] = None; import optmatch as om;"
        "print(om.HexMesh(2, 2)._repr_svg_())"
    )
    assert python("-c", code).stdout == "None\n"
