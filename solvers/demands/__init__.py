"""Methods for demands: decompositions, covers, exact models, bounds.

The words of this room: a *demand* is a square matrix of ticks, and its *entries* are those that
are not zero, each from a source (its row) to a destination (its column). A *line* is a row or a
column. A *slot* is a matching of sources with destinations that is held for some ticks, after a
*delay* in which nothing is served; each of its circuits serves the entry of its ports. A *plan* is
a list of slots (`Plan`). It *covers* a demand if each entry is served for all its ticks. A
*decomposition* writes a matrix as a sum of *terms*, permutations with a weight in ticks each.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from optmatch.model import Solution
from optmatch.problems import Demand
from optmatch.solvers.demands.rules import RULES
from optmatch.solvers.method import Method, Run
from optmatch.solvers.params import DemandParams

if TYPE_CHECKING:
    from optmatch.solvers.demands.birkhoff import Rule as Peeling
    from optmatch.solvers.demands.tasks import Build


def _best() -> Run:
    """Load the method `best`, the default."""
    from optmatch.solvers.demands.best import solve_best

    return solve_best


def _portfolio() -> Run:
    """Load the method `portfolio`: the best plan of all rules that fit into the time."""
    from optmatch.solvers.demands.portfolio import yield_plans
    from optmatch.solvers.demands.scheduling import solve_demand

    return partial(solve_demand, name="portfolio", build=partial(yield_plans, has_moves=False))


def _ilp() -> Run:
    """Load the exact method `ilp`."""
    from optmatch.solvers.demands.permutations_ilp import solve

    return solve


def _rule(name: str, build: Build) -> Run:
    """Load a rule of the registry as a method of its own."""
    from optmatch.solvers.demands.scheduling import solve_demand

    return partial(solve_demand, name=name, build=build)


def _birkhoff(rule: Peeling) -> Run:
    """Load the method that decomposes a demand by a rule."""
    from optmatch.solvers.demands.birkhoff_methods import solve

    return partial(solve, rule=rule)


def _no_groups(problem: Demand) -> bool:
    """Tell whether a demand has no groups, which few methods know."""
    return problem.objective != "weighted-completion-s"


_FEW = 10  # ports: CP-SAT may prove something about so many in seconds


def _is_small(problem: Demand) -> bool:
    """Tell whether CP-SAT may prove something about a demand within seconds."""
    return problem.fabric.graph is None and problem.fabric.n_ports <= _FEW


def _load_refusing(method: Method) -> Run:
    """Load a method that first looks for circuits over their link budget."""
    return partial(_solve_within_budgets, method.name, method.load())


def _solve_within_budgets(
    name: str, solve: Run, problem: Demand, *args: Any, **options: Any
) -> Any:
    """Solve a demand, or conclude that it needs a circuit over its link budget.

    A plan has circuits only where there is a demand, and therefore none over its budget.
    """
    from optmatch.solvers.routing.causes import refuse_dead_pairs

    refused: Solution | None = refuse_dead_pairs(problem, problem.dead_circuits(), name)
    return solve(problem, *args, **options) if refused is None else refused


_METHODS = (
    Method(
        "best",
        Demand,
        _best,
        "the portfolio, then parts of the best plan rebuilt until the time is up",
        warm=True,
        params=DemandParams,
    ),
    Method(
        "portfolio",
        Demand,
        _portfolio,
        "the best of the rules below that fit",
        suits=_no_groups,
    ),
    Method(
        "ilp",
        Demand,
        _ilp,
        "a CP-SAT model for each number of slots; for about eight ports",
        exact=True,
        suits=_no_groups,
        warm=True,
        follows=_is_small,
    ),
    *(
        Method(
            rule.name,
            Demand,
            partial(_rule, rule.name, rule.build),
            rule.summary,
            suits=_no_groups,
        )
        for rule in RULES
        if rule.summary
    ),
    Method(
        "birkhoff-first",
        Demand,
        partial(_birkhoff, "first"),
        "stuff and decompose into permutations, the next at hand each time",
        suits=_no_groups,
    ),
    Method(
        "birkhoff-bottleneck",
        Demand,
        partial(_birkhoff, "bottleneck"),
        "stuff and decompose, each with the largest smallest entry",
        suits=_no_groups,
    ),
)

METHODS = tuple(replace(method, load=partial(_load_refusing, method)) for method in _METHODS)
"""Methods for demands; the first is the default."""


def small_problems() -> tuple[Demand, ...]:
    """Return problems of which default methods call all of their kernels."""
    from optmatch.fabrics import IdealSwitch

    matrix = [[0, 9, 2, 1], [4, 0, 6, 3], [5, 1, 0, 7], [2, 8, 3, 0]]
    groups: Any = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    weighted: Any = {"objective": "weighted-completion-s", "groups": groups}
    return (
        Demand.from_matrix(matrix, fabric=IdealSwitch(4), delay_s=0.5),
        Demand.from_matrix(matrix, delay_s=0.5, **weighted),
    )
