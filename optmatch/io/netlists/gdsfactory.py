"""Netlists of gdsfactory and sax, as fabrics, and cell states for the tools that drive a chip."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, Faulty, Netlist
from optmatch.fabrics.cellgraph import TERMINAL_NAMES
from optmatch.fabrics.netlists.flaws import CONVENTIONS
from optmatch.fabrics.netlists.tree import netlist_from_tree
from optmatch.io.contents import read_bytes
from optmatch.io.fields import shorten
from optmatch.io.text import layout, parse
from optmatch.model import (
    BAR,
    FREE,
    FormatError,
    InputError,
    Solution,
    SolverUnavailable,
    check_size,
    naming,
)
from optmatch.model.files import path_name

_STATES = {0: "bar", 1: "cross"}


def read_netlist(
    path: str | os.PathLike[str],
    *,
    pins: Mapping[str, str] | None = None,
    components: Mapping[str, str] | None = None,
    directed: bool | None = None,
    open_pins: bool = False,
) -> Netlist:
    """Read a netlist of 2x2 cells, and of parts that pass light between them, as a fabric.

    Parameters
    ----------
    path
        YAML or JSON, of the form that gdsfactory and sax share, or that of PICBench.
    pins, components, directed, open_pins
        As of `netlist_from_tree`.

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
    with naming(path):
        tree = read_tree(path, flaws)
        return netlist_from_tree(
            tree,
            pins=pins,
            components=components,
            directed=directed,
            open_pins=open_pins,
            flaws=flaws,
        )


def read_tree(path: str | os.PathLike[str], flaws: list[str]) -> Any:
    """Read YAML or JSON; keys that are there twice, which YAML would drop, are `flaws`."""
    content = read_bytes(path)
    if content.lstrip()[:1] == b"{":
        return parse(content, path_name(path))
    try:
        import yaml
    except ImportError as exc:
        raise SolverUnavailable("YAML needs PyYAML: pip install 'optmatch[netlist]'") from exc

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 10 times as fast
    try:
        _check_events(yaml.parse(content, loader), path_name(path))
        reader = loader(content)
        node = reader.get_single_node()
        flaws += _repeated_keys(node)
        return None if node is None else reader.construct_document(node)
    except (InputError, MemoryError):
        raise
    except Exception as exc:  # of values that do not fit their tags PyYAML raises nearly anything
        mark = getattr(exc, "problem_mark", None)
        place = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        problem = getattr(exc, "problem", None) or "a mapping is expected"
        raise FormatError(f"{problem}: not YAML", path=f"{path_name(path)}{place}") from exc


def _check_events(events: Iterable[Any], path: str) -> None:
    """Refuse a document that is too deep, refers to itself, or grows, before it is built."""
    levels: list[tuple[str | None, int, bool]] = [(None, 0, False)]
    size: dict[str, int] = {}  # events of a node that has an anchor
    repeats = 0
    for count, event in enumerate(events):
        kind = type(event).__name__
        if kind == "ScalarEvent" and any("\ud800" <= letter <= "\udfff" for letter in event.value):
            message = f"{shorten(event.value)}: half of a pair of surrogates"
            raise FormatError(message, path=f"{path}:{event.start_mark.line + 1}")
        if kind.endswith("StartEvent"):
            anchor = getattr(event, "anchor", None)
            levels.append((anchor, count, levels[-1][2] or anchor is not None))
            check_size("depth", len(levels), "")
        elif kind.endswith("EndEvent"):
            anchor, first, _ = levels.pop()
            size[anchor or ""] = count - first
        elif kind == "AliasEvent":
            if levels[-1][2]:
                message = f"*{event.anchor}: an alias within what has an anchor"
                raise FormatError(message, path=f"{path}:{event.start_mark.line + 1}")
            repeats += size.get(event.anchor, 1)
            check_size("repeats", repeats, "")


def _repeated_keys(node: Any) -> list[str]:
    """Find keys that are there twice, below a node as PyYAML composes them."""
    found, waiting, visited = [], [node], set[int]()
    while waiting:
        node = waiting.pop()
        if node is None or isinstance(node.value, str) or id(node) in visited:
            continue
        visited.add(id(node))
        seen = set()
        for entry in node.value:
            key, value = entry if isinstance(entry, tuple) else (None, entry)
            waiting.append(value)
            if key is not None and isinstance(key.value, str):
                if key.value in seen:
                    found.append(f"{key.value} is there twice, line {key.start_mark.line + 1}")
                seen.add(key.value)
    return found


def netlist_tree(
    fabric: Fabric,
    states: NDArray[np.int8] | None = None,
    component: str = "mzi2x2",
    pins: Sequence[str] = TERMINAL_NAMES,
) -> dict[str, Any]:
    """Write a fabric with cells as a netlist; `pins` are the names of a1, a2, b1, b2.

    ``states[cell]`` become settings of the cells; None for none. A fabric without cells raises
    `InputError`.
    """
    fabric = fabric.fabric if isinstance(fabric, Faulty) else fabric
    graph = fabric.graph
    if graph is None:
        raise InputError("a switch without cells has no netlist", where="fabric")
    names = (
        list(fabric.instances)
        if isinstance(fabric, Netlist)
        else [f"cell{cell}" for cell in range(graph.n_cells)]
    )

    def pin(terminal: int) -> str:
        return f"{names[terminal // 4]},{pins[terminal % 4]}"

    mate = graph.mate.tolist()
    ports = _ports(fabric)
    used = set(ports.values())
    stated = np.full(graph.n_cells, FREE) if states is None else states
    given = [_STATES.get(int(state)) for state in stated]
    placements = {}
    for name, (a, b) in zip(names, graph.ends.tolist(), strict=True):
        angle = math.degrees(math.atan2(b[1] - a[1], b[0] - a[0]))
        placements[name] = {"x": (a[0] + b[0]) / 2, "y": (a[1] + b[1]) / 2, "rotation": angle}
    return {
        "instances": {
            name: {"component": component, "settings": {} if state is None else {"state": state}}
            for name, state in zip(names, given, strict=True)
        },
        "connections": {pin(t): pin(u) for t, u in enumerate(mate) if u > t},
        "ports": {name: pin(terminal) for name, terminal in ports.items()},
        "placements": placements,
        "info": {
            "cell_length": 1.0,
            "open_pins": [pin(t) for t, u in enumerate(mate) if u < 0 and t not in used],
        },
    }


def _ports(fabric: Fabric) -> dict[str, int]:
    """Name the terminals of the ports, such that a reader finds the same ports again."""
    sources = fabric.source_terminals.tolist()
    if fabric.bidirectional:
        names = [name.replace(" ", "_") for name in fabric.port_names]
        return dict(zip(names, sources, strict=True))
    if isinstance(fabric, Netlist) and fabric.tx is not None and fabric.rx is not None:
        tx, rx = list(fabric.tx), list(fabric.rx)
    else:
        tx = [f"in{port}" for port in range(fabric.n_ports)]
        rx = [f"out{port}" for port in range(fabric.n_ports)]
    return dict(zip([*tx, *rx], [*sources, *fabric.destination_terminals.tolist()], strict=True))


_STEP_UM = 1200.0, 400.0
"""From one cell to the next in layouts: so far that every waveguide finds its way."""


def layout_tree(
    fabric: Fabric,
    states: NDArray[np.int8] | None = None,
    component: str = "mzi2x2_2x2",
    pins: Sequence[str] = CONVENTIONS["optical"],
) -> dict[str, Any]:
    """Write a fabric as a layout that gdsfactory builds: cells on a staircase, joins as routes.

    Cells have no settings, which the component would refuse; their states are in ``info``.
    """
    tree = netlist_tree(fabric, states, component, pins)
    joins = tree.pop("connections")
    tree["routes"] = {f"link{k}": {"links": dict([pair])} for k, pair in enumerate(joins.items())}
    across, up = _STEP_UM
    tree["placements"] = {
        name: {"x": across * k, "y": up * k} for k, name in enumerate(tree["instances"])
    }
    settings = {name: entry.pop("settings") for name, entry in tree["instances"].items()}
    stated = {name: entry["state"] for name, entry in settings.items() if entry}
    tree["info"] = {"states": stated, "open_pins": tree["info"]["open_pins"]}
    return tree


def write_netlist(solution: Solution, **names: Any) -> str | dict[str, str]:
    """Write each slot of a schedule as a netlist, the states as settings of the cells.

    The text is JSON, which is YAML too; of several slots there is one for each, by ending. `names`
    are those of component and pins.
    """
    return _write_slots(solution, netlist_tree, names)


def write_layout(solution: Solution, **names: Any) -> str | dict[str, str]:
    """Write each slot as a layout for gdsfactory; as `write_netlist`."""
    return _write_slots(solution, layout_tree, names)


def _write_slots(
    solution: Solution, make: Callable[..., dict[str, Any]], names: Mapping[str, Any]
) -> str | dict[str, str]:
    states = stated_cells(solution)
    texts = [layout(make(solution.problem.fabric, row, **names)) + "\n" for row in states]
    if len(texts) == 1:
        return texts[0]
    return {f".{slot}.yml": text for slot, text in enumerate(texts)}


def stated_cells(solution: Solution) -> NDArray[np.int8]:
    """Return the cell states of a schedule; `InputError` without a schedule, or without cells."""
    if solution.schedule is None:
        found = f"{solution.problem.kind}, {solution.status.value}"
        raise InputError(f"{found}: there is no schedule with cell states")
    if solution.schedule.cell_states is None:
        raise InputError("a switch without cells: there are no cell states to write")
    return solution.schedule.cell_states


CONVENTION = (
    "T = j e^{j phi} [[sin theta, cos theta], [cos theta, -sin theta]], from (a1, a2) to (b1, b2):"
    " theta is half the difference of the phases of both arms, phi half their sum;"
    " theta = 0 is cross, theta = pi/2 is bar"
)
"""The convention of phases; `Device` computes with the same."""

_SMARTLIGHT = {0: "=", 1: "x"}


def write_smartlight(solution: Solution) -> str:
    """Write the set cells of each slot as the SmartLight API takes them.

    A line for each slot: a JSON list of ``[cell, "x" | "="]``, cross and bar, as for
    ``manual_circuit_configuration``. Free cells are left out. A solution without cell states is
    refused, as by `stated_cells`.
    """
    rows = (
        [[cell, _SMARTLIGHT[state]] for cell, state in enumerate(row) if state != FREE]
        for row in stated_cells(solution).tolist()
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_phases_csv(solution: Solution) -> str:
    """Write slot, cell, state and both phases of every set cell, by lines."""
    text = io.StringIO()
    text.write(f"# {CONVENTION}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["slot", "cell", "state", "theta_rad", "phi_rad"])
    writer.writerows(
        [slot, cell, name, repr(theta), repr(phi)]
        for slot, cell, name, theta, phi in _phases(solution)
    )
    return text.getvalue()


def write_phases_json(solution: Solution) -> str:
    """Write the same as one JSON object with the convention."""
    slots: list[list[dict[str, object]]] = [[] for _ in stated_cells(solution)]
    for slot, cell, name, theta, phi in _phases(solution):
        slots[slot].append({"cell": cell, "state": name, "theta_rad": theta, "phi_rad": phi})
    tree = {"format": "optmatch/phases/1", "convention": CONVENTION, "slots": slots}
    return layout(tree) + "\n"


def _phases(solution: Solution) -> Iterator[tuple[int, int, str, float, float]]:
    """Yield slot, cell, state, theta and phi of every set cell."""
    for slot, row in enumerate(stated_cells(solution).tolist()):
        for cell, state in enumerate(row):
            if state != FREE:
                theta = math.pi / 2 if state == BAR else 0.0
                yield slot, cell, _STATES[state], theta, 0.0
