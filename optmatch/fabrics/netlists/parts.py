"""The kinds of parts of a netlist: cells that switch, parts that pass light, couplers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from optmatch.fabrics.cellgraph import TERMINAL_NAMES
from optmatch.fabrics.netlists.flaws import (
    CONVENTIONS,
    NetlistError,
    Pair,
    name_terminals,
    split_pin,
)

KINDS = ("switch", "pass", "shifter", "crossing", "coupler")
"""What a component may be: a 2x2 or 1x2 cell; a part that passes light from pin to pin; the same
with a phase that is set; two waveguides that cross; a coupler, which splits light."""

_KNOWN = (
    ("switch", r"cell|osu|mzi2x2(_2x2.*)?|mzi_ps|(.*_)?switch(_?[12]x2)?"),
    ("shifter", r".*phase_?shifter|.*heat.*"),
    ("pass", r"straight.*|wave_?guide.*|bend.*|taper.*|grating_coupler.*|edge_coupler.*"),
    ("crossing", r"crossing.*"),
    ("coupler", r"coupler.*|directional_coupler.*|mmi(_?[12]x2.*)?|splitter.*|y_?branch.*"),
)
SWITCHES = frozenset(("cell", "osu", "mzi2x2", "mzi_ps", "switch", "switch_2x2", "switch_1x2"))
"""Components that are switches and nothing else; of others the name may mislead."""

_ONE_TO_TWO = re.compile(r"^\D*1x2|splitter|y_?branch", re.IGNORECASE)
_NARROW = {
    "optical": ("o1", "", "o2", "o3"),
    "inout": ("in0", "", "out0", "out1"),
    "numbered": ("I1", "", "O1", "O2"),
    "cell": ("a1", "", "b1", "b2"),
}
"""Names of the pins of a 1x2 part; it has no a2."""

_CROSSED = {"optical": ("o1", "o2", "o3", "o4"), "inout": CONVENTIONS["inout"]}
"""Names of the pins of a crossing, such that light goes from a1 to b1 and from a2 to b2."""

_OTHER_END = {"o1": "o2", "I1": "O1", "in0": "out0"} | {"o2": "o1", "O1": "I1", "out0": "in0"}
_PASSING = ("pass", "shifter", "crossing")
_MOST_NAMES = 6  # of parts, in a message

Terminal = tuple[str, int]


class Part(NamedTuple):
    """An instance of a netlist."""

    component: str
    kind: str | None
    """One of `KINDS`; None if the kind is not known."""
    names: Mapping[str, Sequence[str]]
    """How its pins may be called, as `CONVENTIONS`; empty where it has none."""


class Cells(NamedTuple):
    """A netlist without other parts: cells, with our names of pins."""

    instances: list[str]
    connections: dict[str, str]
    ports: list[Pair]
    open_pins: list[str]


def kind_of(component: str, declared: Mapping[str, str], pins: int) -> str | None:
    """Return the kind of a component, as its user declares it or by its name; None if unknown.

    An ``mzi`` is a cell if more than two of its `pins` are used: in gdsfactory it has two.
    """
    if component in declared:
        return declared[component]
    if component.lower() == "mzi":
        return "switch" if pins > 2 else None
    found = (kind for kind, pattern in _KNOWN if re.fullmatch(pattern, component, re.IGNORECASE))
    return next(found, None)


def make_part(
    component: str,
    declared: Mapping[str, str],
    used: Sequence[str],
    given: Mapping[str, Sequence[str]],
) -> Part:
    """Return the kind of a part and the names of its pins, by the pins that are `used`.

    `given` has the names of the pins of cells.
    """
    kind = kind_of(component, declared, len(used))
    if kind == "crossing":
        return Part(component, kind, _CROSSED)
    if kind in ("switch", "coupler"):
        wide = given if kind == "switch" else {**CONVENTIONS, **given}
        return Part(component, kind, _NARROW if _ONE_TO_TWO.search(component) else wide)
    if len(used) > 2:
        return Part(component, kind, CONVENTIONS if kind else {"own": used})
    first = used[0] if used else "o1"
    second = used[1] if len(used) > 1 else _OTHER_END.get(first, "the other pin")
    return Part(component, kind, {"own": (first, "", second, "")})


def find_unknown(parts: Mapping[str, Part]) -> list[str]:
    """List the components that nobody knows, with the instances that have them."""
    unknown: dict[str, list[str]] = {}
    for name, part in parts.items():
        if part.kind is None:
            unknown.setdefault(part.component, []).append(name)
    return [
        f"component {component} of {_listed(names)} is not known:"
        f" say --component {component}={'|'.join(KINDS)}"
        for component, names in unknown.items()
    ]


def keep_cells(
    parts: Mapping[str, Part],
    joins: Iterable[Pair],
    ports: Iterable[Pair],
) -> Cells:
    """Reduce a netlist without flaws to its cells.

    Light goes straight through parts that pass it. Two couplers whose arms join them, a phase
    shifter in one of them, are one cell. A part that no switch can have is a `NetlistError`.
    """
    found: list[str] = []
    light = _Light(parts, joins)
    cells = {
        name: [(name, k) for k in range(4)]
        for name, part in parts.items()
        if part.kind == "switch"
    }
    cells |= _interferometers(light, found)
    order = {name: place for place, name in enumerate(parts)}
    names = sorted(cells, key=lambda name: order[cells[name][0][0]])
    pin_of = {
        terminal: f"{name},{TERMINAL_NAMES[k]}"
        for name in names
        for k, terminal in enumerate(cells[name])
    }
    if not names and not found:
        found.append("there are no cells: nothing switches")
    connections = {}
    for terminal, pin in pin_of.items():
        other = pin_of.get(light.follow(terminal))
        if other is not None and other != pin and other not in connections:
            connections[pin] = other
    placed = []
    for name, pin in ports:
        cell = pin_of.get(light.enter(pin))
        if cell is not None:
            placed.append((name, cell))
        elif not found:
            found.append(f"port {name} at {pin}: the light reaches no cell")
    if found:
        raise NetlistError(found)
    used = {*connections, *connections.values(), *(pin for _, pin in placed)}
    return Cells(names, connections, placed, [pin for pin in pin_of.values() if pin not in used])


class _Light:
    """The way of light through the parts that pass it."""

    def __init__(self, parts: Mapping[str, Part], joins: Iterable[Pair]) -> None:
        self.parts = parts
        self.mate: dict[Terminal, Terminal] = {}
        for pair in joins:
            first, second = map(self._terminal, pair)
            self.mate[first], self.mate[second] = second, first

    def _terminal(self, pin: str) -> Terminal:
        instance, name = split_pin(pin)
        return instance, name_terminals(self.parts[instance].names)[name]

    def follow(self, terminal: Terminal, passed: list[str] | None = None) -> Terminal:
        """Return where light that leaves by a terminal enters a cell or coupler, or stays."""
        while terminal in self.mate:
            terminal = self.mate[terminal]
            if self.parts[terminal[0]].kind not in _PASSING:
                break
            if passed is not None:
                passed.append(terminal[0])
            terminal = terminal[0], terminal[1] ^ 2
        return terminal

    def enter(self, pin: str) -> Terminal:
        """Return where light that enters at a pin from outside meets a cell or coupler."""
        instance, k = self._terminal(pin)
        passes = self.parts[instance].kind in _PASSING
        return self.follow((instance, k ^ 2)) if passes else (instance, k)


def _interferometers(light: _Light, found: list[str]) -> dict[str, list[Terminal]]:
    """Find the cells that are made of two couplers; `found` notes the couplers that are left."""
    couplers = [name for name, part in light.parts.items() if part.kind == "coupler"]
    cells: dict[str, list[Terminal]] = {}
    alone, fixed, taken = [], [], set[str]()
    for name in couplers:
        twins = [twin for side in (2, 0) if (twin := _twin(light, name, side)) is not None]
        other, inner, inner_side, passed = twins[0] if twins else ("", 0, 0, [])
        if len(twins) != 1 or other == name:
            alone.append(name)
        elif not any(light.parts[arm].kind == "shifter" for arm in passed):
            fixed.append(name)
        elif name not in taken:
            taken |= {name, other}
            ends = [(name, inner ^ 2), (other, inner_side ^ 2)]
            if inner == 0 and inner_side == 2:  # the second stands to the left of the first
                ends.reverse()
            cells["+".join(end for end, _ in ends)] = [
                (end, s + k) for end, s in ends for k in (0, 1)
            ]
    if alone:
        found.append(
            f"couplers {_listed(alone)} split the light of every circuit: two of them with a phase"
            " shifter in an arm between are a cell, others are no part of a switch"
        )
    if fixed:
        found.append(
            f"couplers {_listed(fixed)} have no phase shifter in the arms between them: they are"
            " filters and do not switch"
        )
    return cells


def _twin(light: _Light, name: str, side: int) -> tuple[str, int, int, list[str]] | None:
    """Return the coupler that both arms of a side lead to, both sides, and what the arms pass."""
    passed: list[str] = []
    (first, j), (second, k) = (light.follow((name, side + end), passed) for end in (0, 1))
    same = first == second and j >> 1 == k >> 1 and j != k
    away = (first, j & 2) != (name, side)
    if same and away and light.parts[first].kind == "coupler":
        return first, side, j & 2, passed
    return None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (" and more" if len(names) > _MOST_NAMES else "")
