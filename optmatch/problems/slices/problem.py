"""Slices: a torus of chips for a job, on servers that may lie anywhere in a rack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics import RackFabric
from optmatch.model import (
    Axes,
    Count,
    Displayed,
    Given,
    Index,
    InputError,
    Range,
    Value,
    check_fields,
    check_size,
    given,
)
from optmatch.model.numbers import check_below
from optmatch.problems.slices.server_routes import routes_between
from optmatch.problems.slices.shape import Shape, SliceShape, cut_shape, orient


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocation(Value):
    """Where a slice lies, and its light: the answer to a `SliceAllocation`.

    Parameters
    ----------
    shape
        Chips along x, y and z, as the slice is turned.
    servers
        ``servers[slot]``, slots x fastest; int32.
    routes
        ``routes[pair]``: the servers and switches that the circuits of each pair of slots pass,
        both ends included, in the order of `optmatch.problems.SliceShape.pairs`.
    circuits
        ``circuits[circuit] = transmitting port, receiving port``; int32, shape (circuits, 2).
    fibres
        ``fibres[use] = circuit, fibre``: what each circuit passes, in order; int32, shape
        (uses, 2).

    See Also
    --------
    SliceAllocation : The problem that it answers.

    Examples
    --------
    >>> import optmatch as om
    >>> slice_ = om.solve(om.SliceAllocation(om.RackFabric(), (2, 2, 1)), seed=0).answer
    >>> slice_.shape
    (2, 2, 1)
    """

    shape: Shape
    servers: Annotated[Given[np.int32], Range(0)] = given()
    routes: tuple[tuple[Index, ...], ...]
    circuits: Annotated[Given[np.int32], Axes(2, 2), Range(0)] = given()
    fibres: Annotated[Given[np.int32], Axes(2, 2), Range(0)] = given()

    def check_fits(self, problem: Any) -> None:
        """Refuse an allocation without servers, or with numbers of no server or fibre."""
        fabric = problem.fabric
        if not len(self.servers):
            raise InputError("servers: none is given, a slice has one at least", where="servers")
        check_below("servers", self.servers, fabric.n_servers, "server")
        check_below("circuits", self.circuits, fabric.n_ports, "port")
        check_below("fibres", self.fibres[:, 0], len(self.circuits), "circuit")
        check_below("fibres", self.fibres[:, 1], fabric.n_fibres, "fibre")
        for k, route in enumerate(self.routes):
            n_nodes = fabric.n_servers + fabric.n_rack_switches
            check_below(f"routes[{k}]", route, n_nodes, "server or switch")


_MOST_ROUTES = 50


@dataclass(frozen=True, slots=True, eq=False)
class SliceAllocation(Displayed):
    """Find servers and circuits for one more slice, with the least load on its busiest edge.

    The slice is a torus of a x b x c chips on whole servers of one rack, or of any racks if they
    are joined. Each two of its servers that exchange light do so over one of a few shortest
    routes, which passes no rack but theirs, each direction by itself. The
    *load* of an edge is the number of circuits on its fibres, those of other slices included; the
    objective is the largest load of the edges that the slice uses, 0 if it uses none.

    Parameters
    ----------
    fabric
        The racks, with ideal interposers.
    shape
        The chips of the slice along x, y and z; it may be turned.
    placed
        Slices that are there already.
    reserved
        The servers that are kept out, as 0,3: failed ones, or spares.
    routes
        How many routes are offered to each pair of servers. Of the 50 shortest simple ones with
        enough free fibres those with the fewest hops, then with the least present load of their
        busiest edge, then the first by the servers passed.
    twisted
        Whether the torus is twisted, which one of k x k x 2k or k x 2k x 2k chips can be. Then the
        last chip of an axis of k is joined to the first one that lies k further along each axis of
        2k. k >= 2 is a multiple of the sides of a server.

    Raises
    ------
    InputError
        Naming the side, server or fibre that is out of range or used twice, and by which slices.

    See Also
    --------
    Allocation : The answer.
    LoadProof : Shows that no slice has a smaller load.
    RackFabric : The racks.

    References
    ----------
    .. [1] Vijaya Kumar et al. (2025). Reconfigurable Torus Fabrics for Multi-tenant ML.
       arXiv:2508.03674; https://doi.org/10.1145/3779212.3790238
    .. [2] Jouppi et al. (2023). TPU v4. https://doi.org/10.1145/3579371.3589350 (twisted tori)

    Examples
    --------
    >>> problem = SliceAllocation(RackFabric(), (2, 2, 4))
    >>> len(problem.free_servers), problem.lower_bound()
    (16, 4.0)
    """

    fabric: RackFabric
    shape: Shape
    placed: tuple[Allocation, ...] = field(default=(), kw_only=True)
    reserved: tuple[Index, ...] = field(default=(), kw_only=True)
    routes: Count = field(default=5, kw_only=True)
    twisted: bool = field(default=False, kw_only=True, metadata={"brief": True})
    kind: ClassVar[str] = "slice-allocation"
    answer_class: ClassVar[type[Allocation] | None] = Allocation
    objectives: ClassVar[dict[str, str]] = {"slice-allocation": "circuits"}

    def __post_init__(self) -> None:
        """Check all fields: the shape, the routes, and who has the servers and the fibres."""
        check_fields(self)
        if self.fabric.ports_per_chip < 6:
            raise InputError(
                f"ports_per_chip = {self.fabric.ports_per_chip}: a chip of a torus needs 6",
                where="fabric",
            )
        if self.fabric.interposer is not None:
            raise InputError(
                "fabric: racks with ideal interposers are expected, as a slice sets no cells;"
                " leave interposer out",
                where="fabric",
            )
        check_size("ports", math.prod(self.shape), "shape")
        if self.routes > _MOST_ROUTES:
            raise InputError(f"routes = {self.routes}: at most {_MOST_ROUTES}", where="routes")

        # Twisted, its sides are k or 2 k, some of each, with k > 1, and whole servers cut k.
        shortest = min(self.shape)
        one_or_two = set(self.shape) == {shortest, 2 * shortest}
        whole_servers = not any(shortest % part for part in self.fabric.server)
        if self.twisted and not (one_or_two and whole_servers and shortest > 1):
            raise InputError(
                f"twisted = True: k x k x 2k or k x 2k x 2k chips, k >= 2 a multiple of the sides"
                f" of a server, not {'x'.join(map(str, self.shape))}",
                where="twisted",
            )

        # Each server and each fibre belongs to one slice, or to nobody.
        owner_of_server: dict[int, str] = {}
        owner_of_fibre: dict[int, str] = {}
        for number, server in enumerate(self.reserved):
            where = f"reserved[{number}]"
            _assign(owner_of_server, server, where, "server", self.fabric.n_servers)
        for number, placed in enumerate(self.placed):
            where = f"placed[{number}]"
            for server in placed.servers.tolist():
                _assign(owner_of_server, server, where, "server", self.fabric.n_servers)
            for fibre in placed.fibres[:, 1].tolist():
                _assign(owner_of_fibre, fibre, where, "fibre", self.fabric.n_fibres)

    @property
    def free_servers(self) -> NDArray[np.int64]:
        """Servers that a slice may take, ascending."""
        used = [np.array(self.reserved, dtype=np.int64)]
        used += [placed.servers.astype(np.int64) for placed in self.placed]
        return np.setdiff1d(np.arange(self.fabric.n_servers), np.concatenate(used))

    @property
    def lit_fibres(self) -> NDArray[np.bool_]:
        """``lit_fibres[fibre]``: whether a circuit of another slice has it."""
        is_lit = np.zeros(self.fabric.n_fibres, dtype=np.bool_)
        for placed in self.placed:
            is_lit[placed.fibres[:, 1]] = True
        return is_lit

    @property
    def loads(self) -> NDArray[np.int64]:
        """``loads[edge]``: circuits of other slices on the edge."""
        edges = self.fabric.edge_of_fibre[self.lit_fibres]
        return np.bincount(edges, minlength=len(self.fabric.edges)).astype(np.int64)

    @property
    def slice_shapes(self) -> tuple[SliceShape, ...]:
        """The slice in each way to turn it that takes the fewest servers; none if too large."""
        shapes = orient(self.fabric, self.shape)
        return tuple(cut_shape(shape, self.fabric.server, self.twisted) for shape in shapes)

    def candidates(
        self, source: int, destination: int, weight: int, loads: NDArray[np.int64] | None = None
    ) -> list[tuple[int, ...]]:
        """List the routes that circuits between two servers may take, the best one first.

        An *edge* is a bundle of fibres from one server to another. Its *load* is the number of its
        fibres in use. A route is a list of edges. It is offered only if each edge has a free fibre
        for each circuit. Routes are sorted by their length, then by the load of the busiest edge.

        Parameters
        ----------
        source, destination
            The numbers of the servers. If they are in different racks and the racks are not
            joined, there is no route.
        weight
            How many circuits are to take the route together.
        loads
            int64, (edges,): the load of each edge. None takes `self.loads`, which is computed anew
            by each call; hand it over for many calls in a row.

        Returns
        -------
        list of tuple of int
            For each route the edges that it passes, in order; at most `self.routes` of them, and
            none if there are too few free fibres.

        Examples
        --------
        >>> problem = SliceAllocation(RackFabric(), (2, 2, 2))
        >>> [len(route) for route in problem.candidates(0, 1, weight=4)]
        [1, 3, 3, 3, 5]
        """
        fabric = self.fabric
        if loads is None:
            loads = self.loads
        servers_per_rack = fabric.n_servers // fabric.racks
        edges_per_rack = len(fabric.edges) // fabric.racks

        # Racks are alike: routes are looked up between servers of the first one.
        rack, source_there = divmod(source, servers_per_rack)
        other_rack, destination_there = divmod(destination, servers_per_rack)
        if other_rack != rack:
            if not fabric.joined:
                return []
            destination_there += servers_per_rack  # the pool counts on in the second rack

        # The edges of a route of the pool have the numbers that they would have if the racks were
        # 0 and 1. Edges of the first rack move to `rack`, all others to `other_rack`.
        edge_fibres = fabric.edge_fibres
        offset_in_rack = rack * edges_per_rack
        offset_in_other = (other_rack - 1) * edges_per_rack
        offered = []
        pool = routes_between(fabric, source_there, destination_there)
        for rank, pool_edges in enumerate(pool):
            # Lists are faster than generators here, and searches ask for many routes.
            route = tuple(
                [
                    edge + (offset_in_rack if edge < edges_per_rack else offset_in_other)
                    for edge in pool_edges
                ]
            )

            # Only routes whose edges have enough free fibres are offered. `rank`, the place in the
            # pool, decides among routes that are equal otherwise.
            if all([loads[edge] + weight <= edge_fibres[edge] for edge in route]):
                busiest = max([int(loads[edge]) for edge in route])
                offered.append((len(route), busiest, rank, route))
        return [route for _, _, _, route in sorted(offered)[: self.routes]]

    def dead_end(self) -> str:
        """Say why no answer can exist by counting alone.

        Returns
        -------
        str
            A sentence with the servers that the slice takes and those that are free, in a rack or
            in all of them; empty if counting shows nothing.
        """
        fabric = self.fabric
        shape = "x".join(map(str, self.shape))
        if not self.slice_shapes:
            if fabric.joined:
                return f"a slice of {shape} chips takes more than all {fabric.n_servers} servers"
            sides = "x".join(map(str, fabric.chips))
            return f"a slice of {shape} chips does not fit into a rack of {sides}"

        # All shapes take equally many servers. They are in one rack where racks are not joined.
        n_slots = self.slice_shapes[0].n_slots
        free_servers = self.free_servers
        if fabric.joined:
            n_free = len(free_servers)
            supply = f"{n_free} are free"
        else:
            racks = fabric.server_coordinates[free_servers, 0]
            n_free = int(np.bincount(racks, minlength=1).max())
            supply = f"no rack has more than {n_free}"
        if n_slots <= n_free:
            return ""
        return f"a slice of {shape} chips takes {n_slots} servers, {supply}"

    def lower_bound(self) -> float:
        """Bound the load by the circuits of one pair of slots; infinite where counting says no."""
        if self.dead_end():
            return math.inf
        return float(min(int(plan.weights.max(initial=0)) for plan in self.slice_shapes))


def connect(
    fabric: RackFabric,
    lit: NDArray[np.bool_],
    plan: SliceShape,
    servers: ArrayLike,
    routes: Sequence[Any],
) -> Allocation:
    """Give every circuit of a slice its two ports, and the fibres that its light passes.

    All circuits of a pair pass the edges ``routes[pair]``, and each takes a free fibre of every
    edge: if two circuits pass an edge whose fibres 7, 8 and 9 are free, they get 7 and 8.
    ``lit[fibre]`` says what other slices use, and is not changed. An InputError names an edge with
    too few fibres.
    """
    server_of_slot = np.asarray(servers, dtype=np.int64)

    # Columns of circuits: slot, chip of the server and port of one end, then of the other.
    slot = plan.circuits[:, [0, 3]]
    chip_of_server = plan.circuits[:, [1, 4]]
    port_of_chip = plan.circuits[:, [2, 5]]
    chip = server_of_slot[slot] * fabric.chips_per_server + chip_of_server
    circuits = chip * fabric.ports_per_chip + port_of_chip

    # The free fibres of an edge stand together in `dark_fibres`, since fibres are numbered edge by
    # edge. They are at `next_dark[edge]` .. `end_dark[edge] - 1`.
    end_of_edge = np.cumsum(fabric.edge_fibres)
    dark = np.flatnonzero(~lit)
    next_dark = np.searchsorted(dark, end_of_edge - fabric.edge_fibres).tolist()
    end_dark = np.searchsorted(dark, end_of_edge).tolist()
    dark_fibres = dark.tolist()

    # The circuits of a pair stand together in `circuits_by_pair`, at `bounds[pair]` ..
    # `bounds[pair + 1] - 1`; those without a pair (-1) come before them.
    by_pair = np.argsort(plan.pair_of, kind="stable")
    bounds = np.searchsorted(plan.pair_of[by_pair], np.arange(len(routes) + 1)).tolist()
    circuits_by_pair = by_pair.tolist()

    # Pair after pair, the circuits take the next free fibres of each edge of their route; then
    # `next_dark` moves on behind them.
    edge_ends = fabric.edges.tolist()
    fibre_uses: list[tuple[int, int]] = []
    server_routes: list[tuple[int, ...]] = []
    for pair, route in enumerate(routes):
        members = circuits_by_pair[bounds[pair] : bounds[pair + 1]]
        edges = [int(edge) for edge in route]
        first_server = edge_ends[edges[0]][0]
        server_routes.append((first_server, *(edge_ends[edge][1] for edge in edges)))
        for edge in edges:
            if end_dark[edge] - next_dark[edge] < len(members):
                raise InputError(f"edge {edge}: too few free fibres for {len(members)} circuits")

        # Each circuit of the pair takes the next dark fibre of each edge.
        for number, circuit in enumerate(members):
            for edge in edges:
                fibre_uses.append((circuit, dark_fibres[next_dark[edge] + number]))
        for edge in edges:
            next_dark[edge] += len(members)
    return Allocation(
        shape=plan.shape,
        servers=server_of_slot,
        routes=tuple(server_routes),
        circuits=circuits,
        fibres=np.array(fibre_uses, dtype=np.int64).reshape(-1, 2),
    )


def _assign(owner_of: dict[int, str], number: int, owner: str, noun: str, count: int) -> None:
    """Note which slice has a server or a fibre; InputError if it is none, or is taken already.

    Writes ``owner_of[number]``; there are `count` of them, called `noun` in messages.
    """
    if not 0 <= number < count:
        raise InputError(f"{owner}: {noun} {number}: there are {count}", where=owner)
    if number in owner_of:
        message = f"{owner}: {noun} {number} is taken by {owner_of[number]}"
        raise InputError(message, where=owner)
    owner_of[number] = owner


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadProof(Value):
    r"""Sets of servers that too few circuits can leave.

    Let S be a set of servers of one rack, of whose free servers f lie in S and F - f do not; if
    racks are joined, S is a set of servers and switches of all of them. A
    slice of n slots has between :math:`\max(0, n - F + f)` and :math:`\min(n, f)` slots in S. If
    for every such number each choice of slots is joined to the others by more circuits than fit on
    the edges out of S, or into S, under a largest load of ``bound - 1``, the rack holds no slice
    with that load.

    Parameters
    ----------
    bound
        No slice has a smaller load. Above the fibres of every edge it says that there is none.
    cuts
        Sets of servers, each within a rack; in joined racks of any servers and switches. A rack
        with enough free servers about which no cut says anything, or joined racks without a cut,
        is where all ways were tried, and are to be tried again.
    """

    bound: Index
    cuts: tuple[tuple[Index, ...], ...] = ()

    def __post_init__(self) -> None:
        """Check that each cut is a set of different servers."""
        check_fields(self)
        for k, cut in enumerate(self.cuts):
            if not cut or len(set(cut)) < len(cut):
                raise InputError(f"cuts[{k}]: different servers are expected", where=f"cuts[{k}]")


def draw_occupancy(
    fabric: RackFabric,
    shapes: Sequence[Shape],
    rng: np.random.Generator,
    *,
    routes: int = 5,
    reserved: tuple[int, ...] = (),
) -> tuple[Allocation, ...]:
    """Put slices on random servers of random racks, each pair on a random route of those offered.

    In joined racks the servers of a slice are drawn from all of them. A shape that finds no rack
    with enough servers or fibres is left out; the others keep their order.
    """
    placed: tuple[Allocation, ...] = ()
    for shape in shapes:
        problem = SliceAllocation(fabric, shape, placed=placed, reserved=reserved, routes=routes)
        if problem.dead_end():
            continue
        allocation = _draw_allocation(problem, rng)
        if allocation is not None:
            placed = (*placed, allocation)
    return placed


def _draw_allocation(problem: SliceAllocation, rng: np.random.Generator) -> Allocation | None:
    """Put a slice on random free servers, and its circuits on random routes.

    None where a pair has no route with enough free fibres; another draw may succeed.
    """
    fabric = problem.fabric
    plan = problem.slice_shapes[0]
    free_servers = problem.free_servers

    # Racks that are not joined hold a slice in one of them.
    if not fabric.joined:
        racks = fabric.server_coordinates[free_servers, 0]
        n_free_of_rack = np.bincount(racks, minlength=fabric.racks)
        rack = rng.choice(np.flatnonzero(n_free_of_rack >= plan.n_slots))
        free_servers = free_servers[racks == rack]
    servers = rng.permutation(free_servers)[: plan.n_slots].tolist()

    free_fibres = fabric.edge_fibres - problem.loads  # by edge
    routes = []
    for (source, destination), weight in zip(
        plan.pairs.tolist(), plan.weights.tolist(), strict=True
    ):
        fitting = [
            route
            for route in problem.candidates(servers[source], servers[destination], weight)
            if (free_fibres[list(route)] >= weight).all()
        ]
        if not fitting:
            return None
        route = fitting[int(rng.integers(len(fitting)))]
        free_fibres[list(route)] -= weight
        routes.append(route)
    return connect(fabric, problem.lit_fibres, plan, servers, routes)
