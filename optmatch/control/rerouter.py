"""The view of a controller: it holds a running state and answers failures at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from optmatch.control.failed_parts import (
    FailedParts,
    Parts,
    add_failure,
    check_failure,
    list_parts,
)
from optmatch.fabrics import Fabric
from optmatch.model import BAR, CROSS, InfeasibleError, InputError, LimitReached, OptMatchError
from optmatch.problems import Reroute, Transition

if TYPE_CHECKING:
    from optmatch.solvers.reroutes.repair import Reach
    from optmatch.solvers.reroutes.routing_state import Case, RoutingState

Stuck = Literal["bar", "cross"] | None
Ahead = bool | Literal["all"]


class _Snapshot(NamedTuple):
    """A state with what was derived from it; never changed, so readers need no lock."""

    state: Reroute
    routing: RoutingState
    reach: Reach
    of_unit: dict[int, list[int]]
    """The circuits of each unit."""
    through: dict[int, list[int]]
    """The circuits through each cell, or fibre where there are no cells."""
    answers: dict[FailedParts, Transition | OptMatchError]
    """What was worked out ahead; an error where nothing helps, or nothing was found."""


class _Proposal(NamedTuple):
    state: Reroute
    """What it is about."""
    failure: FailedParts
    transition: Transition
    restored: tuple[int, int] | None = None
    """The unit that gets its circuits back, and its stand-in, which has not failed."""


class Rerouter:
    """Holds a running state; says how to get over failures, and follows what was done.

    `fail` proposes and changes nothing; `apply` takes the proposal over, `rollback` drops it, or
    takes back what was applied last. Reading `state` and asking for what is prepared never waits;
    other calls exclude each other.

    Parameters
    ----------
    state
        A `Reroute` whose circuits all have light; earlier failures may be in it.
    prepare
        Whether the answer to the failure of each chip (or port of a switch) is worked out ahead,
        now and after each change; ``"all"`` for each fibre and cell in use as well, dead or stuck
        in the state that it is not in. Parts that are not in use need no preparation.

    Raises
    ------
    InputError
        If a circuit of the state is hit by a failure in it.

    See Also
    --------
    Reroute : The state that it holds, and the problem of one failure.
    Transition : What it proposes.

    Examples
    --------
    >>> from optmatch import RackFabric, Reroute, Rerouter
    >>> state = Reroute(RackFabric(), [[0, 6], [6, 0]], routes=[[], []], spares=[2, 63])
    >>> controller = Rerouter(state)
    >>> transition = controller.fail(chip=0)
    >>> transition.moves.tolist(), transition.describe()[0]
    ([[0, 2]], 'raise circuit 0: port 12 to port 6')
    >>> controller.apply().spares
    (63,)
    """

    def __init__(self, state: Reroute, *, prepare: Ahead = True) -> None:
        if state.hit.any():
            circuit = int(np.flatnonzero(state.hit)[0])
            raise InputError(f"circuit {circuit} has no light in this state", where="state")
        self._lock = threading.RLock()
        self._ahead: Ahead = prepare
        self._proposal: _Proposal | None = None
        self._history: list[Reroute] = []
        self._stand_ins: dict[int, int] = {}
        self._now = self._look(state)

    @property
    def state(self) -> Reroute:
        """The state as it is now, without what is only proposed."""
        return self._now.state

    @property
    def stand_ins(self) -> dict[int, int]:
        """The spare that has the circuits of each failed unit."""
        return dict(self._stand_ins)

    def fail(
        self,
        *,
        chip: Parts = None,
        port: Parts = None,
        fibre: Parts = None,
        cell: Parts = None,
        stuck: Stuck = None,
    ) -> Transition:
        """Say how to get over the failure of one part, or of several at once.

        Parameters
        ----------
        chip, port, fibre, cell
            What has failed: a number, or several.
        stuck
            The state in which the cells stay; None if they carry no light.

        Returns
        -------
        Transition
            Take it over with `apply`.

        Raises
        ------
        InputError
            If a part does not exist, or has failed before.
        InfeasibleError
            If it is proved that nothing helps: too few spares, or an end that is cut off.
        LimitReached
            If no way was found; method ``ilp`` may find one, or prove that there is none.
        """
        cells = list_parts(cell)
        failure = FailedParts(
            list_parts(chip),
            list_parts(port),
            list_parts(fibre),
            cells if stuck == "bar" else (),
            cells if stuck == "cross" else (),
            cells if stuck is None else (),
        )
        now = self._now
        transition = now.answers.get(failure)
        if isinstance(transition, OptMatchError):
            raise type(transition)(str(transition))
        if transition is None:
            with self._lock:
                now = self._now
                transition = self._answer(now, failure)
        self._proposal = _Proposal(now.state, failure, transition)
        return transition

    def apply(self) -> Reroute:
        """Take over what was proposed last; return the new state.

        Raises
        ------
        InputError
            If nothing is proposed, or the state has changed since.
        """
        with self._lock:
            if self._proposal is None:
                raise InputError("nothing is proposed: fail or give_back first")
            proposal, before = self._proposal, self._now.state
            if proposal.state is not before:
                raise InputError("the state has changed since this was proposed: ask again")
            after = add_failure(before, proposal.failure).after(proposal.transition)
            if proposal.restored is None:
                self._stand_ins.update(proposal.transition.moves.tolist())
            else:
                unit, stand_in = proposal.restored
                left = [part for part in before.spares if part != unit]
                changes: dict[str, Any] = {
                    name: getattr(before, name) for name in FailedParts._fields
                }
                after = replace(after, spares=(*left, stand_in), **changes)
                self._stand_ins.pop(unit, None)
            self._proposal = None
            self._history.append(before)
            self._now = self._look(after)
            return after

    def rollback(self) -> Reroute:
        """Drop what is proposed; if nothing is, return to the state before the last change.

        That is for a false alarm, or changes that were never made: circuits, cells, spares and
        failures are again as they were then.
        """
        with self._lock:
            if self._proposal is not None:
                self._proposal = None
            elif self._history:
                before = self._history.pop()
                gone = set(before.spares)
                self._stand_ins = {u: s for u, s in self._stand_ins.items() if s not in gone}
                self._now = self._look(before)
            else:
                raise InputError("nothing was applied")
            return self.state

    def repair(
        self,
        *,
        chip: Parts = None,
        port: Parts = None,
        fibre: Parts = None,
        cell: Parts = None,
    ) -> Reroute:
        """Take failed parts into use again; a unit whose circuits went to a spare is a spare now.

        Raises
        ------
        InputError
            If a part has not failed.
        """
        kinds = {
            "chip": (list_parts(chip), ("failed_chips",)),
            "port": (list_parts(port), ("failed_ports",)),
            "fibre": (list_parts(fibre), ("failed_fibres",)),
            "cell": (list_parts(cell), ("stuck_bar", "stuck_cross", "dead_cells")),
        }
        with self._lock:
            before = self._now.state
            changes: dict[str, Any] = {}
            for what, (parts, fields) in kinds.items():
                failed = {part for field in fields for part in getattr(before, field)}
                for part in parts:
                    if part not in failed:
                        raise InputError(f"{what} {part} has not failed", where=what)
                for field in fields if parts else ():
                    left = [part for part in getattr(before, field) if part not in parts]
                    changes[field] = tuple(left)
            units = kinds[before.fabric.unit_name][0]
            idle = [u for u in units if not self._now.of_unit.get(u) and u not in before.spares]
            after = replace(before, spares=(*before.spares, *idle), **changes)
            self._proposal = None
            self._history.append(before)
            self._now = self._look(after)
            return after

    def give_back(self, unit: int) -> Transition:
        """Say how a repaired chip (or port of a switch) gets its circuits back from its stand-in.

        The stand-in is a spare again once that is applied.

        Raises
        ------
        InputError
            If no spare stands in for the unit, or it has not been repaired.
        """
        with self._lock:
            now = self._now
            if unit not in self._stand_ins or unit not in now.state.spares:
                raise InputError(f"unit {unit} has no stand-in, or is not repaired", where="unit")
            stand_in = self._stand_ins[unit]
            leaving = _failure_of_unit(now.state.fabric, stand_in)
            transition = self._answer(now, leaving, (unit,))
            self._proposal = _Proposal(now.state, leaving, transition, (unit, stand_in))
            return transition

    def _look(self, state: Reroute) -> _Snapshot:
        """Derive all that answers need, and prepare them."""
        from optmatch.solvers.reroutes.repair import Reach
        from optmatch.solvers.reroutes.routing_state import RoutingState

        routing = RoutingState(state)
        of_unit: dict[int, list[int]] = {}
        through: dict[int, list[int]] = {}
        for circuit, (units, way) in enumerate(
            zip(routing.ends.tolist(), state.circuit_routes, strict=True)
        ):
            for unit in set(units):
                of_unit.setdefault(unit, []).append(circuit)
            for part in set(way) if state.fabric.graph is None else {t // 4 for t in way}:
                through.setdefault(part, []).append(circuit)
        reach = Reach(routing, state.loss_units)
        now = _Snapshot(state, routing, reach, of_unit, through, {})
        for failure in _single_failures(now, self._ahead):
            try:
                now.answers[failure] = self._answer(now, failure)
            except (InfeasibleError, LimitReached) as exc:
                now.answers[failure] = exc.with_traceback(None)
        return now

    def _answer(
        self, now: _Snapshot, failure: FailedParts, spares: tuple[int, ...] | None = None
    ) -> Transition:
        """Work out a transition."""
        from optmatch.solvers.reroutes.changes import make_transition
        from optmatch.solvers.reroutes.impossible import explain, explain_bound
        from optmatch.solvers.reroutes.repair import Plan, repair

        case, routing = self._case(now, failure, spares)
        lost, spares_left = len(case.lost), len(case.spares)
        if lost > spares_left:
            raise InfeasibleError(explain_bound(lost, spares_left))
        found = repair(routing, case, now.reach)
        if isinstance(found, Plan):
            return make_transition(routing, case, found)
        if found is not None:
            raise InfeasibleError(explain(now.state, found))
        if not isinstance(add_failure(now.state, failure).lower_bound(), tuple):
            raise InfeasibleError(explain_bound(lost, spares_left))
        raise LimitReached("no way over the failure was found; method ilp settles it")

    def _case(
        self, now: _Snapshot, failure: FailedParts, spares: tuple[int, ...] | None
    ) -> tuple[Case, RoutingState]:
        """Find whom a failure hits, in a state without what has failed."""
        from optmatch.solvers.reroutes.routing_state import Case

        state = now.state
        if spares is None:
            check_failure(state, failure)
        kinds = [field for field, parts in failure._asdict().items() if parts]
        if kinds == [f"failed_{state.fabric.unit_name}s"]:
            gone = failure.failed_chips or failure.failed_ports
            lost = tuple(sorted(unit for unit in gone if now.of_unit.get(unit)))
            hit = {circuit for unit in lost for circuit in now.of_unit[unit]}
            live = state.live_spares if spares is None else spares
            live = tuple(spare for spare in live if spare not in gone)
            return Case(tuple(sorted(hit)), lost, live, state.owners), now.routing
        routing = now.routing.fork()
        routing.shut_fibres(failure.failed_fibres)
        stuck = dict.fromkeys(failure.stuck_bar, BAR)
        stuck |= dict.fromkeys(failure.stuck_cross, CROSS)
        routing.break_cells(stuck, failure.dead_cells)
        if kinds == ["failed_fibres"] and state.fabric.graph is None:
            hit = {
                circuit
                for fibre in failure.failed_fibres
                for circuit in now.through.get(fibre, ())
            }
            return Case(tuple(sorted(hit)), (), state.live_spares, state.owners), routing
        if set(kinds) <= {"stuck_bar", "stuck_cross", "dead_cells"}:
            broken = [*failure.dead_cells]
            broken += [c for c, s in stuck.items() if state.cell_states[c] != s]  # type: ignore[index]
            hit = {circuit for cell in broken for circuit in now.through.get(cell, ())}
            return Case(tuple(sorted(hit)), (), state.live_spares, state.owners), routing
        problem = add_failure(state, failure)
        routing.shut_ports(sorted(problem.dead_ports - state.dead_ports))
        hits = tuple(np.flatnonzero(problem.hit).tolist())
        return Case(hits, problem.lost, problem.live_spares, state.owners), routing


def _single_failures(now: _Snapshot, ahead: Ahead) -> Iterator[FailedParts]:
    """List the failures of one part each whose answers are to be prepared."""
    state = now.state
    failed = getattr(state, f"failed_{state.fabric.unit_name}s")
    for unit in range(state.n_units) if ahead else ():
        if unit not in failed:
            yield _failure_of_unit(state.fabric, unit)
    if ahead != "all":
        return
    if state.cell_states is None:
        yield from (FailedParts(failed_fibres=(fibre,)) for fibre in sorted(now.through))
        return
    entered = {terminal for way in state.circuit_routes for terminal in way}
    used = {int(state.fabric.fibre_of_terminal[terminal]) for terminal in entered} - {-1}
    yield from (FailedParts(failed_fibres=(fibre,)) for fibre in sorted(used))
    for cell in sorted(set(now.through) - set(state.stuck)):
        yield FailedParts(dead_cells=(cell,))
        bar = state.cell_states[cell] == CROSS
        yield FailedParts(stuck_bar=(cell,)) if bar else FailedParts(stuck_cross=(cell,))


def _failure_of_unit(fabric: Fabric, unit: int) -> FailedParts:
    return FailedParts(**{f"failed_{fabric.unit_name}s": (unit,)})
