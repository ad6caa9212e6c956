"""Reads the netlist of another tool, a tree of mappings and lists, into a fabric."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.cellgraph import TERMINAL_NAMES
from optmatch.fabrics.netlists.circuits import CellCircuit, cell_circuits
from optmatch.fabrics.netlists.components import (
    KINDS,
    PASSING,
    Part,
    find_bad_settings,
    find_unknown,
    guessed_switches,
    length_of,
    make_parts,
    read_number,
    settings_level,
)
from optmatch.fabrics.netlists.flaws import (
    NetlistError,
    find_flaws,
    find_port_flaws,
    group_connected,
    list_names,
    name_terminals,
    split_pin,
)
from optmatch.fabrics.netlists.interferometers import (
    LightPaths,
    Terminal,
    assume_circuit,
    find_cells,
)
from optmatch.fabrics.netlists.netlist import Netlist
from optmatch.fabrics.netlists.wiring import (
    Place,
    Wiring,
    WiringReader,
    find_array_flaws,
    mapping,
)
from optmatch.model import InputError
from optmatch.model.accounts import Level, accounting, assume
from optmatch.model.declarations import form_of

_log = logging.getLogger("optmatch")

_APART = 1.5  # between the nearest cells, in lengths of a cell, where placements give no length


def netlist_from_tree(
    tree: Any,
    *,
    pins: Mapping[str, str] | None = None,
    components: Mapping[str, str] | None = None,
    directed: bool | None = None,
    open_pins: bool = False,
    tx: Sequence[str] | None = None,
    rx: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    flaws: Sequence[str] = (),
) -> Netlist:
    """Make a fabric of a netlist of gdsfactory, sax, kfactory or PICBench.

    Parameters
    ----------
    tree
        The netlist as nested dictionaries and lists, as read from YAML or JSON. A pin is written
        as ``"instance,pin"``. Entries that are read:

        - ``instances``: components by name, also arrays of them;
        - how pins are joined, in one of three forms: ``connections``, as ``{"a,o3": "b,o2"}``;
          ``nets``, as ``[{"p1": "a,o3", "p2": "b,o2"}]``; or ``routes`` with their ``links``;
        - ``ports``: pins that lead out, as ``{"in": "a,o1"}``;
        - ``placements``: x, y and rotation of instances; may be missing;
        - ``models``: other names of components;
        - ``info``: a dictionary that may have ``open_pins``, a list of pins that lead nowhere;
          ``cell_length``, in the unit of placements; ``cell_names`` and ``port_names``, which
          rename cells and ports.

        A recursive netlist has several such dictionaries by name. The one that is part of no other
        is taken; a component that is known as a switch, or not at all, is replaced by its own
        netlist. PICBench has all this below ``netlist``.
    pins
        By the name of a pin of a cell which of the four pins it is, a1 and a2 on one side, b1 and
        b2 on the other: ``{"west": "a1", ...}``. None for the names of `CONVENTIONS`.
    components
        By the name of a component what it is; usual names are known without it:

        - ``"switch"``: a cell, a switch with two pins on each side;
        - ``"pass"``: light goes from pin to pin, as in a waveguide;
        - ``"shifter"``: the same, with a phase that is set;
        - ``"crossing"``: two waveguides cross;
        - ``"coupler"``: light is split.
    directed
        Whether names of ports say what they do: names that begin with "in", or with I and a digit,
        send light in; those with "out", or with O and a digit, take it out. The first of both
        kinds form port 0 of the fabric, the second ones port 1. None decides for this if all names
        are of these kinds and there are as many of both.
    open_pins
        Whether pins may lead nowhere. Otherwise only those that ``info`` lists may.
    tx, rx
        The names of ports where light comes in and where it goes out; see `Netlist`.
    leave_out
        Names of instances and ports that are no part of the fabric.
    flaws
        Flaws that are known already.

    Returns
    -------
    Netlist
        The cells, with our names of pins, joined as light goes through the parts between them. A
        cell that is made of couplers keeps its parts in `Netlist.circuits`. Parts that no cell is
        joined to, such as loopbacks for alignment, are left out, which the log of the package
        says.

    Raises
    ------
    NetlistError
        With every flaw, by the names of the netlist. Couplers that are no switch are flaws.

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
    with accounting("netlist") as account:
        # Instances, joins and ports are read from any of the forms. All that is wrong is gathered
        # in `all_flaws`, to be told at once.
        pin_names = _given_pins(pins)
        declared = form_of(Mapping[str, Any]).check("components", components or {})
        for name, kind in declared.items():
            if not isinstance(kind, str) or kind not in KINDS:
                raise InputError(
                    f"{name} = {kind!s:.60}: one of {', '.join(KINDS)}", where="components"
                )

        # The whole netlist, without those within it.
        all_flaws = list(flaws)
        wiring = WiringReader(tree, declared, pins or (), all_flaws).read()
        all_flaws += find_array_flaws(wiring)
        info = mapping(wiring.top, "info", [])
        account.take(_INFO, map(str, info), "info")
        names_of_ports = _texts(info, "port_names")
        wiring.ports = [(names_of_ports.get(name, name), pin) for name, pin in wiring.ports]
        wiring.leave_out(leave_out, all_flaws)

        # Instances become parts, of which those without a cell are left out.
        parts = make_parts(wiring.instances, wiring.used_pins(), declared, pin_names)
        parts = _leave_out_parts_without_cells(wiring, parts)
        for name, part in parts.items():
            stated = [str(key) for key, value in part.settings.items() if value is not None]
            account.take(settings_level(part), stated, name)

        # All flaws of parts, joins and ports are found before cells are looked for.
        if open_pins:
            # The pins of parts that nothing names.
            used = wiring.used_pins()
            unused = []
            for name, part in parts.items():
                terminals = name_terminals(part.names)
                taken = {terminals[pin] for pin in used[name] if pin in terminals}
                first_names = {terminal: pin for pin, terminal in reversed(terminals.items())}
                unused += [
                    f"{name},{first_names[terminal]}"
                    for terminal in sorted(set(first_names) - taken)
                ]
            wiring.open_pins += unused
        port_names = [name for name, _ in wiring.ports]
        names_of = {name: part.names for name, part in parts.items()}
        all_flaws += find_flaws(
            list(parts), wiring.joins, wiring.ports, wiring.open_pins, names_of
        )

        # Ports send or receive as the caller says, else as the file does.
        if tx is None and rx is None:
            tx, rx = _find_directions(port_names, directed, info)
            if directed and not tx:
                all_flaws.append(
                    "no port is called in... or out...: say with tx and rx what sends"
                )
        all_flaws += find_port_flaws(wiring.ports, tx, rx)
        all_flaws += find_unknown(parts) + find_bad_settings(parts)
        if all_flaws:
            raise NetlistError(all_flaws)

        # The parts are reduced to cells and how light joins these; placements say where they lie.
        for component in guessed_switches(parts.values(), declared):
            _log.warning(
                "component %s is taken for a switch by its name: say --component %s=switch"
                " (components= in Python), or what else it is",
                component,
                component,
            )
        netlist = _keep_cells(parts, wiring, tx, rx)
        circuits = filter(None, netlist.circuits)
        within = {part.name for circuit in circuits for part in circuit.parts}
        between = [
            name
            for name, part in parts.items()
            if part.kind in PASSING and name not in within and length_of(part)
        ]
        if between:
            assume(
                f"lengths of the waveguides between cells, {list_names(between)}, are not used:"
                " losses and delays are those of the ways from cell to cell, as these are placed"
                " or drawn"
            )
        if wiring.places:
            ends = _place(netlist, wiring.places, info.get("cell_length"))
            netlist = replace(netlist, ends=ends)
        return netlist.rename(_texts(info, "cell_names"), {})


_INFO = Level(
    "key of info",
    ("open_pins", "cell_length", "cell_names", "port_names", "tx", "rx"),
    {"states": "states are those of a schedule"},
    "it says nothing of the fabric",
)


def _texts(info: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return a mapping of texts in the info of a netlist."""
    return {str(name): str(other) for name, other in mapping(info, key, []).items()}


def _given_pins(pins: Mapping[str, str] | None) -> Mapping[str, Sequence[str]]:
    """Return the names of pins that the user says, as conventions; empty if he says none.

    Each convention has four names, for a1, a2, b1 and b2, empty for a pin that nobody names. The
    second one has the second names of terminals with several, and the first names of the others:
    of ``{"in": "a1", "out": "b1", "o3": "b1"}`` the two are in, out and in, o3.
    """
    if pins is None:
        return {}
    form_of(Mapping[str, str]).check("pins", pins)
    names_of: dict[str, list[str]] = {terminal: [] for terminal in TERMINAL_NAMES}
    for name, terminal in pins.items():
        if terminal not in names_of:
            allowed = ", ".join(TERMINAL_NAMES)
            raise InputError(f"pins: {name} = {terminal}: one of {allowed}", where="pins")
        names_of[terminal].append(name)

    # Each convention has one name for each terminal, the last one where others have more.
    if not (names_of["a1"] and names_of["b1"]):
        raise InputError(f"pins = {dict(pins)}: names for a1 and b1 at least", where="pins")

    # A terminal with several names makes several conventions; one with fewer names repeats its
    # last.
    n_conventions = max(map(len, names_of.values()))
    conventions = {}
    for number in range(n_conventions):
        chosen = [
            names[min(number, len(names) - 1)] if names else "" for names in names_of.values()
        ]
        conventions["given" if number == 0 else f"given {number + 1}"] = chosen
    return conventions


def _leave_out_parts_without_cells(wiring: Wiring, parts: Mapping[str, Part]) -> dict[str, Part]:
    """Leave out groups of parts that hold no cell, such as loopbacks, with a note in the log.

    If no group may hold one, all parts stay, so that the flaws of all are told. `wiring` is
    reduced in place.
    """
    # A cell is a switch, or made of two couplers and a phase shifter.
    groups = group_connected(list(parts), wiring.joins)
    useless = []
    for group in groups:
        kinds = [parts[name].kind for name in group]
        may_interfere = kinds.count("coupler") >= 2 and "shifter" in kinds
        if "switch" not in kinds and not may_interfere:
            useless.append(group)

    # If no group may hold a cell, all stay.
    if len(useless) == len(groups):
        return dict(parts)
    for group in useless:
        ports = [name for name, pin in wiring.ports if split_pin(pin)[0] in group]
        with_ports = f", with ports {list_names(ports)}" if ports else ""
        _log.warning("left out: %s%s: no cell is joined to it", list_names(group), with_ports)
    left_out = {name for group in useless for name in group}
    remaining = {name: part for name, part in parts.items() if name not in left_out}
    wiring.keep(remaining)
    return remaining


def _find_directions(
    names: Sequence[str], directed: bool | None, info: Mapping[str, Any]
) -> tuple[list[str] | None, list[str] | None]:
    """Return the ports that send and those that receive, by the info or by their names.

    None for both if each port does both. `directed` is that of `netlist_from_tree`: names tell,
    they do not, or (None) they do if all of them say so. In gdsfactory all ports are o1, o2, ...,
    which says nothing; O and a digit mean an output only beside I and a digit.
    """
    senders = info.get("tx")
    receivers = info.get("rx")
    if directed is None and isinstance(senders, list) and isinstance(receivers, list):
        return (
            [str(name) for name in senders if str(name) in names],
            [str(name) for name in receivers if str(name) in names],
        )
    tx = [name for name in names if re.match(r"in|i\d", name, re.IGNORECASE)]
    rx = [name for name in names if re.match(r"out|o\d", name, re.IGNORECASE)]
    if not tx and all(re.match(r"o\d", name) for name in rx):
        rx = []
    # Names count only if they divide all ports into equal halves.
    tells_all = len(tx) == len(rx) > 0 and len(tx) + len(rx) == len(names)
    return (tx, rx) if directed or (directed is None and tells_all) else (None, None)


def _keep_cells(
    parts: Mapping[str, Part], wiring: Wiring, tx: Sequence[str] | None, rx: Sequence[str] | None
) -> Netlist:
    """Reduce a netlist to its cells, with our names of pins, and how light joins these.

    A cell is a switch, or an interferometer of two couplers and two arms with a phase shifter. All
    other parts become joins: ``s1 -- waveguide -- crossing -- s2`` becomes ``s1,b1 -- s2,a1``.
    ``parts[name]`` are all parts of the flat netlist, and `wiring` has its joins and ports by the
    names of pins that the author uses; ports `tx` send and `rx` receive. Raise `NetlistError` if a
    part belongs to no switch, there are no cells, or a port reaches none.
    """
    flaws: list[str] = []
    paths = LightPaths(parts, wiring.joins)
    # Pins of ports and open pins are told to `paths`, which remembers names: circuits are written
    # by those that the netlist uses.
    for pin in (*(pin for _, pin in wiring.ports), *wiring.open_pins):
        paths.terminal_of(pin)

    # For each cell its terminals a1, a2, b1, b2, which are pairs (part, number of a pin of it),
    # None for one that leads nowhere; and its circuit where it is known.
    terminals_of: dict[str, Sequence[Terminal | None]] = {}
    circuit_of: dict[str, CellCircuit | None] = {}
    for name, part in parts.items():
        if part.kind == "switch":
            terminals_of[name] = [(name, k) for k in range(4)]
            circuit_of[name] = assume_circuit(name, part)
    for interferometer, circuit in find_cells(paths, flaws):
        terminals_of[interferometer.name] = interferometer.terminals
        circuit_of[interferometer.name] = circuit
    if not terminals_of and not flaws:
        flaws.append("there are no cells: nothing switches")

    # Cells have the order in which their first parts stand in the netlist.
    order = {name: place for place, name in enumerate(parts)}
    first_part_of = {
        name: next(filter(None, terminals))[0] for name, terminals in terminals_of.items()
    }
    names = sorted(terminals_of, key=lambda name: order[first_part_of[name]])
    # pin_of[terminal]: the name of the pin, such as "s1,b1".
    pin_of = {
        terminal: f"{name},{TERMINAL_NAMES[k]}"
        for name in names
        for k, terminal in enumerate(terminals_of[name])
        if terminal is not None
    }

    # Follow light from each pin to the next cell; each join once, from the pin that comes first.
    connections: dict[str, str] = {}
    for terminal, pin in pin_of.items():
        other = pin_of.get(paths.follow(terminal).end)
        if other is not None and other != pin and other not in connections:
            connections[pin] = other

    # Follow light from each port to its first cell.
    ports = []
    for name, pin in wiring.ports:
        cell_pin = pin_of.get(paths.enter(pin))
        if cell_pin is not None:
            ports.append((name, cell_pin))
        elif not flaws:
            flaws.append(f"port {name} at {pin}: the light reaches no cell")
    if flaws:
        raise NetlistError(flaws)

    used = {*connections, *connections.values(), *(pin for _, pin in ports)}
    all_pins = [f"{name},{terminal}" for name in names for terminal in TERMINAL_NAMES]
    circuits = [circuit_of[name] for name in names]
    return Netlist(
        instances=names,
        connections=connections,
        ports=ports,
        tx=tx,
        rx=rx,
        open_pins=[pin for pin in all_pins if pin not in used],
        circuits=circuits if any(circuits) else (),
    )


def _place(
    netlist: Netlist, places: Mapping[str, Place | None], cell_length: Any
) -> NDArray[np.float64] | None:
    """Return ``ends[cell, end]``, where cells lie on the chip in lengths of a cell.

    None if that is not known, for a reason that `assume` adds to the account of the netlist.
    ``places[part]`` is where the netlist puts a part, in its own unit, and `cell_length` the
    length of a cell in that unit, None if it is not stated. A cell of couplers lies in the middle
    between them, and leads from the first to the last: with couplers at x = 0 and 10 and a length
    of 20, its ends are at -0.25 and 0.75. Without a `cell_length` the distance of these couplers
    is taken for it, else one at which the nearest cells do not touch.
    """
    # The place of each cell, and for cells of couplers how far these are apart.
    rows = []
    spans = []
    for name, circuit in zip(netlist.instances, cell_circuits(netlist), strict=True):
        place = places.get(name)

        # A cell without a place lies between its first and its last coupler.
        if place is None and circuit is not None:
            couplers = [part.name for part in circuit.parts if part.kind == "coupler"]
            first, last = (places.get(couplers[end]) for end in (0, -1))
            if first is not None and last is not None:
                delta_x = last.x - first.x
                delta_y = last.y - first.y
                spans.append(math.hypot(delta_x, delta_y))
                rotation = math.degrees(math.atan2(delta_y, delta_x))
                place = Place((first.x + last.x) / 2, (first.y + last.y) / 2, rotation)

        # Without the place of one cell no distance is known.
        if place is None:
            assume(
                f"the place of {name} is not known: cells are drawn, and so are their distances"
            )
            return None
        rows.append((place.x, place.y, place.rotation))

    # For each cell the distance to the nearest other one, in the unit of the netlist.
    x, y, rotation = np.array(rows).T
    middle = np.stack([x, y], axis=1)
    distance = np.linalg.norm(middle[:, None] - middle[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = distance.min(initial=np.inf, axis=1)

    # The length of a cell in that unit: as stated, or else as its couplers or neighbours tell.
    length = read_number(cell_length)
    if cell_length is not None and not (length and length > 0):
        assume(f"cell_length = {cell_length}: no length; cells are drawn, and so are distances")
        return None

    # Without a stated length: the distance of the couplers of a cell, or a part of that of cells.
    if length is None:
        if len(rows) > 1 and not nearest.min() > 0:
            assume("cells lie at one place: they are drawn, and so are their distances")
            return None
        if len(spans) == len(rows) and min(spans) > 0:
            length = float(np.median(spans))
            source = "the couplers of a cell lie apart"
        else:
            length = float(np.median(nearest)) / _APART if len(rows) > 1 else 1.0
            source = f"lets the nearest cells lie {_APART:g} lengths apart"
        if len(rows) > 1:
            assume(f"info has no cell_length: {length:.6g} is taken, which {source}")

    # Each cell reaches half its length, which is 0.5 here, to either side of its middle.
    angle = np.radians(rotation)
    axis = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.stack([middle / length - axis / 2, middle / length + axis / 2], axis=1)
