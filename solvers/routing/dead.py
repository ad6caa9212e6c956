"""Dead pairs: the answer that every method gives before any search."""

from __future__ import annotations

from optmatch.fabrics import UNREACHED, Fabric
from optmatch.model import Problem, Solution, Status
from optmatch.solvers.routing.culprits import name_culprits


def refuse_dead_pairs(
    problem: Problem, dead: list[tuple[int, int]], method: str
) -> Solution | None:
    """Conclude that a problem is infeasible because ports must meet that never can.

    Parameters
    ----------
    problem
        The problem.
    dead
        The pairs of ports that must meet and cannot.
    method
        The name of the method that says so.

    Returns
    -------
    Solution or None
        None if there is no such pair. Of a fabric with faults it names those that kill a pair.
    """
    if not dead:
        return None
    reasons = "; ".join(problem.fabric.explain_dead_pair(i, j) for i, j in dead)
    refused = Solution(
        problem=problem,
        status=Status.INFEASIBLE,
        lower_bound=float("inf"),
        method=method,
        stats={
            "reason": f"no state of the cells connects {reasons}",
            "dead_pairs": [list(pair) for pair in dead],
        },
    )

    def some_pair_is_dead(fabric: Fabric) -> bool:
        table = fabric.route_cells()
        return any(table[i, j] == UNREACHED for i, j in dead)

    return name_culprits(refused, some_pair_is_dead)
