"""From the netlist of another tool, as a tree of mappings and lists, to a fabric."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.cellgraph import TERMINAL_NAMES
from optmatch.fabrics.netlists.flaws import (
    CONVENTIONS,
    NetlistError,
    find_flaws,
    find_port_flaws,
    name_terminals,
)
from optmatch.fabrics.netlists.netlist import Netlist
from optmatch.fabrics.netlists.parts import KINDS, Part, find_unknown, keep_cells, make_part
from optmatch.fabrics.netlists.wiring import NetlistWiring, mapping
from optmatch.model import InputError

_APART = 1.5  # between the nearest cells, in lengths of a cell, where placements give no length


def netlist_from_tree(
    tree: Any,
    *,
    pins: Mapping[str, str] | None = None,
    components: Mapping[str, str] | None = None,
    directed: bool | None = None,
    open_pins: bool = False,
    flaws: Sequence[str] = (),
) -> Netlist:
    """Make a fabric of a netlist of gdsfactory, sax or PICBench.

    Parameters
    ----------
    tree
        ``instances`` by name; ``connections`` ``{"a,o3": "b,o2"}``, ``nets`` ``[{"p1": "a,o3",
        "p2": "b,o2"}]`` or the ``links`` of ``routes``; ``ports`` ``{"in": "a,o1"}``;
        ``placements`` with x, y and rotation, or none; ``models``, for names of components others.
        ``info`` may have ``open_pins``, a list, and ``cell_length``, in the unit of placements.
        Of a recursive netlist the one that is part of no other is taken; a component that nobody
        knows is replaced by its netlist. PICBench has all this below ``netlist``.
    pins
        For names of pins of cells what they are: ``{"west": "a1", ...}``; None for those of
        `CONVENTIONS`.
    components
        For names of components what they are: "switch", a cell; "pass", light goes from pin to
        pin; "shifter", the same with a phase that is set; "crossing", of two waveguides;
        "coupler", which splits light. Usual names are known.
    directed
        Whether ports whose names begin with "in" and "out", or with I and O and a digit, form
        ports that send and receive: the first with the first, and so on. None: if all names do
        and there are as many of both.
    open_pins
        Whether pins may lead nowhere. Otherwise only those that ``info`` lists may.
    flaws
        What is known to be wrong already.

    Returns
    -------
    Netlist
        The cells, with our names of pins, joined as light goes through the parts between them.

    Raises
    ------
    NetlistError
        With every flaw, by the names of the netlist.

    Examples
    --------
    >>> fabric = netlist_from_tree({
    ...     "instances": {"m": "mzi", "w": "straight"},
    ...     "connections": {"m,o4": "w,o1"},
    ...     "ports": {"in0": "m,o1", "in1": "m,o2", "out0": "w,o2", "out1": "m,o3"},
    ... })
    >>> fabric.n_cells, fabric.n_ports, fabric.bidirectional, fabric.dead_pairs()
    (1, 2, False, [])
    """
    given = _conventions(pins)
    declared = _kinds(components or {})
    found = list(flaws)
    wiring = NetlistWiring(tree, declared, pins or (), found)
    joins, ports, free = wiring.joins, wiring.ports, wiring.free
    used = wiring.used_pins()
    parts = {
        name: make_part(component, declared, used[name], given)
        for name, component in wiring.components.items()
    }
    if open_pins:
        free += _unused(parts, used)
    tx, rx = _directions([name for name, _ in ports], directed)
    names_of = {name: part.names for name, part in parts.items()}
    found += find_flaws(list(parts), joins, ports, free, names_of)
    found += find_port_flaws(ports, tx, rx) + find_unknown(parts)
    if found:
        raise NetlistError(found)
    cells = keep_cells(parts, joins, ports)
    return Netlist(
        instances=cells.instances,
        connections=cells.connections,
        ports=cells.ports,
        tx=tx,
        rx=rx,
        open_pins=cells.open_pins,
        ends=_place(
            cells.instances,
            mapping(wiring.top, "placements", []),
            mapping(wiring.top, "info", []).get("cell_length"),
        ),
    )


def _kinds(components: Mapping[str, str]) -> Mapping[str, str]:
    for name, kind in components.items():
        if kind not in KINDS:
            raise InputError(f"{name} = {kind}: one of {', '.join(KINDS)}", where="components")
    return components


def _conventions(pins: Mapping[str, str] | None) -> Mapping[str, Sequence[str]]:
    if pins is None:
        return CONVENTIONS
    names = {ours: theirs for theirs, ours in pins.items()}
    if set(names) != set(TERMINAL_NAMES) or len(pins) != 4:
        raise InputError(
            f"pins = {dict(pins)}: four names, for {', '.join(TERMINAL_NAMES)}", where="pins"
        )
    return {"given": [names[ours] for ours in TERMINAL_NAMES]}


def _unused(parts: Mapping[str, Part], used: Mapping[str, Sequence[str]]) -> list[str]:
    """List the pins that are not mentioned, by the first names that they may have."""
    unused = []
    for name, part in parts.items():
        terminals = name_terminals(part.names)
        taken = {terminals[pin] for pin in used[name] if pin in terminals}
        left = {terminal: pin for pin, terminal in reversed(terminals.items())}
        unused += [f"{name},{left[terminal]}" for terminal in sorted(set(left) - taken)]
    return unused


def _directions(
    names: Sequence[str], directed: bool | None
) -> tuple[list[str] | None, list[str] | None]:
    """Split ports in those that send and those that receive, by their names."""
    tx = [name for name in names if re.match(r"in|i\d", name, re.IGNORECASE)]
    rx = [name for name in names if re.match(r"out|o\d", name, re.IGNORECASE)]
    both = len(tx) == len(rx) > 0 and len(tx) + len(rx) == len(names)
    return (tx, rx) if directed or (directed is None and both) else (None, None)


def _place(
    instances: Sequence[str], placements: Mapping[str, Any], cell_length: Any
) -> NDArray[np.float64] | None:
    """Draw cells where they are placed; None unless all are, apart from each other."""
    try:
        found = [placements[name] for name in instances]
        numbers = [
            [float(place.get(key) or 0.0) for key in ("x", "y", "rotation")] for place in found
        ]
        length = None if cell_length is None else float(cell_length)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # placements may be expressions, as "east of another"
    if not (np.isfinite(numbers).all() and np.isfinite(length or 0.0)):
        return None
    x, y, rotation = np.array(numbers).T
    middle = np.stack([x, y], axis=1)
    distance = np.linalg.norm(middle[:, None] - middle[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = distance.min(initial=np.inf, axis=1)
    if len(instances) > 1 and not nearest.min() > 0 and length is None:
        return None
    if length is None:
        length = float(np.median(nearest)) / _APART if len(instances) > 1 else 1.0
    angle = np.radians(rotation)
    along = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.stack([middle / length - along / 2, middle / length + along / 2], axis=1)
