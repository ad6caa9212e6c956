"""Small problems of every kind, as hypothesis strategies and as lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from optmatch.fabrics import (
    FABRICS,
    Benes,
    Fabric,
    Fault,
    FaultKind,
    Faulty,
    FeedForward,
    HexMesh,
    IdealSwitch,
    Mesh,
    SquareMesh,
    TriangularMesh,
)
from optmatch.model import IDLE, ON_CHIP, InputError, Problem, Score
from optmatch.problems import AllToAll, Demand, RailJob, Reroute, Routing
from optmatch.problems.routing import Objective
from optmatch.testing.collectives import smallest_collectives
from optmatch.testing.demands import best_demand, smallest_demands
from optmatch.testing.rails import smallest_rails
from optmatch.testing.routing import best_all_to_all, best_routing, largest_matchings
from optmatch.testing.slices import smallest_slices

_TINY = (HexMesh(1, 1), HexMesh(1, 2), SquareMesh(1, 2), SquareMesh(2, 2), TriangularMesh(1, 2))
_SMALL = (HexMesh(2, 2), HexMesh(3, 3), SquareMesh(3, 3), TriangularMesh(2, 3))


@st.composite
def fabrics(draw: st.DrawFn, *, tiny: bool = False, most_ports: int = 8) -> Fabric:
    """Draw a mesh with ports anywhere, some of them broken, or an ideal switch.

    Ports of a mesh have one terminal for both directions, or one to send and one to receive.

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether every state of the cells is to be enumerable.
    most_ports
        The number of ports is at most this.
    """
    ideal = IdealSwitch(draw(st.integers(1, most_ports)))
    mesh = draw(st.sampled_from((*_TINY, ideal) if tiny else (*_TINY, *_SMALL, ideal)))
    if not isinstance(mesh, Mesh):
        return mesh

    # Ports at drawn terminals: bidirectional ones, or ports with a terminal for each direction.
    n_terminals = len(mesh.graph.perimeter)
    is_bidirectional = draw(st.booleans())
    terminals_per_port = 1 if is_bidirectional else 2
    n_ports = draw(st.integers(1, min(most_ports, n_terminals // terminals_per_port)))
    terminals = draw(st.permutations(range(n_terminals)))
    senders = terminals[:n_ports]
    fabric: Fabric
    if is_bidirectional:
        fabric = replace(mesh, ports=senders)  # type: ignore[type-var]
    else:
        receivers = terminals[n_ports : 2 * n_ports]
        fabric = replace(mesh, tx=senders, rx=receivers)  # type: ignore[type-var]

    # One fabric of four has up to two broken cells.
    if draw(st.integers(0, 3)):
        return fabric
    cells = st.lists(st.integers(0, fabric.n_cells - 1), max_size=2, unique=True)
    kinds: st.SearchStrategy[FaultKind]
    kinds = st.sampled_from(["stuck-bar", "stuck-cross", "dead-cell"])
    return Faulty.of(fabric, [Fault(draw(kinds), cell) for cell in draw(cells)])


@st.composite
def feed_forward_fabrics(draw: st.DrawFn, *, tiny: bool = False, most_ports: int = 8) -> Fabric:
    """Draw a fabric through which light passes from one side to the other, some with a few faults.

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether every state of the cells is to be enumerable.
    most_ports
        The number of ports is at most this.

    Returns
    -------
    Fabric
        In one case of three with up to one cell stuck in bar, one in cross, one dead cell, and one
        dead port.
    """
    classes = [cls for cls in FABRICS.values() if issubclass(cls, FeedForward)]
    fabric = draw(st.sampled_from(classes))(draw(st.integers(2, 3 if tiny else most_ports)))
    if draw(st.integers(0, 2)):
        return fabric

    # The first three cells of a random order can break, each in a way of its own.
    cells = draw(st.permutations(range(fabric.n_cells)))
    bar, cross, dead = (draw(st.integers(0, 1)) for _ in range(3))
    ports = draw(st.lists(st.integers(0, fabric.n_ports - 1), max_size=1))
    return Faulty(fabric, cells[:1][:bar], cells[1:2][:cross], cells[2:3][:dead], ports)


@st.composite
def routing_problems(
    draw: st.DrawFn,
    *,
    tiny: bool = False,
    most_ports: int = 12,
    switches: st.SearchStrategy[Fabric] | None = None,
) -> Routing:
    """Draw a routing problem: a matching, perhaps with idle ports and perhaps impossible.

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether `brute_force` is to be able to solve it.
    most_ports
        The number of ports is at most this.
    switches
        The strategy of the fabrics; None for meshes and ideal switches of such sizes.

    Returns
    -------
    Routing
        With any objective that needs no device of the cells.

    Examples
    --------
    >>> routing_problems(tiny=True)
    routing_problems(tiny=True)
    """
    if switches is None:
        switches = fabrics(tiny=tiny, most_ports=most_ports)
    fabric = draw(switches)
    order = draw(st.permutations(range(fabric.n_ports)))

    # hypothesis tries 0 first, so full matchings come before emptier ones.
    most_circuits = fabric.n_ports // (2 if fabric.bidirectional else 1)
    n_circuits = most_circuits - draw(st.integers(0, most_circuits))
    matching = np.full(fabric.n_ports, IDLE, dtype=np.int32)
    if fabric.bidirectional:
        partners = order[n_circuits : 2 * n_circuits]
        for port, partner in zip(order[:n_circuits], partners, strict=True):
            matching[port] = partner
            matching[partner] = port
    else:
        sources = draw(st.permutations(range(fabric.n_ports)))
        for source, destination in zip(sources[:n_circuits], order[:n_circuits], strict=True):
            if source not in fabric.dead_ports and destination not in fabric.dead_ports:
                matching[source] = destination

    # The other objectives need the device of each cell.
    objectives = [name for name in get_args(Objective) if name not in ON_CHIP]
    objective: Objective = draw(st.sampled_from(objectives))
    bar_loss_db = draw(st.sampled_from((0.48, 0.25)))
    return Routing(fabric, matching, objective=objective, bar_loss_db=bar_loss_db)


@st.composite
def all_to_all_problems(draw: st.DrawFn, *, tiny: bool = False, most_ports: int = 6) -> AllToAll:
    """Draw an all-to-all problem; most have an answer, some a dead pair.

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether `brute_force` is to be able to solve it.
    most_ports
        The number of ports is at most this.

    Examples
    --------
    >>> all_to_all_problems(most_ports=4)
    all_to_all_problems(most_ports=4)
    """
    if draw(st.integers(0, 3)) == 0:
        return AllToAll(draw(fabrics(tiny=tiny, most_ports=min(most_ports, 3))))
    rows, cols = (1, 2) if tiny else draw(st.sampled_from(((2, 2), (3, 3))))
    if draw(st.booleans()):
        number = draw(st.integers(1, min(most_ports, 4 if tiny else most_ports)))
        return AllToAll(HexMesh(rows, cols, ports=number))
    number = draw(st.integers(1, min(most_ports, 3)))
    return AllToAll(HexMesh(rows, cols, tx=number, rx=number))


def brute_force(problem: Problem) -> Score | None:
    """Find the best objective by enumeration.

    Parameters
    ----------
    problem
        A `Routing`, `AllToAll` or `Demand` problem on a fabric of at most ``MOST_CELLS`` cells. Of
        an `AllToAll` problem only answers with ``min_slots`` matchings are looked at; demands are
        all-stop, on one plane, without a packet network.

    Returns
    -------
    float, tuple of int, or None
        As `Solution.objective`; None where there is no answer.

    Raises
    ------
    InputError
        If the fabric is too large, or the kind of problem unknown.

    Examples
    --------
    >>> from optmatch import HexMesh, Routing
    >>> brute_force(Routing(HexMesh(1, 1, ports=[0, 5]), [1, 0]))
    3.0
    """
    if isinstance(problem, Routing):
        return best_routing(problem)
    if isinstance(problem, AllToAll):
        return best_all_to_all(problem)
    if isinstance(problem, Demand):
        return best_demand(problem, largest_matchings(problem.fabric))
    raise InputError(f"kind = {problem.kind!r}: there is no brute force for it")


def smallest_problems(kind: str) -> list[Problem]:
    """List the problems of a kind that have next to nothing in them: one port, two, no circuit.

    Parameters
    ----------
    kind
        The name of the kind, such as "routing".

    Returns
    -------
    list of Problem
        Empty for a kind that has no such list.

    Examples
    --------
    >>> [problem.fabric.n_ports for problem in smallest_problems("all-to-all")]
    [1, 2, 1, 1, 2, 2]
    """
    switches: list[Fabric] = [
        HexMesh(1, 1, ports=[0]),
        HexMesh(1, 1, ports=[0, 5]),
        HexMesh(1, 1, tx=[0], rx=[5]),
        IdealSwitch(1),
        IdealSwitch(2),
        Benes(2),
    ]
    idle = [Routing(f, np.full(f.n_ports, IDLE, dtype=np.int32)) for f in switches]
    problems_of_kind: dict[str, Iterable[Problem]] = {
        "all-to-all": map(AllToAll, switches),
        "routing": [*idle, *(Routing(switches[k], [1, 0]) for k in (1, 4, 5))],
        "collective": smallest_collectives(),
        "rail-job": smallest_rails(),
        "slice-allocation": smallest_slices(),
        "demand": smallest_demands(),
    }
    return list(problems_of_kind.get(kind, ()))


def relabelled(problem: Problem, order: Sequence[int] | NDArray[np.int64]) -> Problem:
    """Return the same problem with its ports in another order.

    Parameters
    ----------
    problem
        The problem. One on a fabric whose ports cannot change their order is returned as it is.
    order : sequence of int, one for each port
        The port of the number ``order[k]`` gets the number k.

    Returns
    -------
    Problem
        A problem of the same kind: fabric, matchings, demands and numbers of ports are renamed
        together.
    """
    # The fabric: a mesh gets its ports at the same places in the new order; an ideal switch stays
    # as it is.
    order = [int(port) for port in order]
    fabric: Any = problem.fabric
    if isinstance(fabric, Mesh):
        senders, receivers = fabric.perimeter_ports
        new_senders = [senders[port] for port in order]
        new_receivers = [receivers[port] for port in order]
        if fabric.bidirectional:
            fabric = replace(fabric, ports=new_senders)  # type: ignore[type-var]
        else:
            fabric = replace(fabric, tx=new_senders, rx=new_receivers)  # type: ignore[type-var]
    elif not isinstance(fabric, IdealSwitch):
        return problem

    # ``new_number[port]``: the new number of a port. Idle ports of a matching stay idle.
    new_number = {port: k for k, port in enumerate(order)}
    new_number[IDLE] = IDLE

    # The numbers of ports in the question are renamed too.
    if isinstance(problem, Routing):
        matching = [new_number[int(problem.matching[port])] for port in order]
        return replace(problem, fabric=fabric, matching=matching)
    if isinstance(problem, Demand):
        demand_bytes = problem.demand_bytes[np.ix_(order, order)]
        return replace(problem, fabric=fabric, demand_bytes=demand_bytes)
    if isinstance(problem, Reroute):
        circuits = [[new_number[port] for port in pair] for pair in problem.circuits.tolist()]
        return replace(
            problem,
            fabric=fabric,
            circuits=circuits,
            spares=tuple(new_number[port] for port in problem.spares),
            failed_ports=tuple(new_number[port] for port in problem.failed_ports),
        )
    if isinstance(problem, RailJob):
        return replace(problem, network=replace(problem.network, fabric=fabric))
    return replace(problem, fabric=fabric)  # type: ignore[type-var]


def fewest_slots(problem: Problem) -> int | None:
    """Return the fewest slots of an all-to-all, which come before its objective; else None."""
    return problem.min_slots if isinstance(problem, AllToAll) else None
