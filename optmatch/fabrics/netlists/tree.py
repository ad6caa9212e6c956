"""Reads the netlist of another tool, a tree of mappings and lists, into a fabric."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.cellgraph import TERMINAL_NAMES
from optmatch.fabrics.netlists.flaws import (
    CONVENTIONS,
    NetlistError,
    Pair,
    find_flaws,
    find_port_flaws,
    name_terminals,
    split_pin,
)
from optmatch.fabrics.netlists.netlist import Netlist
from optmatch.fabrics.netlists.parts import (
    KINDS,
    SWITCHES,
    Part,
    find_unknown,
    keep_cells,
    kind_of,
    make_part,
)
from optmatch.model import InputError, check_size

_log = logging.getLogger("optmatch")

_KEYS = ("instances", "connections", "nets", "routes", "ports", "placements", "info")
_IGNORED = ("name", "settings", "warnings", "models", "pdk", "schema", "schema_version", "generic")
_ELECTRICAL = re.compile(r"(.*_)?e\d+")  # pins of heaters and pads, as gdsfactory calls them


class NetlistWiring:
    """The parts of a netlist by name, how their pins are joined, and the ports.

    `declared` has the kinds of components. Components of unknown kind are replaced by their
    netlists. Pins that look electrical are left out, but for those whose names are `optical`. All
    flaws go to `found`.
    """

    def __init__(
        self, tree: Any, declared: Mapping[str, str], optical: Iterable[str], found: list[str]
    ) -> None:
        self.components: dict[str, str] = {}
        self.joins: list[Pair] = []
        self.free: list[str] = []
        self._declared, self._optical, self._found = declared, set(optical), found
        self._count = 0
        self.top, self._models, self._library = _unwrap(tree)
        self._sizes: dict[str, int] = {}
        check_size("cells", self._size(self.top, 0), "instances")
        self.ports = self._read(self.top, "", ())

    def used_pins(self) -> dict[str, list[str]]:
        """Return for every part the names of those of its pins that are used."""
        pins: dict[str, dict[str, None]] = {}
        for pin in chain(*self.joins, (pin for _, pin in self.ports), self.free):
            instance, name = split_pin(pin)
            pins.setdefault(instance, {})[name] = None
        return {name: list(pins.get(name, ())) for name in self.components}

    def _size(self, tree: Mapping[str, Any], depth: int) -> int:
        """Count the instances of a netlist and of those within it, each of which is read once."""
        check_size("depth", depth, "instances")
        parts = list(map(self._component, mapping(tree, "instances", []).values()))
        for part in parts:
            known = kind_of(part, self._declared, 3) is not None
            if part in self._library and not known and part not in self._sizes:
                self._sizes[part] = 0  # within itself, which is a flaw
                self._sizes[part] = self._size(self._library[part], depth + 1)
        return len(parts) + sum(self._sizes.get(part, 0) for part in parts)

    def _read(self, tree: Mapping[str, Any], above: str, within: tuple[str, ...]) -> list[Pair]:
        """Read one netlist, `above` before all its names; return its ports."""
        found = self._found
        check_size("depth", len(within), "instances")
        found += [
            f"unknown key {key}: known are {', '.join(_KEYS)}"
            for key in tree
            if key not in (*_KEYS, *_IGNORED)
        ]
        joins, ports = _joins(tree, found), _pairs("ports", mapping(tree, "ports", found), found)
        listed = mapping(tree, "info", found).get("open_pins") or []
        if not isinstance(listed, list | tuple):
            found.append("open_pins: a list is expected")
            listed = []
        free = [str(pin) for pin in listed]
        wires = {
            pin for pin in (*chain(*joins), *dict(ports).values()) if self._is_electrical(pin)
        }
        joins = [pair for pair in joins if not wires.intersection(pair)]
        ports = [(name, pin) for name, pin in ports if pin not in wires]
        pins = [*chain(*joins), *(pin for _, pin in ports), *free]
        uses = Counter(split_pin(pin)[0] for pin in pins)
        pads = {split_pin(pin)[0] for pin in wires}.difference(uses)
        inner: dict[str, dict[str, str]] = {}
        for name, component in self._named(tree).items():
            self._count += 1
            check_size("cells", self._count, "instances")
            known = kind_of(component, self._declared, uses[name]) is not None
            if component in within:
                raise NetlistError([*found, f"component {component} is part of itself"])
            if component in self._library and not known:
                library, path = self._library[component], f"{above}{name}."
                inner[name] = dict(self._read(library, path, (*within, component)))
            elif name not in pads:
                self.components[above + name] = component

        def place(pin: str) -> str:
            """Find a pin in the whole, or the pin at which a netlist within has its port."""
            instance, port = split_pin(pin)
            return inner[instance].get(port, "") if instance in inner else above + pin

        found += [f"{above}{pin}: its netlist has no such port" for pin in pins if not place(pin)]
        self.free += filter(None, map(place, free))
        placed = ((place(first), place(second)) for first, second in joins)
        self.joins += [pair for pair in placed if all(pair)]
        return [(name, place(pin)) for name, pin in ports if place(pin)]

    def _is_electrical(self, pin: str) -> bool:
        name = split_pin(pin)[1]
        return name not in self._optical and _ELECTRICAL.fullmatch(name) is not None

    def _named(self, tree: Mapping[str, Any]) -> dict[str, str]:
        """Return the component of every instance of one netlist."""
        components = {}
        for name, instance in mapping(tree, "instances", self._found).items():
            if isinstance(instance, Mapping) and instance.get("array"):
                self._found.append(f"instance {name} is an array: list its cells one by one")
            components[str(name)] = self._component(instance)
            if not components[str(name)]:
                self._found.append(f"instance {name} has no component")
        return components

    def _component(self, instance: Any) -> str:
        """Return the component of an instance; empty if it has none."""
        component = instance.get("component") if isinstance(instance, Mapping) else instance
        if not isinstance(component, str):
            return ""
        return (
            component
            if component in self._declared
            else str(self._models.get(component, component))
        )


def mapping(tree: Mapping[str, Any], key: str, found: list[str]) -> Mapping[str, Any]:
    """Return a mapping within a mapping; note in `found` if the value is no mapping."""
    value = tree.get(key) or {}
    if isinstance(value, Mapping):
        return value
    found.append(f"{key}: a mapping is expected")
    return {}


def _unwrap(tree: Any) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    """Return the netlist itself, the models of components, and the netlists of components.

    From a recursive netlist the reader takes the first that is part of no other.
    """
    models = tree.get("models") if isinstance(tree, Mapping) else None
    if isinstance(tree, Mapping) and "netlist" in tree and set(tree) <= {"netlist", "models"}:
        tree = tree["netlist"]
    if not isinstance(tree, Mapping):
        raise NetlistError(["a netlist is a mapping with instances, connections and ports"])
    models = models if isinstance(models, Mapping) else {}
    inner = list(tree.values())
    if not inner or "instances" in tree or not all(map(_has_instances, inner)):
        return tree, models, {}
    parts = [part for netlist in inner for part in netlist["instances"].values()]
    names = {str(part.get("component") if isinstance(part, Mapping) else part) for part in parts}
    top = next((netlist for name, netlist in tree.items() if name not in names), inner[0])
    return top, models, tree


def _has_instances(netlist: Any) -> bool:
    return isinstance(netlist, Mapping) and isinstance(netlist.get("instances"), Mapping)


def _pairs(key: str, entries: Mapping[Any, Any], found: list[str]) -> list[Pair]:
    """Return the entries that are pairs of texts, and ignore the others."""
    pairs = []
    for name, value in entries.items():
        if isinstance(value, str) and value.strip():
            pairs.append((str(name), value))
        else:
            found.append(f"{key}: {name} is connected to nothing")
    return pairs


def _joins(tree: Mapping[str, Any], found: list[str]) -> list[Pair]:
    """Collect joins from all places where they may stand."""
    joins = _pairs("connections", mapping(tree, "connections", found), found)
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
    for name, route in mapping(tree, "routes", found).items():
        links = route.get("links") if isinstance(route, Mapping) else None
        joins += _pairs(f"routes: {name}", links or {}, found)
    return joins


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
        Flaws that are known already.

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
    guessed = sorted({part.component for part in parts.values()} - declared.keys() - SWITCHES)
    for component in guessed:
        if kind_of(component, declared, 4) == "switch":
            _log.warning(
                "component %s is taken for a switch by its name: say --component %s=switch, or"
                " what else it is",
                component,
                component,
            )
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
