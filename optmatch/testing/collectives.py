"""Small collectives as hypothesis strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from optmatch.problems import Collective
from optmatch.problems.collectives.fields import OPERATIONS


@st.composite
def collective_problems(
    draw: st.DrawFn,
    *,
    takes: Callable[[Collective], bool] = lambda problem: True,
    most_ranks: int = 9,
) -> Collective:
    """Draw a collective operation of a few ranks, as a strategy of hypothesis.

    Islands are groups of ranks with fast links among themselves; late ranks begin some time after
    the others.

    Parameters
    ----------
    draw
        Given by hypothesis.
    takes
        Tells whether a method takes a problem; others are not drawn.
    most_ranks
        The number of ranks is at most this.

    Returns
    -------
    Collective
        A problem of 1 to `most_ranks` ranks; with islands where the method takes nothing else, and
        in one case of four where it takes both.

    Examples
    --------
    >>> collective_problems()
    collective_problems()
    """
    # A method may take collectives between islands, others, or both.
    without_islands = Collective("all-reduce", 4, 8.0, island=1)
    between_islands = Collective("all-reduce", 4, 8.0, island=2)
    needs_islands = not takes(without_islands)
    if takes(between_islands) and (needs_islands or draw(st.integers(0, 3)) == 3):
        return draw(_island_problems(most_ranks))

    n_ranks = draw(st.integers(1, most_ranks))
    rank = st.integers(0, n_ranks - 1)
    sizes = st.sampled_from([8.0, 1000.0, 1e6])
    delays_of_late = st.sampled_from([1e-6, 1e-3])
    late_s = draw(st.dictionaries(rank, delays_of_late, max_size=min(1, n_ranks - 1)))
    operation = draw(st.sampled_from(OPERATIONS))

    # An uneven all-to-all may have blocks without bytes, and even no other ones.
    demand_bytes = None
    if operation == "all-to-all" and draw(st.booleans()):
        demand_bytes = np.zeros((n_ranks, n_ranks))
        for source, destination in draw(st.lists(st.tuples(rank, rank), max_size=2 * n_ranks)):
            demand_bytes[source, destination] = draw(sizes) * (source != destination)
    steps = None
    if not late_s and draw(st.booleans()):
        steps = draw(st.lists(st.tuples(st.integers(0, 2), sizes), max_size=4))

    # A value that is listed twice is drawn twice as often.
    fields: dict[str, st.SearchStrategy[Any]] = {
        "size_bytes": st.just(0.0) if demand_bytes is not None else sizes,
        "alpha_s": st.sampled_from([0.0, 1e-6, 2.7e-6]),
        "hop_s": st.sampled_from([None, None, 1e-6]),
        "delay_s": st.sampled_from([0.0, 1e-6, 1e-4]),
        "ports": st.sampled_from([1, 1, 2, 3]),
        "planes": st.sampled_from([1, 1, 2]),
        "two_way": st.booleans(),
        "start": st.sampled_from(["free", "dark"]),
        "align_bytes": st.sampled_from([0, 0, 64]),
    }
    strategy = st.builds(
        Collective,
        operation=st.just(operation),
        n_ranks=st.just(n_ranks),
        late_s=st.just(late_s),
        demand_bytes=st.just(demand_bytes),
        steps=st.just(steps),
        **fields,
    )
    return draw(strategy.filter(takes))


@st.composite
def _island_problems(draw: st.DrawFn, most_ranks: int) -> Collective:
    """Draw a collective between islands, which are groups of two or more ranks with fast links."""
    island = draw(st.integers(2, max(2, most_ranks // 2)))
    seconds = st.sampled_from([0.0, 1e-6, 2.7e-6])
    return Collective(
        draw(st.sampled_from([operation for operation in OPERATIONS if operation != "broadcast"])),
        island * draw(st.integers(1, max(1, most_ranks // island))),
        draw(st.sampled_from([8.0, 1000.0, 1e6])),
        alpha_s=draw(seconds),
        delay_s=draw(st.sampled_from([0.0, 1e-6, 1e-4])),
        start=draw(st.sampled_from(["free", "dark"])),
        island=island,
        island_rate_bytes_per_s=draw(st.sampled_from([1e9, 450e9])),
        island_alpha_s=draw(seconds),
    )


def smallest_collectives() -> Iterator[Collective]:
    """List collectives of one rank and of two."""
    for operation in OPERATIONS:
        for n in (1, 2):
            yield Collective(operation, n, 2.0, alpha_s=1e-6, rate_bytes_per_s=1e6)
