"""The kinds of problems: for each its class, its verifier and its methods.

This is the one table that knows all kinds. The row of a kind is a function that imports what
belongs to it, so that a solve loads no other kind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from optmatch.model import InputError, Problem, Solution
from optmatch.verify.report import Findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from optmatch.solvers.method import Method

_log = logging.getLogger("optmatch")

Verifier = Callable[[Any, Any, Findings], None]
"""Replays an answer: it is called with (problem, answer, findings)."""


class View(NamedTuple):
    """How answers of one kind are shown."""

    draw: Callable[[Solution, int | None], Figure]
    """Draws a solution, or one slot of it."""
    tabulate: Callable[[Solution], dict[str, Any]]
    """Lists an answer column by column."""
    draw_problem: Callable[[Any], Figure]
    """Draws a problem."""
    tabulate_problem: Callable[[Any], dict[str, Any]]
    """Lists a problem column by column."""
    page: Callable[[Solution], dict[str, Any]] | None = None
    """Collects what the viewer of an answer embeds; None where slots are clicked through."""


def _view_schedule() -> View:
    """Return how answers that are schedules are shown; kinds replace the parts of their own.

    The imports are here, so that only who draws or lists an answer loads the plotting library.
    """
    from optmatch.io.rails.timeline import tabulate
    from optmatch.plotting.figures import draw_schedule
    from optmatch.plotting.problems import draw_fabric, list_ports

    return View(
        draw=draw_schedule,
        tabulate=tabulate,
        draw_problem=draw_fabric,
        tabulate_problem=list_ports,
    )


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
    view
        Imports the functions that draw and list its answers and problems, and returns them.
    """

    problem: type[Problem]
    verify: Verifier
    methods: tuple[Method, ...]
    small_problems: Callable[[], tuple[Problem, ...]] = tuple
    view: Callable[[], View] = _view_schedule


def _all_to_all() -> Kind:
    """Return the row of all-to-all problems: every port meets every other one."""
    from optmatch.problems import AllToAll
    from optmatch.solvers.all_to_all import METHODS, small_problems
    from optmatch.verify.routing.replay import verify_schedule

    def view() -> View:
        """Import the functions that draw and list schedules and all-to-all problems."""
        from optmatch.plotting.problems import list_pairs

        # All parts are those of any schedule but one: the problem is listed pair by pair.
        return _view_schedule()._replace(tabulate_problem=list_pairs)

    return Kind(
        problem=AllToAll,
        verify=verify_schedule,
        methods=METHODS,
        small_problems=small_problems,
        view=view,
    )


def _collective() -> Kind:
    """Return the row of collectives: rounds of messages over circuits that may change."""
    from optmatch.problems import Collective
    from optmatch.solvers.collectives import METHODS, small_problems
    from optmatch.verify.collectives.replay import verify_collective

    def view() -> View:
        """Import the functions that draw and list collectives."""
        from optmatch.plotting import collectives

        return View(
            draw=collectives.draw,
            tabulate=collectives.tabulate,
            draw_problem=collectives.draw_problem,
            tabulate_problem=collectives.tabulate_problem,
            page=collectives.page,
        )

    return Kind(
        problem=Collective,
        verify=verify_collective,
        methods=METHODS,
        small_problems=small_problems,
        view=view,
    )


def _demand() -> Kind:
    """Return the row of demands: a traffic matrix that a sequence of matchings serves."""
    from optmatch.problems import Demand
    from optmatch.solvers.demands import METHODS, small_problems
    from optmatch.verify.demands.replay import verify_demand

    def view() -> View:
        """Import the functions that draw and list demands."""
        from optmatch.io.rails.timeline import tabulate
        from optmatch.plotting.demands import charts, matrices

        return View(
            draw=charts.draw,
            tabulate=tabulate,
            draw_problem=matrices.draw_problem,
            tabulate_problem=matrices.tabulate_problem,
            page=charts.page,
        )

    return Kind(
        problem=Demand,
        verify=verify_demand,
        methods=METHODS,
        small_problems=small_problems,
        view=view,
    )


def _port_sharing() -> Kind:
    """Return the row of port sharing: resources are given to jobs that ask for them."""
    from optmatch.problems import PortSharing
    from optmatch.solvers.sharing import METHODS
    from optmatch.verify.sharing.replay import verify_sharing

    def view() -> View:
        """Import the functions that draw and list the resources that each job gets."""
        from optmatch.plotting import sharing

        return View(
            draw=sharing.draw,
            tabulate=sharing.tabulate,
            draw_problem=sharing.draw_problem,
            tabulate_problem=sharing.tabulate_problem,
            page=sharing.page,
        )

    return Kind(problem=PortSharing, verify=verify_sharing, methods=METHODS, view=view)


def _rail_job() -> Kind:
    """Return the row of rail jobs: a step of a training job over optically switched rails."""
    from optmatch.problems import RailJob
    from optmatch.solvers.rails import METHODS, small_problems
    from optmatch.verify.rails.bounds import verify_rails

    def view() -> View:
        """Import the functions that draw and list the plan of a training step."""
        from optmatch.io.rails.timeline import tabulate
        from optmatch.plotting import rails

        return View(
            draw=rails.draw,
            tabulate=tabulate,
            draw_problem=rails.draw_problem,
            tabulate_problem=rails.tabulate_problem,
            page=rails.page,
        )

    return Kind(
        problem=RailJob,
        verify=verify_rails,
        methods=METHODS,
        small_problems=small_problems,
        view=view,
    )


def _reroute() -> Kind:
    """Return the row of reroutes: running circuits are led around a failure."""
    from optmatch.problems import Reroute
    from optmatch.solvers.reroutes import METHODS, small_problems
    from optmatch.verify.reroutes.bounds import verify_reroute

    def view() -> View:
        """Import the functions that draw and list reroutes."""
        from optmatch.plotting import reroutes

        return View(
            draw=reroutes.draw,
            tabulate=reroutes.tabulate,
            draw_problem=reroutes.draw_problem,
            tabulate_problem=reroutes.tabulate_problem,
            page=reroutes.page,
        )

    return Kind(
        problem=Reroute,
        verify=verify_reroute,
        methods=METHODS,
        small_problems=small_problems,
        view=view,
    )


def _routing() -> Kind:
    """Return the row of routing problems: states of all cells for the circuits of one matching."""
    from optmatch.problems import Routing
    from optmatch.solvers.routing import METHODS, small_problems
    from optmatch.verify.routing.replay import verify_schedule

    def view() -> View:
        """Import the functions that draw and list routed circuits."""
        from optmatch.plotting.problems import draw_circuits, list_circuits

        # The answer is a schedule of one slot; the problem is a list of wanted circuits.
        return _view_schedule()._replace(
            draw_problem=draw_circuits, tabulate_problem=list_circuits
        )

    return Kind(
        problem=Routing,
        verify=verify_schedule,
        methods=METHODS,
        small_problems=small_problems,
        view=view,
    )


def _slice_allocation() -> Kind:
    """Return the row of slice allocations: servers and circuits for one more slice of a pod."""
    from optmatch.problems import SliceAllocation
    from optmatch.solvers.slices import METHODS, small_problems
    from optmatch.verify.slices.replay import verify_slice

    def view() -> View:
        """Import the functions that draw and list slices."""
        from optmatch.plotting import slices

        return View(
            draw=slices.draw,
            tabulate=slices.tabulate,
            draw_problem=slices.draw_problem,
            tabulate_problem=slices.tabulate_problem,
            page=slices.page,
        )

    return Kind(
        problem=SliceAllocation,
        verify=verify_slice,
        methods=METHODS,
        small_problems=small_problems,
        view=view,
    )


_MAKE_ROW: dict[str, Callable[[], Kind]] = {
    "all-to-all": _all_to_all,
    "collective": _collective,
    "demand": _demand,
    "port-sharing": _port_sharing,
    "rail-job": _rail_job,
    "reroute": _reroute,
    "routing": _routing,
    "slice-allocation": _slice_allocation,
}

KIND_NAMES = tuple(_MAKE_ROW)
"""The names of all kinds, as files have them."""


@cache
def kind_named(name: str) -> Kind:
    """Return the row of a kind by its name, which must be one of `KIND_NAMES`."""
    return _MAKE_ROW[name]()


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

    Parameters
    ----------
    load
        Imports the plugin and returns the object that its entry point names.

    Returns
    -------
    object
        What `load` returns.

    Raises
    ------
    TimeoutError
        If the plugin is not loaded after `PLUGIN_TIME_S` seconds.
    RuntimeError
        If loading it raises any exception, with that exception as the cause.
    """
    ended = Event()
    loaded: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        """Load the plugin in the thread, and put the outcome into `loaded` or `errors`."""
        try:
            loaded.append(load())
        except BaseException as error:  # a plugin that exits, or interrupts, is left out
            errors.append(error)
        finally:
            ended.set()

    Thread(target=run, name="optmatch-plugin", daemon=True).start()
    if not ended.wait(PLUGIN_TIME_S):
        raise TimeoutError(f"not loaded after {PLUGIN_TIME_S:g} s")
    for error in errors:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
    return loaded[0]


@cache
def _plugin_methods() -> tuple[Method, ...]:
    """Load the methods of other packages; one that cannot be loaded is a warning, not an error."""
    from importlib.metadata import entry_points

    methods: list[Method] = []
    for entry in entry_points(group="optmatch.methods"):
        try:
            offered = _load_in_time(entry.load)
            for method in offered if isinstance(offered, tuple) else (offered,):
                _check_plugin_method(method, entry.value, methods)
                methods.append(method)
        except Exception as error:
            source = entry.dist.name if entry.dist else "an unknown distribution"
            _log.warning("method %r of %s cannot be used: %s", entry.name, source, error)
    return tuple(methods)


def _check_plugin_method(method: object, place: str, others: Sequence[Method]) -> None:
    """Refuse what is no method, or has the name of another one.

    Parameters
    ----------
    method
        What a plugin offers.
    place
        Where it comes from, as its entry point says.
    others
        The methods of plugins so far. Two of them may share a name if they solve different kinds;
        none may have the name of one of ours.
    """
    from optmatch.solvers.method import Method

    if not isinstance(method, Method):
        raise TypeError(f"{place} is no optmatch.solvers.Method")
    our_names = {own_method.name for kind in all_kinds() for own_method in kind.methods}
    taken = {(other.name, other.solves) for other in others}
    if method.name in our_names or (method.name, method.solves) in taken:
        raise ValueError(f"there is a method {method.name!r} already")


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

    Parameters
    ----------
    name
        The name of a method.
    kind
        The kind of problems that the method is for; None if any will do.
    where
        The place of the name in the input, for the message.

    Raises
    ------
    InputError
        With the nearest name, or the names of the methods of the kind.
    """
    known_names = sorted({m.name for m in all_methods() if kind in (None, m.solves.kind)})
    if isinstance(name, str) and name in known_names:
        return
    close = get_close_matches(str(name), known_names, n=1)
    if close:
        hint = f"perhaps {close[0]!r}"
    elif kind is not None:
        hint = f"methods for {kind} are {', '.join(known_names)}"
    else:
        hint = "`optmatch methods` lists them"
    what = "no method" if kind is None else f"no method for {kind}"
    raise InputError(f"method = {name!r:.60}: {what} has this name; {hint}", where=where)


def find_method(name: str, problem: Problem) -> Method:
    """Return a method for a problem by its name.

    Parameters
    ----------
    name
        The name of a method, ours or of a plugin. Methods of several kinds may share it.
    problem
        The problem that the method has to take.

    Returns
    -------
    Method
        Ours before one of a plugin.

    Raises
    ------
    InputError
        If there is none, or it does not take this problem; the message lists those that do.
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
        reason = "unknown"
        names = [method.name for method in all_methods() if method.takes(problem)]
        close = get_close_matches(str(name), names, n=1)
        if close:
            reason += f", perhaps {close[0]!r}"
        reason += f"; for {problem.kind}"
    elif not any(isinstance(problem, method.solves) for method in named):
        reason = f"does not accept {problem.kind} problems; these do"
    else:
        form = f"on {problem.fabric.title}" if problem.fabric else "of this form"
        reason = f"not for {problem.kind} {form}; these are"
    fitting = sorted(method.name for method in all_methods() if method.takes(problem))
    raise InputError(f"method = {name!r}: {reason}: {', '.join(fitting)}", where="method")
