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
    """Normalise a choice of ports, as a mesh is given it: None, a number, or perimeter terminals.

    Returns the three of them by name, lists as tuples; an `InputError` names entry, value and
    rule.
    """
    if (tx is None) != (rx is None):
        raise InputError("tx and rx come together", where="rx" if rx is None else "tx")
    if tx is not None and ports is not None:
        raise InputError("either ports, or tx and rx", where="ports")
    taken: dict[int, str] = {}
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
    """Turn a checked choice into the perimeter terminals that send and that receive.

    For each port: where its light enters, and where light to it leaves.
    """
    if isinstance(tx, int):
        both = spread(graph, 2 * tx, alternating=True)
        return both[0::2], both[1::2]
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

    No two that must meet form a dead pair, and no two need the same link to get into the mesh. If
    `alternating`, the choice is sender, receiver, sender, ... of ports 0, 0, 1, ...: then only
    senders and receivers of different ports must meet, otherwise all. If no such choice is found,
    `InputError` is raised.

    Free terminals come in twos, one on each side of a vertex, and send their light opposite ways
    along the boundary. Each way has its own links into the mesh, so the even choice to start from
    takes vertices evenly and sides in turn (and, where that cannot be mended, just terminals
    evenly). While there is a bad pair, one terminal moves to the unused place with the fewest, the
    nearest of equals. Where that fails, a choice of a few more ports is thinned out evenly: all
    ports of a part can be used where all ports of the whole can. The result depends on the
    arguments alone.
    """
    n = len(graph.perimeter)
    step = 2 if alternating else 1  # terminals of a port
    most = min(n - n % step, count + step * _MORE_PORTS)
    for larger in range(count, most + 1, step):
        found = _spread_evenly(graph, larger, alternating)
        if found is not None:
            ports = [found[k : k + step] for k in range(0, larger, step)]
            kept = [ports[k * len(ports) // (count // step)] for k in range(count // step)]
            return tuple(terminal for port in kept for terminal in port)
    name, number = ("tx", count // 2) if alternating else ("ports", count)
    if not alternating and _has_two_classes(graph):
        raise InputError(
            f"{name} = {number}: the {n} perimeter terminals are of two classes, and light"
            " connects those of different classes alone, so at most 2 ports can all meet each"
            " other; give tx and rx, or list the ports, of which some pairs are then dead",
            where=name,
        )
    raise InputError(
        f"{name} = {number}: no even spread over the {n} perimeter terminals was found in which"
        " all can be used at the same time; a list of ports is accepted, also with pairs that"
        " cannot meet",
        where=name,
    )


_MORE_PORTS = 8
"""The number of larger choices that are tried where a number of ports cannot be spread. With 8, no
number is refused on hexagonal, square and triangular meshes of up to 5 x 5 of which a larger one
is accepted; without, 32 of 950 numbers of tx ports were."""


def _spread_evenly(graph: CellGraph, count: int, alternating: bool) -> list[int] | None:
    """Spread terminals evenly, and move single ones until all can be used; None if that fails."""
    n = len(graph.perimeter)
    index = np.arange(count)
    must_meet = index[:, None] != index[None, :]
    if alternating:
        must_meet &= (index[:, None] % 2 != index[None, :] % 2) & (
            index[:, None] // 2 != index // 2
        )
    in_turn = (2 * (index * (n // 2) // count) - 1 + index % 2) % n
    for start in (in_turn, index * n // count):
        chosen = _repair(graph, start.tolist(), must_meet)
        if chosen is not None:
            return chosen if alternating else sorted(chosen)
    return None


def _has_two_classes(graph: CellGraph) -> bool:
    """Tell whether light connects only perimeter terminals of different classes, of two.

    The graph of terminals that can meet is then bipartite: a breadth-first search colours it.
    """
    everywhere = list(range(len(graph.perimeter)))
    meets = ~_dead(graph, everywhere, everywhere)
    np.fill_diagonal(meets, False)
    colour = np.full(len(everywhere), -1)
    for first in everywhere:
        if colour[first] >= 0:
            continue
        colour[first] = 0
        waiting = [first]
        while waiting:
            terminal = waiting.pop()
            neighbours = np.flatnonzero(meets[terminal])
            if (colour[neighbours] == colour[terminal]).any():
                return False
            uncoloured = neighbours[colour[neighbours] < 0]
            colour[uncoloured] = 1 - colour[terminal]
            waiting += uncoloured.tolist()
    return True


def _repair(graph: CellGraph, chosen: list[int], must_meet: NDArray[np.bool_]) -> list[int] | None:
    """Move single terminals until no pair is bad, or give up."""
    n = len(graph.perimeter)
    if len(set(chosen)) < len(chosen):
        return None
    check_size("entries", n * len(chosen), "ports")
    forced = forced_links(graph, graph.perimeter.tolist())
    behind: dict[int, list[int]] = {}
    for place, links in enumerate(forced):
        for link in links:
            behind.setdefault(link, []).append(place)
    rows: dict[int, NDArray[np.bool_]] = {}  # to which terminals each chosen one is dead
    dead_chosen = _dead(graph, chosen, chosen)
    while True:
        rival = np.zeros((n, len(chosen)), dtype=bool)
        for column, place in enumerate(chosen if len(chosen) > 2 else ()):  # a pair
            for link in forced[place]:
                rival[behind[link], column] = True
            rival[place, column] = False
        bad = rival[chosen] | (dead_chosen & must_meet)
        if not bad.any():
            return chosen
        new = [place for place in chosen if place not in rows]
        rows |= zip(new, _dead(graph, new, list(range(n))), strict=True)
        table = np.stack([rows[place] for place in chosen])
        unused = np.setdiff1d(np.arange(n), chosen)
        dead = table[:, unused].T  # light goes either way
        for place in np.argsort(-bad.sum(axis=1), kind="stable"):
            others = np.arange(len(chosen)) != place
            pairs = ((rival[unused] & others) | (dead & must_meet[place])).sum(axis=1)
            away = np.abs(unused - chosen[place])
            order = np.lexsort((unused, np.minimum(away, n - away), pairs))
            if len(order) and pairs[order[0]] < bad[place].sum():
                chosen[place] = int(unused[order[0]])
                dead_chosen = table[:, chosen]
                dead_chosen[place] = dead_chosen[:, place]
                break
        else:
            return None


def _dead(graph: CellGraph, first: list[int], second: list[int]) -> NDArray[np.bool_]:
    if not second:
        return np.zeros((len(first), 0), dtype=bool)
    dead: NDArray[np.bool_] = (
        shortest_routes(graph, graph.perimeter[first], graph.perimeter[second]) == UNREACHED
    )
    return dead
