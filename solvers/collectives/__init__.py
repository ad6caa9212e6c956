"""Collectives: known algorithms, circuits that change when it pays, schedules of our own.

Words of this room:

- a *lane* is one port of every rank, with the number ``plane * ports + port``; a *plane* is a
  switch of its own, and a *dark* port has no circuit;
- a *configuration* is a set of circuits; an *epoch* is the rounds in a row over one of them;
- a *circulant* joins rank r to r + s for each of some *shifts* s, modulo the number of ranks; the
  *offset* of a block is how many places onward from its source its receiver is;
- a *block* is the data of one rank in a gather, or what one rank sends to one other in an
  all-to-all; a *chunk* is what one send carries, a *piece* an equal part of a block or a buffer,
  and a *part* some bytes of a block;
- an *offer* is a plan that is not made yet, with its seconds, and a *promise* the least seconds
  of a method with the effort to make its plan.
"""

from __future__ import annotations

from functools import partial

from optmatch.problems import Collective
from optmatch.solvers.collectives.methods import method, suits
from optmatch.solvers.method import Method

_SUMMARIES = {
    "best": "the fastest of all that fit",
    "rewire": "a known algorithm, with new circuits only where they pay",
    "overlap": "planes change circuits while others send",
    "stragglar": "an all-reduce around a late rank: the others reduce while they wait",
    "late-ranks": "an all-reduce with several late ranks, whose data spread while they send",
    "mixed-radix": "rings whose steps grow: the fewest rounds of an all-gather or a sum",
    "circulant": "an all-to-all on shifts, chosen together with the routes",
    "split": "an uneven all-to-all whose blocks go by several ways",
    "topologies": "each port leads to another rank: circulants, de Bruijn, Kautz, random graphs",
    "pipelined": "a broadcast in pieces, over trees and graphs of all ports, or a hypercube",
    "forwarding": "data pass ranks on their way inside a round, where hops have a time",
    "skewed": "an uneven all-to-all: matchings for large blocks, circulants for the rest",
    "islands": "all rails of islands together, while members tell each other what has come",
    "one-pass": "an all-reduce over a torus that passes data on, in one pass and not two",
    "composed": "the best reduce-scatter and all-gather, or an all-gather and sums",
    "ring": "chunks go round a ring, whose circuits stay",
    "halving-doubling": "pairs at distances 1, 2, 4, ... exchange what they have",
    "bruck": "ranks send 1, 2, 4, ... places onward",
    "pairwise": "each block straight to its place, a matching after another",
    "swing": "pairs at distances 1, -1, 3, -5, ...",
    "knodel": "pairs of a Knoedel graph exchange what they have, for any number of ranks",
    "direct": "everything straight to its place, over different circuits of all lanes",
}


METHODS = tuple(
    Method(
        name,
        Collective,
        partial(method, name),
        summary,
        warm=name == "best",
        suits=None if name == "best" else partial(suits, name=name),
    )
    for name, summary in _SUMMARIES.items()
)
"""Methods for collectives; the first is the default."""


def small_problems() -> tuple[Collective, ...]:
    """Return small problems with which the default methods call all of their kernels."""
    late = {"15": 0.01}
    return (
        Collective("all-to-all", 8, 1e6, alpha_s=2.7e-6, delay_s=1e-5),
        Collective("all-gather", 8, 1e6, alpha_s=2.7e-6, delay_s=1e-5),
        Collective("all-reduce", 16, 1e6, alpha_s=2.7e-6, two_way=True, late_s=late),
    )
