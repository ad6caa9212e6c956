"""From paths on the flow graph to the ports and fibres that circuits really use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Reroute
from optmatch.solvers.reroutes.flow_graph import FlowGraph

Path = NDArray[np.int32]
NOBODY, DEAD = -1, -2


class Named(NamedTuple):
    """Circuits as files have them."""

    circuits: list[tuple[int, int]]
    routes: list[tuple[int, ...]]
    """Fibres passed in a rack with ideal interposers, else terminals entered."""


class Users(NamedTuple):
    """The circuit that uses each port and fibre; `NOBODY` or `DEAD` without one."""

    ports: NDArray[np.int32]  # ``ports[end, port]``, where end 0 is the source
    fibres: NDArray[np.int32]

    def copy(self) -> Users:
        """Return arrays of their own."""
        return Users(self.ports.copy(), self.fibres.copy())


def list_users(problem: Reroute) -> Users:
    """List the circuit on each port and fibre of a rack with ideal interposers."""
    fabric, circuits, passed = problem.fabric, problem.circuits, problem.passed
    ports = np.full((2, fabric.n_ports), NOBODY, dtype=np.int32)
    ports[[[0], [1]], circuits.T] = np.arange(len(circuits))
    fibres = np.full(problem.units.n_fibres, NOBODY, dtype=np.int32)
    if fabric.graph is None:
        fibres[passed.part] = passed.circuit
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

    There is always a choice if the paths overdraw no resource.

    Parameters
    ----------
    first_fibre
        ``first_fibre[edge] .. first_fibre[edge + 1]`` are the fibres of an edge; empty with cells.
    wishes
        The source and destination port that each would like: of its unit the same place is taken
        if it is free, else the lowest that is.
    lit
        Circuits of `leaving` that still have light: their fibres are taken only if there are no
        others.
    """
    named = Named([], [])
    if not len(first_fibre):
        for path in paths:
            named.circuits.append((int(graph.port_in[path[1]]), int(graph.port_out[path[-2]])))
            named.routes.append(tuple(graph.terminal[path[1:-2]].tolist()))
        return named
    taken: set[tuple[int, int]] = set()
    for path, wish in zip(paths, wishes, strict=True):
        nodes = path.tolist()
        units = nodes[0], nodes[-1] - graph.units
        pair = []
        for end in (0, 1):
            first, user = units[end] * graph.per_unit, users.ports[end]
            port = first + wish[end] % graph.per_unit
            if (end, port) in taken or not (user[port] == NOBODY or user[port] in leaving):
                port = next(
                    p
                    for p in range(first, first + graph.per_unit)
                    if (end, p) not in taken and (user[p] == NOBODY or user[p] in leaving)
                )
            taken.add((end, port))
            pair.append(port)
        route = []
        for edge in (node - graph.inner for node in nodes[1:-1]):
            fibre = -1
            for candidate in range(first_fibre[edge], first_fibre[edge + 1]):
                user_of = users.fibres[candidate]
                if (2, candidate) in taken or not (user_of == NOBODY or user_of in leaving):
                    continue
                if user_of not in lit:
                    fibre = candidate
                    break
                fibre = candidate if fibre < 0 else fibre
            taken.add((2, fibre))
            route.append(fibre)
        named.circuits.append((pair[0], pair[1]))
        named.routes.append(tuple(route))
    return named
