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
from optmatch.model.declarations import form_of
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
        The racks.
    shape
        Chips along x, y and z; the slice may be turned.
    placed
        Slices that are there already.
    reserved
        Servers that are kept out: failed ones, or spares.
    routes
        How many routes are offered to each pair: of the 50 shortest simple ones with enough free
        fibres those with the fewest hops, then with the least present load of their busiest edge,
        then the first by the servers passed.
    twisted
        Whether the torus, of k x k x 2k or k x 2k x 2k chips, is twisted: the last chip of an axis
        of k is joined to the first one that lies k further along each axis of 2k. k >= 2 is a
        multiple of the sides of a server.

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
        check_fields(self)
        if self.fabric.ports_per_chip < 6:
            raise InputError(
                f"ports_per_chip = {self.fabric.ports_per_chip}: a chip of a torus needs 6",
                where="fabric",
            )
        check_size("ports", math.prod(self.shape), "shape")
        if self.routes > _MOST_ROUTES:
            raise InputError(f"routes = {self.routes}: at most {_MOST_ROUTES}", where="routes")
        short = min(self.shape)
        doubled = all(side in (short, 2 * short) for side in self.shape)
        whole = short > 1 and not any(short % part for part in self.fabric.server)
        if self.twisted and not (doubled and max(self.shape) > short and whole):
            raise InputError(
                f"twisted = True: k x k x 2k or k x 2k x 2k chips, k >= 2 a multiple of the sides"
                f" of a server, not {'x'.join(map(str, self.shape))}",
                where="twisted",
            )
        owner: dict[int, str] = {}
        for k, server in enumerate(self.reserved):
            _take(owner, server, f"reserved[{k}]", "server", self.fabric.n_servers)
        lit: dict[int, str] = {}
        for k, slice_ in enumerate(self.placed):
            for server in slice_.servers.tolist():
                _take(owner, server, f"placed[{k}]", "server", self.fabric.n_servers)
            for fibre in slice_.fibres[:, 1].tolist():
                _take(lit, fibre, f"placed[{k}]", "fibre", self.fabric.n_fibres)

    @property
    def free_servers(self) -> NDArray[np.int64]:
        """Servers that a slice may take, ascending."""
        taken = [np.array(self.reserved, dtype=np.int64)]
        taken += [slice_.servers.astype(np.int64) for slice_ in self.placed]
        return np.setdiff1d(np.arange(self.fabric.n_servers), np.concatenate(taken))

    @property
    def lit_fibres(self) -> NDArray[np.bool_]:
        """``lit_fibres[fibre]``: whether a circuit of another slice has it."""
        lit = np.zeros(self.fabric.n_fibres, dtype=np.bool_)
        for slice_ in self.placed:
            lit[slice_.fibres[:, 1]] = True
        return lit

    @property
    def loads(self) -> NDArray[np.int64]:
        """``loads[edge]``: circuits of other slices on the edge."""
        edges = self.fabric.edge_of_fibre[self.lit_fibres]
        return np.bincount(edges, minlength=len(self.fabric.edges)).astype(np.int64)

    @property
    def slice_shapes(self) -> tuple[SliceShape, ...]:
        """The slice in each way to turn it that takes the fewest servers; none if too large."""
        server, turned = self.fabric.server, orient(self.fabric, self.shape)
        return tuple(cut_shape(shape, server, self.twisted) for shape in turned)

    def candidates(
        self, source: int, destination: int, weight: int, loads: NDArray[np.int64] | None = None
    ) -> list[tuple[int, ...]]:
        """Return the routes offered to circuits between two servers, best first.

        Parameters
        ----------
        source, destination
            Servers, of one rack unless racks are joined.
        weight
            How many circuits.
        loads
            `loads`, for many calls in a row.

        Returns
        -------
        list of tuple of int
            The edges passed.

        Examples
        --------
        >>> problem = SliceAllocation(RackFabric(), (2, 2, 2))
        >>> [len(route) for route in problem.candidates(0, 1, weight=4)]
        [1, 3, 3, 3, 5]
        """
        fabric = self.fabric
        servers, edges = fabric.n_servers // fabric.racks, len(fabric.edges) // fabric.racks
        rack, source = divmod(source, servers)
        other, destination = divmod(destination, servers)
        if other != rack:
            if not fabric.joined:
                return []
            destination += servers  # the pool counts on in the second rack
        loads, fibres, offered = self.loads if loads is None else loads, fabric.edge_fibres, []
        first, second = rack * edges, (other - 1) * edges
        for rank, passed in enumerate(routes_between(fabric, source, destination)):
            route = tuple([edge + (first if edge < edges else second) for edge in passed])
            if all([loads[edge] + weight <= fibres[edge] for edge in route]):
                busiest = max([int(loads[edge]) for edge in route])
                offered.append((len(route), busiest, rank, route))
        return [entry[3] for entry in sorted(offered)[: self.routes]]

    def dead_end(self) -> str:
        """Say why no answer can exist by counting alone; empty if counting shows nothing."""
        shape, fabric = "x".join(map(str, self.shape)), self.fabric
        if not self.slice_shapes:
            if fabric.joined:
                return f"a slice of {shape} chips takes more than all {fabric.n_servers} servers"
            sides = "x".join(map(str, fabric.chips))
            return f"a slice of {shape} chips does not fit into a rack of {sides}"
        slots, free = self.slice_shapes[0].n_slots, self.free_servers
        racks = np.zeros_like(free) if fabric.joined else fabric.server_coordinates[free, 0]
        most = int(np.bincount(racks, minlength=1).max())
        if slots <= most:
            return ""
        there = f"{most} are free" if fabric.joined else f"no rack has more than {most}"
        return f"a slice of {shape} chips takes {slots} servers, {there}"

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
    """Give every circuit of a slice its ports and, on each edge, the first free fibre.

    ``lit[fibre]`` tells whether another slice has it, and stays as it is; ``servers[slot]`` and
    the edges ``routes[pair]`` are those of the slice as `plan` turns it.
    """
    at = np.asarray(servers, dtype=np.int64)
    size, ports = fabric.chips_per_server, fabric.ports_per_chip
    slot, chip, port = plan.circuits[:, [0, 3]], plan.circuits[:, [1, 4]], plan.circuits[:, [2, 5]]
    circuits = (at[slot] * size + chip) * ports + port
    edges, last = fabric.edges.tolist(), np.cumsum(fabric.edge_fibres)  # fibres go edge by edge
    dark = np.flatnonzero(~lit)
    first = np.searchsorted(dark, last - fabric.edge_fibres).tolist()
    stop, free = np.searchsorted(dark, last).tolist(), dark.tolist()
    order = np.argsort(plan.pair_of, kind="stable")
    ends = np.searchsorted(plan.pair_of[order], np.arange(len(routes) + 1)).tolist()
    uses: list[tuple[int, int]] = []
    passed: list[tuple[int, ...]] = []
    of_pairs = order.tolist()
    for pair, route in enumerate(routes):
        members, hops = of_pairs[ends[pair] : ends[pair + 1]], [int(edge) for edge in route]
        passed.append((edges[hops[0]][0], *(edges[edge][1] for edge in hops)))
        for edge in hops:
            if stop[edge] - first[edge] < len(members):
                raise InputError(f"edge {edge}: too few free fibres for {len(members)} circuits")
        uses += [(c, free[first[edge] + k]) for k, c in enumerate(members) for edge in hops]
        for edge in hops:
            first[edge] += len(members)
    return Allocation(
        shape=plan.shape,
        servers=at,
        routes=tuple(passed),
        circuits=circuits,
        fibres=np.array(uses, dtype=np.int64).reshape(-1, 2),
    )


def read_shape(given: Any) -> Shape:
    """Check that a shape is three sides in chips."""
    shape: Shape = form_of(Shape).check("shape", given)
    return shape


def _take(owner: dict[int, str], number: int, who: str, what: str, count: int) -> None:
    """Note which slice has a server or a fibre; no other one may."""
    if not 0 <= number < count:
        raise InputError(f"{who}: {what} {number}: there are {count}", where=who)
    if number in owner:
        raise InputError(f"{who}: {what} {number} is taken by {owner[number]}", where=who)
    owner[number] = who


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

    In joined racks the servers of a slice are drawn from all of them. Of `shapes`, in chips, one
    that finds no rack with enough servers or fibres is left out. `routes` are offered to each
    pair; `reserved` servers are kept out.
    """
    placed: tuple[Allocation, ...] = ()
    for shape in shapes:
        problem = SliceAllocation(fabric, shape, placed=placed, reserved=reserved, routes=routes)
        found = None if problem.dead_end() else _put(problem, rng)
        if found is not None:
            placed = (*placed, found)
    return placed


def _put(problem: SliceAllocation, rng: np.random.Generator) -> Allocation | None:
    plan, fabric = problem.slice_shapes[0], problem.fabric
    free = problem.free_servers
    racks = fabric.server_coordinates[free, 0]
    counts = np.bincount(racks, minlength=fabric.racks)
    if not fabric.joined:
        free = free[racks == rng.choice(np.flatnonzero(counts >= plan.n_slots))]
    servers = rng.permutation(free)[: plan.n_slots].tolist()
    room = fabric.edge_fibres - problem.loads
    chosen = []
    for (a, b), weight in zip(plan.pairs.tolist(), plan.weights.tolist(), strict=True):
        offered = [
            route
            for route in problem.candidates(servers[a], servers[b], weight)
            if (room[list(route)] >= weight).all()
        ]
        if not offered:
            return None
        route = offered[int(rng.integers(len(offered)))]
        room[list(route)] -= weight
        chosen.append(route)
    return connect(fabric, problem.lit_fibres, plan, servers, chosen)
