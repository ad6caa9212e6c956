"""In which matchings all pairs of ports meet: 1-factorisations, joint bounds, repair."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from optmatch.problems import AllToAll
from optmatch.solvers.feedforward import has_exact_router
from optmatch.solvers.method import Method, Run
from optmatch.solvers.params import AllToAllParams


def _load(module: str) -> Run:
    """Load the method of a module of this package, with routes chosen for the objective on a chip.

    OR-tools, which only `joint` needs, take long to load.
    """
    from optmatch.solvers.all_to_all.worst import plan_and_reroute

    plan = import_module(f"optmatch.solvers.all_to_all.{module}").solve
    return partial(plan_and_reroute, plan)


def _is_plain(problem: AllToAll) -> bool:
    """Tell whether cells count alike; a function, since methods are sent to other processes."""
    return problem.objective == "total-cells"


METHODS = (
    Method(
        "constructive",
        AllToAll,
        partial(_load, "constructive"),
        "shifts or bit patterns, each routed by the algorithm of a feed-forward fabric",
        suits=has_exact_router,
    ),
    Method(
        "negotiated",
        AllToAll,
        partial(_load, "factorise"),
        "a search over 1-factorisations, routed by negotiated congestion",
        warm=True,
        params=AllToAllParams,
    ),
    Method(
        "ilp",
        AllToAll,
        partial(_load, "joint"),
        "pairs, slots and routes in one CP-SAT model, for a few dozen cells",
        exact=True,
        warm=True,
        suits=_is_plain,
    ),
)
"""Methods for all pairs; the first that takes a problem is its default."""


def small_problems() -> tuple[AllToAll, ...]:
    """Return problems of which default methods call all of their kernels."""
    from optmatch.fabrics import Benes, HexMesh
    from optmatch.model import CellDevice

    mesh = HexMesh(2, 2, ports=4)
    waiting = AllToAll(mesh, delay_s="cells", cells=CellDevice.of("smartlight", mesh.n_cells))
    return AllToAll(HexMesh(4, 4, ports=8)), AllToAll(Benes(8)), waiting
