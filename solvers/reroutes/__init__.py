"""Getting over failures: running states, repairs, and the order of their steps."""

from __future__ import annotations

from dataclasses import replace

from optmatch.problems import Reroute
from optmatch.solvers.method import Method, Run


def _greedy() -> Run:
    """Load and return method `greedy`: the quick repair of a failure."""
    from optmatch.solvers.reroutes.greedy import solve

    return solve


def _ilp() -> Run:
    """Load and return method `ilp`: the least disturbance after a failure, with a proof."""
    from optmatch.solvers.reroutes.ilp import solve

    return solve


def _has_losses_of_routes(problem: Reroute) -> bool:
    """Tell whether losses are those of routes, which flows can count; not of stated circuits."""
    return problem.fabric.circuit_loss_db is None


METHODS = (
    Method(
        "greedy",
        Reroute,
        _greedy,
        "the nearest spare takes over; others move only if nothing else helps",
    ),
    Method(
        "ilp",
        Reroute,
        _ilp,
        "flows by CP-SAT level by level, with cuts and proofs",
        exact=True,
        suits=_has_losses_of_routes,
        follows=_has_losses_of_routes,
    ),
)
"""Methods for failures; the first is the default."""


def small_problems() -> tuple[Reroute, ...]:
    """Return problems of which default methods call all of their kernels."""
    from optmatch.fabrics import RackFabric
    from optmatch.solvers.reroutes.states import fill_rack

    return (replace(fill_rack(RackFabric()), failed_chips=(21,)),)
