"""The viewer: one HTML page that shows a schedule slot by slot, without any network."""

from __future__ import annotations

import html
import json
import math
import re
from importlib.resources import files
from typing import Any

import numpy as np

from optmatch.fabrics import Fabric, Faulty
from optmatch.model import (
    BAR,
    CROSS,
    Limit,
    Schedule,
    Score,
    Solution,
    number,
    unit_of,
    write_score,
)
from optmatch.plotting.geometry import HANDLE, INSET, OFFSET, mesh_data
from optmatch.plotting.palette import CIRCUIT_COLOURS
from optmatch.plotting.slots import Drawable, owners_of, parts, toggles_data

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
    The page holds matchings and cell states, and follows the light itself: about one byte for each
    cell and slot.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> schedule = Schedule(matchings=[[1, 0]], durations_s=[1.0])
    >>> page = viewer_page((IdealSwitch(2), schedule), title="Two ports")
    >>> "<title>Two ports</title>" in page, "http" in page.replace("http-equiv", "")
    (True, False)
    """
    data = page_data(shown, cell_loss_db=cell_loss_db, title=title)
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    filled = {
        "title": html.escape(data["title"]),
        "style": _template("viewer.css"),
        "data": text.replace("<", "\\u003c"),  # no "</script>" can end the data early
        "light": _template("viewer_light.js"),
        "script": _template("viewer.js"),
    }
    # In one pass, so that data cannot hold a placeholder.
    return re.sub(r"{{(\w+)}}", lambda found: filled[found[1]], _template("viewer.html"))


def page_data(
    shown: Drawable, *, cell_loss_db: float = CELL_LOSS_DB, title: str | None = None
) -> dict[str, Any]:
    """Collect the data of the page, as plain JSON values; see `viewer_page`."""
    fabric, schedule = parts(shown)
    data, graph = mesh_data(fabric), fabric.graph
    loss = number("cell_loss_db", cell_loss_db)
    faults = fabric.faults if isinstance(fabric, Faulty) else ()
    kind = shown.problem.kind if isinstance(shown, Solution) else "schedule"
    return {
        "title": kind.capitalize() if title is None else title,
        "subtitle": _subtitle(fabric),
        "figures": _figures(shown, schedule),
        "loss_db": loss,
        "loss_note": " (SmartLight mean)" if loss == CELL_LOSS_DB else "",
        "inset": INSET,
        "offset": OFFSET,
        "handle": HANDLE,
        "bidirectional": fabric.bidirectional,
        "bounds": _rounded(data.bounds),
        "radius": round(data.port_radius, 3),
        "colours": CIRCUIT_COLOURS,
        "owners": [] if (owners := owners_of(shown)) is None else owners.of_port.tolist(),
        "ports": [
            [*mark[:4], *_rounded(mark.position), *_rounded(mark.outward)] for mark in data.ports
        ],
        "ends": [] if graph is None else _rounded(graph.ends.ravel()),
        "mate": [] if graph is None else graph.mate.tolist(),
        "faults": {str(fault.place): str(fault) for fault in faults if fault.kind != "dead-port"},
        "matchings": schedule.matchings.tolist(),
        "durations": [_seconds(duration) for duration in schedule.durations_s.tolist()],
        "states": [] if graph is None else _state_rows(schedule),
    }


def _template(name: str) -> str:
    return files("optmatch.plotting").joinpath(name).read_text(encoding="utf-8").strip()


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 4) for value in values]


def _state_rows(schedule: Schedule) -> list[str]:
    letters = np.full(256, ord("-"), dtype=np.uint8)  # indexed by the byte of a state, 255 if free
    letters[[BAR, CROSS]] = ord("0"), ord("1")
    states = np.asarray(schedule.cell_states)
    return [letters[row.view(np.uint8)].tobytes().decode("ascii") for row in states]


def _subtitle(fabric: Fabric) -> str:
    texts = [fabric.title, f"{fabric.n_ports} ports"]
    if fabric.graph is not None:
        texts.append(f"{fabric.n_cells:,} cells")
    return " · ".join(texts)


def _figures(shown: Drawable, schedule: Schedule) -> list[list[Any]]:
    """List names and values for the panel; a third entry marks the status."""
    rows: list[list[Any]] = [["Slots", f"{schedule.n_slots}"]]
    if schedule.cell_states is not None:
        rows.append(["Toggles", _plain(int(toggles_data(schedule).counts.sum()))])
    rows.append(["Makespan", _seconds(schedule.makespan_s)])
    if not isinstance(shown, Solution):
        return rows
    fewest = shown.stats.get("slots_lower_bound")
    rows[0][1] += "" if fewest is None else f" (at least {fewest})"
    seed = "" if shown.seed is None else f", seed {shown.seed}"
    return [
        ["Status", shown.status.value, True],
        *([] if shown.limit in (None, Limit.EXHAUSTED) else [["Stopped by", shown.limit.value]]),
        ["Objective", _amount(shown, shown.objective)],
        ["Lower bound", _amount(shown, shown.lower_bound)],
        ["Gap", f"{100 * shown.gap:.2f} %" if math.isfinite(shown.gap) else "unknown"],
        *([] if shown.proof is None else [["Proof", shown.proof]]),
        *rows,
        ["Method", shown.method + seed],
        ["Solved in", _seconds(shown.time_s)],
    ]


def _amount(solution: Solution, value: Score | None) -> str:
    """Write a value of the objective in its unit."""
    if isinstance(value, tuple):
        return write_score(value)
    unit = unit_of(solution.problem)
    if value is None or not math.isfinite(value):
        return _plain(value)
    return _seconds(value) if unit == "s" else f"{_plain(value)} {unit}".rstrip()


def _plain(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "unknown"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


def _seconds(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:,.4g} {unit}"
    return f"{seconds * 1e9:,.3g} ns"
