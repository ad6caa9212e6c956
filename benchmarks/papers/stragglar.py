"""StragglAR (arXiv 2505.23523): rounds and times of an all-reduce around a late rank.

    python -m benchmarks.papers.stragglar [--most 256]

Published rounds are those of its program (github.com/arjundevraj/stragglar, run by us); speed-ups
are those of its simulation: 1 GiB, 3 us for each round, 450 GiB/s.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import optmatch as om
from benchmarks.papers.figures import Table, show

ROUNDS = {
    4: 4, 6: 7, 8: 9, 10: 12, 12: 15, 14: 17, 16: 18, 18: 21, 24: 27,
    30: 38, 32: 35, 64: 68, 128: 133, 256: 262,
}  # fmt: skip
SPEED_UPS = {
    4: 1.127, 6: 1.192, 8: 1.363, 12: 1.346, 16: 1.565, 24: 1.635, 32: 1.718,
    64: 1.826, 128: 1.897, 256: 1.941,
}  # fmt: skip
LATE_S = 1.0
"""So late that the other ranks have done all that they can."""


def late_rank(ranks: int, delay_s: float = 0.0) -> om.Collective:
    """Return the all-reduce of the published simulation, whose last rank is late."""
    return om.Collective(
        "all-reduce",
        ranks,
        2.0**30,
        alpha_s=3e-6,
        rate_bytes_per_s=450 * 2.0**30,
        delay_s=delay_s,
        late_s={str(ranks - 1): LATE_S},
    )


def time_after_late_rank(problem: om.Collective, method: str) -> float:
    """Return the seconds from when the late rank is ready to the end of a verified plan."""
    solution = om.solve(problem, method, seed=0)
    return float(solution.objective) - LATE_S


def break_even_delay(ranks: int, other: str) -> float:
    """Return the delay in seconds up to which `stragglar` is faster than another method.

    All times grow linearly with the delay, by one delay for each change that nobody hides.
    """
    delay_s = 1e-3
    at_none = late_rank(ranks)
    at_some = replace(at_none, delay_s=delay_s)
    ahead_s = time_after_late_rank(at_none, other) - time_after_late_rank(at_none, "stragglar")
    later_s = time_after_late_rank(at_some, other) - time_after_late_rank(at_some, "stragglar")
    return delay_s * ahead_s / (ahead_s - later_s)


def rounds_table(most: int = 256) -> Table:
    """Tabulate the rounds after the late rank is ready."""
    rows = []
    for ranks, published in ROUNDS.items():
        if ranks <= most:
            stats = om.solve(late_rank(ranks), "stragglar", seed=0).stats
            rows.append((str(ranks), str(published), str(stats["rounds_late"])))
    return Table(("ranks", "rounds, published", "ours"), rows)


def speed_up_table(most: int = 256) -> Table:
    """Tabulate how much faster than a ring, and up to which delays faster than two methods."""
    rows = []
    for ranks, published in SPEED_UPS.items():
        if ranks <= most:
            problem = late_rank(ranks)
            ring_s = time_after_late_rank(problem, "ring")
            ours = ring_s / time_after_late_rank(problem, "stragglar")
            delays = [f"{1e6 * break_even_delay(ranks, 'ring'):.3g}", "-"]
            if ranks.bit_count() == 1:  # halving needs a power of two
                delays[1] = f"{1e6 * break_even_delay(ranks, 'halving-doubling'):.3g}"
            rows.append((str(ranks), f"{published:.3f}", f"{ours:.3f}", *delays))
    titles = ("ranks", "speed-up over a ring, published", "ours")
    return Table((*titles, "pays up to, us", "against halving-doubling, us"), rows)


def tables(most: int = 256) -> Iterator[Table]:
    """Yield the tables of the page."""
    yield rounds_table(most)
    yield speed_up_table(most)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=256, help="the largest number of ranks")
    show(tables(parser.parse_args().most))
