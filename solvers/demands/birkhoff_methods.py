"""Methods `birkhoff-*` for demands: stuffed, decomposed, and freed of the stuffing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from optmatch.model import InputError, Limits, OnEvent, Solution
from optmatch.problems import Demand
from optmatch.solvers.demands.birkhoff import Rule, decompose, stuff
from optmatch.solvers.demands.decomposer import Decomposer, take_fewest
from optmatch.solvers.demands.first_fit import complete
from optmatch.solvers.demands.plans import Plan, trim
from optmatch.solvers.demands.scheduling import solve_demand
from optmatch.solvers.demands.tasks import CoverTask
from optmatch.solvers.feedforward import holds_every_matching

RUNS = 32
"""Decompositions for the fewest matchings without a limit of time or iterations."""


def solve(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    *,
    rule: Rule,
) -> Solution:
    """Solve a demand by decompositions of its stuffed matrix (Birkhoff and von Neumann).

    Stuffing adds to entries until all rows and columns have one sum. Such a matrix is a sum of
    permutations with weights, and each permutation becomes a slot that lasts for its weight.
    By the `rule` ``"first"`` the next permutation is any whose entries are not zero, by
    ``"bottleneck"`` one whose smallest entry is as large as can be.

    For the completion time there is one decomposition, freed of what stuffing has added. For the
    fewest matchings each iteration makes one, under other names of ports, and that of the fewest
    terms counts; `InputError` on a fabric that does not hold every permutation.
    """
    # Fewest matchings: decompositions with other names of ports, of which the best counts.
    name = f"birkhoff-{rule}"
    if problem.objective == "matchings":
        if not holds_every_matching(problem.fabric):
            raise InputError(
                f"method {name!r}: its permutations need not be realisable on this"
                f" {problem.fabric.type}; best and ilp take those that are",
                where="method",
            )
        most = RUNS if limits.time_s is None and limits.iterations is None else None
        draw = partial(_rename, rule=rule)
        return take_fewest(problem, limits, rng, on_event, name=name, most=most, draw=draw)

    # Earliest completion: one decomposition of the stuffed demand.
    return solve_demand(problem, limits, rng, on_event, name, partial(_decompose_once, rule))


def _decompose_once(rule: Rule, task: CoverTask) -> Iterator[Plan]:
    """Yield one plan; if time runs out, the terms so far and slots for the rest."""
    terms = decompose(stuff(task.demand), rule, deadline=task.deadline)
    plan = Plan(terms.permutations, terms.weights)
    yield trim(complete(plan, task), task.demand, task.shortest)


def _rename(search: Decomposer, rule: Rule) -> Iterator[Plan]:
    """Decompose the demand as it is, again and again with other names of ports.

    Ties between permutations fall otherwise then, and the number of terms differs.
    """
    # At first both are the ports in their order; each turn draws new orders for the next one.
    rows = columns = search.ports
    while True:
        terms = decompose(search.demand[rows][:, columns], rule)
        if terms.residual.any():
            raise KeyboardInterrupt  # `decompose` returned a part

        # Row k and column k of the renamed matrix are port ``rows[k]`` and port ``columns[k]``.
        matchings = np.empty_like(terms.permutations)
        matchings[:, rows] = columns[terms.permutations]
        yield Plan(matchings, terms.weights)
        rows, columns = (search.rng.permutation(search.ports) for _ in range(2))
