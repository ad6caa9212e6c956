"""The wiring of a netlist: its parts, how their pins are joined, and its ports.

A netlist of another tool is a tree of mappings and lists, and may hold further netlists by the
names of components. Here it becomes one flat list of instances and joins, by the names that its
author uses.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, NamedTuple

from optmatch.fabrics.netlists.components import Part, kind_of, read_number
from optmatch.fabrics.netlists.flaws import NetlistError, Pair, split_pin
from optmatch.model import check_size
from optmatch.model.accounts import Level, take

_KEYS = ("instances", "connections", "nets", "routes", "ports", "placements", "info")
_IGNORED = (
    *("name", "settings", "default_settings", "warnings", "models", "pdk"),
    *("schema", "schema_version", "generic"),
)
_COLUMNS = ("columns", "num_a", "na")
_ROWS = ("rows", "num_b", "nb")
"""How versions of gdsfactory and kfactory call the size of an array."""
_STEPS = ("column_pitch", "row_pitch")
_PITCHES = dict.fromkeys(("pitch_a", "pitch_b", "spacing", "type"), "how it is drawn")
_INSTANCE = Level(
    "key of an instance",
    ("component", "settings", "info", "array", *_COLUMNS, *_ROWS, *_STEPS),
    {**_PITCHES, "name": "it has its key as name"},
    "it says nothing of the fabric",
)
_ARRAY = Level(
    "key of an array", (*_COLUMNS, *_ROWS, *_STEPS), _PITCHES, "an array has columns and rows"
)
_NET = Level(
    "key of nets",
    ("p1", "p2"),
    dict.fromkeys(("name", "settings"), "how it is drawn"),
    "a net joins two pins",
)
_ROUTE = Level(
    "key of routes",
    ("links",),
    dict.fromkeys(("settings", "routing_strategy", "name"), "how it is drawn"),
    "a route joins the pins of its links",
)
_TOP = Level(
    "key of a netlist",
    _KEYS,
    {
        **dict.fromkeys(_IGNORED, "instances and their joins say all"),
        "models": "names of components",
    },
    "",
)
_ELECTRICAL = re.compile(r"(.*_)?e\d+(_\d+)*")  # pins of heaters and pads
_ARRAY_INDEX = re.compile(r"<\d+\.\d+>$")
_BUNDLE = re.compile(r"(\d+)-(\d+)")  # in a pin of a route: from one number to another
_OLD_BUNDLE = re.compile(r":(\d+):(\d+)$")

_ASSUMED_PINS = 3  # of a component, before it is known how many of its pins are used


_PLACEMENT = Level(
    "key of placements",
    ("x", "y", "rotation", "mirror"),
    {},
    "the place is not known",
)


class Place(NamedTuple):
    """Where an instance lies: mirrored at the x axis, then turned, then moved."""

    x: float
    y: float
    rotation: float = 0.0
    """In degrees."""
    mirror: bool = False

    def within(self, outer: Place) -> Place:
        """Return the place of something that lies here in an instance that lies at `outer`."""
        sense = -1 if outer.mirror else 1
        y = sense * self.y
        # Quarter turns are exact, so that a turned layout has the same distances.
        quarter = outer.rotation % 360 / 90
        cos = math.cos(math.radians(outer.rotation))
        sin = math.sin(math.radians(outer.rotation))
        if quarter == int(quarter):
            cos, sin = ((1, 0), (0, 1), (-1, 0), (0, -1))[int(quarter)]
        return Place(
            outer.x + cos * self.x - sin * y,
            outer.y + sin * self.x + cos * y,
            outer.rotation + sense * self.rotation,
            self.mirror != outer.mirror,
        )


def _read_place(placements: Mapping[str, Any], name: str) -> Place | None:
    """Return where a netlist puts an instance; None unless it says so in plain numbers alone.

    ``placements[name]`` is the row of the instance, which may have x, y, rotation and mirror.
    """
    row = placements.get(name)
    if not isinstance(row, Mapping):
        return None
    unset = (None, False, "false", "False", "null", "None")
    stated = [
        str(key) for key, value in row.items() if value not in unset and read_number(value) != 0
    ]
    take(_PLACEMENT, stated, name)
    numbers = [
        0.0 if key not in stated else read_number(row[key]) for key in ("x", "y", "rotation")
    ]
    x, y, rotation = numbers
    if x is None or y is None or rotation is None or not set(stated) <= set(_PLACEMENT.used):
        return None  # placements may be expressions, as "east of another"
    return Place(x, y, rotation, "mirror" in stated)


def _place_in(tree: Mapping[str, Any], name: str) -> Place | None:
    """Return where one netlist puts an instance, or a cell of an array by the array's pitch.

    The cell ``array<2.0>`` of an array at x = 10 with a pitch of 5 is at x = 20. None if a place
    or a needed pitch is not stated.
    """
    placements = mapping(tree, "placements", [])
    index = _ARRAY_INDEX.search(name)
    if index is None or name in placements:
        return _read_place(placements, name)

    # A cell of an array is some steps away from the first one.
    base = _read_place(placements, name[: index.start()])
    entry = mapping(tree, "instances", []).get(name[: index.start()])
    array = _value_of(entry, "array") or entry
    column, row = (int(number) for number in index[0][1:-1].split("."))
    steps = [read_number(_value_of(array, key)) for key in _STEPS]
    if base is None or (column and steps[0] is None) or (row and steps[1] is None):
        return None
    x = base.x + column * (steps[0] or 0.0)
    return base._replace(x=x, y=base.y + row * (steps[1] or 0.0))


@dataclass
class Wiring:
    """A flat netlist, by the names of its author; a part within another is ``outer.inner``."""

    instances: dict[str, Part] = field(default_factory=dict)
    joins: list[Pair] = field(default_factory=list)
    """Pairs of pins ``"instance,pin"``, each join once."""
    ports: list[Pair] = field(default_factory=list)
    """Names with their pins, in the order in which they become port 0, 1, ..."""
    open_pins: list[str] = field(default_factory=list)
    """Pins that lead nowhere on purpose."""
    places: dict[str, Place | None] = field(default_factory=dict)
    """Where instances lie, for all with placements; None for a place that is not understood."""
    top: Mapping[str, Any] = field(default_factory=dict)
    """The netlist as it was given, or the outermost one of several."""

    def pins(self) -> list[str]:
        """Return all pins of joins and ports, and the open ones; each as often as it is named."""
        port_pins = [pin for _, pin in self.ports]
        return [*chain(*self.joins), *port_pins, *self.open_pins]

    def used_pins(self) -> dict[str, list[str]]:
        """Return for every instance the names of its pins that are mentioned, each once."""
        names_of: dict[str, dict[str, None]] = {name: {} for name in self.instances}
        for pin in self.pins():
            instance, name = split_pin(pin)
            if instance in names_of:
                names_of[instance][name] = None
        return {name: list(names) for name, names in names_of.items()}

    def leave_out(self, names: Iterable[str], flaws: list[str]) -> None:
        """Remove instances and ports by name; pins that led to them stay open.

        The name of an instance that holds others, or of an array, stands for all in it; a name
        that is neither is a flaw.
        """
        left_out = set(names)
        removed = {name for name in self.instances if _outer_names(name) & left_out}
        port_names = {name for name, _ in self.ports}
        all_names = port_names.union(*(_outer_names(name) for name in self.instances))
        flaws += [
            f"leave out {name}: there is no such part or port"
            for name in sorted(left_out - all_names)
        ]

        # The other end of what is removed becomes an open pin.
        opened = [pin for name, pin in self.ports if name in left_out]
        for first, second in self.joins:
            if split_pin(first)[0] in removed:
                opened.append(second)
            if split_pin(second)[0] in removed:
                opened.append(first)
        self.open_pins += opened
        self.keep(self.instances.keys() - removed)
        self.ports = [pair for pair in self.ports if pair[0] not in left_out]

    def keep(self, names: Iterable[str]) -> None:
        """Keep some instances, and the joins, ports and open pins of these alone."""
        instances = set(names)

        def is_kept(pin: str) -> bool:
            """Tell whether the part of a pin is kept; one that is not there is a flaw to find."""
            instance = split_pin(pin)[0]
            return instance in instances or instance not in self.instances

        self.joins = [pair for pair in self.joins if all(map(is_kept, pair))]
        self.ports = [(name, pin) for name, pin in self.ports if is_kept(pin)]
        self.open_pins = [pin for pin in self.open_pins if is_kept(pin)]
        self.instances = {name: part for name, part in self.instances.items() if name in instances}


def _outer_names(name: str) -> set[str]:
    """Return an instance, the array that it is one of, and all instances that it lies in."""
    parts = name.split(".")
    names = {".".join(parts[: k + 1]) for k in range(len(parts))}
    return {name, *names, *(_ARRAY_INDEX.sub("", outer) for outer in names | {name})}


class WiringReader:
    """Reads a tree of mappings and lists as a flat wiring.

    Parameters
    ----------
    tree
        The netlist, or several by the names of components.
    declared
        Kinds of components that the user declares; their netlists are not opened.
    optical
        Names of pins that carry light although they look electrical.
    flaws
        All flaws are added here, as sentences.

    Notes
    -----
    `_library` has the netlists of components by name, and `_models` what parts are.
    """

    def __init__(
        self, tree: Any, declared: Mapping[str, str], optical: Iterable[str], flaws: list[str]
    ) -> None:
        """Split the tree into the outermost netlist and those of components within it."""
        self._declared = declared
        self._optical = set(optical)
        self._flaws = flaws
        self._top, self._models, self._library = _unwrap(tree)
        self._n_instances = 0
        self._sizes: dict[str, int] = {}
        self._switching: dict[str, bool] = {}

    def read(self) -> Wiring:
        """Return the whole netlist as one flat wiring, by full names such as ``row1.m3``.

        Raise `NetlistError` if a component is part of itself.
        """
        # A netlist that would be too large is refused before it is opened. `_flatten` then adds
        # the outermost netlist, which has no prefix, lies in no component and at the origin, with
        # all within it. A netlist may state a join twice, also from its other end: one is kept.
        check_size("cells", self._count_instances(self._top, 0), "instances")
        wiring = Wiring(top=self._top)
        wiring.ports = self._flatten(self._top, "", (), wiring, Place(0.0, 0.0))
        wiring.joins = list({frozenset(pair): pair for pair in wiring.joins}.values())
        return wiring

    def _flatten(
        self,
        tree: Mapping[str, Any],
        above: str,
        within: tuple[str, ...],
        wiring: Wiring,
        origin: Place | None,
    ) -> list[Pair]:
        """Add one netlist to the flat wiring, and return its ports with the full names of pins.

        The netlist of an opened component takes the place of its instance: instance ``row1`` with
        ``m3`` inside adds ``row1.m3``, and a join to the port ``in`` of ``row1`` becomes one to
        the pin behind it, such as ``row1.m3,a1``. `above` is the prefix of all names, such as
        ``"row1."``, `within` lists the components around, of which none may come again, and
        `origin` is where the netlist lies.
        """
        check_size("depth", len(within), "instances")
        level = self._read_level(tree)
        is_placed = bool(mapping(tree, "placements", self._flaws))
        # n_used: how many pins of each instance this netlist uses.
        pins = level.pins()
        n_used = Counter(split_pin(pin)[0] for pin in set(pins))

        # Open components with a netlist of their own, and note which pin is behind each of their
        # ports; others are parts of the flat list.
        ports_of_inner: dict[str, dict[str, str]] = {}
        for name, instance in level.instances.items():
            self._n_instances += 1
            check_size("cells", self._n_instances, "instances")
            component = instance.component
            place = _place_in(tree, name)
            if place is not None:
                place = None if origin is None else place.within(origin)
            if is_placed:
                wiring.places[above + name] = place

            # A part, or another netlist, which stands in the place of the instance.
            if component in within:
                raise NetlistError([*self._flaws, f"component {component} is part of itself"])
            if self._is_opened(component, n_used[name]):
                path = f"{above}{name}."
                inner = self._library[component]
                ports = self._flatten(inner, path, (*within, component), wiring, place)
                ports_of_inner[name] = dict(ports)
            else:
                wiring.instances[above + name] = instance

        def full_name(pin: str) -> str:
            """Return the full name of a pin; empty for a port that an inner netlist lacks."""
            instance, port = split_pin(pin)
            if instance in ports_of_inner:
                return ports_of_inner[instance].get(port, "")
            return above + pin

        # Joins lead from part to part, through the ports of inner netlists.
        self._flaws += [
            f"{above}{pin}: its netlist has no such port" for pin in pins if not full_name(pin)
        ]
        for first, second in level.joins:
            if full_name(first) and full_name(second):
                wiring.joins.append((full_name(first), full_name(second)))
        wiring.open_pins += filter(None, map(full_name, level.open_pins))
        return [(name, full_name(pin)) for name, pin in level.ports if full_name(pin)]

    def _read_level(self, tree: Mapping[str, Any]) -> Wiring:
        """Read one netlist, without those within it and without what is electrical.

        `tree` is one netlist of gdsfactory or sax. Pins of an array of one cell are renamed,
        ``m<0.0>,o1`` becomes ``m,o1``. Electrical pins are left out, with what is joined to them,
        and so are parts that have no other pins in use (pads). Flaws are appended to
        ``self._flaws``; the places of instances are not read here.
        """
        unknown = [key for key in tree if key not in (*_KEYS, *_IGNORED)]
        self._flaws += [f"unknown key {key}: known are {', '.join(_KEYS)}" for key in unknown]
        take(_TOP, [str(key) for key in tree if key not in unknown])
        instances = self._read_instances(tree)
        joins = _read_joins(tree, self._flaws)
        ports = _read_pairs("ports", mapping(tree, "ports", self._flaws), self._flaws)
        open_pins = mapping(tree, "info", self._flaws).get("open_pins") or []
        if not isinstance(open_pins, list | tuple):
            self._flaws.append("open_pins: a list is expected")
            open_pins = []

        def rename(pin: str) -> str:
            """Write the pin of an array of one cell, ``m<0.0>,o1``, as ``m,o1``."""
            instance, name = split_pin(pin)
            bare = _ARRAY_INDEX.sub("", instance)
            if instance in instances or bare not in instances:
                return pin
            return f"{bare},{name}"

        def is_electrical(pin: str) -> bool:
            """Tell whether a pin is one of a heater or a pad, by its name."""
            name = split_pin(pin)[1]
            return name not in self._optical and _ELECTRICAL.fullmatch(name) is not None

        level = Wiring(
            instances=instances,
            joins=[(rename(first), rename(second)) for first, second in joins],
            ports=[(name, rename(pin)) for name, pin in ports],
            open_pins=[rename(str(pin)) for pin in open_pins],
        )
        # Electrical pins are left out, what is joined to them, and parts without other pins.
        electrical = set(filter(is_electrical, level.pins()))
        level.joins = [pair for pair in level.joins if not electrical.intersection(pair)]
        level.ports = [(name, pin) for name, pin in level.ports if pin not in electrical]
        pads = {split_pin(pin)[0] for pin in electrical}
        pads -= {split_pin(pin)[0] for pin in level.pins()}
        level.keep(instances.keys() - pads)
        return level

    def _read_instances(self, tree: Mapping[str, Any]) -> dict[str, Part]:
        """Return the instances of one netlist; an array becomes its cells ``name<column.row>``.

        `tree` is the netlist; a sentence on each flaw is appended to ``self._flaws``.
        """
        instances = {}
        for name, entry in mapping(tree, "instances", self._flaws).items():
            instance = _as_instance(entry)
            component = self._component_of(entry)
            settings = mapping(instance, "settings", self._flaws, of=f" of {name}")
            # The info is what the component has computed, and may be of any form.
            computed = mapping(instance, "info", [])

            # Each cell of an array is an instance with the settings of all.
            take(_INSTANCE, map(str, instance), str(name))
            if not component:
                self._flaws.append(f"instance {name} has no component")
            for cell in _cells_of_array(str(name), entry):
                instances[cell] = Part(component, None, {}, settings, computed)
        return instances

    def _component_of(self, entry: Any) -> str:
        """Return the component that an entry of ``instances`` names; empty for none.

        Models of the file may rename it, unless the user declares what it is.
        """
        component = _as_instance(entry).get("component")
        if not isinstance(component, str):
            return ""
        if component in self._declared:
            return component
        return str(self._models.get(component, component))

    def _is_opened(self, component: str, n_used: int) -> bool:
        """Tell whether the parts of a component's own netlist take its place.

        A component that the user declares is never opened, and one of unknown kind always; the
        name tells the kind or, for some, the number of pins that are used, `n_used` (`kind_of`).
        The netlist of a coupler or waveguide may only list the pieces that it is drawn of. One of
        known kind is therefore opened only if it has ports for light (`describes_light`), and is a
        switch or has one inside it, at any depth.
        """
        netlist = self._library.get(component)
        if component in self._declared or netlist is None:
            return False
        kind = kind_of(component, self._declared, n_used)
        if kind is None:
            return True
        describes_light = bool(netlist.get("ports"))
        return describes_light and (kind == "switch" or self._can_switch(component))

    def _can_switch(self, component: str) -> bool:
        """Tell whether the netlist of a component, at any depth, may have a switch in it."""
        if component not in self._switching:
            self._switching[component] = False  # a component within itself adds nothing
            kinds = set()
            for part in self._inner_components(self._library[component]):
                kinds.add(kind_of(part, self._declared, _ASSUMED_PINS))
                if part in self._library and self._can_switch(part):
                    kinds.add("switch")
            self._switching[component] = "switch" in kinds or kinds >= {"shifter", "coupler"}
        return self._switching[component]

    def _inner_components(self, tree: Mapping[str, Any]) -> list[str]:
        """List the components of all instances of one netlist, of an array once for each cell."""
        entries = mapping(tree, "instances", [])
        return [
            self._component_of(entry)
            for name, entry in entries.items()
            for _ in _cells_of_array(str(name), entry)
        ]

    def _count_instances(self, tree: Mapping[str, Any], depth: int) -> int:
        """Count the instances of a netlist and of those within it, wherever they are used.

        Sizes are remembered, hence a small file that stands for a huge chip is refused at once.
        """
        check_size("depth", depth, "instances")
        components = self._inner_components(tree)
        for component in components:
            is_inner = component not in self._sizes and component in self._library
            if is_inner and self._is_opened(component, _ASSUMED_PINS):
                self._sizes[component] = 0  # within itself, which is a flaw
                inner = self._library[component]
                self._sizes[component] = self._count_instances(inner, depth + 1)
        return len(components) + sum(self._sizes.get(component, 0) for component in components)


def mapping(
    tree: Mapping[str, Any], key: str, flaws: list[str], *, of: str = ""
) -> Mapping[str, Any]:
    """Return a mapping within a mapping, empty if there is none; any other value is a flaw.

    `of` is what the mapping is of, for the flaw, such as ``" of m1"``.
    """
    value = tree.get(key) or {}
    if isinstance(value, Mapping):
        return value
    flaws.append(f"{key}{of}: a mapping is expected")
    return {}


def _value_of(tree: Any, key: str) -> Any:
    """Return a value of a mapping; None if it has none, or is no mapping at all."""
    if not isinstance(tree, Mapping):
        return None
    return tree.get(key)


def _as_instance(entry: Any) -> Mapping[str, Any]:
    """Return an entry of ``instances`` with its keys; a name alone is that of its component."""
    if isinstance(entry, Mapping):
        return entry
    return {"component": entry}


def _unwrap(tree: Any) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    """Split the content of a file: return the main netlist, models, and netlists by component.

    `tree` is one netlist, or several by the names of components. ``models[name]`` is what a
    component of this name is; PICBench has ``netlist`` and ``models`` side by side. The main one
    of several netlists is the first that is part of no other; in a circle it is the first. A file
    of one netlist has none by component.
    """
    models = _value_of(tree, "models")
    if not isinstance(models, Mapping):
        models = {}
    if isinstance(tree, Mapping) and "netlist" in tree and set(tree) <= {"netlist", "models"}:
        tree = tree["netlist"]
    if not isinstance(tree, Mapping):
        raise NetlistError(["a netlist is a mapping with instances, connections and ports"])
    netlists = {str(name): _from_kfactory(netlist) for name, netlist in tree.items()}
    have_instances = [
        isinstance(_value_of(netlist, "instances"), Mapping) for netlist in netlists.values()
    ]
    if not netlists or "instances" in tree or not all(have_instances):
        return _from_kfactory(tree), models, {}

    # The outermost netlist is a component of none; in a circle of netlists it is the first one.
    used_components = {
        str(_as_instance(entry).get("component"))
        for netlist in netlists.values()
        for entry in netlist["instances"].values()
    }
    outermost = [netlist for name, netlist in netlists.items() if name not in used_components]
    top = outermost[0] if outermost else next(iter(netlists.values()))
    return top, models, netlists


def _from_kfactory(tree: Any) -> Any:
    """Translate a netlist of kfactory into our form; any other tree is returned as it is.

    Its nets are lists of pins ``{"instance": ..., "port": ...}`` and of ports ``{"name": ...}``.
    """
    nets = _value_of(tree, "nets")
    if not isinstance(nets, list) or not nets or not all(isinstance(net, list) for net in nets):
        return tree

    joins: list[dict[str, str]] = []
    ports: dict[str, str] = {}
    for net in nets:
        entries = [entry for entry in net if isinstance(entry, Mapping)]
        pins = []
        for entry in entries:
            if "instance" in entry:
                index = ""
                if {"ia", "ib"} <= entry.keys():  # a cell of an array
                    index = f"<{entry['ia']}.{entry['ib']}>"
                pins.append(f"{entry['instance']}{index},{entry.get('port')}")
        names = [str(entry.get("name")) for entry in entries if "instance" not in entry]
        # A net of three pins or more becomes a chain of joins.
        joins += [{"p1": first, "p2": second} for first, second in pairwise(pins)]
        if pins:
            ports |= dict.fromkeys(names, pins[0])
    return {**tree, "nets": joins, "ports": ports}


def _cells_of_array(name: str, entry: Any) -> Iterator[str]:
    """Yield ``name<column.row>`` for each cell of an array, or the name if the entry is none.

    `entry` is the instance ``name`` of a netlist. Columns and rows stand under its key ``array``,
    or in older files beside its other keys.
    """
    array = _value_of(entry, "array")
    if array is not None and not isinstance(array, Mapping):
        raise NetlistError(
            [f"instance {name}: array: a mapping with columns and rows is expected"]
        )
    if array is not None:
        take(_ARRAY, map(str, array), name)
    elif isinstance(entry, Mapping) and any(key in entry for key in (*_COLUMNS, *_ROWS)):
        array = entry
    else:
        yield name
        return

    # An array of one cell has no numbers.
    columns = _array_size(array, _COLUMNS)
    rows = _array_size(array, _ROWS)
    check_size("cells", columns * rows, "instances")
    if columns * rows == 1:
        yield name
        return
    for column in range(columns):
        for row in range(rows):
            yield f"{name}<{column}.{row}>"


def _array_size(array: Mapping[str, Any], keys: Iterable[str]) -> int:
    """Return the number of columns or rows, the first of `keys` that is there; 1 if none is."""
    values = [array[key] for key in keys if array.get(key) is not None]
    if not values:
        return 1
    try:
        return max(1, int(values[0]))
    except (TypeError, ValueError, OverflowError):
        raise NetlistError([f"array: {values[0]!r} is no number of cells"]) from None


def find_array_flaws(wiring: Wiring) -> list[str]:
    """Return a message for each array of instances whose pins are named without the cell's number.

    The cells of an array ``m`` are instances ``m<column.row>``, and a pin is ``instance,pin``. The
    pin ``m,o1`` of an array belongs to no cell; ``m<0.0>,o1`` does.
    """
    arrays = {_ARRAY_INDEX.sub("", name) for name in wiring.instances if _ARRAY_INDEX.search(name)}
    named = Counter(split_pin(pin)[0] for pin in wiring.pins())
    return [
        f"instance {name} is an array: its pins are {name}<0.0>,pin and so on"
        for name in sorted(arrays)
        if named[name]
    ]


def _read_pairs(key: str, entries: Mapping[Any, Any], flaws: list[str]) -> list[Pair]:
    """Return the entries that are pairs of texts; the others are flaws."""
    pairs = []
    for name, value in entries.items():
        if isinstance(value, str) and value.strip():
            pairs.append((str(name), value))
        else:
            flaws.append(f"{key}: {name} is connected to nothing")
    return pairs


def _read_joins(tree: Mapping[str, Any], flaws: list[str]) -> list[Pair]:
    """List the pairs of pins that are joined, from the three places where a netlist may say so.

    `tree` is one netlist. A sentence on each entry that fits no form is appended to `flaws`, and
    the entry is left out. A route may join bundles: ``a,o1-3`` are three pins. Each of these is
    one join::

        connections: {"a,o2": "b,o1"}
        nets: [{"p1": "a,o2", "p2": "b,o1"}]
        routes: {"r1": {"links": {"a,o2": "b,o1"}}}
    """
    joins = _read_pairs("connections", mapping(tree, "connections", flaws), flaws)
    nets = tree.get("nets") or []
    if not isinstance(nets, list):
        flaws.append("nets: a list is expected")
        nets = []

    # Nets have two pins each.
    for number, net in enumerate(nets):
        ends = [_value_of(net, "p1"), _value_of(net, "p2")]
        if isinstance(net, Mapping):
            take(_NET, map(str, net), f"nets[{number}]")
        texts = [end for end in ends if isinstance(end, str) and end.strip()]
        if len(texts) == 2:
            joins.append((texts[0], texts[1]))
        elif any(ends):
            flaws.append(f"nets[{number}]: {next(filter(None, ends))} is connected to nothing")
        else:
            flaws.append(f"nets[{number}]: p1 and p2 are expected")

    # Routes have links, each of which may stand for a bundle.
    for name, route in mapping(tree, "routes", flaws).items():
        if not isinstance(route, Mapping):
            flaws.append(f"routes: {name}: a mapping with links is expected")
            continue
        take(_ROUTE, map(str, route), str(name))
        links = mapping(route, "links", flaws)
        for first, second in _read_pairs(f"routes: {name}", links, flaws):
            # A bundle with sides of different sizes joins nothing.
            first_pins = _expand_pin(first)
            second_pins = _expand_pin(second)
            if len(first_pins) == len(second_pins):
                joins += zip(first_pins, second_pins, strict=True)
            else:
                sizes = f"{first} has {len(first_pins)} pins, {second} {len(second_pins)}"
                flaws.append(f"routes: {name}: {sizes}")
    return joins


def _expand_pin(pin: str) -> list[str]:
    """List the pins of a range, in its order.

    A range counts up or down in a pin, ``m,o1-4``, in an instance, ``m1-4,o1``, or in an array,
    ``m<0-3.0>,o1``. ``m,o4-1`` and the older ``m,o:4:1`` stand for ``m,o4`` to ``m,o1``; a pin
    without a range stands for itself.
    """
    spelled = _OLD_BUNDLE.sub(r"\1-\2", pin)
    span = _BUNDLE.search(spelled)
    if span is None:
        return [pin]
    first = int(span[1])
    last = int(span[2])
    step = 1 if last >= first else -1
    check_size("cells", abs(last - first) + 1, "instances")
    head = spelled[: span.start()]
    tail = spelled[span.end() :]
    return [f"{head}{number}{tail}" for number in range(first, last + step, step)]
