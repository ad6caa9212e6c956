"""The rules that cover a demand by slots: one row each, for methods by name and for the portfolio.

A rule is a function that takes a `CoverTask` and yields plans. A new rule is a module with such a
function, and a row here with a function that loads the module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from optmatch.solvers.demands.choices import COMPARED, CRITICAL, MEDIAN, RATED

if TYPE_CHECKING:
    from optmatch.solvers.demands.tasks import Build, Size


class PlanRule(NamedTuple):
    """A rule of the portfolio, a method by name, or both."""

    name: str
    load: Callable[[], Build]
    estimate_s: Callable[[Size], float] | None = None
    """The seconds that it takes, a function of the size alone; None: not in the portfolio."""
    overrun: float = 1.0
    """By which factor the estimate may exceed the time that is left: above 1 for rules that see
    early whether they will be done in time, and end if not."""
    needs_matrix: bool = False
    """Left out where ports are so many that there is no full matrix."""
    summary: str = ""
    """A line about the method of this name; empty if there is no such method."""


def _load_cover(
    choice: int, pressure: float = 3.0, bonus: float = 1.0, n_lengths: int = 8
) -> Build:
    """Load a rule that covers slot by slot."""
    from optmatch.solvers.demands.entry_covers import yield_cover

    return partial(yield_cover, choice=choice, pressure=pressure, bonus=bonus, n_lengths=n_lengths)


def _load_fewest_slots(n_sweeps: int) -> Build:
    from optmatch.solvers.demands.edge_colouring import yield_fewest_slots

    return partial(yield_fewest_slots, n_sweeps=n_sweeps)


def _load_whole(name: str) -> Build:
    """Load a rule that makes its plan as a whole."""
    from optmatch.solvers.demands import decompositions, first_fit, planted

    rules: dict[str, Build] = {
        "delays": decompositions.yield_in_delays,
        "heaviest first": first_fit.yield_heaviest_first,
        "planted": planted.yield_planted,
        "solstice": decompositions.yield_solstice,
        "tms": decompositions.yield_tms,
    }
    return rules[name]


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
        partial(_load_whole, "heaviest first"),
        summary="heaviest first, in the first slot with room",
    ),
    PlanRule(
        "spectra",
        partial(_load_cover, CRITICAL),
        lambda size: 5e-5 + 2.25e-9 * size.n_ports**0.5 * size.n_entries * (size.degree + 1),
        2.0,
        summary="few slots spread over parallel planes",
    ),
    *(
        # Sweeps that are late end early: their plan is of use all the same.
        PlanRule(
            f"fewest slots, {n_sweeps} sweeps",
            partial(_load_fewest_slots, n_sweeps),
            partial(_estimate_fewest_slots_s, n_sweeps=n_sweeps),
            2.0,
        )
        for n_sweeps in (0, 2, 10, 40)
    ),
    PlanRule(
        "rated",
        partial(_load_cover, RATED),
        lambda size: 5e-5 + 1.5 * size.best_slots_s,
        2.0,
    ),
    PlanRule(
        "compared",
        partial(_load_cover, COMPARED, pressure=10.0),
        lambda size: 5e-5 + 3e-7 * size.n_entries * size.slots_of_service,
        2.0,
    ),
    PlanRule(
        "median",
        partial(_load_cover, MEDIAN),
        lambda size: 5e-5 + 1e-8 * size.n_entries * (5 * size.degree + 1),
        2.0,
    ),
    PlanRule(
        "planted weights",
        partial(_load_whole, "planted"),
        lambda size: 0.0 if size.degree > 64 else 0.0002 + 1.5e-7 * size.n_entries,
    ),
    PlanRule(
        "decomposition in delays",
        partial(_load_whole, "delays"),
        _estimate_decomposition_s,
        needs_matrix=True,
    ),
    PlanRule(
        "tms",
        partial(_load_whole, "tms"),
        lambda size: 0.005 + 1e-9 * size.n_ports**2 * (250 + 10 * size.degree),
        2.5,
        needs_matrix=True,
        summary="scale, decompose, keep the heaviest terms",
    ),
    PlanRule(
        "solstice",
        partial(_load_whole, "solstice"),
        summary="stuff to equal sums, then slots of halving thresholds",
    ),
    PlanRule(
        "eclipse",
        # With 8 lengths instead of 16 heavy-tailed demands took 2 % longer, 18 % at worst.
        partial(_load_cover, COMPARED, pressure=0.0, bonus=0.0, n_lengths=16),
        summary="each time the slot that serves most for its time",
    ),
)
