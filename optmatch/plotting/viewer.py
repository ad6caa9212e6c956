"""The viewer: one HTML page that shows a schedule slot by slot, without any network."""

from __future__ import annotations

import html
import json
import math
import re
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from optmatch.fabrics import Fabric, Faulty
from optmatch.model import (
    Limit,
    Schedule,
    Score,
    Solution,
    Status,
    figures_of,
    is_known,
    number,
    unit_of,
    view_of_solution,
    write_amount,
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
    The page holds matchings and cell states, and follows the light itself: about a quarter of a
    byte for each cell and slot.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> schedule = Schedule(matchings=[[1, 0]], durations_s=[1.0])
    >>> page = viewer_page((IdealSwitch(2), schedule), title="Two ports")
    >>> "<title>Two ports</title>" in page, "http" in page.replace("http-equiv", "")
    (True, False)
    """
    number("cell_loss_db", cell_loss_db)
    page = view_of_solution(shown).page if isinstance(shown, Solution) else None
    data = page_data(shown, cell_loss_db=cell_loss_db) if page is None else page(shown)
    if title is not None:
        data["title"] = title
    mesh = "matchings" in data
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    filled = {
        "title": html.escape(data["title"]),
        "style": _template("viewer.css"),
        "data": text.replace("<", "\\u003c"),  # no "</script>" can end the data early
        "light": _template("viewer_light.js") if mesh else "",
        "script": _template("viewer.js" if mesh else "viewer_scene.js"),
    }
    # In one pass, so that data cannot hold a placeholder.
    return re.sub(r"{{(\w+)}}", lambda found: filled[found[1]], _template("viewer.html"))


def page_data(
    shown: Drawable, *, cell_loss_db: float = CELL_LOSS_DB, names: Sequence[str] = ()
) -> dict[str, Any]:
    """Collect the data of the page, as plain JSON values; see `viewer_page`.

    `names` tell what each slot is; slots that have names last for no known time.
    """
    fabric, schedule = parts(shown)
    data, graph = mesh_data(fabric), fabric.graph
    loss = number("cell_loss_db", cell_loss_db)
    faults = fabric.faults if isinstance(fabric, Faulty) else ()
    kind = shown.problem.kind if isinstance(shown, Solution) else "schedule"
    owners = owners_of(shown)
    return {
        "title": kind.replace("-", " ").capitalize(),
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
        "owners": [] if owners is None else owners.of_port.tolist(),
        "jobs": [] if owners is None else list(owners.names),
        "ports": [
            [*mark[:4], *_rounded(mark.position), *_rounded(mark.outward)] for mark in data.ports
        ],
        "ends": [] if graph is None else _rounded(graph.ends.ravel()),
        "mate": [] if graph is None else graph.mate.tolist(),
        "cell_names": [] if graph is None or graph.names is None else list(graph.names),
        "faults": {str(fault.place): str(fault) for fault in faults if fault.kind != "dead-port"},
        "matchings": schedule.matchings.tolist(),
        "durations": [write_amount(s, "s") for s in schedule.durations_s.tolist()],
        "names": list(names),
        "states": "" if graph is None else _packed(schedule),
    }


def _template(name: str) -> str:
    return files("optmatch.plotting").joinpath(name).read_text(encoding="utf-8").strip()


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 4) for value in values]


def _packed(schedule: Schedule) -> str:
    """Write five cells as one byte, in base 3; a row of cells begins with a byte of its own."""
    digits = np.asarray(schedule.cell_states) % 3  # bar, cross, and 2 for free
    digits = np.pad(digits, ((0, 0), (0, -digits.shape[1] % 5))).reshape(-1, 5)
    return b64encode((digits @ 3 ** np.arange(5)).astype(np.uint8).tobytes()).decode("ascii")


def _subtitle(fabric: Fabric) -> str:
    texts = [fabric.title, f"{fabric.n_ports:,} ports"]
    if fabric.graph is not None:
        texts.append(f"{fabric.n_cells:,} cells")
    return " · ".join(texts)


def _figures(shown: Drawable, schedule: Schedule) -> list[list[Any]]:
    """List names and values for the panel."""
    rows: list[list[Any]] = [["Slots", f"{schedule.n_slots}"]]
    if schedule.cell_states is not None:
        rows.append(["Toggles", write_amount(int(toggles_data(schedule).counts.sum()))])
    rows.append(["Makespan", write_amount(schedule.makespan_s, "s")])
    if not isinstance(shown, Solution):
        return rows
    fewest = shown.stats.get("slots_lower_bound")
    rows[0][1] += "" if fewest is None else f" (at least {fewest})"
    return panel(shown, rows)


def panel(solution: Solution, rows: Sequence[list[Any]] = ()) -> list[list[Any]]:
    """List what is known of a solution, and `rows`; a third entry marks the status."""
    seed = "" if solution.seed is None else f", seed {solution.seed}"
    unit, limit = unit_of(solution.problem), solution.limit
    proved = solution.status is Status.OPTIMAL
    rests = solution.proof if is_known(solution.lower_bound) else None
    told = figures_of(solution.problem, solution.answer)
    return [
        ["Status", solution.status.value, True],
        *([] if limit in (None, Limit.EXHAUSTED) else [["Stopped by", limit.value]]),
        ["Objective", _amount(solution.objective, unit)],
        ["Lower bound", _amount(solution.lower_bound, unit)],
        ["Gap", f"{100 * solution.gap:.2f} %" if math.isfinite(solution.gap) else "unknown"],
        *([] if rests is None else [["Proof" if proved else "Bound by", rests]]),
        *([name.capitalize(), value] for name, value in told.items()),
        *rows,
        ["Method", solution.method + seed],
        ["Solved in", write_amount(solution.time_s, "s")],
    ]


def _amount(value: Score | None, unit: str) -> str:
    """Write a value of the objective in its unit."""
    if isinstance(value, tuple):
        return write_score(value, unit)
    if value is None or not math.isfinite(value):
        return "unknown"
    return write_amount(value, unit)


def scene(solution: Solution, **parts: Any) -> dict[str, Any]:
    """Make what the page of an answer that is no schedule embeds.

    `viewer_scene.js` draws it: a map of `nodes` (x, y, width, height, text, kind, name) joined by
    `links` (node, node, kind, width, name), or `rows` over time with `bars` (kind, start and
    length in millionths of `span_s`, one after the other). Kinds are places in `legend` (name,
    colour, and half of a row), -1 is not drawn. Each of `steps` says something, and what changes.
    """
    problem = solution.problem
    fabric, known = problem.fabric, math.isfinite(solution.gap)
    return {
        "title": problem.kind.replace("-", " ").capitalize(),
        "subtitle": "" if fabric is None else _subtitle(fabric),
        "figures": panel(solution),
        "list": {"title": "Steps", "heads": [], "rows": []},
        "noun": "step",
        "bound_s": solution.lower_bound if unit_of(problem) == "s" and known else None,
        **parts,
    }
