"""The rules that cover a demand by slots: one row each, for methods by name and for the portfolio.

A rule is a function that takes a `CoverTask` and yields plans. A new rule is a module with such a
function, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from optmatch.solvers.demands.decompositions import yield_in_delays, yield_solstice, yield_tms
from optmatch.solvers.demands.edge_colouring import yield_fewest_slots
from optmatch.solvers.demands.entry_covers import COMPARED, CRITICAL, MEDIAN, RATED, yield_cover
from optmatch.solvers.demands.first_fit import yield_heaviest_first
from optmatch.solvers.demands.planted import yield_planted
from optmatch.solvers.demands.tasks import Build, Size


class PlanRule(NamedTuple):
    """A rule of the portfolio, a method by name, or both."""

    name: str
    build: Build
    estimate_s: Callable[[Size], float] | None = None
    """The seconds that it takes, a function of the size alone; None: not in the portfolio."""
    overrun: float = 1.0
    """By which factor the estimate may exceed the time that is left: above 1 for rules that see
    early whether they will be done in time, and end if not."""
    needs_matrix: bool = False
    """Left out where ports are so many that there is no full matrix."""
    summary: str = ""
    """A line about the method of this name; empty if there is no such method."""


def _estimate_fewest_slots_s(size: Size, n_sweeps: int) -> float:
    """Estimate the edge colouring and its sweeps: paths grow with the ports, sweeps take pairs."""
    colouring_s = 1e-4 + 5e-8 * size.n_entries * (1.0 + size.n_ports / 400)
    return colouring_s + n_sweeps * 7e-9 * size.n_ports * size.degree**2


def _estimate_decomposition_s(size: Size) -> float:
    """Estimate the decomposition in delays; where delays are short other units follow."""
    estimate_s = 0.0005 + 1e-9 * size.n_ports**2 * (40 + size.degree)
    return estimate_s if size.delays_per_entry < 1 else 3 * estimate_s


RULES = (
    PlanRule(
        "greedy-cover",
        yield_heaviest_first,
        summary="heaviest first, in the first slot with room",
    ),
    PlanRule(
        "spectra",
        partial(yield_cover, choice=CRITICAL),
        lambda size: 5e-5 + 2.25e-9 * size.n_ports**0.5 * size.n_entries * (size.degree + 1),
        2.0,
        summary="few slots spread over parallel planes",
    ),
    *(
        # Sweeps that are late end early: their plan is of use all the same.
        PlanRule(
            f"fewest slots, {n_sweeps} sweeps",
            partial(yield_fewest_slots, n_sweeps=n_sweeps),
            partial(_estimate_fewest_slots_s, n_sweeps=n_sweeps),
            2.0,
        )
        for n_sweeps in (0, 2, 10, 40)
    ),
    PlanRule(
        "rated",
        partial(yield_cover, choice=RATED),
        lambda size: 5e-5 + 1.5 * size.best_slots_s,
        2.0,
    ),
    PlanRule(
        "compared",
        partial(yield_cover, choice=COMPARED, pressure=10.0),
        lambda size: 5e-5 + 3e-7 * size.n_entries * size.slots_of_service,
        2.0,
    ),
    PlanRule(
        "median",
        partial(yield_cover, choice=MEDIAN),
        lambda size: 5e-5 + 1e-8 * size.n_entries * (5 * size.degree + 1),
        2.0,
    ),
    PlanRule(
        "planted weights",
        yield_planted,
        lambda size: 0.0 if size.degree > 64 else 0.0002 + 1.5e-7 * size.n_entries,
    ),
    PlanRule(
        "decomposition in delays",
        yield_in_delays,
        _estimate_decomposition_s,
        needs_matrix=True,
    ),
    PlanRule(
        "tms",
        yield_tms,
        lambda size: 0.005 + 1e-9 * size.n_ports**2 * (250 + 10 * size.degree),
        2.5,
        needs_matrix=True,
        summary="scale, decompose, keep the heaviest terms",
    ),
    PlanRule(
        "solstice",
        yield_solstice,
        summary="stuff to equal sums, then slots of halving thresholds",
    ),
    PlanRule(
        "eclipse",
        # With 8 lengths instead of 16 heavy-tailed demands took 2 % longer, 18 % at worst.
        partial(yield_cover, choice=COMPARED, pressure=0.0, bonus=0.0, n_lengths=16),
        summary="each time the slot that serves most for its time",
    ),
)
