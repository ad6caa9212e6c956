"""Methods for training jobs on the same rails: each step is planned by a method for rail jobs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from optmatch.problems import RailSharing
from optmatch.solvers.method import Method, Run

if TYPE_CHECKING:
    from optmatch.solvers.rails.methods import Simple

_PLANNERS: tuple[Simple, ...] = ("prefetch", "provisioned", "on-demand", "static")


def _load(planner: Simple) -> Run:
    """Return the function that divides rails, with steps that a method for rail jobs plans."""
    from optmatch.solvers.rail_sharing.division import divide_rails

    return partial(divide_rails, planner)


METHODS = tuple(
    Method(
        planner,
        RailSharing,
        partial(_load, planner),
        f"the division with the least slowdown, of steps that {planner} plans",
    )
    for planner in _PLANNERS
)
"""Methods for rail sharing; the first is the default."""
