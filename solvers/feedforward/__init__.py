"""Exact routers of feed-forward fabrics, and preferences among routes."""

from optmatch.fabrics import Fabric, Faulty, FeedForward
from optmatch.model import Problem


def is_feed_forward(problem: Problem) -> bool:
    """Tell whether light goes only forward in the fabric of a problem, faults aside."""
    fabric = problem.fabric
    return isinstance(fabric.fabric if isinstance(fabric, Faulty) else fabric, FeedForward)


def holds_every_matching(fabric: Fabric) -> bool:
    """Tell whether each matching has its states, if there are cells, and a router finds them."""
    if fabric.graph is None:
        return not fabric.bidirectional
    return isinstance(fabric, FeedForward)
