"""The kinds of problems: for each its class, its verifier and its methods.

These are the only tables that know all kinds. They import what belongs to a kind, or to what is
shown, inside functions, so that a solve loads neither another kind nor pictures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from optmatch import problems
from optmatch.model import InputError, Problem, Solution
from optmatch.model.errors import nearest_name
from optmatch.model.limits import start_in_thread
from optmatch.verify.report import Findings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from optmatch.solvers.method import Method

_log = logging.getLogger("optmatch")

Verifier = Callable[[Any, Any, Findings], None]
"""Replays an answer: it is called with (problem, answer, findings)."""


class View(NamedTuple):
    """How answers of one kind are shown."""

    plot: Callable[..., Axes | Figure]
    """Draws a solution into axes or a new figure: it is called with (solution, ax=ax)."""
    tabulate: Callable[[Solution], dict[str, Any]]
    """Lists an answer column by column."""
    draw_problem: Callable[[Any, Axes | None], Figure]
    """Draws a problem into axes or a new figure."""
    tabulate_problem: Callable[[Any], dict[str, Any]]
    """Lists a problem column by column."""
    page: Callable[[Solution], dict[str, Any]] | None = None
    """Collects what the viewer of an answer embeds; None where slots are clicked through."""

    def draw(self, solution: Solution, slot: int | None, ax: Axes | None) -> Figure:
        """Draw a solution, or one slot of its schedule, into axes or a new figure."""
        from optmatch.plotting.drawing import figure_of
        from optmatch.plotting.figures import draw_schedule

        if slot is not None and solution.schedule is None and solution.answer is not None:
            kind = solution.problem.kind
            rule = f"this answer of kind {kind} is not one schedule: it has no slots to draw"
            raise InputError(rule, where="slot")
        if slot is not None:
            return draw_schedule(solution, slot, ax)
        return figure_of(self.plot(solution, ax=ax))


@cache
def _views() -> dict[str, View]:
    """Return how each kind is shown; what it does not state is as of a schedule."""
    from optmatch.io.rails.timeline import tabulate
    from optmatch.plotting import collectives, demands, rails, reroutes, sharing, slices
    from optmatch.plotting.figures import (
        draw_circuits,
        draw_fabric,
        draw_schedule,
        list_circuits,
        list_pairs,
        list_ports,
    )

    def view_of(module: Any, plot: Callable[..., Axes | Figure]) -> View:
        return View(
            plot, module.tabulate, module.draw_problem, module.tabulate_problem, module.page
        )

    schedules = View(draw_schedule, tabulate, draw_fabric, list_ports)
    return {
        "all-to-all": schedules._replace(tabulate_problem=list_pairs),
        "collective": view_of(collectives, collectives.draw),
        "demand": View(
            demands.plot_gantt,
            tabulate,
            demands.draw_problem,
            demands.tabulate_problem,
            demands.page,
        ),
        "port-sharing": view_of(sharing, sharing.plot_shares),
        "rail-job": View(
            rails.draw, tabulate, rails.draw_problem, rails.tabulate_problem, rails.page
        ),
        "reroute": view_of(reroutes, reroutes.plot_transition),
        "routing": schedules._replace(draw_problem=draw_circuits, tabulate_problem=list_circuits),
        "slice-allocation": view_of(slices, slices.plot_slice),
    }


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem, a row of the table: its class, its verifier, its methods, its pictures.

    Parameters
    ----------
    problem
        The class of the kind, which has its name in files, answer class, unit and objectives.
    verify
        Replays an answer: it is called with (problem, answer, findings), and adds what it finds to
        the findings.
    methods
        The methods of the kind; the first one that takes a problem is the default.
    small_problems
        Makes the problems by whose solution `optmatch warm-up` compiles the kernels of its default
        methods; none if these have no kernels.
    """

    problem: type[Problem]
    verify: Verifier
    methods: tuple[Method, ...]
    small_problems: Callable[[], tuple[Problem, ...]] = tuple

    def view(self) -> View:
        """Return how answers and problems of the kind are shown; this loads all pictures."""
        return _views()[self.problem.kind]


KIND_NAMES = (
    *("all-to-all", "collective", "demand", "port-sharing", "rail-job", "reroute", "routing"),
    "slice-allocation",
)
"""The names of all kinds, as files have them."""


@cache
def kind_named(name: str) -> Kind:
    """Return the row of a kind by its name, which must be one of `KIND_NAMES`.

    A row imports what belongs to it, so that a solve loads no other kind.
    """
    match name:
        case "all-to-all":
            from optmatch.solvers import all_to_all
            from optmatch.verify.routing.replay import verify_schedule

            return Kind(
                problems.AllToAll, verify_schedule, all_to_all.METHODS, all_to_all.small_problems
            )
        case "collective":
            from optmatch.solvers import collectives
            from optmatch.verify.collectives.replay import verify_collective

            return Kind(
                problems.Collective,
                verify_collective,
                collectives.METHODS,
                collectives.small_problems,
            )
        case "demand":
            from optmatch.solvers import demands
            from optmatch.verify.demands.replay import verify_demand

            return Kind(problems.Demand, verify_demand, demands.METHODS, demands.small_problems)
        case "port-sharing":
            from optmatch.solvers import sharing
            from optmatch.verify.sharing.replay import verify_sharing

            return Kind(problems.PortSharing, verify_sharing, sharing.METHODS)
        case "rail-job":
            from optmatch.solvers import rails
            from optmatch.verify.rails.bounds import verify_rails

            return Kind(problems.RailJob, verify_rails, rails.METHODS, rails.small_problems)
        case "reroute":
            from optmatch.solvers import reroutes
            from optmatch.verify.reroutes.bounds import verify_reroute

            return Kind(
                problems.Reroute, verify_reroute, reroutes.METHODS, reroutes.small_problems
            )
        case "routing":
            from optmatch.solvers import routing
            from optmatch.verify.routing.replay import verify_schedule

            return Kind(problems.Routing, verify_schedule, routing.METHODS, routing.small_problems)
        case "slice-allocation":
            from optmatch.solvers import slices
            from optmatch.verify.slices.replay import verify_slice

            return Kind(
                problems.SliceAllocation, verify_slice, slices.METHODS, slices.small_problems
            )
    raise KeyError(name)


def all_kinds() -> tuple[Kind, ...]:
    """Return the rows of all kinds."""
    return tuple(kind_named(name) for name in KIND_NAMES)


def kind_of(problem: object) -> Kind:
    """Return the row of a problem; `InputError` if it is none, or its kind is not in the table."""
    name = getattr(problem, "kind", "")
    if name not in KIND_NAMES or not isinstance(problem, kind_named(name).problem):
        raise InputError(
            f"problem of type {type(problem).__name__}: none of {', '.join(KIND_NAMES)}",
            where="problem",
        )
    return kind_named(name)


def view_of_solution(solution: Solution) -> View:
    """Return how a solution is shown; `InputError` if its answer does not fit its problem."""
    view = kind_of(solution.problem).view()
    solution.check_fits()
    return view


PLUGIN_TIME_S = 10.0
"""How long a plugin may take to load."""


def _load_in_time(load: Callable[[], Any]) -> Any:
    """Load the methods of a plugin in a thread; one that hangs is left behind there.

    After `PLUGIN_TIME_S` seconds it is a `TimeoutError`; any exception becomes a `RuntimeError`.
    """
    loading = start_in_thread(load, "optmatch-plugin")
    try:
        error = loading.exception(PLUGIN_TIME_S)
    except TimeoutError:
        raise TimeoutError(f"not loaded after {PLUGIN_TIME_S:g} s") from None
    if error is not None:  # also of a plugin that exits, or interrupts
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
    return loading.result()


@cache
def _plugin_methods() -> tuple[Method, ...]:
    """Load the methods of other packages; one that cannot be loaded is a warning, not an error."""
    from importlib.metadata import entry_points

    from optmatch.solvers.method import Method

    our_names = {own_method.name for kind in all_kinds() for own_method in kind.methods}
    methods: list[Method] = []
    for entry in entry_points(group="optmatch.methods"):
        try:
            offered = _load_in_time(entry.load)
            for method in offered if isinstance(offered, tuple) else (offered,):
                if not isinstance(method, Method):
                    raise TypeError(f"{entry.value} is no optmatch.solvers.Method")

                # Two methods of plugins may share a name if they solve different kinds; none may
                # have the name of one of ours.
                taken = {(other.name, other.solves) for other in methods}
                if method.name in our_names or (method.name, method.solves) in taken:
                    raise ValueError(f"there is a method {method.name!r} already")
                methods.append(method)
        except Exception as error:
            source = entry.dist.name if entry.dist else "an unknown distribution"
            _log.warning("method %r of %s cannot be used: %s", entry.name, source, error)
    return tuple(methods)


def all_methods() -> tuple[Method, ...]:
    """Return all methods, kind by kind: ours, then those of plugins."""
    own_methods = (method for kind in all_kinds() for method in kind.methods)
    return (*own_methods, *_plugin_methods())


def default_method(problem: Problem) -> Method:
    """Return the method that a user should try first."""
    return next(method for method in kind_of(problem).methods if method.takes(problem))


def proving_methods(problem: Problem) -> tuple[Method, ...]:
    """Return the methods that may prove what the default method leaves open."""
    return tuple(
        method
        for method in kind_of(problem).methods
        if method.takes(problem) and method.follows is not None and method.follows(problem)
    )


def fitting_methods(problem: Problem) -> list[str]:
    """Return the names of all methods that accept a problem, the default first."""
    default = default_method(problem).name
    other_names = {method.name for method in all_methods() if method.takes(problem)} - {default}
    return [default, *sorted(other_names)]


def check_method_name(name: str, kind: str | None = None, where: str = "method") -> None:
    """Refuse a name that no method has, or none for problems of a kind.

    The message has the nearest name, or the names of the methods of the kind; `where` is the place
    of the name in the input.
    """
    known_names = sorted({m.name for m in all_methods() if kind in (None, m.solves.kind)})
    if isinstance(name, str) and name in known_names:
        return
    otherwise = "`optmatch methods` lists them"
    if kind is not None:
        otherwise = f"methods for {kind} are {', '.join(known_names)}"
    hint = nearest_name(str(name), known_names, otherwise)
    nothing = "no method" if kind is None else f"no method for {kind}"
    raise InputError(f"method = {name!r:.60}: {nothing} has this name; {hint}", where=where)


def _list_obstacles(problem: Any, methods: list[Method]) -> list[str]:
    """List fields that keep methods away: with the default of one of them, a method would fit."""
    obstacles = []
    for field in fields(problem):
        # A default may contradict another field, and fields that are required have none.
        with suppress(InputError):
            changed = replace(problem, **{field.name: field.default})
            if any(method.takes(changed) for method in methods):
                obstacles.append(field.name)
    return obstacles


def find_method(name: str, problem: Problem) -> Method:
    """Return a method that takes a problem by its name, ours before one of a plugin.

    Methods of several kinds may share a name. The `InputError` of one that does not fit names the
    fields that keep it away, and lists the methods that do.
    """
    # Ours come first, so that a solve does not look at other installed packages.
    for method in kind_of(problem).methods:
        if method.name == name and method.takes(problem):
            return method

    # Methods of plugins follow, which are loaded only here.
    named = [method for method in all_methods() if method.name == name]
    for method in named:
        if method.takes(problem):
            return method

    # No method fits. The message says why: the name, the kind of the problem, or its fabric.
    if not named:
        check_method_name(name, problem.kind)  # raises, with the names of this kind
    of_kind = [method for method in named if isinstance(problem, method.solves)]
    if not of_kind:
        reason = f"does not accept {problem.kind} problems; these do"
    else:
        form = f"on {problem.fabric.title}" if problem.fabric else "of this form"
        obstacles = _list_obstacles(problem, of_kind)
        if obstacles:
            form += f", because of its {' or its '.join(obstacles)}"
        reason = f"{of_kind[0].summary}; not for {problem.kind} {form}; these are"
    fitting = sorted(method.name for method in all_methods() if method.takes(problem))
    raise InputError(f"method = {name!r}: {reason}: {', '.join(fitting)}", where="method")
