"""How a matching is routed through cells: negotiated, exact, and proofs that it cannot be.

A cell has the *terminals* a1 and a2 on one side and b1 and b2 on the other. They are numbered ``4
* cell + 0, 1, 2, 3`` in this order: ``terminal >> 2`` is the cell, the second bit is the side, the
first bit the place on the side. Light crosses from one side to the other: bar (state 0) joins a1
with b1 and a2 with b2, cross (state 1) joins a1 with b2 and a2 with b1. A route is in bar where
the first bit stays, in cross where it changes: from terminal 4 (a1 of cell 1) to terminal 7 (b2)
cell 1 is in cross.

A *link* is the waveguide between two terminals that are joined, or the stub at a terminal that is
joined to none. A *route* is the list of the terminals by which light leaves its cells, from the
first cell to the last; its *length* is the number of cells. Light enters the first cell at
``graph.source[port]``, and each further one at ``graph.mate[leaving]``, the terminal at the other
end of the link. A link is *contested* if more than one circuit passes it, and a cell is *lit* if
a circuit passes it.

A *negotiation* is rip-up and reroute by negotiated congestion (`pathfinder`). The *price* of a
link is what passing it costs: in a negotiation to keep circuits apart, in proofs the dual variable
of its capacity (`columns`). To *relieve* a circuit is to make the worst one better (`relief`). In
kernels `space` and `scratch` have arrays to work in.
"""

from __future__ import annotations

from functools import partial, update_wrapper

import numpy as np

from optmatch.problems import Routing
from optmatch.solvers.feedforward import has_exact_router
from optmatch.solvers.method import Method, Run
from optmatch.solvers.params import RoutingParams


def _load(name: str) -> Run:
    """Load a function of `methods` by its name; ties between its routes are broken by power."""
    from optmatch.solvers.routing import methods
    from optmatch.solvers.routing.worst import solve_with_ties

    method = getattr(methods, name)
    return update_wrapper(partial(solve_with_ties, method), method)  # its description is kept


METHODS = (
    Method(
        "constructive",
        Routing,
        partial(_load, "route_forward"),
        "the exact algorithm of a feed-forward fabric, its free choices used",
        suits=has_exact_router,
    ),
    Method(
        "negotiated",
        Routing,
        partial(_load, "route_by_negotiation"),
        "negotiated congestion, then a proof by `ilp` if there is time or nothing found",
        warm=True,
        params=RoutingParams,
    ),
    Method(
        "ilp",
        Routing,
        partial(_load, "route_exactly"),
        "branch and price on routes, with a proof that can be checked",
        exact=True,
        warm=True,
    ),
)
"""Methods for one matching; the first that takes a problem is its default."""


def small_problems() -> tuple[Routing, ...]:
    """Return problems of which default methods call all of their kernels."""
    from optmatch.fabrics import HexMesh

    matching = np.array([4, 3, 6, 1, 0, 7, 2, 5], dtype=np.int32)
    return (Routing(HexMesh(4, 4, ports=8), matching),)
