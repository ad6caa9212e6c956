"""Methods for placements: hosts on the ports of a switch, so that circuits lose least."""

from __future__ import annotations

from optmatch.problems import HostPlacement
from optmatch.solvers.method import Method, Run
from optmatch.solvers.params import PlacementParams


def _best() -> Run:
    from optmatch.solvers.placements.methods import solve_best

    return solve_best


def _ilp() -> Run:
    from optmatch.solvers.placements.exact import solve_exactly

    return solve_exactly


_FEW_PORTS = 12  # CP-SAT proves something about so many in seconds


def _is_small(problem: HostPlacement) -> bool:
    return len(problem.fabric.live_ports) <= _FEW_PORTS


METHODS = (
    Method(
        "best",
        HostPlacement,
        _best,
        "tabu search, cycles by CP-SAT, or annealing; bounds by an eigenvalue and by shaving",
        warm=True,
        params=PlacementParams,
    ),
    Method(
        "ilp",
        HostPlacement,
        _ilp,
        "an assignment by CP-SAT; for about ten ports",
        exact=True,
        follows=_is_small,
    ),
)
"""Methods for placements; the first is the default."""


def small_problems() -> tuple[HostPlacement, ...]:
    """Return problems of which default methods call all of their kernels.

    Kernels are compiled at their first call; solving these problems ahead saves that time later.

    Returns
    -------
    tuple of HostPlacement
        Three hosts on a switch of 14 ports: circuits between all hosts, and circuits where some
        demand is stated. That is more than `_FEW_PORTS`, up to which all is solved exactly.
    """
    from optmatch.fabrics import IdealSwitch

    loss_db = [[abs(row - column) + row / 8 for column in range(14)] for row in range(14)]
    switch = IdealSwitch(14, loss_db=loss_db)
    demand = [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    return (
        HostPlacement(switch, 3),
        HostPlacement(switch, 3, pattern="demand", demand_bytes=demand),
    )
