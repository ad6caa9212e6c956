"""How a matching is routed through cells: negotiated, exact, and proofs that it cannot be."""

from __future__ import annotations

import numpy as np

from optmatch.problems import Routing
from optmatch.solvers.feedforward import has_exact_router
from optmatch.solvers.method import Method, Run
from optmatch.solvers.params import RoutingParams


def _constructive() -> Run:
    """Load and return method `constructive`: by rule, on fabrics that light passes forward."""
    from optmatch.solvers.routing.methods import route_forward
    from optmatch.solvers.routing.worst import with_ties

    return with_ties(route_forward)


def _negotiated() -> Run:
    """Load and return method `negotiated`: circuits bid for links at rising prices."""
    from optmatch.solvers.routing.methods import route_by_negotiation
    from optmatch.solvers.routing.worst import with_ties

    return with_ties(route_by_negotiation)


def _ilp() -> Run:
    """Load and return method `ilp`: the best routes with a proof, by branch and price."""
    from optmatch.solvers.routing.methods import route_exactly
    from optmatch.solvers.routing.worst import with_ties

    return with_ties(route_exactly)


METHODS = (
    Method(
        "constructive",
        Routing,
        _constructive,
        "the exact algorithm of a feed-forward fabric, its free choices used",
        suits=has_exact_router,
    ),
    Method(
        "negotiated",
        Routing,
        _negotiated,
        "negotiated congestion, then a proof by `ilp` if there is time or nothing found",
        warm=True,
        params=RoutingParams,
    ),
    Method(
        "ilp",
        Routing,
        _ilp,
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
