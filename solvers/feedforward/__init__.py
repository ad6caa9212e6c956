"""Exact routers of feed-forward fabrics, and preferences among routes.

Words of Benes networks: a *block* is the network or one of the *halves* inside it, upper (0) and
lower (1), which are blocks again between an outer column of cells at its inputs and one at its
outputs. A *line* of a block is a circuit at one of its inputs. Numbers k and ``k ^ 1`` of inputs,
or of outputs, are *partners*: they share cell ``k >> 1`` of an outer column, and go to different
halves. Hence lines hang together in *loops*, partners at the inputs and partners at the outputs in
turn; to *turn* a loop is to exchange the halves of all its lines.
"""

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
