"""How a failure of a running state is answered, and how long the recovery takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from threading import Lock, Thread
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from optmatch.control.reroutes.failed_parts import FailedParts, add_failure, check_failure
from optmatch.model import (
    BAR,
    CROSS,
    InfeasibleError,
    LimitReached,
    Limits,
    OptMatchError,
    TimeUp,
    check_time,
    number,
)
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.transition import RAISE, SET, STEP_NAMES

if TYPE_CHECKING:
    from optmatch.solvers.reroutes.repair import Reach
    from optmatch.solvers.reroutes.routing_state import HitCircuits, RoutingState

Ahead = bool | Literal["all"]

_ONE_AT_A_TIME = Lock()
_PATIENCE = Limits(time_s=0.005)
"""What an answer may take that is worked out in the background: others wait for it."""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A way over a failure, for the state in which it was asked for."""

    state: Reroute
    failure: FailedParts
    transition: Transition
    restored: tuple[int, int] | None = None
    """The unit that gets its circuits back, and its stand-in."""
    decided_s: float = 0.0
    """How long that took."""

    def timeline(self, **takes_s: float) -> tuple[Stage, ...]:
        """List the stages of the recovery; what they take is given as for `list_stages`."""
        takes_s.setdefault("decide_s", self.decided_s)
        return list_stages(self.state, self.transition, **takes_s)


class Snapshot(NamedTuple):
    """A state with what was derived from it; never changed, so readers need no lock."""

    state: Reroute
    routing: RoutingState
    reach: Reach
    answers: dict[FailedParts, Transition | OptMatchError]
    """What was worked out ahead; an error where nothing helps, or nothing was found."""


def look(state: Reroute, before: Snapshot | None = None) -> Snapshot:
    """Derive all that answers need; `before` is of an earlier state of the same fabric."""
    from optmatch.solvers.reroutes.repair import Reach
    from optmatch.solvers.reroutes.routing_state import RoutingState

    routing = RoutingState(state)
    reach = Reach(routing, state.loss_units) if before is None else before.reach
    return Snapshot(state, routing, reach, {})


def prepare(
    now: Snapshot,
    ahead: Ahead,
    *,
    limits: Limits | None = None,
    going_on: Callable[[], bool] = lambda: True,
) -> None:
    """Work out the answers to single failures, each within limits, as long as that is wanted."""
    limits = limits or Limits()
    for failure in _single_failures(now, ahead):
        if not going_on():
            return
        clock = limits.start()
        try:
            with clock.running():
                found = answer(now, failure)
            if clock.remaining_s > 0:  # else there may be a better answer
                now.answers[failure] = found
        except TimeUp:
            continue  # which says nothing
        except (InfeasibleError, LimitReached) as exc:
            now.answers[failure] = exc.with_traceback(None)


def prepare_behind(now: Snapshot, ahead: Ahead, going_on: Callable[[], bool]) -> Thread:
    """Do it in a thread of its own, which has a routing of its own, as searches change that."""

    def work() -> None:
        with _ONE_AT_A_TIME:  # also of many racks
            if going_on():
                own = look(now.state, now)._replace(answers=now.answers)
                prepare(own, ahead, limits=_PATIENCE, going_on=going_on)

    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


def answer(
    now: Snapshot,
    failure: FailedParts,
    *,
    only: tuple[int, ...] | None = None,
    avoid: frozenset[int] = frozenset(),
) -> Transition:
    """Work out a transition.

    Units of `only` may take over instead of the live spares, those of `avoid` may not; nothing
    found raises `InfeasibleError` or `LimitReached`.
    """
    from optmatch.solvers.reroutes.changes import make_transition
    from optmatch.solvers.reroutes.impossible import explain, explain_bound
    from optmatch.solvers.reroutes.repair import Recovery, repair

    case, routing = _case(now, failure, only, avoid)
    lost, spares_left = len(case.lost), len(case.spares)
    if lost > spares_left:
        raise InfeasibleError(explain_bound(lost, spares_left))
    found = repair(routing, case, now.reach)
    if isinstance(found, Recovery):
        return make_transition(routing, case, found)
    if found is not None:
        raise InfeasibleError(explain(now.state, found))
    check_time()
    if not isinstance(add_failure(now.state, failure).lower_bound(), tuple):
        raise InfeasibleError(explain_bound(lost, spares_left))
    raise LimitReached("no way over the failure was found; method ilp settles it")


def _case(
    now: Snapshot, failure: FailedParts, only: tuple[int, ...] | None, avoid: frozenset[int]
) -> tuple[HitCircuits, RoutingState]:
    """Find the circuits that a failure hits, in a state without the failed parts."""
    from optmatch.solvers.reroutes.routing_state import HitCircuits

    state = now.state
    if only is None:
        check_failure(state, failure)
    spares = tuple(u for u in state.live_spares if u not in avoid) if only is None else only
    kinds = [field for field, parts in failure._asdict().items() if parts]
    if kinds == [f"failed_{state.units.unit_name}s"]:
        gone = failure.failed_chips or failure.failed_ports
        at_gone = np.isin(now.routing.ends, gone)
        hit = np.flatnonzero(at_gone.any(axis=1))
        lost = np.unique(now.routing.ends[at_gone])
        live = tuple(spare for spare in spares if spare not in gone)
        return HitCircuits(
            tuple(hit.tolist()), tuple(lost.tolist()), live, state.owners
        ), now.routing
    routing = now.routing.fork()
    routing.shut_fibres(failure.failed_fibres)
    stuck = dict.fromkeys(failure.stuck_bar, BAR)
    stuck |= dict.fromkeys(failure.stuck_cross, CROSS)
    routing.break_cells(stuck, failure.dead_cells)
    part, circuit = state.passed
    if kinds == ["failed_fibres"] and state.fabric.graph is None:
        hit = np.unique(circuit[np.isin(part, failure.failed_fibres)])
        return HitCircuits(tuple(hit.tolist()), (), spares, state.owners), routing
    if set(kinds) <= {"stuck_bar", "stuck_cross", "dead_cells"}:
        broken = [*failure.dead_cells]
        broken += [c for c, s in stuck.items() if state.cell_states[c] != s]  # type: ignore[index]
        hit = np.unique(circuit[np.isin(part // 4, broken)])
        return HitCircuits(tuple(hit.tolist()), (), spares, state.owners), routing
    problem = add_failure(state, failure)
    routing.shut_ports(sorted(problem.dead_ports - state.dead_ports))
    hits = tuple(np.flatnonzero(problem.hit).tolist())
    live = tuple(spare for spare in problem.live_spares if spare not in avoid)
    return HitCircuits(hits, problem.lost, live, state.owners), routing


def _single_failures(now: Snapshot, ahead: Ahead) -> Iterator[FailedParts]:
    """List the failures of one part each whose answers are to be prepared."""
    state = now.state
    failed = getattr(state, f"failed_{state.units.unit_name}s")
    for unit in range(state.n_units) if ahead else ():
        if unit not in failed:
            yield failure_of_unit(state, unit)
    if ahead != "all":
        return
    fibres = passed = np.unique(state.passed.part)
    if state.cell_states is not None:
        fibres = np.unique(state.units.fibre_of_terminal[passed])
    yield from (FailedParts(failed_fibres=(fibre,)) for fibre in fibres.tolist() if fibre >= 0)
    if state.cell_states is None:
        return
    for cell in sorted(set((passed // 4).tolist()) - set(state.stuck)):
        yield FailedParts(dead_cells=(cell,))
        bar = state.cell_states[cell] == CROSS
        yield FailedParts(stuck_bar=(cell,)) if bar else FailedParts(stuck_cross=(cell,))


def failure_of_unit(state: Reroute, unit: int) -> FailedParts:
    """Return the failure of one chip of a rack, or of one port of a switch."""
    return FailedParts(**{f"failed_{state.units.unit_name}s": (unit,)})


class Stage(NamedTuple):
    """A part of a recovery."""

    name: str
    start_s: float
    end_s: float


def list_stages(
    state: Reroute,
    transition: Transition,
    *,
    detect_s: float = 0.0,
    decide_s: float = 0.0,
    program_s: float = 0.0,
    cell_s: float = 0.0,
    lock_s: float = 0.0,
    restart_s: float = 0.0,
) -> tuple[Stage, ...]:
    """List the stages of a recovery, one after the other.

    Steps of one kind that follow each other are carried out together: cells are set at once, and
    circuits come up at once. A rack with ideal interposers has no cells in its steps; there the
    switches of all servers on the new routes are programmed at once.

    Parameters
    ----------
    detect_s
        Until the failure is reported.
    decide_s
        What `Rerouter.fail` took.
    program_s
        To send settings to the controllers of cells or switches.
    cell_s
        Until cells or switches have settled, in each round of settings.
    lock_s
        Until transceivers see each other on a new route.
    restart_s
        Until the job runs on: processes, communicators, a checkpoint.
    """
    given = {"detect_s": detect_s, "decide_s": decide_s, "program_s": program_s}
    given |= {"cell_s": cell_s, "lock_s": lock_s, "restart_s": restart_s}
    takes = {name: number(name, value) for name, value in given.items()}
    set_s = takes["program_s"] + takes["cell_s"]
    parts = [("detect", takes["detect_s"]), ("decide", takes["decide_s"])]
    if state.fabric.graph is None and len(transition.changed):
        parts.append(("program switches", set_s))
    for kind, steps in groupby(kind for kind, _, _ in transition.steps.tolist()):
        names = {SET: ("set cells", set_s), RAISE: ("raise circuits", takes["lock_s"])}
        name, takes_s = names.get(kind, (f"{STEP_NAMES[kind]} circuits", 0.0))
        parts.append((f"{name} ({len(list(steps))})", takes_s))
    parts.append(("restart", takes["restart_s"]))
    stages, now_s = list[Stage](), 0.0
    for name, takes_s in parts:
        stages.append(Stage(name, now_s, now_s + takes_s))
        now_s += takes_s
    return tuple(stages)
