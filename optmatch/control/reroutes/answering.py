"""How a failure of a running state is answered, and how long the recovery takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.control.reroutes.failed_parts import (
    FailedParts,
    Record,
    add_failure,
    check_failure,
    parts_in,
    unite,
)
from optmatch.control.reroutes.timeline import Stage, list_stages
from optmatch.model import (
    BAR,
    CROSS,
    Clock,
    InfeasibleError,
    LimitReached,
    Limits,
    OptMatchError,
    TimeUp,
    check_time,
    number,
)
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.running import Damage, assess

if TYPE_CHECKING:
    from optmatch.solvers.reroutes.repair import Reach
    from optmatch.solvers.reroutes.routing_state import HitCircuits, RoutingState
    from optmatch.solvers.reroutes.splice import RerouteSpace

Ahead = bool | Literal["all"]


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A way over a failure, for the state in which it was asked for."""

    state: Reroute
    failure: FailedParts
    transition: Transition
    restored: tuple[int, int] | None = None
    """The unit that gets its circuits back, and its stand-in."""
    decided_s: float = 0.0
    """Seconds that the answer took."""
    cut_off: tuple[int, ...] = ()
    """Chips of the failure that no caller named: all fibres of their server have failed."""

    def timeline(self, **takes_s: float) -> tuple[Stage, ...]:
        """List the stages of the recovery; their times are given as for `list_stages`."""
        takes_s.setdefault("decide_s", self.decided_s)
        return list_stages(self.state, self.transition, **takes_s)


class Answer(NamedTuple):
    """A transition, and the units that it counts as failed although nobody named them."""

    transition: Transition
    cut_off: tuple[int, ...] = ()


class Snapshot(NamedTuple):
    """A record with all values derived from its state. It never changes: readers need no lock."""

    record: Record
    routing: RoutingState | None
    """None where whole racks take over, and no light is routed."""
    reach: Reach | None
    answers: dict[FailedParts, Answer | OptMatchError]
    """The prepared answer; an error where nothing helps, or nothing was found."""
    spaces: list[RerouteSpace]
    """Workspaces that no search is in."""
    priorities: NDArray[np.int64]
    """Of the job of each circuit."""

    @property
    def state(self) -> Reroute:
        """The state, with all failures that were answered."""
        return self.record.state


def look(
    record: Record, priorities: NDArray[np.int64], before: Snapshot | None = None
) -> Snapshot:
    """Derive the values that answers need; `before` is of an earlier state of the same fabric."""
    from optmatch.solvers.reroutes.repair import Reach
    from optmatch.solvers.reroutes.routing_state import RoutingState

    if not record.state.units.through:
        return Snapshot(record, None, None, {}, [], priorities)
    routing = RoutingState(record.state)
    if before is not None:
        return Snapshot(record, routing, before.reach, {}, before.spaces, priorities)
    reach = Reach(routing, record.state.loss_units)
    return Snapshot(record, routing, reach, {}, [], priorities)


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


def start_clock(deadline_s: float | None) -> Clock:
    """Count the seconds until a deadline."""
    return Limits(time_s=None if deadline_s is None else number("deadline_s", deadline_s)).start()


def decide(
    now: Snapshot, failure: FailedParts, clock: Clock, *, only: tuple[int, ...] | None = None
) -> Answer | OptMatchError:
    """Answer a failure, by what was prepared or a search; return what to raise if nothing helps.

    Parts that do not exist or have failed raise an `InputError`.
    """
    known = now.answers.get(failure) if only is None else None
    if isinstance(known, Answer):
        closed = now.record.closed_to(failure)
        if find_closed(now.state, known.transition, closed) is None:
            return known
    elif known is not None:
        return type(known)(str(known))
    try:
        with clock.running():
            return answer(now, failure, only=only)
    except TimeUp:
        return LimitReached(f"no way was found within {clock.limits.time_s:g} s")
    except (InfeasibleError, LimitReached) as exc:
        return exc.with_traceback(None)


def answer(now: Snapshot, failure: FailedParts, *, only: tuple[int, ...] | None = None) -> Answer:
    """Work out a way over a failure that uses nothing that waits on record.

    Units of `only` may take over instead of the live spares; nothing found raises
    `InfeasibleError` or `LimitReached`.
    """
    closed = now.record.closed_to(failure)
    if only is None:
        check_failure(now.state, failure)
        cut_off = find_cut_off(now.state, failure, closed) if now.routing else ()
        failure = failure._replace(failed_chips=tuple(sorted({*failure.failed_chips, *cut_off})))
        return Answer(_search(now, failure, closed, None), cut_off)
    return Answer(_search(now, failure, closed, only))


def _search(
    now: Snapshot, failure: FailedParts, closed: FailedParts, only: tuple[int, ...] | None
) -> Transition:
    from optmatch.solvers.reroutes.changes import make_transition
    from optmatch.solvers.reroutes.impossible import explain, explain_bound, find_cut
    from optmatch.solvers.reroutes.repair import Recovery, repair

    if now.routing is None or now.reach is None:
        return _move_racks(now.state, failure, closed, only)
    space = now.spaces.pop() if now.spaces else None
    routing = now.routing.fork(space)
    cells = (*closed.stuck_bar, *closed.stuck_cross, *closed.dead_cells)
    routing.close(closed.failed_fibres, closed.failed_ports, cells)
    case = _case(now, failure, closed, routing, only)._replace(priorities=now.priorities)
    lost, spares_left = len(case.lost), len(case.spares)
    if lost > spares_left:
        raise InfeasibleError(explain_bound(lost, spares_left))

    def prove() -> Any:
        return find_cut(_relaxed(now.state, failure, closed, case))

    found = repair(routing, case, now.reach, prove=prove if now.state.units.n_chips else None)
    now.spaces.append(routing.work)
    if isinstance(found, Recovery):
        return make_transition(routing, case, found)
    if found is not None:
        raise InfeasibleError(explain(now.state, found))
    check_time()
    if not isinstance(_relaxed(now.state, failure, closed, case).lower_bound(), tuple):
        raise InfeasibleError(explain_bound(lost, spares_left))
    raise LimitReached("no way over the failure was found; method ilp settles it")


def _move_racks(
    state: Reroute, failure: FailedParts, closed: FailedParts, only: tuple[int, ...] | None
) -> Transition:
    """Let whole racks take over, none of which a closed part is in."""
    from optmatch.solvers.reroutes.racks import replace_racks

    def assess_with(*more: FailedParts) -> Damage:
        fields = {f: getattr(state, f) for f in ("fabric", "circuits", "cell_states", "spares")}
        parts = unite((parts_in(state), *more))._asdict()
        return assess(SimpleNamespace(**fields, **parts, units=state.units), state.passed)

    spares = assess_with(failure, closed).spares
    if only is not None:
        per_rack = state.units.n_units // state.units.racks
        spares = tuple(u for u in spares if u // per_rack == only[0] // per_rack)
    return replace_racks(state, assess_with(failure)._replace(spares=spares))[0]


def _relaxed(
    state: Reroute, failure: FailedParts, closed: FailedParts, case: HitCircuits
) -> Reroute:
    """Return a problem that is no harder: without circuits that wait, closed fibres failed."""
    waits = add_failure(state, closed).hit if any(closed) else np.zeros(len(case.owners), bool)
    waits[list(case.hit)] = False
    kept = np.flatnonzero(~waits)
    some: dict[str, Any] = {"circuits": state.circuits[kept], "owners": state.owners[kept]}
    if state.cell_states is None:
        some["routes"] = tuple(state.routes[k] for k in kept.tolist())
    fibres = tuple(sorted({*state.failed_fibres, *closed.failed_fibres}))
    left = replace(state, **some, spares=case.spares, failed_fibres=fibres)
    return add_failure(left, failure)


def find_cut_off(state: Reroute, failure: FailedParts, closed: FailedParts) -> tuple[int, ...]:
    """List the chips with circuits in or out of a server that has fibres one way or neither.

    The units with circuits to such chips count too, as these circuits must leave the server. A
    server counts only if one of its fibres is in the failure.
    """
    fabric, gone = state.units, failure.failed_fibres
    if not gone or not fabric.n_chips:
        return ()
    dead = np.zeros(fabric.n_fibres, dtype=np.bool_)
    dead[[*(f for f in gone if f < len(dead)), *state.failed_fibres, *closed.failed_fibres]] = True
    ends = fabric.edges[fabric.edge_of_fibre]
    joined = np.intersect1d(*ends[~dead].T)
    cut = np.setdiff1d(ends[list(gone)], joined)
    server = fabric.server_of_unit
    pairs = state.circuits // fabric.ports_per_unit
    inside = np.isin(server[pairs], cut)
    leaving = np.isin(np.arange(fabric.n_units), pairs[inside & (np.diff(server[pairs]) != 0)])
    for _ in range(fabric.n_units):
        among = inside.all(axis=1) & leaving[pairs].any(axis=1)
        if leaving[pairs[among]].all():
            break
        leaving[pairs[among]] = True
    known = {*state.failed_chips, *failure.failed_chips, *closed.failed_chips}
    return tuple(u for u in np.flatnonzero(leaving).tolist() if u not in known)


def find_closed(state: Reroute, transition: Transition, closed: FailedParts) -> str | None:
    """Name a closed part that a transition uses; None if it uses none."""
    if not any(closed):
        return None
    fabric, spares = state.units, transition.moves[:, 1].tolist()
    for name, parts in (("chip", closed.failed_chips), ("port", closed.failed_ports)):
        if fabric.unit_name == name and set(parts).intersection(spares):
            return f"{name} {min(set(parts).intersection(spares))}"
    new = transition.circuits[transition.circuits != state.circuits[transition.changed]]
    for port in np.intersect1d(new, closed.failed_ports).tolist():
        return f"port {port}"
    ways = zip(transition.changed.tolist(), transition.routes, strict=True)
    own = [()] * len(state.circuits) if fabric.through else state.routes  # a rack keeps dark ones
    passed: Any = np.array(
        [at for k, way in ways for at in way if at not in own[k]], dtype=np.int64
    )
    if state.cell_states is not None:
        cells = (*closed.stuck_bar, *closed.stuck_cross, *closed.dead_cells)
        for cell in np.intersect1d(passed // 4, cells).tolist():
            return f"cell {cell}"
        passed = fabric.fibre_of_terminal[passed]
    for fibre in np.intersect1d(passed, closed.failed_fibres).tolist():
        return f"fibre {fibre}"
    return None


def _case(
    now: Snapshot,
    failure: FailedParts,
    closed: FailedParts,
    routing: RoutingState,
    only: tuple[int, ...] | None,
) -> HitCircuits:
    """Find the circuits that a failure hits, and take the failed parts out of a routing."""
    from optmatch.solvers.reroutes.routing_state import HitCircuits

    state = now.state
    avoid = closed.failed_chips if state.units.n_chips else closed.failed_ports
    spares = tuple(u for u in state.live_spares if u not in avoid) if only is None else only
    kinds = [field for field, parts in failure._asdict().items() if parts]
    if kinds == [f"failed_{state.units.unit_name}s"]:
        gone = failure.failed_chips or failure.failed_ports
        at_gone = np.isin(routing.ends, gone)
        hit = np.flatnonzero(at_gone.any(axis=1))
        lost = np.unique(routing.ends[at_gone])
        live = tuple(spare for spare in spares if spare not in gone)
        return HitCircuits(tuple(hit.tolist()), tuple(lost.tolist()), live, state.owners)
    routing.shut_fibres(failure.failed_fibres)
    stuck = dict.fromkeys(failure.stuck_bar, BAR)
    stuck |= dict.fromkeys(failure.stuck_cross, CROSS)
    routing.break_cells(stuck, failure.dead_cells)
    part, circuit = state.passed
    if kinds == ["failed_fibres"] and state.fabric.graph is None:
        hit = np.unique(circuit[np.isin(part, failure.failed_fibres)])
        return HitCircuits(tuple(hit.tolist()), (), spares, state.owners)
    if set(kinds) <= {"stuck_bar", "stuck_cross", "dead_cells"}:
        broken = [*failure.dead_cells]
        broken += [c for c, s in stuck.items() if state.cell_states[c] != s]  # type: ignore[index]
        hit = np.unique(circuit[np.isin(part // 4, broken)])
        return HitCircuits(tuple(hit.tolist()), (), spares, state.owners)
    problem = add_failure(state, failure)
    routing.shut_ports(sorted(problem.dead_ports - state.dead_ports))
    hits = tuple(np.flatnonzero(problem.hit).tolist())
    live = tuple(spare for spare in problem.live_spares if spare not in avoid)
    return HitCircuits(hits, problem.lost, live, state.owners)


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
