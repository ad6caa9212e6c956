"""Collectives: known algorithms, circuits that change when it pays, schedules of our own."""

from __future__ import annotations

from functools import partial

from optmatch.problems import Collective
from optmatch.solvers.collectives.algorithms import fits
from optmatch.solvers.method import Method, Run


def _algorithm(name: str) -> Run:
    from optmatch.solvers.collectives.methods import algorithm

    return algorithm(name)


def _best() -> Run:
    from optmatch.solvers.collectives.methods import solve_best

    return solve_best


_SUMMARIES = {
    "ring": "chunks go round a ring, whose circuits stay",
    "halving-doubling": "pairs at distances 1, 2, 4, ... exchange what they have",
    "bruck": "ranks send 1, 2, 4, ... places onward",
    "pairwise": "each block straight to its place, a matching after another",
    "swing": "pairs at distances 1, -1, 3, -5, ...",
    "direct": "everything straight to its place, over different circuits of all lanes",
}

METHODS = (
    Method("best", Collective, _best, "the fastest of all that fit"),
    *(
        Method(
            name,
            Collective,
            partial(_algorithm, name),
            summary,
            suits=partial(fits, algorithm=name),
        )
        for name, summary in _SUMMARIES.items()
    ),
)
"""Methods for collectives; the first is the default."""
