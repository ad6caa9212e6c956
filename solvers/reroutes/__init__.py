"""Getting over failures: running states, repairs, and the order of their steps.

Words of this room: a *running state* is a fabric with circuits in use. A *unit* is what a spare
replaces: a chip with all its ports, or one port of a switch; a *handover* chooses a spare for each
lost unit. A circuit is *hit* if a failure takes its light or one of its ends. The *flow graph*
(`routing_state`) says where light can go, and a *path* is a circuit on it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import import_module

from optmatch.problems import Reroute
from optmatch.solvers.method import Method, Run


def _load(module: str) -> Run:
    """Load the method of a module of this package; only `ilp` needs OR-tools."""
    run: Run = import_module(f"optmatch.solvers.reroutes.{module}").solve
    return run


def _has_losses_of_routes(problem: Reroute) -> bool:
    """Tell whether losses are those of routes, which flows can count; not of stated circuits."""
    return problem.fabric.circuit_loss_db is None


METHODS = (
    Method(
        "greedy",
        Reroute,
        partial(_load, "greedy"),
        "the nearest spare takes over; others move only if nothing else helps",
    ),
    Method(
        "ilp",
        Reroute,
        partial(_load, "ilp"),
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
