"""From paths on the flow graph to the ports and fibres that circuits really use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Reroute
from optmatch.solvers.reroutes.flow_graph import FlowGraph

Path = NDArray[np.int32]
NOBODY = -1
"""The user of a part that is free."""
DEAD = -2
"""The user of a part that has failed."""
SOURCE = 0
DESTINATION = 1


class Named(NamedTuple):
    """Circuits as files have them."""

    circuits: list[tuple[int, int]]  # the source and the destination port of each
    routes: list[tuple[int, ...]]
    """Fibres passed in a rack with ideal interposers, else terminals entered."""


class Users(NamedTuple):
    """The circuit that uses each port and fibre; `NOBODY` or `DEAD` without one."""

    ports: NDArray[np.int32]  # ``ports[end, port]``, where end 0 is the source
    fibres: NDArray[np.int32]  # ``fibres[fibre]``

    def copy(self) -> Users:
        """Return arrays of their own."""
        return Users(self.ports.copy(), self.fibres.copy())


def list_users(problem: Reroute) -> Users:
    """List the circuit on each port and fibre of a rack with ideal interposers, or `NOBODY`."""
    circuits = problem.circuits
    ports = np.full((2, problem.fabric.n_ports), NOBODY, dtype=np.int32)
    for end in (SOURCE, DESTINATION):
        ports[end, circuits[:, end]] = np.arange(len(circuits))
    fibres = np.full(problem.units.n_fibres, NOBODY, dtype=np.int32)
    if problem.fabric.graph is None:
        fibres[problem.passed.part] = problem.passed.circuit
    return Users(ports, fibres)


def name_paths(
    graph: FlowGraph,
    users: Users,
    first_fibre: Sequence[int],
    paths: Sequence[Path],
    wishes: Sequence[tuple[int, int]],
    *,
    leaving: Collection[int] = (),
    lit: Collection[int] = (),
) -> Named:
    """Choose ports and fibres for circuits; with cells the paths have them already.

    ``wishes[k]`` is a source and a destination, ports; edge e has the fibres from
    ``first_fibre[e]`` up to ``first_fibre[e + 1]``. There is always a choice if the paths overdraw
    no resource. Of a unit the port at the place of the wish is taken if it is free, else the
    lowest that is. Circuits in `leaving` give their parts up; the fibres of those that are `lit`
    are taken only if there are no others.
    """
    # On a fabric with cells, the nodes of a path say all: the terminals that light enters, and the
    # ports at its first and last one.
    if not len(first_fibre):
        return Named(
            circuits=[
                (int(graph.port_in[path[1]]), int(graph.port_out[path[-2]])) for path in paths
            ],
            routes=[tuple(graph.terminal[path[1:-2]].tolist()) for path in paths],
        )

    # In a rack with ideal interposers a node is an edge, of which any free fibre will do.
    chooser = _PartChooser(users, leaving, lit)
    named = Named([], [])
    for path, wish in zip(paths, wishes, strict=True):
        nodes = path.tolist()
        source_unit = nodes[0]
        destination_unit = nodes[-1] - graph.units
        source = chooser.take_port(SOURCE, source_unit, graph.per_unit, wish[SOURCE])
        destination = chooser.take_port(
            DESTINATION, destination_unit, graph.per_unit, wish[DESTINATION]
        )

        # A fibre of each edge between both units.
        route = []
        for node in nodes[1:-1]:
            edge = node - graph.inner
            fibres = range(first_fibre[edge], first_fibre[edge + 1])
            route.append(chooser.take_fibre(fibres))
        named.circuits.append((source, destination))
        named.routes.append(tuple(route))
    return named


class _PartChooser:
    """Gives ports and fibres that are free, or become free, each once.

    Parameters
    ----------
    users, leaving, lit
        As of `name_paths`.
    """

    def __init__(self, users: Users, leaving: Collection[int], lit: Collection[int]) -> None:
        """Begin with no port and no fibre given away; arguments are those of `name_paths`."""
        self._users = users
        self._leaving = leaving
        self._lit = lit
        self._taken_ports: set[tuple[int, int]] = set()
        self._taken_fibres: set[int] = set()

    def take_port(self, end: int, unit: int, n_ports: int, wish: int) -> int:
        """Take the port at the place of `wish` in a unit of so many ports, or the lowest free one.

        `end` is `SOURCE` or `DESTINATION`: a port serves one circuit as each.
        """
        first = unit * n_ports
        port = first + wish % n_ports
        if not self._is_free_port(end, port):
            ports = range(first, first + n_ports)
            port = next(other for other in ports if self._is_free_port(end, other))
        self._taken_ports.add((end, port))
        return port

    def _is_free_port(self, end: int, port: int) -> bool:
        """Tell whether nobody has a port, or a circuit that leaves."""
        user = self._users.ports[end][port]
        return (end, port) not in self._taken_ports and (user == NOBODY or user in self._leaving)

    def take_fibre(self, fibres: Iterable[int]) -> int:
        """Take the lowest fibre without light, or else the lowest that a lit circuit leaves.

        The fibre counts as taken from then on. The result is -1 if all are in use by circuits that
        stay.
        """
        # A fibre with light would have to go dark before the new circuit can have it.
        chosen = -1
        for fibre in fibres:
            user = self._users.fibres[fibre]
            is_free = user == NOBODY or user in self._leaving
            if not is_free or fibre in self._taken_fibres:
                continue
            if user not in self._lit:
                chosen = fibre
                break
            if chosen < 0:
                chosen = fibre
        self._taken_fibres.add(chosen)
        return chosen
