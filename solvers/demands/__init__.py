"""From a demand to matchings and durations: decompositions, covers, exact models, bounds."""

from __future__ import annotations

from optmatch.problems import Demand
from optmatch.solvers.method import Method, Run


def _best() -> Run:
    from optmatch.solvers.demands.portfolio import solve_best

    return solve_best


def _portfolio() -> Run:
    from optmatch.solvers.demands.portfolio import solve

    return solve


def _ilp() -> Run:
    from optmatch.solvers.demands.permutations_ilp import solve

    return solve


def _solstice() -> Run:
    from optmatch.solvers.demands.solstice import solve

    return solve


def _eclipse() -> Run:
    from optmatch.solvers.demands.eclipse import solve

    return solve


def _greedy_cover() -> Run:
    from optmatch.solvers.demands.covers import solve_greedy

    return solve_greedy


def _koenig_cover() -> Run:
    from optmatch.solvers.demands.covers import solve_koenig

    return solve_koenig


def _double() -> Run:
    from optmatch.solvers.demands.double import solve

    return solve


def _tms() -> Run:
    from optmatch.solvers.demands.tms import solve

    return solve


def _spectra() -> Run:
    from optmatch.solvers.demands.spectra import solve

    return solve


def _birkhoff_first() -> Run:
    from optmatch.solvers.demands.birkhoff_methods import solve_first

    return solve_first


def _birkhoff_bottleneck() -> Run:
    from optmatch.solvers.demands.birkhoff_methods import solve_bottleneck

    return solve_bottleneck


def _birkhoff_weight() -> Run:
    from optmatch.solvers.demands.birkhoff_methods import solve_weight

    return solve_weight


def _birkhoff_plus() -> Run:
    from optmatch.solvers.demands.birkhoff_methods import solve_plus

    return solve_plus


METHODS = (
    Method("best", Demand, _best, "the portfolio, then parts of the best plan rebuilt"),
    Method("portfolio", Demand, _portfolio, "several rules, each polished; the best of them"),
    Method(
        "ilp",
        Demand,
        _ilp,
        "all ways to divide the slots, then CP-SAT; for about ten ports",
        exact=True,
    ),
    Method("solstice", Demand, _solstice, "stuff, then slots of halving thresholds"),
    Method("eclipse", Demand, _eclipse, "the slot that serves most for its time, each time"),
    Method("greedy-cover", Demand, _greedy_cover, "heaviest first, in the first slot with room"),
    Method(
        "koenig-cover", Demand, _koenig_cover, "the fewest slots, durations by a linear programme"
    ),
    Method("double", Demand, _double, "2N slots for at most twice the time"),
    Method("tms", Demand, _tms, "scale, decompose, keep the heaviest terms"),
    Method("spectra", Demand, _spectra, "few slots spread over parallel planes"),
    Method(
        "birkhoff-first",
        Demand,
        _birkhoff_first,
        "stuff and decompose into permutations, the next at hand each time",
    ),
    Method(
        "birkhoff-bottleneck",
        Demand,
        _birkhoff_bottleneck,
        "stuff and decompose, each with the largest smallest entry",
    ),
    Method(
        "birkhoff-weight", Demand, _birkhoff_weight, "stuff and decompose, each of greatest sum"
    ),
    Method(
        "birkhoff-plus",
        Demand,
        _birkhoff_plus,
        "stuff and decompose, each away from small entries, by a barrier",
    ),
)
"""Methods for demands; the first is the default."""
