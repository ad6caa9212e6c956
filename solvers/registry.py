"""Methods by name: ours, and by the entry-point group `optmatch.methods` those of others."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from optmatch.fabrics import Fabric, Faulty, FeedForward
from optmatch.model import InputError, Limits, OnEvent, Problem, Solution

_log = logging.getLogger("optmatch")

Run = Callable[[Any, Limits, np.random.Generator, OnEvent], Solution]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A way to solve problems.

    Parameters
    ----------
    name
        What users call it.
    accepts
        For each kind of problem the function that solves it, as ``"module:function"``; imported on
        first use. It is called with (problem, limits, rng, on_event) and returns a `Solution`.
    exact
        Whether it can prove optimality.
    deterministic
        Whether its result is a function of problem, seed and iteration limit alone.
    summary
        One line for `optmatch methods`.
    suits
        Whether it takes a problem of such a kind; None if it takes all.
    """

    name: str
    accepts: Mapping[str, str]
    exact: bool
    deterministic: bool
    summary: str
    suits: Callable[[Any], bool] | None = None

    def takes(self, problem: Problem) -> bool:
        """Tell whether this problem can be given to it."""
        return problem.kind in self.accepts and (self.suits is None or self.suits(problem))

    def run(
        self, problem: Problem, limits: Limits, rng: np.random.Generator, on_event: OnEvent
    ) -> Solution:
        """Solve `problem`, which it must take."""
        module, function = self.accepts[problem.kind].split(":")
        run: Run = getattr(importlib.import_module(module), function)
        return run(problem, limits, rng, on_event)


def _is_feed_forward(problem: Problem) -> bool:
    fabric: Fabric = problem.fabric
    return isinstance(fabric.fabric if isinstance(fabric, Faulty) else fabric, FeedForward)


_OURS = (
    Method(
        name="negotiated",
        accepts={
            "routing": "optmatch.solvers.routing.negotiated:route",
            "all-to-all": "optmatch.solvers.all_to_all.factorise:solve",
        },
        exact=False,
        deterministic=True,
        summary="negotiated congestion; for all-to-all a search over 1-factorisations with it",
    ),
    Method(
        name="ilp",
        accepts={
            "routing": "optmatch.solvers.routing.ilp:route",
            "all-to-all": "optmatch.solvers.all_to_all.joint:solve",
            "demand": "optmatch.solvers.demands.permutations_ilp:solve",
            "slice-allocation": "optmatch.solvers.slices.ilp:solve",
            "reroute": "optmatch.solvers.reroutes.ilp:solve",
            "rail-job": "optmatch.solvers.rails.ilp:solve",
        },
        exact=True,
        deterministic=True,
        summary="exact: branch and price on routes; CP-SAT for all-to-all, demands and slices",
    ),
    Method(
        name="constructive",
        accepts={
            "routing": "optmatch.solvers.feedforward.constructive:route",
            "all-to-all": "optmatch.solvers.feedforward.constructive:solve",
        },
        exact=False,
        deterministic=True,
        summary="the exact algorithm of a feed-forward fabric, its free choices spent",
        suits=_is_feed_forward,
    ),
    Method(
        name="greedy",
        accepts={"reroute": "optmatch.solvers.reroutes.greedy:solve"},
        exact=False,
        deterministic=True,
        summary="splice the nearest spare in, and move others only if nothing else helps",
    ),
    Method(
        name="circle",
        accepts={"all-to-all": "optmatch.solvers.all_to_all.circle:solve"},
        exact=False,
        deterministic=True,
        summary="the round-robin tournament as it is, each matching routed",
    ),
    *(
        Method(
            name=name,
            accepts={"slice-allocation": f"optmatch.solvers.slices.methods:solve_{function}"},
            exact=False,
            deterministic=True,
            summary=summary,
        )
        for name, function, summary in (
            ("optical", "optical", "a block of servers, else scattered ones joined by circuits"),
            ("first-fit", "first_fit", "the first free aligned block of servers"),
            ("best-fit", "best_fit", "the free aligned block that leaves the fewest gaps"),
        )
    ),
    *(
        Method(
            name=f"birkhoff-{rule}",
            accepts={"demand": f"optmatch.solvers.demands.birkhoff_methods:solve_{rule}"},
            exact=False,
            deterministic=True,
            summary=f"stuff and decompose into permutations, {which}",
        )
        for rule, which in (
            ("first", "the next at hand each time"),
            ("bottleneck", "each with the largest smallest entry"),
            ("weight", "each of greatest sum"),
            ("plus", "each away from small entries, by a barrier"),
        )
    ),
    *(
        Method(
            name=name,
            accepts={"demand": f"optmatch.solvers.demands.{function}"},
            exact=False,
            deterministic=True,
            summary=summary,
        )
        for name, function, summary in (
            ("best", "portfolio:solve_best", "the portfolio, then parts of the best plan rebuilt"),
            ("double", "double:solve", "2N slots for at most twice the time"),
            ("eclipse", "eclipse:solve", "the slot that serves most for its time, each time"),
            ("greedy-cover", "covers:solve_greedy", "heaviest first, in the first slot with room"),
            ("koenig-cover", "covers:solve_koenig", "the fewest slots, durations by an LP"),
            ("portfolio", "portfolio:solve", "several rules, each polished; the best of them"),
            ("solstice", "solstice:solve", "stuff, then slots of halving thresholds"),
            ("spectra", "spectra:solve", "few slots spread over parallel planes"),
            ("tms", "tms:solve", "scale, decompose, keep the heaviest terms"),
        )
    ),
    *(
        Method(
            name=name,
            accepts={"rail-job": f"optmatch.solvers.rails.methods:solve_{name.replace('-', '_')}"},
            exact=False,
            deterministic=True,
            summary=summary,
        )
        for name, summary in (
            ("static", "ports split once, by the square root of traffic"),
            ("on-demand", "circuits changed when all who need them are ready"),
            ("provisioned", "circuits changed as soon as the last phase has ended"),
            ("prefetch", "circuits of the next phase set up while their ports are idle"),
        )
    ),
)

_DEFAULTS = {
    "routing": "negotiated",
    "all-to-all": "negotiated",
    "demand": "best",
    "slice-allocation": "optical",
    "reroute": "greedy",
    "rail-job": "prefetch",
}


_OWN = {method.name: method for method in _OURS}


@cache
def _plugins() -> tuple[Method, ...]:
    """Load what other packages offer; one that cannot be loaded is a warning, not an error."""
    found: dict[str, Method] = {}
    for entry in entry_points(group="optmatch.methods"):
        source = entry.dist.name if entry.dist else "an unknown distribution"
        try:
            plugin = entry.load()
            if not isinstance(plugin, Method):
                raise TypeError(f"{entry.value} is no optmatch.solvers.Method")
            if plugin.name in _OWN or plugin.name in found:
                raise ValueError(f"there is a method {plugin.name!r} already")
        except Exception as exc:
            _log.warning("method %r of %s cannot be used: %s", entry.name, source, exc)
            continue
        found[plugin.name] = plugin
    return tuple(found.values())


def methods() -> dict[str, Method]:
    """Return all methods by name, ours and those of plugins."""
    return _OWN | {method.name: method for method in _plugins()}


def default_method(problem: Problem) -> str:
    """Return the name of the method that a user should try first."""
    first = _OWN["constructive"]
    return first.name if first.takes(problem) else _DEFAULTS[problem.kind]


def find_method(name: str, problem: Problem) -> Method:
    """Return a method by name.

    Raises
    ------
    InputError
        If there is none of that name, or it does not take this problem.
    """
    if name in _OWN and _OWN[name].takes(problem):
        return _OWN[name]  # without a look at what else is installed
    known = methods()
    fitting = ", ".join(sorted(m for m in known if known[m].takes(problem)))
    if name not in known:
        raise InputError(
            f"method = {name!r}: unknown; for {problem.kind}: {fitting}", where="method"
        )
    if problem.kind not in known[name].accepts:
        raise InputError(
            f"method = {name!r}: does not accept {problem.kind} problems; these do: {fitting}",
            where="method",
        )
    if not known[name].takes(problem):
        raise InputError(
            f"method = {name!r}: not for {problem.kind} on a {problem.fabric.type}; these are:"
            f" {fitting}",
            where="method",
        )
    return known[name]
