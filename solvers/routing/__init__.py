"""How a matching is routed through cells: negotiated, exact, and proofs that it cannot be."""

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
