"""Exact routers of feed-forward fabrics, and preferences among routes."""

from optmatch.fabrics import Fabric, FeedForward
from optmatch.model import Problem


def has_exact_router(problem: Problem) -> bool:
    """Tell whether the fabric of a problem has an exact router: light only goes forward in it.

    Faults are looked past; the router reports a matching that they forbid.
    """
    fabric = problem.fabric
    return isinstance(fabric.intact, FeedForward)


def holds_every_matching(fabric: Fabric) -> bool:
    """Tell whether each matching has its states, if there are cells, and a router finds them."""
    if fabric.graph is None:
        return not fabric.bidirectional
    return isinstance(fabric, FeedForward)
