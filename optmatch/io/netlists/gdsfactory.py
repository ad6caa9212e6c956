"""Netlists of gdsfactory and sax: read as fabrics, and written with the states of cells."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric, Netlist
from optmatch.fabrics.cellgraph import TERMINAL_NAMES
from optmatch.fabrics.netlists.flaws import CONVENTIONS
from optmatch.fabrics.netlists.tree import netlist_from_tree
from optmatch.fabrics.waveguides import places_on_chip
from optmatch.io.netlists.phases import stated_cells
from optmatch.io.netlists.yaml_trees import read_tree
from optmatch.io.text import layout
from optmatch.model import BAR, CROSS, FREE, InputError, Solution, naming
from optmatch.model.accounts import accounting

__all__ = [
    "layout_tree",
    "netlist_tree",
    "read_netlist",
    "read_tree",
    "write_layout",
    "write_netlist",
]

_STATE_NAMES = {BAR: "bar", CROSS: "cross"}

_STEP_UM = 1200.0, 400.0
"""From one cell to the next in layouts: so far that every waveguide finds its way."""


def read_netlist(
    path: str | os.PathLike[str],
    *,
    pins: Mapping[str, str] | None = None,
    components: Mapping[str, str] | None = None,
    directed: bool | None = None,
    open_pins: bool = False,
    tx: Sequence[str] | None = None,
    rx: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
) -> Netlist:
    """Read a netlist of switches, and of parts that pass light between them, as a fabric.

    Parameters
    ----------
    path
        YAML or JSON, of the form that gdsfactory and sax share, or that of kfactory or PICBench.
    pins
        What the pins of cells are, by their names: ``{"west": "a1", ...}``; None for usual names.
    components
        What components are, by their names: "switch" is a cell; "pass", "shifter", "crossing" and
        "coupler" are parts between cells. Usual names are known.
    directed
        Whether ports named "in" and "out" form ports that send and receive; None: if all are.
    open_pins
        Whether pins may lead nowhere. Otherwise only those that the file lists may.
    tx, rx
        The names of ports where light comes in and where it goes out.
    leave_out
        Names of instances and ports that are no part of the fabric.

    Raises
    ------
    NetlistError
        With every flaw, by the names of the netlist.
    FormatError
        If the file cannot be read, or is neither YAML nor JSON.
    SolverUnavailable
        If it is YAML, and PyYAML is not installed.

    See Also
    --------
    Netlist : What it returns.

    Examples
    --------
    >>> import optmatch as om
    >>> import json, pathlib, tempfile
    >>> tree = {
    ...     "instances": {"cell": "mzi2x2"},
    ...     "ports": {"left": "cell,o1", "right": "cell,o3"},
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "one.json")
    ...     _ = path.write_text(json.dumps(tree))
    ...     netlist = om.read_netlist(path, components={"mzi2x2": "switch"}, open_pins=True)
    >>> netlist.port_names
    ('left', 'right')
    """
    flaws: list[str] = []
    with naming(path), accounting(path):
        tree = read_tree(path, flaws)
        return netlist_from_tree(
            tree,
            pins=pins,
            components=components,
            directed=directed,
            open_pins=open_pins,
            tx=tx,
            rx=rx,
            leave_out=leave_out,
            flaws=flaws,
        )


def netlist_tree(
    fabric: Fabric,
    states: NDArray[np.int8] | None = None,
    component: str = "mzi2x2",
    pins: Sequence[str] = TERMINAL_NAMES,
) -> dict[str, Any]:
    """Write a fabric with cells, but not its faults, as a netlist of gdsfactory.

    Names are those that sax and gdsfactory take: letters, digits and underscores. Where a cell or
    a port has another name, it stands under ``info``, and `netlist_from_tree` gives it back.
    `states` become settings of the cells, and placements are in lengths of a cell.
    """
    fabric = fabric.intact
    graph = fabric.graph
    if graph is None:
        raise InputError("a switch without cells has no netlist", where="fabric")
    if isinstance(fabric, Netlist):
        cell_names = list(fabric.instances)
    else:
        cell_names = [f"cell{cell}" for cell in range(graph.n_cells)]
    cells = _make_valid(cell_names)
    ports = _make_valid([name for name, _ in _list_ports(fabric)])
    terminal_of_port = [terminal for _, terminal in _list_ports(fabric)]

    def pin(terminal: int) -> str:
        """Name a terminal as the pin of a cell."""
        return f"{cells[terminal // 4]},{pins[terminal % 4]}"

    mate = graph.mate.tolist()
    used = set(terminal_of_port)
    directions = {}
    if isinstance(fabric, Netlist) and fabric.tx is not None and fabric.rx is not None:
        directions = {"tx": list(fabric.tx), "rx": list(fabric.rx)}

    # Each join is listed once, at its lower terminal. A free terminal without a port is an open
    # pin, which a reader would take for a mistake if it were not listed.
    return {
        "instances": {
            name: {"component": component, "settings": settings}
            for name, settings in zip(cells, _list_settings(graph, states), strict=True)
        },
        "connections": {pin(t): pin(other) for t, other in enumerate(mate) if other > t},
        "ports": {
            name: pin(terminal) for name, terminal in zip(ports, terminal_of_port, strict=True)
        },
        "placements": dict(zip(cells, _list_placements(graph), strict=True)),
        "info": {
            "cell_length": 1.0,
            "open_pins": [pin(t) for t, other in enumerate(mate) if other < 0 and t not in used],
            **_list_changed("cell_names", cells, cell_names),
            **_list_changed("port_names", ports, [name for name, _ in _list_ports(fabric)]),
            **directions,
        },
    }


def _make_valid(names: Iterable[str]) -> list[str]:
    """Return names of letters, digits and underscores, all different, in the same order.

    Other characters become underscores, and a digit in front gets one. Names that are valid stay
    as they are; a new name that is taken gets a number from 2 on.

    Examples
    --------
    >>> _make_valid(["c1+c2", "c1.c2", "m", "3"])
    ['c1_c2', 'c1_c2_2', 'm', '_3']
    """
    # Names that are valid already are never given to others.
    originals = list(names)
    taken = {name for name in originals if name.isidentifier() and name.isascii()}
    valid = []
    for name in originals:
        if name in taken:
            valid.append(name)
            continue
        base = re.sub(r"[^0-9A-Za-z_]", "_", name) or "_"
        base = f"_{base}" if base[0].isdigit() else base

        # Taken names get a number: c1_c2_2, then c1_c2_3.
        candidate = base
        number = 2
        while candidate in taken:
            candidate = f"{base}_{number}"
            number += 1
        taken.add(candidate)
        valid.append(candidate)
    return valid


def _list_changed(
    key: str, written: Sequence[str], originals: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return the entry ``{key: {written: original}}`` of ``info``; empty if none has changed."""
    changed = {
        name: original
        for name, original in zip(written, originals, strict=True)
        if name != original
    }
    return {key: changed} if changed else {}


def _list_settings(graph: CellGraph, states: NDArray[np.int8] | None) -> list[dict[str, str]]:
    """Return the settings of each cell: its state, or none where it is free."""
    stated = np.full(graph.n_cells, FREE) if states is None else states
    names = [_STATE_NAMES.get(int(state)) for state in stated]
    return [{} if name is None else {"state": name} for name in names]


def _list_placements(graph: CellGraph) -> list[dict[str, float]]:
    """Return where the middle of each cell lies in lengths of a cell, and how it is turned."""
    placements = []
    for a, b in places_on_chip(graph).tolist():
        rotation = math.degrees(math.atan2(b[1] - a[1], b[0] - a[0]))
        x = (a[0] + b[0]) / 2
        y = (a[1] + b[1]) / 2
        placements.append({"x": x, "y": y, "rotation": rotation})
    return placements


def _list_ports(fabric: Fabric) -> list[tuple[str, int]]:
    """List the name and the terminal of each port, such that a reader finds the same ports again.

    A bidirectional port has one entry, in whose name spaces become underscores unless it was read
    from a netlist. Other ports have two: all that send, then all that receive, with the names of
    the netlist or ``in0``, ``in1``, ... and ``out0``, ``out1``, ..., which readers take for
    directions.
    """
    sources = fabric.source_terminals.tolist()
    if fabric.bidirectional:
        names = fabric.port_names
        if not isinstance(fabric, Netlist):
            names = tuple(name.replace(" ", "_") for name in names)
        return list(zip(names, sources, strict=True))
    if isinstance(fabric, Netlist) and fabric.tx is not None and fabric.rx is not None:
        tx = list(fabric.tx)
        rx = list(fabric.rx)
    else:
        tx = [f"in{port}" for port in range(fabric.n_ports)]
        rx = [f"out{port}" for port in range(fabric.n_ports)]
    terminals = [*sources, *fabric.destination_terminals.tolist()]
    return list(zip([*tx, *rx], terminals, strict=True))


def layout_tree(
    fabric: Fabric,
    states: NDArray[np.int8] | None = None,
    component: str = "mzi2x2_2x2",
    pins: Sequence[str] = CONVENTIONS["optical"],
) -> dict[str, Any]:
    """Write a fabric as a layout that gdsfactory builds: cells on a staircase, joins as routes.

    Cells have no settings, which the component would refuse; their states are in ``info``.
    Placements are in micrometres.
    """
    tree = netlist_tree(fabric, states, component, pins)
    joins = tree.pop("connections")
    tree["routes"] = {
        f"link{number}": {"links": dict([join])} for number, join in enumerate(joins.items())
    }
    step_x, step_y = _STEP_UM
    tree["placements"] = {
        name: {"x": step_x * number, "y": step_y * number}
        for number, name in enumerate(tree["instances"])
    }
    settings = {name: entry.pop("settings") for name, entry in tree["instances"].items()}
    state_of_cell = {name: entry["state"] for name, entry in settings.items() if entry}
    del tree["info"]["cell_length"]
    tree["info"] = {"states": state_of_cell, **tree["info"]}
    return tree


def write_netlist(solution: Solution, **names: Any) -> str | dict[str, str]:
    """Write each slot of a schedule as a netlist, with cell states as settings of the cells.

    The text is JSON, which is YAML too; of several slots there is one for each ending of a file.
    """
    return _write_slots(solution, netlist_tree, names)


def write_layout(solution: Solution, **names: Any) -> str | dict[str, str]:
    """Write each slot of a schedule as a layout that gdsfactory builds, see `layout_tree`."""
    return _write_slots(solution, layout_tree, names)


def _write_slots(
    solution: Solution, make_tree: Callable[..., dict[str, Any]], names: Mapping[str, Any]
) -> str | dict[str, str]:
    """Write the fabric with the cell states of each slot.

    Several texts by endings as ``".0.yml"``.
    """
    states = stated_cells(solution)
    fabric = solution.problem.fabric
    texts = [layout(make_tree(fabric, row, **names)) + "\n" for row in states]
    if len(texts) == 1:
        return texts[0]
    return {f".{slot}.yml": text for slot, text in enumerate(texts)}
