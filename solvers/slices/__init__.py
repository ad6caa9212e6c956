"""Slices of racks: search, exact loads, the state of a pod, steered bandwidth."""

from __future__ import annotations

from optmatch.problems import SliceAllocation
from optmatch.solvers.method import Method, Run


def _optical() -> Run:
    from optmatch.solvers.slices.methods import solve_optical

    return solve_optical


def _first_fit() -> Run:
    from optmatch.solvers.slices.methods import solve_first_fit

    return solve_first_fit


def _best_fit() -> Run:
    from optmatch.solvers.slices.methods import solve_best_fit

    return solve_best_fit


def _ilp() -> Run:
    from optmatch.solvers.slices.ilp import solve

    return solve


METHODS = (
    Method(
        "optical",
        SliceAllocation,
        _optical,
        "a block of servers, else scattered ones joined by circuits",
    ),
    Method("first-fit", SliceAllocation, _first_fit, "the first free aligned block of servers"),
    Method(
        "best-fit",
        SliceAllocation,
        _best_fit,
        "the free aligned block that leaves the fewest gaps",
    ),
    Method(
        "ilp", SliceAllocation, _ilp, "cuts, a search of all placements, then CP-SAT", exact=True
    ),
)
"""Methods for slices; the first is the default."""
