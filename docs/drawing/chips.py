"""Figures of chips and light: concepts, optics, faults, netlists and feed-forward fabrics."""

from __future__ import annotations

from typing import Any

import numpy as np

import optmatch as om
from drawing.tools import (
    AMBER,
    BLUE,
    FAINT,
    GREEN,
    INK,
    PALE,
    PALE_AMBER,
    PALE_BLUE,
    RED,
    Sketch,
    chart,
    new_chart,
    read_number,
    read_rows,
    sketch,
)


def draw_cell(drawing: Sketch, x: float, y: float, state: str, **style: Any) -> None:
    """Draw a cell of 90 x 56 with its corner at (x, y), and the ways of its state."""
    drawing.box(x, y, 90, 56, fill=style.get("fill", PALE), radius=8)
    upper = y + 14
    lower = y + 42
    if state == "bar":
        drawing.line((x, upper), (x + 90, upper), ink=BLUE, width=3)
        drawing.line((x, lower), (x + 90, lower), ink=GREEN, width=3)
    elif state == "cross":
        drawing.curve((x, upper), (x + 90, lower), ink=BLUE, width=3)
        drawing.curve((x, lower), (x + 90, upper), ink=GREEN, width=3)
    if style.get("names", True):
        for name, place, height, side in (
            ("a1", x - 5, upper, "end"),
            ("a2", x - 5, lower, "end"),
            ("b1", x + 95, upper, "start"),
            ("b2", x + 95, lower, "start"),
        ):
            drawing.words(place, height, name, side=side, size=12, ink=FAINT)


@sketch
def concepts_slots() -> Sketch:
    """Draw three slots of four ports on an axis of time, with delays between them."""
    drawing = Sketch(210, "Three slots of a schedule of four ports, with a delay before each")
    matchings = ([1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0])
    for slot, matching in enumerate(matchings):
        left = 14 + 124 * slot
        drawing.box(left, 40, 28, 130, fill=PALE_AMBER, line="none", radius=0)
        drawing.box(left + 28, 40, 92, 130, fill=PALE_BLUE, line="none", radius=0)
        drawing.words(left + 74, 24, f"slot {slot}", bold=True)
        for source, destination in enumerate(matching):
            ink = (BLUE, GREEN, RED, AMBER)[source]
            start = (left + 46, 60 + 30 * source)
            drawing.curve(start, (left + 104, 60 + 30 * destination), ink=ink, width=2.4)
        for port in range(4):
            drawing.words(left + 39, 60 + 30 * port, str(port), size=12)
            drawing.words(left + 112, 60 + 30 * port, str(port), size=12)
    drawing.words(28, 24, "delay", size=12, ink=AMBER)
    drawing.line((14, 184), (382, 184), arrow=True)
    drawing.words(350, 198, "time", size=12)
    return drawing


@sketch
def concepts_cell() -> Sketch:
    """Draw the two states of a cell."""
    drawing = Sketch(110, "A cell in bar and in cross")
    for left, state, ways in (
        (52, "bar", "a1 to b1, a2 to b2"),
        (246, "cross", "a1 to b2, a2 to b1"),
    ):
        drawing.words(left + 45, 16, state, bold=True, size=14)
        draw_cell(drawing, left, 30, state)
        drawing.words(left + 45, 100, ways, size=12)
    return drawing


@sketch
def concepts_link() -> Sketch:
    """Draw two circuits that share two cells and no link."""
    drawing = Sketch(170, "Two circuits that share two cells, but no link")
    for left in (60, 240):
        drawing.box(left, 40, 90, 70, radius=8)
    drawing.words(105, 26, "a cell", size=12, ink=FAINT)
    drawing.words(285, 26, "a cell", size=12, ink=FAINT)
    for y, ink, name in ((60, BLUE, "circuit 1"), (92, GREEN, "circuit 2")):
        drawing.line((14, y), (376, y), ink=ink, width=3)
        drawing.words(195, y - 12, name, size=12, ink=ink)
    drawing.line((195, 126), (195, 98), arrow=True, ink=INK)
    drawing.words(195, 138, "a link has room for one circuit;", size=12)
    drawing.words(195, 154, "a cell has room for two that agree on its state", size=12)
    return drawing


@chart
def optics_phase() -> Any:
    """Draw the power at both outputs of a cell against the difference of its phases."""
    figure, ax = new_chart(2.8)
    turn = np.linspace(0, np.pi, 200)
    bar = np.sin(turn / 2) ** 2
    ax.plot(turn / np.pi, bar, color=BLUE, label="straight: a1 to b1")
    ax.plot(turn / np.pi, 1 - bar, color=GREEN, label="across: a1 to b2")
    for place, name, side in (
        (0, "cross", "left"),
        (0.5, "half turned", "center"),
        (1, "bar", "right"),
    ):
        ax.axvline(place, color=FAINT, lw=0.8, ls=":")
        ax.text(place, 1.06, name, ha=side, va="bottom")
    ax.set_xlabel("difference of the phases of both arms, in pi")
    ax.set_ylabel("part of the power")
    ax.set_ylim(0, 1.2)
    ax.legend(loc="center right", frameon=False, bbox_to_anchor=(1.0, 0.42))
    return figure


@sketch
def optics_leak() -> Sketch:
    """Draw light that leaks in a cell from one circuit to the partner of another."""
    drawing = Sketch(160, "Crosstalk of first order: light leaks once, and goes on as set")
    drawing.box(140, 40, 100, 80, radius=8)
    drawing.line((20, 62), (140, 62), (240, 62), (360, 62), ink=BLUE, width=3.4, arrow=True)
    drawing.line((20, 100), (140, 100), (240, 100), (350, 100), ink=GREEN, width=3.4, arrow=True)
    drawing.curve((140, 62), (240, 96), ink=BLUE, dashed=True)
    drawing.line((240, 95), (346, 95), ink=BLUE, dashed=True)
    drawing.words(76, 46, "circuit i", size=12, ink=BLUE)
    drawing.words(76, 118, "circuit j", size=12, ink=GREEN)
    drawing.words(190, 24, "a cell in bar", size=12)
    drawing.words(298, 122, "signal of j,", size=12, ink=GREEN)
    drawing.words(298, 138, "and what leaks from i", size=12, ink=BLUE)
    return drawing


@chart
def optics_band() -> Any:
    """Draw leak of a cell in cross against the wavelength."""
    figure, ax = new_chart(2.6)
    offset_nm = np.linspace(-40, 40, 401)
    for slope, ink in ((0.001, GREEN), (0.003, BLUE)):
        share = slope * np.abs(offset_nm)
        leak_db = 10 * np.log10(np.maximum(4 * share**2, 1e-6))
        ax.plot(offset_nm, leak_db, color=ink, label=f"{slope} per nm")
    ax.plot([30], [10 * np.log10(4 * 0.09**2)], "o", color=BLUE)
    ax.annotate("-15 dB at 30 nm", (30, -14.9), (2, -9), color=INK, va="center")
    ax.set_ylim(-60, 0)
    ax.set_xlabel("distance from the central wavelength, nm")
    ax.set_ylabel("leak in cross, dB")
    ax.legend(frameon=False, title="slope of the coupler", loc="lower right")
    return figure


@chart
def optics_heat() -> Any:
    """Draw errors of phases around one heater that is on."""
    from optmatch.plotting import plot_heat

    mesh = om.HexMesh(4, 4, ports=8)
    graph = mesh.graph
    assert graph is not None
    middles = graph.ends.mean(axis=1)
    centre = int(np.argmin(np.hypot(*(middles - middles.mean(axis=0)).T)))
    distance = np.hypot(*(middles - middles[centre]).T)
    error_rad = 0.03 * np.exp(-distance / 1.0) * np.pi
    error_rad[centre] = np.nan  # its own turn is wanted
    figure, ax = new_chart(3.4)
    plot_heat(mesh, 1000 * error_rad, label="error of the phase, mrad", ax=ax)
    x, y = middles[centre]
    ax.plot([x], [y], "*", color=RED, ms=16)
    ax.set_title("star: the heater that turns its cell by pi (c = 0.03, l = 1)")
    return figure


@chart
def optics_delays() -> Any:
    """Draw seconds that a schedule waits, by how its delays are counted."""
    rows = read_rows("optics", "| slow cells |")
    names = ("longest delay for all", "each slot its own", "ordered", "bound")
    figure, ax = new_chart(3.4)
    for column, (name, ink) in enumerate(zip(names, (FAINT, AMBER, BLUE, INK), strict=True)):
        heights = [read_number(row[1 + column].split("to")[-1]) for row in rows]
        place = np.arange(len(rows)) + 0.2 * (column - 1.5)
        ax.bar(place, heights, 0.19, color=ink, label=name)
    labels = ["no slow cell", "1 %, 10x", "5 %, 5x", "20 %, 3x"]
    ax.set_xticks(range(len(rows)), labels)
    ax.set_ylabel("seconds of delays, most of three draws")
    ax.legend(frameon=False)
    return figure


@chart
def optics_power() -> Any:
    """Draw the power of heaters by how routes are chosen, and the bound."""
    rows = read_rows("optics", "| cells that take | as routed")
    names = ("as routed", "ties by power", "least power", "its bound")
    figure, ax = new_chart(2.8)
    for column, (name, ink) in enumerate(zip(names, (FAINT, AMBER, BLUE, INK), strict=True)):
        heights = [read_number(row[1 + column]) for row in rows]
        ax.bar(np.arange(len(rows)) + 0.2 * (column - 1.5), heights, 0.19, color=ink, label=name)
    ax.set_xticks(
        range(len(rows)), ["20 mW in cross,\nnothing in bar", "20 mW in bar,\nnothing in cross"]
    )
    ax.set_ylabel("power of a slot, W")
    ax.legend(frameon=False)
    return figure


@sketch
def faults_cell() -> Sketch:
    """Draw what a broken cell does with light."""
    drawing = Sketch(150, "Cells that are stuck in bar, stuck in cross, and dead")
    for left, state, name, what in (
        (26, "bar", "stuck in bar", "light goes straight,\nwhatever is asked"),
        (150, "cross", "stuck in cross", "light crosses,\nwhatever is asked"),
        (280, "none", "dead", "no light passes"),
    ):
        drawing.words(left + 45, 18, name, bold=True)
        draw_cell(drawing, left, 36, state, names=False)
        if state == "none":
            for y in (50, 78):
                drawing.line((left - 12, y), (left + 30, y), ink=BLUE, width=3)
            drawing.cross(left + 56, 64, 13)
        drawing.words(left + 45, 110, what, size=12)
    return drawing


@chart
def faults_yield() -> Any:
    """Draw the share of samples that survive, by the number of faults."""
    figure, ax = new_chart(2.8)
    problem = om.AllToAll(om.HexMesh(4, 4, ports=8))
    counts = (1, 2, 3, 4)
    low, middle, high = [], [], []
    for faults in counts:
        study = om.study_yield(problem, faults=faults, samples=120, seed=0)
        low.append(100 * study.interval[0])
        high.append(100 * study.interval[1])
        middle.append(100 * study.survived / 120)
    errors = [np.subtract(middle, low), np.subtract(high, middle)]
    ax.errorbar(counts, middle, np.clip(errors, 0, None), fmt="o-", color=BLUE, capsize=4)
    ax.set_xticks(counts)
    ax.set_ylim(0, 105)
    ax.set_xlabel("broken cells of 63, at random")
    ax.set_ylabel("% that keep all 7 slots")
    ax.set_title("all-to-all of 8 ports on 4 x 4 hexagons, 120 samples each")
    return figure


@sketch
def netlists_light() -> Sketch:
    """Draw a chain of parts, and the fabric that is left of it."""
    drawing = Sketch(190, "Parts of a netlist, and the cells that remain of them")
    drawing.words(10, 16, "netlist", bold=True, side="start")
    parts = (
        ("grating\ncoupler", 10),
        ("waveguide", 88),
        ("cell m1", 166),
        ("bend", 244),
        ("cell m2", 322),
    )
    for name, left in parts:
        is_cell = name.startswith("cell")
        fill = PALE_BLUE if is_cell else PALE
        drawing.box(left - 3, 32, 66, 46, name, fill=fill, size=11)
        if left < 300:
            drawing.line((left + 63, 55), (left + 75, 55), ink=BLUE, width=2.5)
    drawing.words(10, 112, "fabric", bold=True, side="start")
    for name, left in (("m1", 166), ("m2", 322)):
        drawing.box(left, 126, 60, 46, name, fill=PALE_BLUE)
    drawing.line((60, 149), (166, 149), ink=BLUE, width=2.5)
    drawing.line((226, 149), (322, 149), ink=BLUE, width=2.5)
    drawing.words(34, 149, "port in0", size=12)
    drawing.words(274, 136, "a link", size=12, ink=FAINT)
    return drawing


@sketch
def netlists_couplers() -> Sketch:
    """Draw two couplers and two arms, which are a cell."""
    drawing = Sketch(
        170, "Two couplers that two arms join are one cell, if an arm has a phase shifter"
    )
    drawing.box(40, 40, 310, 92, fill="none", line=FAINT, dashed=True)
    drawing.words(195, 26, "one cell: c1+c2", bold=True)
    for left, name in ((64, "c1"), (270, "c2")):
        drawing.box(left, 56, 56, 60, f"coupler\n{name}", size=11)
    for y in (68, 104):
        drawing.line((12, y), (64, y), ink=BLUE, width=2.5)
        drawing.line((120, y), (270, y), ink=BLUE, width=2.5)
        drawing.line((326, y), (378, y), ink=BLUE, width=2.5)
    drawing.box(154, 56, 84, 24, "phase shifter", fill=PALE_AMBER, size=11)
    drawing.words(195, 116, "arm 2", size=12, ink=FAINT)
    for x, y, name, side in (
        (14, 56, "a1", "start"),
        (14, 118, "a2", "start"),
        (376, 56, "b1", "end"),
        (376, 118, "b2", "end"),
    ):
        drawing.words(x, y, name, side=side, size=12, ink=FAINT)
    drawing.words(195, 152, "the phase decides between bar and cross", size=12)
    return drawing


@sketch
def netlists_pins() -> Sketch:
    """Draw the names of the four pins of a cell in four tools."""
    drawing = Sketch(190, "The pins of a cell as optmatch, gdsfactory, sax and PICBench name them")
    rows = read_rows("netlists", "| ours |")
    names = [[cell.strip("`") for cell in row] for row in rows]
    tools = ("optmatch", "gdsfactory", "sax", "PICBench")
    for number, tool in enumerate(tools):
        left = 76 + 190 * (number % 2)
        top = 24 + 92 * (number // 2)
        drawing.words(left + 45, top - 10, tool, bold=True, size=12)
        drawing.box(left, top, 90, 56, radius=8)
        for pin, (x, y, side) in enumerate(
            (
                (left - 4, 14, "end"),
                (left - 4, 42, "end"),
                (left + 94, 14, "start"),
                (left + 94, 42, "start"),
            )
        ):
            drawing.words(x, top + y, names[pin][number], side=side, size=12)
    return drawing


@chart
def feed_forward_looping() -> Any:
    """Draw a matching on a Benes network of eight ports, routed by looping."""
    from optmatch.plotting import plot_slot

    problem = om.Routing(om.Benes(8), [7, 6, 5, 4, 3, 2, 1, 0])
    figure, ax = new_chart(3.6)
    plot_slot(om.solve(problem, seed=0), ax=ax)
    ax.set_xlabel("")
    return figure
