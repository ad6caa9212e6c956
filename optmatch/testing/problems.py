"""Small problems of every kind, as hypothesis strategies and as lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
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
    RackFabric,
    SquareMesh,
    TriangularMesh,
)
from optmatch.model import IDLE, LONGEST_S, ON_CHIP, InputError, Problem, Score
from optmatch.problems import (
    AllToAll,
    Collective,
    Demand,
    Parallelism,
    RailJob,
    RailNetwork,
    Reroute,
    Routing,
    SliceAllocation,
    TransformerModel,
    Workload,
)
from optmatch.problems.collectives.fields import OPERATIONS, list_amounts
from optmatch.problems.routing import Objective
from optmatch.problems.slices.problem import draw_occupancy
from optmatch.problems.slices.shape import Shape
from optmatch.testing.demands import best_demand, smallest_demands
from optmatch.testing.routing import best_all_to_all, best_routing, largest_matchings

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


@st.composite
def collective_problems(
    draw: st.DrawFn,
    *,
    takes: Callable[[Collective], bool] = lambda problem: True,
    most_ranks: int = 9,
) -> Collective:
    """Draw a collective operation of a few ranks, as a strategy of hypothesis.

    Islands are groups of ranks with fast links among themselves; late ranks begin some time after
    the others.

    Parameters
    ----------
    draw
        Given by hypothesis.
    takes
        Tells whether a method takes a problem; others are not drawn.
    most_ranks
        The number of ranks is at most this.

    Returns
    -------
    Collective
        A problem of 1 to `most_ranks` ranks; with islands where the method takes nothing else, and
        in one case of four where it takes both.

    Examples
    --------
    >>> collective_problems()
    collective_problems()
    """
    # A method may take collectives between islands, others, or both.
    without_islands = Collective("all-reduce", 4, 8.0, island=1)
    between_islands = Collective("all-reduce", 4, 8.0, island=2)
    needs_islands = not takes(without_islands)
    if takes(between_islands) and (needs_islands or draw(st.integers(0, 3)) == 3):
        return draw(_island_problems(most_ranks))

    n_ranks = draw(st.integers(1, most_ranks))
    rank = st.integers(0, n_ranks - 1)
    sizes = st.sampled_from([8.0, 1000.0, 1e6])
    delays_of_late = st.sampled_from([1e-6, 1e-3])
    late_s = draw(st.dictionaries(rank, delays_of_late, max_size=min(1, n_ranks - 1)))
    operation = draw(st.sampled_from(OPERATIONS))

    # An uneven all-to-all may have blocks without bytes, and even no other ones.
    demand_bytes = None
    if operation == "all-to-all" and draw(st.booleans()):
        demand_bytes = np.zeros((n_ranks, n_ranks))
        for source, destination in draw(st.lists(st.tuples(rank, rank), max_size=2 * n_ranks)):
            demand_bytes[source, destination] = draw(sizes) * (source != destination)
    steps = None
    if not late_s and draw(st.booleans()):
        steps = draw(st.lists(st.tuples(st.integers(0, 2), sizes), max_size=4))

    # A value that is listed twice is drawn twice as often.
    strategies: dict[str, st.SearchStrategy[Any]] = {
        **_draw_seconds(with_islands=False),
        "size_bytes": st.just(0.0) if demand_bytes is not None else sizes,
        "ports": st.sampled_from([1, 1, 2, 3]),
        "planes": st.sampled_from([1, 1, 2]),
        "two_way": st.booleans(),
        "start": st.sampled_from(["free", "dark"]),
        "align_bytes": st.sampled_from([0, 0, 64]),
    }
    strategy = st.builds(
        Collective,
        operation=st.just(operation),
        n_ranks=st.just(n_ranks),
        late_s=st.just(late_s),
        demand_bytes=st.just(demand_bytes),
        steps=st.just(steps),
        **strategies,
    )
    return draw(strategy.filter(takes))


@st.composite
def _island_problems(draw: st.DrawFn, most_ranks: int) -> Collective:
    """Draw a collective between islands, which are groups of two or more ranks with fast links."""
    island = draw(st.integers(2, max(2, most_ranks // 2)))
    seconds = _draw_seconds(with_islands=True)
    return Collective(
        draw(st.sampled_from([operation for operation in OPERATIONS if operation != "broadcast"])),
        island * draw(st.integers(1, max(1, most_ranks // island))),
        draw(st.sampled_from([8.0, 1000.0, 1e6])),
        start=draw(st.sampled_from(["free", "dark"])),
        island=island,
        island_rate_bytes_per_s=draw(st.sampled_from([1e9, 450e9])),
        **{name: draw(strategy) for name, strategy in seconds.items()},
    )


def _draw_seconds(*, with_islands: bool) -> dict[str, st.SearchStrategy[Any]]:
    """Return strategies for all fields of a collective that are a time, by their names.

    Times inside islands are left out where there are none. A time that may be None is left out
    between islands, where it has to be None.
    """
    strategies: dict[str, st.SearchStrategy[Any]] = {}
    default_of_field = {part.name: part.default for part in fields(Collective)}
    times = [name for name, span in list_amounts().items() if span.most == LONGEST_S]
    for name in times:
        if default_of_field[name] is None:
            if not with_islands:
                strategies[name] = st.sampled_from([None, None, 1e-6])
        elif with_islands or not name.startswith("island_"):
            strategies[name] = st.sampled_from([0.0, 1e-6, 2.7e-6, 1e-4])
    return strategies


def smallest_collectives() -> Iterator[Collective]:
    """List collectives of one rank and of two."""
    for operation in OPERATIONS:
        for n in (1, 2):
            yield Collective(operation, n, 2.0, alpha_s=1e-6, rate_bytes_per_s=1e6)


@st.composite
def rail_problems(draw: st.DrawFn, *, tiny: bool = False) -> RailJob:
    """Draw a training job of a few ranks with a pipeline, replicas, or both.

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether all orders of its communications can be tried: one port, at most two ranks or one
        pipeline of three on a rail, few communications.

    Returns
    -------
    RailJob
        A small transformer, divided over `dp` replicas (data parallel), `tp` GPUs of a server
        (tensor parallel) and `pp` stages of a pipeline.

    Examples
    --------
    >>> rail_problems(tiny=True)
    rail_problems(tiny=True)
    """
    sizes = [(1, 2), (2, 1), (1, 3)] if tiny else [(1, 2), (2, 1), (2, 2), (1, 3)]
    dp, pp = draw(st.sampled_from(sizes))
    tp = 1
    ports = 1
    layers_per_stage = 1
    if not tiny:
        tp = draw(st.sampled_from([1, 2]))
        ports = draw(st.sampled_from([1, 1, 2]))
        layers_per_stage = draw(st.sampled_from([1, 2]))

    # Each stage of the pipeline gets equally many layers.
    model = TransformerModel(
        layers=pp * layers_per_stage,
        hidden=16,
        heads=2,
        sequence=8,
        vocabulary=draw(st.sampled_from([10, 200])),
        ffn=32,
    )
    zero_stage = 0
    if not tiny:
        zero_stage = draw(st.sampled_from([0, 1, 3]))
    return RailJob(
        parallelism=Parallelism(dp=dp, tp=tp, pp=pp, zero_stage=zero_stage),
        network=RailNetwork(
            gpus_per_server=tp,
            ports_per_gpu=ports,
            port_bytes_per_s=1e9,
            fabric=IdealSwitch(dp * pp * ports),
            delay_s=draw(st.sampled_from([0.0, 1e-6, 1e-5, 1e-4])),
        ),
        workload=Workload(
            model=model, batch=dp, peak_flops_per_s=draw(st.sampled_from([1e9, 1e12]))
        ),
    )


def smallest_rails() -> Iterator[RailJob]:
    """Yield jobs in which next to nothing rides a rail: one GPU, one server, or two replicas.

    Yields
    ------
    RailJob
        A job of a model of one layer.
    """
    model = TransformerModel(layers=1, hidden=4, heads=1, sequence=2, vocabulary=4, ffn=4)
    for split, gpus_per_server, ports in (
        (Parallelism(), 1, 1),
        (Parallelism(tp=2), 2, 1),
        (Parallelism(dp=2), 1, 2),
    ):
        yield RailJob(
            parallelism=split,
            network=RailNetwork(gpus_per_server=gpus_per_server, fabric=IdealSwitch(ports)),
            workload=Workload(model=model, batch=split.dp),
        )


_SHAPES: tuple[Shape, ...] = ((2, 2, 2), (2, 2, 3), (2, 4, 2), (2, 2, 1), (4, 3, 1), (2, 4, 4))


@st.composite
def slice_problems(draw: st.DrawFn, *, tiny: bool = False) -> SliceAllocation:
    """Draw a rack or two in use, perhaps joined, and one more slice (a box of chips).

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether every place of its servers can be tried.

    Returns
    -------
    SliceAllocation
        A problem with some slices placed and up to two servers in reserve; some have no answer,
        since the slice does not fit.

    Examples
    --------
    >>> slice_problems(tiny=True)
    slice_problems(tiny=True)
    """
    joined = draw(st.booleans())
    if not tiny:
        chips = (4, 4, 3)
        racks = draw(st.integers(1, 2))
    elif joined:
        chips = (2, 2, 2)
        racks = 2
    else:
        chips = draw(st.sampled_from([(4, 4, 1), (2, 2, 4), (2, 2, 3)]))
        racks = 1

    # Some slices are placed on the racks, and another one is asked for.
    fabric = RackFabric(
        chips=chips,
        fibres=draw(st.sampled_from((4, 2, 1, 8))),
        wrap=joined or draw(st.booleans()),
        racks=racks,
        joined=joined,
    )
    shapes = draw(st.lists(st.sampled_from(_SHAPES[:4]), max_size=1 if tiny else 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    routes = 2 if tiny else draw(st.integers(1, 5))
    placed = draw_occupancy(fabric, shapes, rng, routes=routes)
    shape = draw(st.sampled_from(_SHAPES[:4] if tiny else _SHAPES))
    problem = SliceAllocation(fabric, shape, placed=placed, routes=routes)

    # Reserved servers are some that no placed slice has: a first problem tells which are free.
    spares = draw(st.integers(0, min(2, len(problem.free_servers))))
    reserved = tuple(int(server) for server in problem.free_servers[:spares])
    return SliceAllocation(fabric, shape, placed=placed, reserved=reserved, routes=routes)


def smallest_slices() -> list[SliceAllocation]:
    """List slices with next to nothing in them, and one that is too large."""
    one_server = RackFabric(chips=(2, 2, 1))
    return [
        SliceAllocation(one_server, (1, 1, 1)),
        SliceAllocation(one_server, (2, 2, 1)),
        SliceAllocation(one_server, (2, 2, 2)),
        SliceAllocation(one_server, (2, 2, 1), reserved=(0,)),
        SliceAllocation(RackFabric(chips=(1, 1, 2), server=(1, 1, 1)), (1, 1, 2)),
    ]
