"""Slices of racks: search, exact loads, the state of a pod, steered bandwidth.

Words of this room: a *slice* is a torus of chips for one job. It has *slots*, each of which is
placed on a *server* of the rack, and *pairs* of slots that circuits join; the *weight* of a pair
is how many. A *route* of a pair passes *edges*, which are bundles of fibres between servers. The
*load* of an edge is how many circuits it carries, at most as many as it has *fibres*; the load of
a slice is the largest. *Joined* racks are linked by inter-rack switches. A *pod* is the racks of
one scheduler.
"""

from __future__ import annotations

from functools import partial

from optmatch.problems import SliceAllocation
from optmatch.solvers.method import Method, Run


def _load_rule(rule: str) -> Run:
    from optmatch.solvers.slices.methods import place_by_rule

    return partial(place_by_rule, rule=rule)


def _load_search() -> Run:
    from optmatch.solvers.slices.ilp import minimise_load

    return minimise_load


def _method_of_rule(rule: str, summary: str) -> Method:
    return Method(rule, SliceAllocation, partial(_load_rule, rule), summary)


def _is_searched(problem: SliceAllocation) -> bool:
    """Tell whether `ilp` takes a problem: joined racks are searched as one if they are small."""
    from optmatch.solvers.slices.ilp import MOST_JOINED

    return not problem.fabric.joined or problem.fabric.n_servers <= MOST_JOINED


METHODS = (
    _method_of_rule("optical", "a block of servers, else scattered ones joined by circuits"),
    _method_of_rule("first-fit", "the first free aligned block of servers"),
    Method(
        "ilp",
        SliceAllocation,
        _load_search,
        "cuts, then a search of all placements",
        exact=True,
        follows=_is_searched,
    ),
)
"""Methods for slices; the first is the default."""


def small_problems() -> tuple[SliceAllocation, ...]:
    """Return the small problems of a warm-up: solving them by the default method loads kernels."""
    from optmatch.fabrics import RackFabric

    return (SliceAllocation(RackFabric(), (4, 4, 2)),)
