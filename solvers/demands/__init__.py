"""Methods for demands: decompositions, covers, exact models, bounds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from optmatch.model import Solution
from optmatch.problems import Demand
from optmatch.solvers.method import Method, Run
from optmatch.solvers.params import DemandParams

if TYPE_CHECKING:
    from optmatch.solvers.demands.birkhoff import Rule


def _best() -> Run:
    """Load the method `best`, the default."""
    from optmatch.solvers.demands.best import solve_best

    return solve_best


def _portfolio() -> Run:
    """Load the method `portfolio`: the best plan of all rules that fit into the time."""
    from optmatch.solvers.demands.portfolio import yield_all
    from optmatch.solvers.demands.scheduling import solve_demand

    return partial(solve_demand, name="portfolio", build=yield_all)


def _ilp() -> Run:
    """Load the exact method `ilp`."""
    from optmatch.solvers.demands.permutations_ilp import solve

    return solve


def _cover(name: str) -> Run:
    """Load a cover (slots that serve the whole demand) by its name, such as ``"solstice"``."""
    from optmatch.solvers.demands.covers import COVERS

    return COVERS[name]


def _birkhoff(rule: Rule) -> Run:
    """Load the method that decomposes a demand by a rule."""
    from optmatch.solvers.demands.birkhoff_methods import solve

    return partial(solve, rule=rule)


def _no_groups(problem: Demand) -> bool:
    """Tell whether a demand has no groups, which few methods know."""
    return problem.objective != "weighted-completion-s"


def _row(name: str, summary: str) -> Method:
    """Make the entry of a cover in the table of methods, with a sentence about it."""
    return Method(name, Demand, partial(_cover, name), summary, suits=_no_groups)


def _decomposition(rule: Rule, summary: str) -> Method:
    """Make the entry of a method ``birkhoff-RULE`` in the table of methods.

    Parameters
    ----------
    rule
        Which permutation comes next in a decomposition: ``"first"`` or ``"bottleneck"``.
    summary
        The end of its sentence in lists of methods.

    Returns
    -------
    Method
        The entry.
    """
    return Method(
        f"birkhoff-{rule}",
        Demand,
        partial(_birkhoff, rule),
        f"stuff and decompose{summary}",
        suits=_no_groups,
    )


_FEW = 10  # ports: CP-SAT may prove something about so many in seconds


def _is_small(problem: Demand) -> bool:
    """Tell whether CP-SAT may prove something about a demand within seconds."""
    return problem.fabric.graph is None and problem.fabric.n_ports <= _FEW


def _refusing_dead_circuits(method: Method) -> Method:
    """Let a method prove that a demand over its link budget cannot be served, before it solves."""
    return replace(method, load=partial(_load_refusing, method))


def _load_refusing(method: Method) -> Run:
    """Load a method that looks for circuits over their link budget first."""
    return partial(_solve_within_budgets, method.name, method.load())


def _solve_within_budgets(
    name: str, solve: Run, problem: Demand, *args: Any, **options: Any
) -> Any:
    """Solve a demand, or conclude that it needs a circuit over its link budget.

    A plan has circuits only where there is a demand, and therefore none over its budget.

    Parameters
    ----------
    name
        The name of the method, for a solution that refuses.
    solve
        The method, which gets the problem and all further arguments.
    problem
        The demand on its fabric.
    *args, **options
        Further arguments of `solve`: limits, random numbers, and the listener of events.

    Returns
    -------
    Solution
        That of `solve`; or one that is INFEASIBLE, with the pairs that are over their budget.
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
    _row("solstice", "stuff to equal sums, then slots of halving thresholds"),
    _row("eclipse", "each time the slot that serves most for its time"),
    _row("greedy-cover", "heaviest first, in the first slot with room"),
    _row("tms", "scale, decompose, keep the heaviest terms"),
    _row("spectra", "few slots spread over parallel planes"),
    _decomposition("first", " into permutations, the next at hand each time"),
    _decomposition("bottleneck", ", each with the largest smallest entry"),
)

METHODS = tuple(_refusing_dead_circuits(method) for method in _METHODS)
"""Methods for demands; the first is the default."""


def small_problems() -> tuple[Demand, ...]:
    """Return problems of which default methods call all of their kernels.

    Returns
    -------
    tuple of Demand
        Two demands of four ports: one for the earliest completion, one with groups.
    """
    from optmatch.fabrics import IdealSwitch

    matrix = [[0, 9, 2, 1], [4, 0, 6, 3], [5, 1, 0, 7], [2, 8, 3, 0]]
    groups: Any = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    weighted: Any = {"objective": "weighted-completion-s", "groups": groups}
    return (
        Demand.from_matrix(matrix, fabric=IdealSwitch(4), delay_s=0.5),
        Demand.from_matrix(matrix, delay_s=0.5, **weighted),
    )
