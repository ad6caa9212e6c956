"""The kinds of problems: for each its class, its verifier and its methods.

This is the one list that knows all kinds. What loads a solver or a verifier is imported in a
function, so that the list itself loads neither.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from optmatch.model import InputError, Problem
from optmatch.problems import AllToAll, Demand, RailJob, Reroute, Routing, SliceAllocation
from optmatch.verify.report import Findings

if TYPE_CHECKING:
    from optmatch.solvers.method import Method

_log = logging.getLogger("optmatch")

Verifier = Callable[[Any, Any, Findings], None]
"""Replays an answer: it is called with (problem, answer, findings)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What belongs to one kind of problem.

    Parameters
    ----------
    problem
        Its class, on which its name in files, answer class, unit and objectives stand.
    verifier
        Imports and returns what replays its answers.
    methods
        Imports and returns its methods; the first one that takes a problem is the default.
    """

    problem: type[Problem]
    verifier: Callable[[], Verifier]
    methods: Callable[[], tuple[Method, ...]]

    @property
    def folder(self) -> str:
        """The name of its folder, which is the same in every layer."""
        return self.problem.__module__.split(".")[-2]


def _routing_verifier() -> Verifier:
    from optmatch.verify.routing.schedules import verify_schedule

    return verify_schedule


def _routing_methods() -> tuple[Method, ...]:
    from optmatch.solvers.routing import METHODS

    return METHODS


def _all_to_all_methods() -> tuple[Method, ...]:
    from optmatch.solvers.all_to_all import METHODS

    return METHODS


def _demand_verifier() -> Verifier:
    from optmatch.verify.demands.claims import verify_demand

    return verify_demand


def _demand_methods() -> tuple[Method, ...]:
    from optmatch.solvers.demands import METHODS

    return METHODS


def _rail_verifier() -> Verifier:
    from optmatch.verify.rails.replay import verify_rails

    return verify_rails


def _rail_methods() -> tuple[Method, ...]:
    from optmatch.solvers.rails import METHODS

    return METHODS


def _reroute_verifier() -> Verifier:
    from optmatch.verify.reroutes.claims import verify_reroute

    return verify_reroute


def _reroute_methods() -> tuple[Method, ...]:
    from optmatch.solvers.reroutes import METHODS

    return METHODS


def _slice_verifier() -> Verifier:
    from optmatch.verify.slices.replay import verify_slice

    return verify_slice


def _slice_methods() -> tuple[Method, ...]:
    from optmatch.solvers.slices import METHODS

    return METHODS


KINDS = {
    kind.problem.kind: kind
    for kind in (
        Kind(AllToAll, _routing_verifier, _all_to_all_methods),
        Kind(Demand, _demand_verifier, _demand_methods),
        Kind(RailJob, _rail_verifier, _rail_methods),
        Kind(Reroute, _reroute_verifier, _reroute_methods),
        Kind(Routing, _routing_verifier, _routing_methods),
        Kind(SliceAllocation, _slice_verifier, _slice_methods),
    )
}
"""All kinds by the name that files use."""


def kind_of(problem: object) -> Kind:
    """Return the row of a problem.

    Raises
    ------
    InputError
        If it is no problem, or of a kind that is not in the table.
    """
    kind = KINDS.get(getattr(problem, "kind", ""))
    if kind is None or not isinstance(problem, kind.problem):
        raise InputError(
            f"problem of type {type(problem).__name__}: none of {', '.join(KINDS)}",
            where="problem",
        )
    return kind


@cache
def _plugins() -> tuple[Method, ...]:
    """Load what other packages offer; one that cannot be loaded is a warning, not an error."""
    from importlib.metadata import entry_points

    from optmatch.solvers.method import Method

    found: list[Method] = []
    ours = {method.name for kind in KINDS.values() for method in kind.methods()}
    for entry in entry_points(group="optmatch.methods"):
        source = entry.dist.name if entry.dist else "an unknown distribution"
        try:
            offered = entry.load()
            for method in offered if isinstance(offered, tuple) else (offered,):
                if not isinstance(method, Method):
                    raise TypeError(f"{entry.value} is no optmatch.solvers.Method")
                if method.name in ours or any(
                    (method.name, method.solves) == (other.name, other.solves) for other in found
                ):
                    raise ValueError(f"there is a method {method.name!r} already")
                found.append(method)
        except Exception as exc:
            _log.warning("method %r of %s cannot be used: %s", entry.name, source, exc)
    return tuple(found)


def all_methods() -> tuple[Method, ...]:
    """Return all methods, kind by kind: ours, then those of plugins.

    Examples
    --------
    >>> sorted({method.name for method in all_methods() if method.solves is Reroute})
    ['greedy', 'ilp']
    """
    return (*(method for kind in KINDS.values() for method in kind.methods()), *_plugins())


def default_method(problem: Problem) -> Method:
    """Return the method that a user should try first."""
    return next(method for method in kind_of(problem).methods() if method.takes(problem))


def find_method(name: str, problem: Problem) -> Method:
    """Return a method for a problem by its name.

    Raises
    ------
    InputError
        If there is none of that name, or it does not take this problem.

    See Also
    --------
    default_method : the method of choice.
    """
    for method in kind_of(problem).methods():
        if method.name == name and method.takes(problem):
            return method  # without a look at what else is installed
    named = [method for method in all_methods() if method.name == name]
    for method in named:
        if method.takes(problem):
            return method
    if not named:
        why = f"unknown; for {problem.kind}"
    elif not any(isinstance(problem, method.solves) for method in named):
        why = f"does not accept {problem.kind} problems; these do"
    else:
        why = f"not for {problem.kind} on a {problem.fabric.type}; these are"
    fitting = ", ".join(sorted(method.name for method in all_methods() if method.takes(problem)))
    raise InputError(f"method = {name!r}: {why}: {fitting}", where="method")
