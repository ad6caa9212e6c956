"""From the netlist of another tool, as a tree of mappings and lists, to a fabric."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.cellgraph import TERMINAL_NAMES
from optmatch.fabrics.netlist import Netlist
from optmatch.fabrics.netlist_flaws import (
    CONVENTIONS,
    NetlistError,
    Pair,
    find_flaws,
    find_port_flaws,
    name_terminals,
    split_pin,
)
from optmatch.model import InputError

_KEYS = ("instances", "connections", "nets", "routes", "ports", "placements", "info")
_IGNORED = ("name", "settings", "warnings", "models", "pdk", "schema", "schema_version", "generic")
_APART = 1.5  # between the nearest cells, in lengths of a cell, where placements give no length


def netlist_from_tree(
    tree: Any,
    *,
    pins: Mapping[str, str] | None = None,
    directed: bool | None = None,
    open_pins: bool = False,
    flaws: Sequence[str] = (),
) -> Netlist:
    """Make a fabric of a gdsfactory or sax netlist of 2x2 cells.

    Parameters
    ----------
    tree
        ``instances`` by name; ``connections`` ``{"a,o3": "b,o2"}``, ``nets`` ``[{"p1": "a,o3",
        "p2": "b,o2"}]`` or the ``links`` of ``routes``; ``ports`` ``{"in": "a,o1"}``;
        ``placements`` with x, y and rotation, or none. Of a recursive netlist the first is taken.
        ``info`` may have ``open_pins``, a list, and ``cell_length``, in the unit of placements.
    pins
        For names of pins what they are: ``{"west": "a1", ...}``; None for those of `CONVENTIONS`.
    directed
        Whether ports whose names begin with "in" and "out" form ports that send and receive: the
        first with the first, and so on. None: if all names do and there are as many of both.
    open_pins
        Whether pins may lead nowhere. Otherwise only those that ``info`` lists may.
    flaws
        What is known to be wrong already.

    Returns
    -------
    Netlist
        With our names of pins.

    Raises
    ------
    NetlistError
        With every flaw, by the names of the netlist.

    Examples
    --------
    >>> fabric = netlist_from_tree({
    ...     "instances": {"m": "mzi"},
    ...     "ports": {"in0": "m,o1", "in1": "m,o2", "out0": "m,o4", "out1": "m,o3"},
    ... })
    >>> fabric.n_ports, fabric.bidirectional, fabric.dead_pairs()
    (2, False, [])
    """
    conventions = _conventions(pins)
    tree = _top(tree)
    found = list(flaws)
    found += [
        f"unknown key {key}: known are {', '.join(_KEYS)}"
        for key in tree
        if key not in (*_KEYS, *_IGNORED)
    ]
    instances = list(map(str, _mapping(tree, "instances", found)))
    for name, instance in _mapping(tree, "instances", []).items():
        if isinstance(instance, Mapping) and instance.get("array"):
            found.append(f"instance {name} is an array: list its cells one by one")
    joins = _joins(tree, found)
    ports = _pairs("ports", _mapping(tree, "ports", found), found)
    info = _mapping(tree, "info", found)
    free = [str(pin) for pin in info.get("open_pins", [])]
    if open_pins:
        free += _unused(instances, joins, ports, free, conventions)
    tx, rx = _directions([name for name, _ in ports], directed)
    found += find_flaws(instances, joins, ports, free, conventions)
    found += find_port_flaws(ports, tx, rx)
    if found:
        raise NetlistError(found)
    terminals = name_terminals(conventions)

    def ours(pin: str) -> str:
        instance, name = split_pin(pin)
        return f"{instance},{TERMINAL_NAMES[terminals[name]]}"

    return Netlist(
        instances=instances,
        connections={ours(first): ours(second) for first, second in joins},
        ports=[(name, ours(pin)) for name, pin in ports],
        tx=tx,
        rx=rx,
        open_pins=[ours(pin) for pin in free],
        ends=_place(instances, _mapping(tree, "placements", []), info.get("cell_length")),
    )


def _conventions(pins: Mapping[str, str] | None) -> Mapping[str, Sequence[str]]:
    if pins is None:
        return CONVENTIONS
    names = {ours: theirs for theirs, ours in pins.items()}
    if set(names) != set(TERMINAL_NAMES) or len(pins) != 4:
        raise InputError(
            f"pins = {dict(pins)}: four names, for {', '.join(TERMINAL_NAMES)}", where="pins"
        )
    return {"given": [names[ours] for ours in TERMINAL_NAMES]}


def _top(tree: Any) -> Mapping[str, Any]:
    """Return the netlist itself; of a recursive one the first."""
    if not isinstance(tree, Mapping):
        raise NetlistError(["a netlist is a mapping with instances, connections and ports"])
    inner = list(tree.values())
    if (
        "instances" not in tree
        and inner
        and all(isinstance(part, Mapping) and "instances" in part for part in inner)
    ):
        return inner[0]  # type: ignore[no-any-return]
    return tree


def _mapping(tree: Mapping[str, Any], key: str, found: list[str]) -> Mapping[str, Any]:
    value = tree.get(key) or {}
    if isinstance(value, Mapping):
        return value
    found.append(f"{key}: a mapping is expected")
    return {}


def _pairs(key: str, entries: Mapping[Any, Any], found: list[str]) -> list[Pair]:
    """Take the entries that are pairs of texts; the others lead to nothing."""
    pairs = []
    for name, value in entries.items():
        if isinstance(value, str) and value.strip():
            pairs.append((str(name), value))
        else:
            found.append(f"{key}: {name} is connected to nothing")
    return pairs


def _joins(tree: Mapping[str, Any], found: list[str]) -> list[Pair]:
    """Collect joins from all places where they may stand."""
    joins = _pairs("connections", _mapping(tree, "connections", found), found)
    nets = tree.get("nets") or []
    if not isinstance(nets, list):
        found.append("nets: a list is expected")
        nets = []
    for place, net in enumerate(nets):
        ends = [net.get("p1"), net.get("p2")] if isinstance(net, Mapping) else [None, None]
        if all(isinstance(end, str) and end.strip() for end in ends):
            joins.append((ends[0], ends[1]))  # type: ignore[arg-type]
        else:
            named = next((end for end in ends if end), None)
            what = f"{named} is connected to nothing" if named else "p1 and p2 are expected"
            found.append(f"nets[{place}]: {what}")
    for name, route in _mapping(tree, "routes", found).items():
        links = route.get("links") if isinstance(route, Mapping) else None
        joins += _pairs(f"routes: {name}", links or {}, found)
    return joins


def _unused(
    instances: Sequence[str],
    joins: Sequence[Pair],
    ports: Sequence[Pair],
    free: Sequence[str],
    conventions: Mapping[str, Sequence[str]],
) -> list[str]:
    """List the pins that are not mentioned, by the first names that they may have."""
    terminals = name_terminals(conventions)
    mentioned = [pin for pair in joins for pin in pair] + [pin for _, pin in ports] + list(free)
    split = [split_pin(pin) for pin in mentioned]
    used = {(instance, terminals[name]) for instance, name in split if name in terminals}
    first = next(iter(conventions.values()))
    return [
        f"{instance},{name}"
        for instance in dict.fromkeys(instances)
        for terminal, name in enumerate(first)
        if (instance, terminal) not in used
    ]


def _directions(
    names: Sequence[str], directed: bool | None
) -> tuple[list[str] | None, list[str] | None]:
    """Split ports in those that send and those that receive, by their names."""
    tx = [name for name in names if re.match("in", name, re.IGNORECASE)]
    rx = [name for name in names if re.match("out", name, re.IGNORECASE)]
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
