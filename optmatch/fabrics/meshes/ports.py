"""Which perimeter terminals of a mesh are ports: as listed, or spread so that all can be used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.cellgraph import CellGraph, check_parts
from optmatch.fabrics.reach import UNREACHED, forced_links, shortest_routes
from optmatch.model import Count, Index, InputError, check_size

Ports = Count | Sequence[Index] | None
Terminals = tuple[int, ...]


def check_ports(ports: Ports, tx: Ports, rx: Ports, available: int) -> dict[str, Any]:
    """Check a choice of the ports of a mesh, and write its lists as tuples.

    Either `ports` chooses ports that send and receive at one terminal, or `tx` and `rx` together
    choose where they send and where they receive. Each is None, a number of ports that are spread
    evenly, or a list of perimeter terminals, which are numbered along the boundary from 0 to
    `available` - 1. Returns the three of them by name. A terminal that is used twice, and `tx` and
    `rx` of different lengths, are an `InputError`.
    """
    if (tx is None) != (rx is None):
        raise InputError("tx and rx come together", where="rx" if rx is None else "tx")
    if tx is not None and ports is not None:
        raise InputError("either ports, or tx and rx", where="ports")
    taken: dict[int, str] = {}
    # A port with a terminal to send and one to receive takes two.
    checked = {
        name: _check(name, value, available // (1 if name == "ports" else 2), available, taken)
        for name, value in (("ports", ports), ("tx", tx), ("rx", rx))
    }
    tx, rx = checked["tx"], checked["rx"]
    sizes = [
        value if isinstance(value, int) else len(value) for value in (tx, rx) if value is not None
    ]
    if isinstance(tx, int) != isinstance(rx, int) or len(set(sizes)) > 1:
        raise InputError("tx and rx: two equal numbers, or two lists of one length", where="rx")
    return checked


def _check(
    name: str, value: Any, most: int, available: int, taken: dict[int, str]
) -> int | Terminals | None:
    """Check one of the three choices of ports of a mesh.

    It is None, a number of ports, or perimeter terminals, which are added to `taken` and may not
    stand there for another choice.
    """
    if value is None:
        return None
    if isinstance(value, int):
        if value > most:
            raise InputError(
                f"{name} = {value}: at most {most}, the mesh has {available} perimeter terminals",
                where=name,
            )
        return value
    chosen = check_parts(name, value, available, "perimeter terminals", taken)
    if not chosen:
        raise InputError(f"{name} is empty: a switch has at least one port", where=name)
    return chosen


def choose_terminals(
    graph: CellGraph, ports: Ports, tx: Ports, rx: Ports
) -> tuple[Terminals, Terminals]:
    """Turn a choice of `check_ports` into the perimeter terminals that send and that receive.

    If nothing is chosen, each perimeter terminal is a port. Returns for each port the place along
    the perimeter where its light enters, and where light to it leaves; both are the same unless
    `tx` and `rx` are given.
    """
    if isinstance(tx, int):
        terminals = spread(graph, 2 * tx, alternating=True)
        return terminals[0::2], terminals[1::2]
    if tx is not None and rx is not None and not isinstance(rx, int):
        return tuple(tx), tuple(rx)
    if ports is None:
        chosen: Terminals = tuple(range(len(graph.perimeter)))
    else:
        chosen = spread(graph, ports) if isinstance(ports, int) else tuple(ports)
    return chosen, chosen


@lru_cache(maxsize=128)
def spread(graph: CellGraph, count: int, alternating: bool = False) -> Terminals:
    """Choose perimeter terminals, evenly spread, that can all be used at the same time.

    Perimeter terminals are where light can come in and out of a mesh, numbered along its boundary.
    Two terminals that must meet have to be joined by some way of light, and no two chosen ones may
    need the same link (a waveguide between two cells) to get into the mesh.

    1. The first choice is spread evenly over the boundary.
    2. While two terminals are in each other's way, one of them moves to the unused terminal with
       the fewest such conflicts; of equal ones to the nearest.
    3. If that fails, the same is tried with a few more ports, of which some are left out again,
       evenly. A part of the ports can be used if all of them can.

    The result depends on the arguments alone.

    Parameters
    ----------
    graph
        The cells of the mesh.
    count
        How many terminals are chosen.
    alternating
        Whether the choice is sender, receiver, sender, ... of ports 0, 0, 1, ...: then only
        senders and receivers of different ports must meet, otherwise all.

    Returns
    -------
    tuple of int
        Numbers along the perimeter; with `alternating` those of a port follow each other.

    Raises
    ------
    InputError
        If no such choice is found.
    """
    # First as many ports as are wanted, then one more with each try. `chosen` has the terminals of
    # a port one after the other.
    n_terminals = len(graph.perimeter)
    terminals_per_port = 2 if alternating else 1
    n_ports = count // terminals_per_port
    most_ports = min(n_terminals // terminals_per_port, n_ports + _MORE_PORTS)
    for n_tried in range(n_ports, most_ports + 1):
        chosen = _spread_evenly(graph, n_tried * terminals_per_port, alternating)
        if chosen is None:
            continue
        # Where more ports are there than were asked for, leave out some, evenly.
        places = [k * n_tried // n_ports for k in range(n_ports)]
        return tuple(
            chosen[place * terminals_per_port + offset]
            for place in places
            for offset in range(terminals_per_port)
        )

    name = "tx" if alternating else "ports"
    if not alternating and _has_two_classes(graph):
        raise InputError(
            f"{name} = {n_ports}: the {n_terminals} perimeter terminals are of two classes, and"
            " light connects those of different classes alone, so at most 2 ports can all meet"
            " each other; give tx and rx, or list the ports, of which some pairs are then dead",
            where=name,
        )
    raise InputError(
        f"{name} = {n_ports}: no even spread over the {n_terminals} perimeter terminals was found"
        " in which all can be used at the same time; a list of ports is accepted, also with pairs"
        " that cannot meet",
        where=name,
    )


_MORE_PORTS = 8
"""The number of larger choices that are tried where a number of ports cannot be spread. With 8, no
number is refused on hexagonal, square and triangular meshes of up to 5 x 5 of which a larger one
is accepted; without, 32 of 950 numbers of tx ports were."""


def _spread_evenly(graph: CellGraph, count: int, alternating: bool) -> list[int] | None:
    """Choose terminals that are spread evenly over the perimeter and can all be used.

    The result has places in ``graph.perimeter``, `count` of them. Single ones are moved until
    light connects all pairs of ports that have to be connected; None if that fails. With
    `alternating`, places 0 and 1 are the transmitter and the receiver of port 0, and so on, and
    only transmitters and receivers of different ports have to be connected; else all of them, in
    ascending order.
    """
    n_terminals = len(graph.perimeter)
    index = np.arange(count)
    must_meet = index[:, None] != index[None, :]
    if alternating:
        port = index // 2
        is_receiver = index % 2
        must_meet &= is_receiver[:, None] != is_receiver[None, :]
        must_meet &= port[:, None] != port[None, :]

    # Free terminals 2 v - 1 and 2 v are the two sides of vertex v: take vertices evenly, and
    # their sides in turn; where that fails, take terminals evenly.
    # With 40 terminals and 8 of them wanted, these are vertices 0, 2, 5, 7, ... of 20.
    vertex = index * (n_terminals // 2) // count
    sides_in_turn = (2 * vertex - 1 + index % 2) % n_terminals
    for start in (sides_in_turn, index * n_terminals // count):
        chosen = _repair(graph, start.tolist(), must_meet)
        if chosen is not None:
            return chosen if alternating else sorted(chosen)
    return None


def _has_two_classes(graph: CellGraph) -> bool:
    """Tell whether the graph of terminals that meet is bipartite: no light inside either class.

    Terminals of the perimeter are coloured with two colours, neighbours differently
    (breadth-first); an odd cycle has no such colouring.
    """
    everywhere = list(range(len(graph.perimeter)))
    meets = ~_dead(graph, everywhere, everywhere)
    np.fill_diagonal(meets, False)
    colour = np.full(len(everywhere), -1)  # of each terminal: 0 or 1, -1 for none yet
    for first in everywhere:
        if colour[first] >= 0:
            continue
        colour[first] = 0
        waiting = [first]
        while waiting:
            terminal = waiting.pop()
            neighbours = np.flatnonzero(meets[terminal])
            # Two terminals of one colour that can meet close an odd cycle.
            if (colour[neighbours] == colour[terminal]).any():
                return False
            uncoloured = neighbours[colour[neighbours] < 0]
            colour[uncoloured] = 1 - colour[terminal]
            waiting += uncoloured.tolist()
    return True


def _repair(graph: CellGraph, chosen: list[int], must_meet: NDArray[np.bool_]) -> list[int] | None:
    """Improve a choice of terminals for the ports, one exchange at a time, until all can be used.

    Terminals are counted along the boundary: ``chosen[place]`` is a place in ``graph.perimeter``,
    and so is each terminal below. Two places of the list are a bad pair if their ports must be
    connected (``must_meet[place, place]``) and no light leads from one to the other, or if both
    need the same link to get into the mesh. Each round of this local search exchanges one terminal
    of `chosen`, which is changed in place, for an unused one, if that leaves fewer bad pairs
    there. The result is `chosen`, or None if no single exchange leaves fewer, or a terminal is
    chosen twice.
    """
    n_terminals = len(graph.perimeter)
    if len(set(chosen)) < len(chosen):
        return None
    check_size("entries", n_terminals * len(chosen), "ports")
    # forced[terminal]: the links that its light cannot avoid on its way in. Turned round, these
    # are for each link the terminals that need it.
    forced = forced_links(graph, graph.perimeter.tolist())
    terminals_of_link: dict[int, list[int]] = {}
    for terminal, links in enumerate(forced):
        for link in links:
            terminals_of_link.setdefault(link, []).append(terminal)

    dead_from: dict[int, NDArray[np.bool_]] = {}  # by chosen terminal: the ones out of its reach
    dead_chosen = _dead(graph, chosen, chosen)
    while True:
        # shares_link[terminal, place]: whether the terminal needs a link that the terminal at
        # this place needs, too; False for that terminal itself. A choice of two may share a link,
        # since the two only ever have one circuit, with each other.
        shares_link = np.zeros((n_terminals, len(chosen)), dtype=bool)
        if len(chosen) > 2:
            for place, terminal in enumerate(chosen):
                for link in forced[terminal]:
                    shares_link[terminals_of_link[link], place] = True
                shares_link[terminal, place] = False
        # is_bad[k, l]: whether places k and l are a bad pair.
        is_bad = shares_link[chosen] | (dead_chosen & must_meet)
        if not is_bad.any():
            return chosen

        # dead_to_chosen[unused terminal, place]: whether no light leads between the two, in
        # either direction. Rows of terminals that were chosen before are kept in `dead_from`.
        unknown = [terminal for terminal in chosen if terminal not in dead_from]
        dead_from |= zip(unknown, _dead(graph, unknown, list(range(n_terminals))), strict=True)
        dead_to_all = np.stack([dead_from[terminal] for terminal in chosen])
        unused = np.setdiff1d(np.arange(n_terminals), chosen)
        dead_to_chosen = dead_to_all[:, unused].T

        # Begin with the place of most bad pairs; move it to the terminal with the fewest, of
        # equal ones to the nearest along the boundary.
        for place in np.argsort(-is_bad.sum(axis=1), kind="stable"):
            # How many bad pairs each unused terminal would have at this place.
            other_places = np.arange(len(chosen)) != place
            bad_pairs = (shares_link[unused] & other_places) | (dead_to_chosen & must_meet[place])
            n_bad = bad_pairs.sum(axis=1)
            steps = np.abs(unused - chosen[place])
            distance = np.minimum(steps, n_terminals - steps)
            order = np.lexsort((unused, distance, n_bad))
            # Exchange only if fewer bad pairs are left. The columns of dead_chosen are then right,
            # and the row of the place is its column, since light goes either way.
            if len(order) and n_bad[order[0]] < is_bad[place].sum():
                chosen[place] = int(unused[order[0]])
                dead_chosen = dead_to_all[:, chosen]
                dead_chosen[place] = dead_chosen[:, place]
                break
        else:
            return None


def _dead(graph: CellGraph, first: list[int], second: list[int]) -> NDArray[np.bool_]:
    """Tell between which perimeter terminals no state of the cells leads light.

    The result is ``dead[k, l]``, from terminal first[k] to second[l].
    """
    if not second:
        return np.zeros((len(first), 0), dtype=bool)
    dead: NDArray[np.bool_] = (
        shortest_routes(graph, graph.perimeter[first], graph.perimeter[second]) == UNREACHED
    )
    return dead
