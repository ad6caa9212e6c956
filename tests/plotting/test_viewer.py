"""The viewer in a real browser: its content, and that it makes no request."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import Fabric
from optmatch.plotting import CELL_LOSS_DB, slot_data, toggles_data, viewer_page
from tests.helpers.browsers import open_html
from tests.helpers.traced import schedule_of, traced_schedule

SLOTS = 6
ON_CIRCUIT = """([k, length]) => {
  const path = document.querySelectorAll('.circuit .hit')[k];
  const there = path.getPointAtLength(length);
  const p = there.matrixTransform(path.getScreenCTM());
  return [p.x, p.y];
}"""


class Shown(NamedTuple):
    """A page in the browser, and the objects behind it."""

    page: Any
    fabric: Fabric
    schedule: om.Schedule
    noise: list[str]
    """Everything on the console, every error, and every request but the one for the file."""


def open_page(
    browser: Any, folder: Path, fabric: Fabric, schedule: om.Schedule, **more: Any
) -> Shown:
    """Write the page to a file and open it."""
    text = viewer_page((fabric, schedule), **more)
    viewport = {"width": 1400, "height": 900}
    opened = open_html(browser, folder, text, viewport=viewport, reduced_motion="reduce")
    return Shown(opened.page, fabric, schedule, opened.noise)


@pytest.fixture
def shown(browser: Any, tmp_path: Path) -> Iterator[Shown]:
    """Show a schedule on a small mesh; afterwards the page must have been silent."""
    mesh = om.HexMesh(5, 5, ports=12)
    opened = open_page(browser, tmp_path, mesh, traced_schedule(mesh, SLOTS))
    yield opened
    opened.page.close()
    assert opened.noise == []


def slot_of(page: Any) -> int:
    """Read the slot on show from its headline."""
    found = re.match(r"Slot (\d+) of", page.inner_text("#now .slot"))
    assert found
    return int(found[1])


def go_to(page: Any, slot: int) -> None:
    """Move the slider, as a hand would: by its input event."""
    page.locator("#slider").fill(str(slot))


def test_the_page_needs_nobody(shown: Shown) -> None:
    """No address of the network in it, a policy that forbids all, and no request (see `shown`)."""
    page = shown.page.content()
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert not re.search(r"https?://|@import|url\(", page)


def test_the_slider_changes_the_slot(shown: Shown) -> None:
    numbers = set()
    for slot in [*range(SLOTS), 2]:
        go_to(shown.page, slot)
        light = slot_data((shown.fabric, shown.schedule), slot)
        assert slot_of(shown.page) == slot
        assert shown.page.locator(".circuit").count() == len(light.circuits)
        rows = [row.split() for row in shown.page.locator("#rows tr").all_inner_texts()]
        assert [(row[0], row[2], row[3]) for row in rows] == [
            (str(c.source), str(c.destination), str(len(c.cells))) for c in light.circuits
        ]
        assert f"{light.cells_used} of {shown.fabric.n_cells} cells lit" in shown.page.inner_text(
            "#now"
        )
        numbers.add(len(light.circuits))
    assert len(numbers) > 1


INK = """(places) => {
  const canvas = document.querySelector('#cells'), box = canvas.getBoundingClientRect();
  const m = document.querySelector('#circuits').getScreenCTM();
  const pen = new OffscreenCanvas(canvas.width, canvas.height)
    .getContext('2d', { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const dense = canvas.width / box.width;
  const style = getComputedStyle(canvas);
  const names = ['--body', '--set', '--toggled'].map((name) => {
    const hex = style.getPropertyValue(name).trim();
    return [name, [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16))];
  });
  const at = (px, py) => {
    const p = new DOMPoint(px, -py).matrixTransform(m);
    const place = [(p.x - box.left) * dense, (p.y - box.top) * dense];
    const [r, g, b, a] = pen.getImageData(...place.map(Math.round), 1, 1).data;
    if (a < 200) return '';
    const far = ([, c]) => Math.abs(r - c[0]) + Math.abs(g - c[1]) + Math.abs(b - c[2]);
    return names.sort((p, q) => far(p) - far(q))[0][0];
  };
  return places.map(([x, y, nx, ny]) => [at(x, y), at(x + 0.23 * nx, y + 0.23 * ny)]);
}"""
"""Colours in the middle of a cell, and beside it, where the mark of a change shows."""


def inked(shown: Shown) -> list[list[str]]:
    """Read from the canvas what each cell shows; see `INK`."""
    graph = shown.fabric.graph
    assert graph is not None
    along = graph.ends[:, 1] - graph.ends[:, 0]
    normal = along[:, ::-1] * [-1, 1] / np.linalg.norm(along, axis=1, keepdims=True)
    places = np.concatenate([graph.ends.mean(axis=1), normal], axis=1)
    found: list[list[str]] = shown.page.evaluate(INK, places.tolist())
    return found


def test_the_cells_are_in_their_states(shown: Shown) -> None:
    """Bars leave the middle of a cell empty, crosses meet there, and a free cell has no body."""
    go_to(shown.page, 1)
    shown.page.uncheck("#mark")
    states = slot_data((shown.fabric, shown.schedule), 1).states.tolist()
    assert set(states) == {-1, 0, 1}
    told = {0: "--body", 1: "--set", -1: ""}
    assert [middle for middle, _ in inked(shown)] == [told[state] for state in states]


def test_toggled_cells_are_counted_and_marked(shown: Shown) -> None:
    counts = toggles_data(shown.schedule).counts.tolist()
    assert max(counts) > 0
    for slot in range(SLOTS):
        go_to(shown.page, slot)
        assert shown.page.inner_text("#toggles") == str(counts[slot])
        assert sum(beside == "--toggled" for _, beside in inked(shown)) == counts[slot]
    shown.page.uncheck("#mark")
    assert not any(beside for _, beside in inked(shown))


def test_hovering_a_circuit_tells_all_about_it(shown: Shown) -> None:
    light = slot_data((shown.fabric, shown.schedule), 0)
    names = shown.fabric.port_names
    for k, circuit in enumerate(light.circuits):
        shown.page.mouse.move(5, 5)
        shown.page.mouse.move(*shown.page.evaluate(ON_CIRCUIT, [k, 0.5]))
        text = shown.page.inner_text("#tip")
        i, j, n = circuit.source, circuit.destination, len(circuit.cells)
        assert f"port {i} ({names[i]}) ↔ port {j} ({names[j]})" in text
        assert (
            f"{n} cell{'s' * (n > 1)}, {n * CELL_LOSS_DB:.1f} dB at {CELL_LOSS_DB} dB per cell"
            in text
        )
        cells = circuit.cells.tolist()
        told = cells if n <= 30 else [*cells[:28], "…", cells[-1]]
        assert f"cells {' '.join(map(str, told))}\n" in text + "\n"
        assert shown.page.locator(".circuit.on").count() == 1
    shown.page.mouse.move(5, 5)
    assert shown.page.locator("#tip").is_hidden()
    assert shown.page.locator(".chosen").count() == 0


def test_hovering_a_port_tells_its_circuit(shown: Shown) -> None:
    for port, partner in enumerate(shown.schedule.matchings[0].tolist()):
        shown.page.locator(".port circle").nth(port).hover()
        text = shown.page.inner_text("#tip")
        name = shown.fabric.port_names[port]
        if partner < 0:
            assert text == f"port {port} ({name}): idle"
        else:
            low, high = sorted((port, partner))
            assert text.startswith(f"port {low} (") and f"port {high} (" in text


def test_hovering_a_cell_tells_its_state(shown: Shown) -> None:
    go_to(shown.page, 1)
    light, data = slot_data((shown.fabric, shown.schedule), 1), toggles_data(shown.schedule)
    graph = shown.fabric.graph
    assert graph is not None
    words = {0: "bar", 1: "cross", -1: "free"}
    place = """([x, y]) => {
      const links = document.querySelector('#circuits');
      const p = new DOMPoint(x, -y).matrixTransform(links.getScreenCTM());
      return [p.x, p.y];
    }"""
    chosen = [int((light.states == state).argmax()) for state in (-1, 0, 1)] + [
        int(light.toggled[0])
    ]
    for cell in chosen:
        x, y = graph.ends[cell].mean(axis=0).tolist()
        shown.page.mouse.move(*shown.page.evaluate(place, [x, y]))
        text = shown.page.inner_text("#tip")
        assert f"cell {cell}: {words[int(light.states[cell])]}" in text
        before = int(data.held[0, cell])
        assert ("not set before" if before < 0 else f"before: {words[before]}") in text
        assert ("toggled for this slot" in text) == bool(data.toggled[1, cell])
        users = [c for c in light.circuits if cell in c.cells]
        assert len(users) == 0 or any(f"port {c.source} (" in text for c in users)
        assert ("no circuit" in text) == (not users)


def test_light_is_on_a_canvas_while_slots_play(shown: Shown) -> None:
    page, light = shown.page, shown.page.locator("#light")
    empty = light.evaluate("el => el.toDataURL()")
    assert page.locator(".circuit").count() > 0
    page.select_option("#speed", "0.5")
    page.click("#play")
    assert page.locator(".circuit").count() == 0
    assert light.evaluate("el => el.toDataURL()") != empty
    page.click("#play")
    assert page.locator(".circuit").count() > 0
    assert light.evaluate("el => el.toDataURL()") == empty
    rows = page.locator("#rows tr").count()
    page.select_option("#speed", "15")
    page.click("#play")
    page.locator("#rows tr").first.wait_for(state="detached", timeout=5000)
    page.click("#play")
    go_to(page, 0)
    assert page.locator("#rows tr").count() == rows, "the list is back where slots stand"


def test_playing_goes_on_and_stops(shown: Shown) -> None:
    """The button starts and pauses, a step by hand pauses, the last slot leads to the first."""
    page = shown.page
    page.select_option("#speed", "5")
    go_to(page, SLOTS - 1)
    page.click("#play")
    assert page.get_attribute("#play", "aria-label") == "Pause"
    page.locator("#now .slot", has_not_text=f"Slot {SLOTS} of").wait_for(timeout=5000)
    page.click("#play")
    stopped = slot_of(page)
    page.wait_for_timeout(500)
    assert slot_of(page) == stopped
    assert page.get_attribute("#play", "aria-label") == "Play"


def test_buttons_and_keys_step_through_the_slots(shown: Shown) -> None:
    page = shown.page
    steps = [
        ("#next", 1), ("ArrowRight", 2), ("#previous", 1), ("ArrowLeft", 0), ("ArrowLeft", 0),
        ("End", SLOTS - 1), ("#next", SLOTS - 1), ("Home", 0),
    ]  # fmt: skip
    for step, slot in steps:
        page.click(step) if step.startswith("#") else page.keyboard.press(step)
        assert slot_of(page) == slot
        assert page.input_value("#slider") == str(slot)


def test_a_port_can_be_followed(shown: Shown) -> None:
    """A click lists its partners in all slots and keeps it in sight; a row leads to its slot."""
    page, port = shown.page, 3
    page.locator(".port").nth(port).click()
    assert page.inner_text("#list-title") == f"Port {port} through all slots"
    partners = shown.schedule.matchings[:, port].tolist()
    rows = [row.split("\t")[0] for row in page.locator("#rows tr").all_inner_texts()]
    assert rows == [f"{k}: {'idle' if j < 0 else f'↔ {j}'}" for k, j in enumerate(partners)]
    for slot, partner in enumerate(partners):
        page.locator("#rows tr").nth(slot).click()
        assert slot_of(page) == slot
        page.mouse.move(5, 5)
        assert page.locator(".circuit.on").count() == (partner >= 0)
    page.keyboard.press("Escape")
    assert page.inner_text("#list-title") == "Circuits of this slot"
    page.locator(".port").nth(port).focus()
    page.keyboard.press("Enter")
    assert page.locator(".port.followed").count() == 1


def test_everything_has_a_name(shown: Shown) -> None:
    """Each button, slider and port can be told by its label."""
    unnamed = """[...document.querySelectorAll('button, input, select, [role=button], svg[role]')]
      .filter((node) => !(node.ariaLabel || node.labels?.length || node.textContent.trim()))
      .length"""
    assert shown.page.evaluate(unnamed) == 0
    go_to(shown.page, 0)
    (partner,) = {int(shown.schedule.matchings[0, 0])}
    label = shown.page.locator(".port").first.get_attribute("aria-label")
    said = "idle" if partner < 0 else f"meets port {partner}"
    assert label == f"port 0, {shown.fabric.port_names[0]}, {said}: follow"


def test_zoom_and_back(shown: Shown) -> None:
    page = shown.page
    whole = page.get_attribute("#picture", "viewBox")
    page.click("[aria-label='Zoom in']")
    assert float(page.get_attribute("#picture", "viewBox").split()[2]) < float(whole.split()[2])
    page.click("[aria-label='Show everything']")
    assert page.get_attribute("#picture", "viewBox") == whole


def test_ports_with_two_terminals(browser: Any, tmp_path: Path) -> None:
    mesh = om.HexMesh(5, 5, tx=6, rx=6)
    schedule = traced_schedule(mesh, 2)
    page, *_, noise = open_page(browser, tmp_path, mesh, schedule)
    circuit = slot_data((mesh, schedule)).circuits[0]
    assert page.locator(".port").count() == 12
    assert f"{circuit.source} → {circuit.destination}" in page.inner_text("#rows")
    assert noise == []
    page.close()


def test_a_switch_without_cells(browser: Any, tmp_path: Path) -> None:
    switch, schedule = om.IdealSwitch(4), schedule_of([[1, 2, 3, 0], [2, 3, -1, 1]])
    page, *_, noise = open_page(browser, tmp_path, switch, schedule)
    assert page.locator(".port").count() == 8
    go_to(page, 1)
    assert page.locator(".circuit").count() == 3
    page.mouse.move(*page.evaluate(ON_CIRCUIT, [1, 0.9]))
    assert page.inner_text("#tip").strip() == "port 1 → port 3"
    assert "cell" not in page.inner_text("main")
    assert noise == []
    page.close()


def test_lost_light_is_told(browser: Any, tmp_path: Path) -> None:
    """A circuit into a free cell is counted and said to be dark."""
    mesh = om.HexMesh(4, 4, ports=8)
    good = traced_schedule(mesh, 1)
    assert good.cell_states is not None
    states = good.cell_states.copy()
    states[0, slot_data((mesh, good)).circuits[0].cells[-1]] = -1
    broken = schedule_of(good.matchings, cell_states=states)
    lost = sum(not c.arrives for c in slot_data((mesh, broken)).circuits)
    page, *_, noise = open_page(browser, tmp_path, mesh, broken)
    assert lost > 0 and page.locator(".circuit.lost").count() == lost
    assert f"{lost} without light at the end" in page.inner_text("#now")
    assert noise == []
    page.close()


def test_text_cannot_leave_its_place(browser: Any, tmp_path: Path) -> None:
    title = "</script><script>alert('{{data}}')</script><b>&amp;"
    switch, schedule = om.IdealSwitch(2), schedule_of([[1, 0]])
    page, *_, noise = open_page(browser, tmp_path, switch, schedule, title=title)
    assert page.inner_text("#title") == title
    assert page.title() == title
    assert noise == []
    page.close()


def test_a_frame_that_is_hidden_first_is_drawn_later(browser: Any, tmp_path: Path) -> None:
    """A frame of Jupyter may have no size when its page loads: the cells come later."""
    mesh = om.HexMesh(3, 3, ports=4)
    inner = viewer_page((mesh, traced_schedule(mesh, 2)))
    (tmp_path / "inner.html").write_text(inner, encoding="utf-8")
    outer = '<iframe src="inner.html" style="display: none; width: 600px; height: 500px"></iframe>'
    page, noise = open_html(browser, tmp_path, outer)
    assert noise.pop(0) == (tmp_path / "inner.html").as_uri()
    frame = page.frames[1]
    key = "new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true})"
    frame.evaluate(f"document.body.dispatchEvent({key})")
    page.evaluate("document.querySelector('iframe').style.display = 'block'")
    drawn = """() => {
      const canvas = document.querySelector('#cells');
      if (canvas.width <= 100) return false;
      const pen = new OffscreenCanvas(canvas.width, canvas.height)
        .getContext('2d', { willReadFrequently: true });
      pen.drawImage(canvas, 0, 0);
      return pen.getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value);
    }"""
    frame.wait_for_function(drawn, timeout=5000)
    assert noise == []
    page.close()
