"""Dead pairs: the answer that every method gives before any search."""

from __future__ import annotations

from optmatch.fabrics import UNREACHED, Fabric, Faulty
from optmatch.model import Clock, Problem, Solution, Status
from optmatch.solvers.routing.causes import Refuted, add_causes, find_causes


def refuse_dead_pairs(
    problem: Problem,
    dead: list[tuple[int, int]],
    method: str,
    refuted: Refuted | None = None,
    clock: Clock | None = None,
) -> Solution | None:
    """Conclude that a problem is infeasible because two ports must meet that no states connect.

    Parameters
    ----------
    problem
        The problem.
    dead
        The pairs of ports that must meet and cannot.
    method
        The name of the method that says so.
    refuted, clock
        As of `name_causes`, where there may be no answer although no pair is dead. Without them
        a fault is needed if its repair leaves no pair dead.

    Returns
    -------
    Solution or None
        None if there is no such pair. On a fabric with faults it names those that cause it.
    """
    if not dead:
        return None
    reasons = "; ".join(problem.fabric.explain_dead_pair(i, j) for i, j in dead)
    solution = Solution(
        problem=problem,
        status=Status.INFEASIBLE,
        lower_bound=float("inf"),
        method=method,
        stats={
            "reason": f"no state of the cells connects {reasons}",
            "dead_pairs": [list(pair) for pair in dead],
        },
    )
    fabric = problem.fabric
    if not isinstance(fabric, Faulty):
        return solution

    def some_pair_is_dead(fabric: Fabric) -> bool:
        table = fabric.route_cells()
        return any(table[i, j] == UNREACHED for i, j in dead)

    causes, minimal = find_causes(fabric, some_pair_is_dead)
    if refuted is not None:
        causes, minimal = find_causes(fabric.repaired(causes), refuted, clock)
    return add_causes(solution, "reason", causes, minimal)
