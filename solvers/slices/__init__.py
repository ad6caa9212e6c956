"""Slices of racks: search, exact loads, the state of a pod, steered bandwidth."""

from __future__ import annotations

from functools import partial

from optmatch.problems import SliceAllocation
from optmatch.solvers.method import Method, Run


def _place(rule: str) -> Run:
    from optmatch.solvers.slices.methods import solve

    return partial(solve, rule=rule)


def _ilp() -> Run:
    from optmatch.solvers.slices.ilp import solve

    return solve


def _row(rule: str, summary: str) -> Method:
    return Method(rule, SliceAllocation, partial(_place, rule), summary)


def _is_searched(problem: SliceAllocation) -> bool:
    from optmatch.solvers.slices.ilp import MOST_JOINED

    return not problem.fabric.joined or problem.fabric.n_servers <= MOST_JOINED


METHODS = (
    _row("optical", "a block of servers, else scattered ones joined by circuits"),
    _row("first-fit", "the first free aligned block of servers"),
    Method(
        "ilp",
        SliceAllocation,
        _ilp,
        "cuts, then a search of all placements",
        exact=True,
        follows=_is_searched,
    ),
)
"""Methods for slices; the first is the default."""


def small_problems() -> tuple[SliceAllocation, ...]:
    """Return problems of which default methods call all of their kernels."""
    from optmatch.fabrics import RackFabric

    return (SliceAllocation(RackFabric(), (4, 4, 2)),)
