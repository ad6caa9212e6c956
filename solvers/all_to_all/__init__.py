"""In which matchings all pairs of ports meet: 1-factorisations, joint bounds, repair.

Words of this room:

- a *slot* is a time in which some pairs of ports are connected at once, by circuits that share no
  link; its pairs are a *factor*, a perfect matching, and the factors of a whole plan are a
  *1-factorisation*, which has each pair once (`factors`);
- a *tournament* is the 1-factorisation of a round robin, in which each port meets each other once;
- to *exchange pairs* is to let two or three slots divide their pairs in another way;
- the *fewest slots* are those by counting (`AllToAll.min_slots`); a fabric has a *shortage* of
  slots where it is proved that more are needed, as its links are too few;
- the *excess* of a slot is how many cells its routes pass beyond the shortest routes of its pairs,
  in 1/`UNIT` of a cell; each circuit without a route and each link that two circuits want adds
  `FAILED`, so that all circuits of a slot are routed if its excess is below `FAILED`;
- *leftovers* are pairs without a route, which get further slots; to *pack* is to fill slots by
  first fit, one after another, as many as it takes;
- *link prices* are dual variables of the linear programme over routes: they prove lower bounds of
  slots and of cells.
"""

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
