"""Netlists of gdsfactory and sax: read as fabrics, and written with the states of cells."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, Netlist
from optmatch.fabrics.cellgraph import TERMINAL_NAMES
from optmatch.fabrics.netlists.flaws import CONVENTIONS
from optmatch.fabrics.netlists.tree import netlist_from_tree
from optmatch.fabrics.waveguides import places_on_chip
from optmatch.io.cells import stated_cells
from optmatch.io.fields import shorten
from optmatch.io.text import layout, parse_json, read_bytes
from optmatch.model import (
    BAR,
    CROSS,
    FREE,
    FormatError,
    InputError,
    Solution,
    SolverUnavailable,
    check_size,
    naming,
)
from optmatch.model.accounts import accounting
from optmatch.model.files import path_name

_OTHER_FORMATS = {
    **dict.fromkeys((".spi", ".sp", ".spice", ".cir", ".ckt", ".scs"), "SPICE"),
    **dict.fromkeys((".gds", ".oas"), "a layout"),
}
"""Endings of files that hold no netlist with names of pins."""

_SPICE = re.compile(rb"^\s*\.subckt\b", re.IGNORECASE | re.MULTILINE)
_DEFAULT_SETTINGS = re.compile(r"^default_settings:[ \t]*\n(?:[ \t]+.*\n|[ \t]*\n)*", re.MULTILINE)
_SETTING = re.compile(r"\{\{\s*settings\.(\w+)\s*\}\}")
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")


def read_tree(path: str | os.PathLike[str], flaws: list[str]) -> Any:
    """Read the tree of a YAML or JSON file; a template of gdsfactory gets its default settings.

    In YAML all scalars but null are texts: ``on``, ``off`` and ``1_0`` are names of parts, not
    values. Keys that are there twice, of which YAML would drop one, are added to `flaws`. A format
    without names of pins is refused with what to export instead.
    """
    content = read_bytes(path)
    name = path_name(path)
    other_format = _OTHER_FORMATS.get(PurePath(name).suffix.lower())
    if other_format or _SPICE.search(content):
        raise FormatError(
            f"{other_format or 'SPICE'}, where pins have no names: export the netlist of the"
            " layout as YAML or JSON, as gdsfactory does by component.get_netlist(recursive=True)",
            path=name,
        )
    if content.lstrip()[:1] == b"{" and not content.lstrip().startswith(b"{{"):
        return parse_json(content, name)
    try:
        import yaml
    except ImportError as exc:
        raise SolverUnavailable("YAML needs PyYAML: pip install 'optmatch[netlist]'") from exc

    # Events are checked before anything is built, since a small file with aliases may stand for a
    # huge tree.
    try:
        filled = _fill_template(content, yaml)
        loader = _text_loader(yaml, flaws)
        _check_events(yaml.parse(filled, loader), name)
        return loader(filled).get_single_data()
    except (InputError, MemoryError):
        raise
    except Exception as exc:  # of values that do not fit their tags PyYAML raises nearly anything
        # The message has the line, and for a template what to do.
        mark = getattr(exc, "problem_mark", None)
        place = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        problem = getattr(exc, "problem", None) or "a mapping is expected"
        hint = ""
        if b"{{" in content or b"{%" in content:
            hint = "; it is a template: export component.get_netlist() of what it makes"
        raise FormatError(f"{problem}: not YAML{hint}", path=f"{name}{place}") from exc


def _text_loader(yaml: Any, flaws: list[str]) -> Any:
    """Make a loader of PyYAML for which all scalars but null are texts.

    It adds keys that are there twice in a mapping to `flaws`, by their lines.
    """
    fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 10 times as fast

    class TextLoader(fast):  # type: ignore[misc]
        """A safe loader that guesses no types."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """Note keys that are there twice, of which a mapping keeps the last one alone."""
            names = set()
            for key, _ in node.value:
                name = str(key.value)
                if name in names:
                    flaws.append(f"{name} is there twice, line {key.start_mark.line + 1}")
                names.add(name)
            return super().construct_mapping(node, deep)

    TextLoader.add_implicit_resolver("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""])
    TextLoader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile("^<<$"), ["<"])

    # `yaml.dump` of a netlist of gdsfactory writes its nets as a tuple, which becomes a list.
    TextLoader.add_constructor("tag:yaml.org,2002:python/tuple", fast.construct_yaml_seq)
    return TextLoader


def _fill_template(content: bytes, yaml: Any) -> bytes:
    """Return a file with the values of its block of default settings in their places."""
    text = content.decode("utf-8", errors="surrogateescape")
    block = _DEFAULT_SETTINGS.search(text)
    if block is None or _SETTING.search(text) is None:
        return content
    settings = yaml.load(block[0], _text_loader(yaml, []))["default_settings"]

    def value_of(match: re.Match[str]) -> str:
        """Return the default of a setting, or the expression if it has none that is a scalar."""
        setting = settings.get(match[1])
        value = setting.get("value") if isinstance(setting, dict) else None
        return value if isinstance(value, str) else match[0]

    body = text[: block.start()] + text[block.end() :]
    return _SETTING.sub(value_of, body).encode("utf-8", errors="surrogateescape")


def _check_events(events: Iterable[Any], path: str) -> None:
    """Refuse a YAML document that would become too large a tree, before the tree is built.

    `events` are those of PyYAML's parser: a mapping or a list starts, ends, or holds a scalar. A
    part may be named (an anchor, ``&a``) and repeated by its name (an alias, ``*a``): a small file
    with aliases of aliases may stand for a huge tree. Texts with half of a pair of surrogates are
    refused, too.
    """
    # The parts that are open, the innermost last: its anchor, the number of its first event, and
    # whether it is inside a part with an anchor.
    levels: list[tuple[str | None, int, bool]] = [(None, 0, False)]  # anchor, first event, inside

    # For each anchor how many events its part has, and how many events aliases have repeated.
    size_of_anchor: dict[str, int] = {}
    n_repeated = 0
    for count, event in enumerate(events):
        # A part begins, ends, or is repeated. It counts as inside an anchor if any part around it
        # has one.
        kind = type(event).__name__
        if kind == "ScalarEvent" and any("\ud800" <= letter <= "\udfff" for letter in event.value):
            raise FormatError(
                f"{shorten(event.value)}: half of a pair of surrogates",
                path=f"{path}:{event.start_mark.line + 1}",
            )

        # How large each anchor is, and how much its aliases repeat.
        if kind.endswith("StartEvent"):
            anchor = getattr(event, "anchor", None)
            has_anchor = levels[-1][2] or anchor is not None
            levels.append((anchor, count, has_anchor))
            check_size("depth", len(levels), "")
        elif kind.endswith("EndEvent"):
            anchor, first, _ = levels.pop()
            size_of_anchor[anchor or ""] = count - first
        elif kind == "AliasEvent":
            if levels[-1][2]:
                raise FormatError(
                    f"*{event.anchor}: an alias within what has an anchor",
                    path=f"{path}:{event.start_mark.line + 1}",
                )
            n_repeated += size_of_anchor.get(event.anchor, 1)
            check_size("repeats", n_repeated, "")


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
    ``states[cell]`` become settings of the cells, and placements are in lengths of a cell.
    `component` is the name of the component that each cell is, and `pins` are its names of a1, a2,
    b1 and b2.
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
    port_names = [name for name, _ in _list_ports(fabric)]
    ports = _make_valid(port_names)
    terminal_of_port = [terminal for _, terminal in _list_ports(fabric)]

    def pin(terminal: int) -> str:
        """Name a terminal as the pin of a cell."""
        return f"{cells[terminal // 4]},{pins[terminal % 4]}"

    # ``mate[terminal]`` is the terminal that it is joined to, -1 for none.
    mate = graph.mate.tolist()
    used = set(terminal_of_port)
    directions = {}
    if isinstance(fabric, Netlist) and fabric.tx is not None and fabric.rx is not None:
        directions = {"tx": list(fabric.tx), "rx": list(fabric.rx)}

    # The state of each cell, none where it is free; its middle in lengths of a cell, and how it is
    # turned.
    stated = np.full(graph.n_cells, FREE) if states is None else states
    state_names = [_STATE_NAMES.get(int(state)) for state in stated]
    settings_of_cells = [{} if name is None else {"state": name} for name in state_names]
    placements = []
    for a, b in places_on_chip(graph).tolist():
        rotation = math.degrees(math.atan2(b[1] - a[1], b[0] - a[0]))
        x = (a[0] + b[0]) / 2
        y = (a[1] + b[1]) / 2
        placements.append({"x": x, "y": y, "rotation": rotation})

    # Each join is listed once, at its lower terminal. A free terminal without a port is an open
    # pin, which a reader would take for a mistake if it were not listed.
    return {
        "instances": {
            name: {"component": component, "settings": settings}
            for name, settings in zip(cells, settings_of_cells, strict=True)
        },
        "connections": {pin(t): pin(other) for t, other in enumerate(mate) if other > t},
        "ports": {
            name: pin(terminal) for name, terminal in zip(ports, terminal_of_port, strict=True)
        },
        "placements": dict(zip(cells, placements, strict=True)),
        "info": {
            "cell_length": 1.0,
            "open_pins": [pin(t) for t, other in enumerate(mate) if other < 0 and t not in used],
            **_list_changed("cell_names", cells, cell_names),
            **_list_changed("port_names", ports, port_names),
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

    # Ports with two terminals have a name at each.
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


def write_slots(
    make_tree: Callable[..., dict[str, Any]], solution: Solution, **names: Any
) -> str | dict[str, str]:
    """Write the fabric with the cell states of each slot, as `netlist_tree` or `layout_tree`.

    The text is JSON with line breaks, which is YAML too; of several slots there is one for each
    ending of a file, such as ``".0.yml"``. `names` are passed on to the writer of the tree.
    """
    states = stated_cells(solution)
    fabric = solution.problem.fabric
    texts = [layout(make_tree(fabric, row, **names)) + "\n" for row in states]
    if len(texts) == 1:
        return texts[0]
    return {f".{slot}.yml": text for slot, text in enumerate(texts)}
