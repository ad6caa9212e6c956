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
- a *receipt* is the arrival of a chunk at a rank: in which round, from where, over which circuits;
  a *sweep* goes once over all receipts of a round, and may choose other circuits for each;
- an *offer* is a plan that is not made yet, with its seconds, and a *promise* the least seconds
  of a method with the effort to make its plan.
"""

from __future__ import annotations

from functools import partial

from optmatch.problems import Collective
from optmatch.solvers.collectives.algorithms import ALGORITHMS
from optmatch.solvers.collectives.methods import FINDERS, method, suits
from optmatch.solvers.method import Method

METHODS = (
    Method("best", Collective, partial(method, "best"), "the fastest of all that fit", warm=True),
    *(
        Method(
            name, Collective, partial(method, name), row.summary, suits=partial(suits, name=name)
        )
        for name, row in sorted(FINDERS.items(), key=lambda item: item[0] in ALGORITHMS)
        if row.summary
    ),
)
"""Methods for collectives; the first is the default."""


def small_problems() -> tuple[Collective, ...]:
    """Return the small problems of a warm-up: solving them by `best` loads its kernels."""
    # Blocks over several hops, gathers that spread breadth first, and plans around a late rank.
    late = {"15": 0.01}
    return (
        Collective("all-to-all", 8, 1e6, alpha_s=2.7e-6, delay_s=1e-5),
        Collective("all-gather", 8, 1e6, alpha_s=2.7e-6, delay_s=1e-5),
        Collective("all-reduce", 16, 1e6, alpha_s=2.7e-6, two_way=True, late_s=late),
    )
