"""Pictures and pages: files of pictures, and the viewer, one HTML page without any network."""

from __future__ import annotations

import html
import io
import json
import math
import os
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import (
    InputError,
    Limit,
    Problem,
    Solution,
    SolverUnavailable,
    describe_claims,
    number,
    unit_of,
    view_of_solution,
    write_amount,
)
from optmatch.model.display import titled
from optmatch.model.files import PICTURES, check_target, file_path, replace_file
from optmatch.plotting.drawing import Axes, Figure, blank_figure
from optmatch.plotting.figures import draw_schedule, plot_fabric
from optmatch.plotting.palette import CIRCUIT_COLOURS
from optmatch.plotting.slots import (
    HANDLE,
    INSET,
    OFFSET,
    Drawable,
    kept_colours,
    mesh_data,
    parts,
    toggles_data,
)

CELL_LOSS_DB = 0.48
"""Loss of a cell in dB: the mean of the iPronics SmartLight processor."""


def viewer_page(
    shown: Drawable, *, cell_loss_db: float = CELL_LOSS_DB, title: str | None = None
) -> str:
    """Write the page that shows a schedule.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule.
    cell_loss_db
        Loss of light in one cell, in dB, for the figures of each circuit.
    title
        Heading of the page; None for the kind of problem.

    Returns
    -------
    str
        HTML, complete with style, script and data. The page loads nothing and works from a file.

    Raises
    ------
    InputError
        If there is nothing to draw, or the loss is negative.

    Notes
    -----
    The page holds matchings and cell states, and follows the light itself: about a quarter of a
    byte for each cell and slot.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> from optmatch.model import Schedule
    >>> schedule = Schedule(matchings=[[1, 0]], durations_s=[1.0])
    >>> page = viewer_page((IdealSwitch(2), schedule), title="Two ports")
    >>> "<title>Two ports</title>" in page, "http" in page.replace("http-equiv", "")
    (True, False)
    """
    number("cell_loss_db", cell_loss_db)

    # Some kinds of problems have a page of their own; all others show their slots.
    make_page = view_of_solution(shown).page if isinstance(shown, Solution) else None
    data = page_data(shown, cell_loss_db=cell_loss_db) if make_page is None else make_page(shown)
    if title is not None:
        data["title"] = title

    shows_slots = "matchings" in data
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    content_of_placeholder = {
        "title": html.escape(data["title"]),
        "noun": str(data["noun"]),
        "style": _template("viewer.css"),
        "data": text.replace("<", "\\u003c"),  # no "</script>" can end the data early
        "light": _template("viewer_light.js") if shows_slots else "",
        "script": _template("viewer.js" if shows_slots else "viewer_scene.js"),
    }

    # In one pass, so that data cannot hold a placeholder.
    def replacement(placeholder: re.Match[str]) -> str:
        return content_of_placeholder[placeholder[1]]

    return re.sub(r"{{(\w+)}}", replacement, _template("viewer.html"))


def page_data(
    shown: Drawable,
    *,
    cell_loss_db: float = CELL_LOSS_DB,
    names: Sequence[str] = (),
    noun: str = "slot",
) -> dict[str, Any]:
    """Collect what the page of a schedule embeds, as plain values of JSON.

    The script of the page draws the fabric and the light of each slot from these data; it computes
    routes of circuits and their losses itself.

    Parameters
    ----------
    cell_loss_db
        The loss of a cell in dB.
    names
        The text that is said of each slot; slots that have names last for no known time.
    noun
        What the page calls a slot; only slots that are called so have a makespan.

    Returns
    -------
    dict
        Values by the names that `viewer.js` reads; lists are empty where there is nothing to say.

        The heading and the panel at the side:

        - `title`, `subtitle`: texts; `figures`: rows (name, value) of the panel;
        - `loss_db`, `loss_note`: the loss of a cell, and a remark if it is the usual one.

        The picture of the fabric, whose unit of length is a cell:

        - `bounds`: left, lower, right and upper end; `radius`: that of a port;
        - `inset`, `offset`: the distance of a terminal from the end and from the axis of its cell;
          `handle`: that of the control points of curves;
        - `ports`: rows of number, role, terminal, name, x, y, and the direction outwards (x, y);
          `labels`: names of ports;
        - `ends`: four numbers for each cell, x and y of its left and of its right end;
          `cell_names`: a text for each cell; `faults`: a text by the number of a cell;
        - `mate`: the terminal that each terminal is joined to, -1 for none.

        The slots:

        - `matchings[slot][port]`: the destination, -1 for none; `bidirectional`: whether circuits
          carry both ways;
        - `states`: cell states of all slots, in base 64 of bytes of five cells each;
        - `durations`, `names`: a text for each slot; `noun`: what a slot is called;
        - `colours`: those of circuits; `circuit_of_port`: the circuit whose colour a port has.
    """
    fabric, schedule = parts(shown)
    data = mesh_data(fabric)
    graph = fabric.graph
    loss_db = number("cell_loss_db", cell_loss_db)
    kind = shown.problem.kind if isinstance(shown, Solution) else "schedule"
    circuit_of_port = kept_colours(shown)
    broken_cells = [fault for fault in fabric.faults if fault.kind != "dead-port"]
    fault_of_cell = {str(fault.place): fault.named_on(fabric) for fault in broken_cells}

    # Each slot says how long it lasts. A single matching whose problem counts no time lasts for no
    # known time, and says nothing.
    durations = [write_amount(s, "s") for s in schedule.durations_s.tolist()]
    asks_for_time = isinstance(shown, Solution) and unit_of(shown.problem) == "s"
    if schedule.n_slots == 1 and not asks_for_time:
        durations = [""]

    # Ports that are named 0, 1, 2, ... need no labels.
    has_labels = fabric.labels != tuple(map(str, range(fabric.n_ports)))

    # The panel has slots, toggles and makespan, and what is known of a solution.
    figures: list[list[Any]] = [[f"{noun.capitalize()}s", f"{len(names) or schedule.n_slots}"]]
    if schedule.cell_states is not None:
        figures.append(["Toggles", write_amount(int(toggles_data(schedule).counts.sum()))])
    if noun == "slot":
        figures.append(["Makespan", write_amount(schedule.makespan_s, "s")])
    if isinstance(shown, Solution):
        fewest = shown.stats.get("slots_lower_bound")
        figures[0][1] += "" if fewest is None else f" (at least {fewest})"
        figures = panel(shown, figures)

    # Cell states of all slots are base 64 of bytes, five cells in base 3 each, cell 0 the lowest
    # digit; a free cell, -1, becomes 2.
    packed_states = b""
    if graph is not None:
        digits = np.asarray(schedule.cell_states) % 3
        n_missing = -digits.shape[1] % 5
        groups = np.pad(digits, ((0, 0), (0, n_missing))).reshape(-1, 5)
        packed_states = (groups @ 3 ** np.arange(5)).astype(np.uint8).tobytes()
    return {
        "title": kind.replace("-", " ").capitalize(),
        "subtitle": _subtitle(fabric),
        "figures": figures,
        "loss_db": loss_db,
        "loss_note": " (SmartLight mean)" if loss_db == CELL_LOSS_DB else "",
        "inset": INSET,
        "offset": OFFSET,
        "handle": HANDLE,
        "bidirectional": fabric.bidirectional,
        "bounds": _rounded(data.bounds),
        "radius": round(data.port_radius, 3),
        "colours": CIRCUIT_COLOURS,
        "circuit_of_port": [] if circuit_of_port is None else circuit_of_port.tolist(),
        "ports": [
            [*mark[:4], *_rounded(mark.position), *_rounded(mark.outward)] for mark in data.ports
        ],
        "ends": [] if graph is None else _rounded(graph.ends.ravel()),
        "mate": [] if graph is None else graph.mate.tolist(),
        "cell_names": [] if graph is None or graph.names is None else list(graph.names),
        "faults": fault_of_cell,
        "matchings": schedule.matchings.tolist(),
        "durations": durations,
        "labels": list(fabric.labels) if has_labels else [],
        "names": list(names),
        "noun": noun,
        "states": b64encode(packed_states).decode("ascii"),
    }


def _template(name: str) -> str:
    """Return the text of a file of the page."""
    return files("optmatch.plotting").joinpath(name).read_text(encoding="utf-8").strip()


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 4) for value in values]


def _subtitle(fabric: Fabric) -> str:
    """Return the name of a fabric with its numbers of ports and cells, for a page."""
    texts = [fabric.title, f"{fabric.n_ports:,} ports"]
    if fabric.graph is not None:
        texts.append(f"{fabric.n_cells:,} cells")
    return " · ".join(texts)


def panel(solution: Solution, rows: Sequence[list[Any]] = ()) -> list[list[Any]]:
    """List what is known of a solution as rows of name, value and, for the status, True.

    `rows` are further ones, which stand before the method and its time.
    """
    panel_rows: list[list[Any]] = [["Status", solution.status.value, True]]
    if solution.limit not in (None, Limit.EXHAUSTED):
        panel_rows.append(["Stopped by", solution.limit.value])
    for name, value in describe_claims(solution).items():
        panel_rows.append([name.capitalize(), value])
    panel_rows += rows
    seed = "" if solution.seed is None else f", seed {solution.seed}"
    panel_rows.append(["Method", solution.method + seed])
    panel_rows.append(["Solved in", write_amount(solution.time_s, "s")])
    return panel_rows


def pack_bars(
    row: NDArray[np.integer],
    kind: NDArray[np.integer],
    start: NDArray[np.floating],
    end: NDArray[np.floating],
    n_rows: int,
    span: float,
) -> list[list[int]]:
    """List for each row of a scene its bars: kind, start and length of each, one after the other.

    Starts and lengths become millionths of the span.

    Examples
    --------
    >>> start, end = np.array([0.0, 1.0]), np.array([1.0, 4.0])
    >>> pack_bars(np.array([1, 1]), np.array([0, 5]), start, end, 2, 4.0)
    [[], [0, 0, 250000, 5, 250000, 750000]]
    """
    begin = np.rint(start * 1e6 / span).astype(np.int64)
    length = np.rint(end * 1e6 / span).astype(np.int64) - begin
    columns = np.stack([row, kind, begin, length], axis=1)
    bars: list[list[int]] = [[] for _ in range(n_rows)]
    for place, *bar in columns.tolist():
        bars[place] += bar
    return bars


def scene(solution: Solution, **parts: Any) -> dict[str, Any]:
    """Make what the page of an answer that is no schedule embeds.

    `viewer_scene.js` draws it: a map of nodes and links, or rows of bars over time. The solution
    tells its titles, the figures of its panel, and a bound over time.

    Parameters
    ----------
    **parts
        Parts of the page, which replace those of equal names: `nodes` (x, y, width, height, text,
        kind, name) joined by `links` (node, node, kind, width, name), or `rows` over time with
        `bars` (kind, start and length in millionths of `span_s`, one after the other). Kinds are
        places in `legend` (name, colour; of bars a `BarLook`), -1 is not drawn. Each of `steps`
        says something, and what changes. `texts` in bars are for pictures: a page leaves them out.

    Returns
    -------
    dict
        The page, as plain values of JSON.
    """
    problem = solution.problem
    fabric = problem.fabric

    # A bound is a line over time where the objective is a time.
    bound_s = None
    if unit_of(problem) == "s" and math.isfinite(solution.gap):
        bound_s = solution.lower_bound
    return {
        "title": problem.kind.replace("-", " ").capitalize(),
        "subtitle": "" if fabric is None else _subtitle(fabric),
        "figures": panel(solution),
        "list": {"title": "Steps", "heads": [], "rows": []},
        "noun": "step",
        "bound_s": bound_s,
        **parts,
        "texts": [],
    }


SUFFIXES = (*PICTURES, ".html")
_MOST_PIXELS = 3200.0
"""Along one side of a PNG file."""
_DPI = 160
"""Dots per inch of PNG files."""


def save_picture(
    shown: Drawable | Problem[Any],
    path: str | os.PathLike[str],
    *,
    slot: int | None = None,
    title: str | None = None,
    width_mm: float | None = None,
    force: bool = False,
) -> Path:
    """Write a picture of a schedule, or of what a problem asks, to a file.

    Parameters
    ----------
    shown
        A solution, a fabric and a schedule, or a problem.
    path
        Ends in .png, .svg or .pdf for a drawing, in .html for the viewer.
    slot
        Draw this slot alone; None draws all on one sheet; of a demand, and of a plan of rails, as
        bars over time. The viewer always has all slots.
    title
        The title; None for what suits the kind of what is shown.
    width_mm
        The width of a drawing, such as 85 mm for a column of a paper, with letters of 8 points;
        None for what it needs.
    force
        Whether an existing file may be replaced.

    Returns
    -------
    Path
        The file. The file is written in one step: a crash leaves the old file.

    Raises
    ------
    InputError
        If the suffix is unknown, the file exists, its folder does not, or nothing is to be
        drawn.
    SolverUnavailable
        If matplotlib is not installed.

    See Also
    --------
    plot_slot, plot_contact_sheet, plot_gantt, plot_rails : The picture that is drawn.
    viewer_page : What is in an HTML file.
    """
    target = check_target(path, force=force, endings=SUFFIXES)
    is_page = target.suffix.lower() == ".html"
    if isinstance(shown, Problem):
        if is_page or slot is not None:
            raise InputError(
                "a problem file: it has no slots and no page, only a .png, .svg or .pdf"
            )
        draw: Callable[..., Figure] = partial(shown.plot, title=title)
    elif is_page:
        if slot is not None or width_mm is not None:
            raise InputError("the viewer has all slots; slot and width are for drawings")
        replace_file(target, viewer_page(shown, title=title).encode())
        return file_path(path)
    else:
        draw = partial(solution_figure, shown, slot, title=title)
    save_figure(lambda: draw_in_width(draw, width_mm), path, force=force)
    return file_path(path)


def draw_in_width(draw: Callable[..., Figure], width_mm: float | None) -> Figure:
    """Draw a picture, in a width if there is one, with letters of 8 points.

    The picture keeps its shape, or becomes higher: as high as without a width, but no higher than
    wide. Lines of text that are too long are broken.
    """
    figure = draw()
    if width_mm is None:
        return figure
    own_width, own_height = figure.get_size_inches()
    width = number("width_mm", width_mm, at_least=20.0) / 25.4
    height = max(width * own_height / own_width, min(own_height, width))
    ax = blank_figure(width, height).add_subplot()
    figure = draw(ax=ax)
    for text in (ax.title, ax.xaxis.label):
        text.set(wrap=True, fontsize=8)

    # A legend beside the axes would take half of a column: it goes below them, as those of maps.
    legend = ax.get_legend()
    if legend is not None and ax.axison:
        legend.remove()
        handles, names = ax.get_legend_handles_labels()
        style: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": 8}
        figure.legend(handles, names, ncols=max(1, int(width / 1.6)), **style)
    return figure


def save_figure(
    draw: Callable[[], Figure], path: str | os.PathLike[str], *, force: bool = False
) -> Path:
    """Write a figure to a file; it is drawn when the file is known to be writeable.

    Parameters
    ----------
    draw
        Draws it.
    path
        Ends in .png, .svg or .pdf.
    force
        Whether an existing file may be replaced.

    Raises
    ------
    InputError
        If the suffix is unknown, the file exists, or its folder does not.
    """
    target = check_target(path, force=force, endings=PICTURES)
    replace_file(target, _encoded(draw(), target.suffix.lower()[1:]))
    return target


def fabric_svg(fabric: Fabric) -> str:
    """Draw a fabric without light as SVG text, for notebooks.

    Parameters
    ----------
    fabric
        The switch.
    """
    return figure_svg(plot_fabric(fabric))


def figure_svg(figure: Figure) -> str:
    """Return a figure as SVG text, as a part of a page."""
    text = _encoded(figure, "svg").decode()
    return text[text.index("<svg") :]


def solution_figure(
    shown: Drawable, slot: int | None = None, *, ax: Axes | None = None, title: str | None = None
) -> Figure:
    """Draw what suits the kind of answer, as `save_picture` does.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule.
    slot
        Draw this slot alone; None draws all.
    ax
        Where to draw; None makes a new figure.
    title
        As of `save_picture`.

    Raises
    ------
    InputError
        If nothing is to be drawn.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.Collective("all-gather", 3, 3.0), "ring")
    >>> type(solution_figure(solution)).__name__
    'Figure'
    """
    if isinstance(shown, Solution):
        return cast("Figure", shown.plot(slot=slot, ax=ax, title=title))
    return cast("Figure", titled(draw_schedule(shown, slot, ax), title, ax))


def _encoded(figure: Figure, kind: str) -> bytes:
    """Return a figure as the bytes of a "png", "svg" or "pdf"; equal figures give equal bytes.

    A large one gets fewer dots per inch. Texts of the figure are changed where they have control
    characters or formulas.
    """
    import matplotlib
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter, NullFormatter

    # Names from files are text: no formulas, and control characters are seen. The numbers of axes
    # are ours, powers of ten among them.
    counted = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if not isinstance(axis.get_major_formatter(), FixedFormatter | NullFormatter):
                ticks = [*axis.get_ticklabels(which="both"), axis.get_offset_text()]
                counted |= {id(text) for text in ticks}
    for text in figure.findobj(Text):
        if isinstance(text, Text) and id(text) not in counted:
            text.set_parse_math(False)
            text.set_text(
                re.sub(r"[\x00-\x09\x0b-\x1f\x7f]", "\N{REPLACEMENT CHARACTER}", text.get_text())
            )
    buffer = io.BytesIO()
    dpi = min(_DPI, _MOST_PIXELS / max(figure.get_size_inches()))

    # Without a date the same figure always gives the same bytes. Text stays text, in fonts that
    # journals take and programs edit.
    metadata_of_kind: dict[str, dict[str, None]]
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    metadata_of_kind = {"svg": no_metadata, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"pdf.fonttype": 42, "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata_of_kind.get(kind))
    return buffer.getvalue()


def problem_html(problem: Any) -> str:
    """Show a problem in a notebook: its summary, and its figure where matplotlib is there."""
    text = f"<p>{html.escape(problem.summary()).replace(chr(10), '<br>')}</p>"
    try:
        return f"{text}<div>{figure_svg(problem.plot())}</div>"
    except (InputError, SolverUnavailable):
        return text


def solution_html(solution: Solution, *, height_px: int = 720) -> str:
    """Show a solution in a notebook.

    Parameters
    ----------
    solution
        The outcome of a solve: its viewer in a frame, or without an answer the reason.
    height_px
        Height of the frame, in pixels.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.AllToAll(om.IdealSwitch(4)), seed=0)
    >>> solution_html(solution)[:20]
    '<div><iframe srcdoc='
    """
    if solution.schedule is not None or solution.answer is not None:
        try:
            page = html.escape(viewer_page(solution))
        except InputError as exc:
            return f"<p>{html.escape(str(exc))}</p>"
        return (
            f'<div><iframe srcdoc="{page}" sandbox="allow-scripts" title="schedule"'
            f' style="width: 100%; height: {height_px}px; border: 0"></iframe></div>'
        )
    reason = html.escape(str(solution.stats.get("reason", "")))
    return f"<p><b>{solution.status.value}</b> {reason}</p>"


def explore(solution: Solution, *, height_px: int = 720) -> None:
    """Show the page of a solution: below the cell in Jupyter, in a browser elsewhere.

    In a browser the page is a file in a folder of temporary files, and stays there.

    Parameters
    ----------
    solution
        The outcome of a solve.
    height_px
        Height of the frame in Jupyter, in pixels.

    Raises
    ------
    InputError
        Outside Jupyter, if there is nothing to draw.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.AllToAll(om.IdealSwitch(4)), seed=0)
    >>> om.explore(solution)  # doctest: +SKIP
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        from IPython.display import HTML, display

        display(HTML(solution_html(solution, height_px=height_px)))
        return
    import tempfile
    import webbrowser

    page = viewer_page(solution)
    path = Path(tempfile.mkdtemp(prefix="optmatch-")) / "solution.html"
    path.write_text(page, encoding="utf-8")
    webbrowser.open(path.as_uri())
